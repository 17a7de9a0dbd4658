// Details of one row: what the model saw, what was said, the times, the stored events.

import { body, log, partialOf } from "./data.js";
import { byId, counted, el, seconds, short, size } from "./text.js";
import { messageAt, messageText } from "./nodes.js";
import { usage } from "./ledger.js";
import { markdown } from "./markdown.js";
import { sawTab } from "./saw.js";
import { session, slowest, toolTable } from "./overview.js";
import { fields, part, pre } from "./parts.js";

export const TABS = ["saw", "said", "time", "log"];

const TITLES = { saw: "Saw", said: "Said", time: "Time", log: "Log" };

/** What is shown. `versus` is what `saw` compares with, as typed. */
export const inspector = { tab: "said", versus: "", onchange: () => {} };

/** Arguments by name; long texts in full, on lines of their own. */
function argumentsOf(raw) {
  let value = null;
  try {
    value = typeof raw === "string" ? JSON.parse(raw) : raw;
  } catch {
    return pre(raw);
  }
  if (value === null || typeof value !== "object" || Array.isArray(value))
    return pre(JSON.stringify(value, null, 2));
  const made = el("dl", { class: "arguments" });
  for (const [name, one] of Object.entries(value)) {
    made.append(
      el("dt", {}, name),
      el("dd", {}, pre(typeof one === "string" ? one : JSON.stringify(one, null, 2))),
    );
  }
  return made;
}

function cutNote(event) {
  return event?.cut
    ? el(
        "p",
        { class: "cut" },
        `Cut: this event has ${size(event.cut)}. dsh view --full keeps all of it; dsh sessions show --seq ${event.seq} prints it.`,
      )
    : null;
}

function blockNodes(message) {
  return message.content.map((block) => {
    if (block.type === "text") return markdown(block.text);
    if (block.type === "reasoning")
      return el(
        "details",
        { class: "reasoning" },
        el("summary", {}, `reasoning, ${counted(block.text.length, "character")}`),
        pre(block.text, "prose"),
      );
    if (block.type === "tool-call")
      return el(
        "div",
        { class: "asked" },
        el("h4", {}, el("i", { "aria-hidden": "true" }, "■"), block.name),
        argumentsOf(block.arguments),
      );
    return pre(JSON.stringify(block, null, 2));
  });
}

function event(row, type) {
  return row.seqs.map(body).find((one) => one?.type === type) ?? null;
}

function saidReply(row, index) {
  if (row.partial) {
    return [
      row.name ? el("p", { class: "failure" }, el("b", {}, row.name), " ", row.note ?? "") : null,
      row.delay === undefined
        ? null
        : el("p", { class: "quiet" }, `${row.by || "A plugin"} tried again after ${seconds(row.delay)}.`),
      part("what it had said, not sent again", el("pre", { class: "struck" }, partialOf(index))),
    ];
  }
  const event_ = event(row, "assistant/message");
  if (event_ === null)
    return [
      el(
        "p",
        { class: row.name ? "failure" : "quiet" },
        [row.name, row.note].filter(Boolean).join(": ") || "Nothing was said.",
      ),
    ];
  const cut = row.state === "cut" ? el("p", { class: "failure" }, "Cut off by a cancellation.") : null;
  return [cut, ...blockNodes(event_.data.message), cutNote(event_)];
}

function saidTool(row) {
  const [call, rewritten, result] = ["tool/call", "tool/rewritten", "tool/result"].map((type) =>
    event(row, type),
  );
  const made = [];
  if (call) made.push(part("asked for", argumentsOf(call.data.arguments)));
  if (rewritten)
    made.push(part(`replaced by ${rewritten.data.plugin}`, argumentsOf(rewritten.data.arguments)));
  if (!result) return [...made, el("p", { class: "quiet" }, "There is no result yet.")];
  const text = messageText(result.data.message);
  const failed = result.data.message.isError;
  const why = result.data.error ? ` (${result.data.error.code})` : "";
  const by = result.data.decidedBy ? `, decided by ${result.data.decidedBy}` : "";
  made.push(
    part((failed ? "error" : "result") + why + by, pre(text, failed ? "failed" : ""), cutNote(result)),
  );
  if (result.data.meta !== undefined && result.data.meta !== null)
    made.push(part("shown to people", pre(JSON.stringify(result.data.meta, null, 2))));
  return made;
}

function saidReplacement(row) {
  const made = [];
  const summary = event(row, "compaction/summary");
  const problem = row.state === "failed" ? el("p", { class: "failure" }, row.note ?? "") : null;
  if (summary) made.push(part("summary", markdown(messageText({ content: summary.data.summary }))));
  if (row.node !== undefined && messageAt(row.node) !== null) {
    const node = el("details", {}, el("summary", {}, "what the model reads instead"));
    node.append(pre(messageText(messageAt(row.node))));
    made.push(node);
  }
  const hidden = (row.hidden ?? []).filter((seq) => messageAt(seq) !== null);
  if (hidden.length)
    made.push(
      part(
        `${counted(hidden.length, "message")} no longer sent`,
        el("div", { class: "nodes" }, hidden.map(original)),
      ),
    );
  return [
    problem,
    fields([
      ["asked for by", row.name],
      [
        "tokens",
        row.before === undefined || row.after === undefined
          ? ""
          : `${short(row.before)} → ${short(row.after)}`,
      ],
      ["used", row.spent ? usage(row.spent) : ""],
    ]),
    ...made,
  ];
}

function original(seq) {
  const message = messageAt(seq);
  const text = messageText(message);
  const made = el(
    "details",
    { class: "node" },
    el(
      "summary",
      {},
      el("span", { class: "role" }, message.role),
      el("span", { class: "about" }, text.slice(0, 160).replace(/\s+/g, " ")),
      el("a", { href: "#seq=" + seq, class: "seq" }, "#" + seq),
    ),
  );
  made.addEventListener("toggle", () => {
    if (made.open && made.children.length === 1) made.append(pre(text));
  });
  return made;
}

function saidTurn(row) {
  const turn = log.turns.find((one) => one.number === row.turn);
  const retries = log.rows.filter((one) => one.kind === "try" && one.turn === row.turn).length;
  return [
    row.text ? el("p", { class: "failure" }, row.text) : null,
    fields([
      ["ended", turn?.words || "not yet"],
      ["steps", turn?.steps],
      ["tokens", row.spent ? usage(row.spent) : ""],
      ["tries again", retries || ""],
    ]),
  ];
}

function said(index) {
  const row = log.rows[index];
  if (["reply", "try"].includes(row.kind)) return saidReply(row, index);
  if (row.kind === "tool") return saidTool(row);
  if (["compaction", "prune", "replace"].includes(row.kind)) return saidReplacement(row);
  if (row.kind === "turn") return saidTurn(row);
  const message = messageAt(row.seqs[0]);
  if (message !== null) return [...blockNodes(message), cutNote(body(row.seqs[0]))];
  return row.seqs.map((seq) => pre(JSON.stringify(body(seq)?.data ?? body(seq), null, 2)));
}

function clock(ms) {
  const at = new Date(log.about.base + ms);
  return at.toLocaleTimeString([], { hour12: false }) + "." + String(at.getMilliseconds()).padStart(3, "0");
}

function timing(index) {
  const row = log.rows[index];
  const step = log.steps.find((one) => one.turn === row.turn && one.number === row.step);
  const gaps = (row.gaps ?? []).map(([at, length]) => `${seconds(length)} at +${seconds(at - row.begin)}`);
  const rate =
    row.spent && row.first !== undefined && row.end > row.first
      ? `${((1000 * row.spent.output) / (row.end - row.first)).toFixed(0)} tokens a second`
      : "";
  return [
    fields([
      ["began", `${clock(row.begin)}  (+${seconds(row.begin)})`],
      ["ended", row.end === undefined ? "not in this log" : clock(row.end)],
      ["took", row.end === undefined ? "" : seconds(row.end - row.begin - (row.waited ?? 0))],
      ["waited for approval", row.waited ? seconds(row.waited) : ""],
      ["first token", row.first === undefined ? "" : `after ${seconds(row.first - row.begin)}`],
      ["chunks", row.chunks ?? ""],
      ["pace", rate],
      ["silences over 1 s", gaps.join(", ")],
      ["tokens", row.spent ? usage(row.spent) : ""],
      ["wait before the next try", row.delay === undefined ? "" : seconds(row.delay)],
    ]),
    step && step.tool_sum
      ? part(
          "tools of this step",
          fields([
            ["together", seconds(step.tool_wall ?? 0)],
            ["summed up", seconds(step.tool_sum)],
            [
              "saved by overlap",
              step.tool_sum > (step.tool_wall ?? 0) ? seconds(step.tool_sum - step.tool_wall) : "",
            ],
          ]),
        )
      : null,
    row.kind === "tool"
      ? el("p", { class: "quiet" }, "A call ends when its result is logged, in the order of the calls.")
      : null,
    row.backwards
      ? el("p", { class: "failure" }, "The clock went back here: the time shown is that of the event before.")
      : null,
  ];
}

function stored(index) {
  return log.rows[index].seqs.map((seq) => {
    const event_ = body(seq);
    return el(
      "section",
      {},
      el("h3", {}, event_?.type ?? "event", " ", el("a", { href: "#seq=" + seq }, "#" + seq)),
      pre(JSON.stringify(event_, null, 2)),
      cutNote(event_),
    );
  });
}

function content(index) {
  if (index === null) return [session(), toolTable(), slowest()];
  if (inspector.tab === "saw") return sawTab(index, inspector.versus, (versus) => show(index, { versus }));
  return { said, time: timing, log: stored }[inspector.tab](index);
}

/** Show a row, or the session for null. `tab` and `versus` change what of it. */
export function show(index, { tab = inspector.tab, versus = "" } = {}) {
  Object.assign(inspector, { tab, versus });
  const row = index === null ? null : log.rows[index];
  const step = row?.step ? `${row.turn}.${row.step} ` : "";
  byId("subject").replaceChildren(
    ...(row === null
      ? ["This session"]
      : [
          el("span", { class: "step" }, step),
          row.title,
          " ",
          el("small", {}, [row.result, "#" + row.seqs[0]].filter(Boolean).join(" · ")),
        ]),
  );
  byId("subject").title = row === null ? "" : row.about;
  byId("tabs").hidden = row === null;
  byId("tabs").replaceChildren(
    ...TABS.map((name, place) =>
      el(
        "button",
        {
          type: "button",
          role: "tab",
          id: "tab-" + name,
          "aria-selected": String(name === inspector.tab),
          "aria-controls": "pane",
          title: String(place + 1),
          onclick: () => show(index, { tab: name, versus: inspector.versus }),
        },
        TITLES[name],
      ),
    ),
  );
  byId("pane").replaceChildren(...content(index).filter((one) => one));
  byId("pane").scrollTop = 0;
  inspector.onchange();
}
