// The tab that answers: what was the model shown here, and what changed since another request?

import { body, log } from "./data.js";
import { counted, el, short } from "./text.js";
import {
  compare,
  headerChanges,
  lineDiff,
  messageAt,
  messageText,
  nodesOf,
  requestLabel,
  requestNamed,
  requestOf,
  tokens,
} from "./nodes.js";

const SIGN = { added: "+", removed: "−", replaced: "−", unchanged: "" };

function whose(message) {
  const source = message.source;
  if (source.kind === "plugin") return source.plugin;
  if (source.kind === "tool") return "tool result";
  if (source.kind === "model") return "reply";
  return source.kind === "user" ? "you" : "system";
}

function nodeRow(what, seq) {
  const message = messageAt(seq);
  const text = message === null ? "(not in this document)" : messageText(message);
  const summary = el(
    "summary",
    {},
    el("span", { class: "sign" }, SIGN[what]),
    el("span", { class: "role" }, message === null ? "" : whose(message)),
    el("span", { class: "about" }, text.slice(0, 200).replace(/\s+/g, " ")),
    el("span", { class: "count" }, "~" + short(tokens(seq))),
    el("a", { href: "#seq=" + seq, class: "seq" }, "#" + seq),
  );
  const made = el("details", { class: "node " + what }, summary);
  made.addEventListener("toggle", () => {
    if (made.open && made.children.length === 1) made.append(el("pre", {}, text));
  });
  return made;
}

/** A run of nodes with one fate: one by one if they are few, or new; else folded and counted. */
function run(what, seqs) {
  if (seqs.length <= 2 || what === "added") return seqs.map((seq) => nodeRow(what, seq));
  const sum = seqs.reduce((total, seq) => total + tokens(seq), 0);
  const told = `${counted(seqs.length, "message")} ${what}, ~${short(sum)} tokens`;
  const made = el(
    "details",
    { class: "fold " + what },
    el("summary", {}, el("span", { class: "sign" }, SIGN[what]), told),
  );
  made.addEventListener("toggle", () => {
    if (made.open && made.children.length === 1) made.append(...seqs.map((seq) => nodeRow(what, seq)));
  });
  return [made];
}

function promptDiff(before, now) {
  const lines = lineDiff(before, now);
  const near = lines.map((_, at) => lines.slice(Math.max(at - 2, 0), at + 3).some(([sign]) => sign !== " "));
  const shown = [];
  lines.forEach(([sign, line], at) => {
    if (near[at])
      shown.push(
        el("span", { class: { "+": "plus", "-": "minus", " ": "same" }[sign] }, sign + " " + line + "\n"),
      );
    else if (at === 0 || near[at - 1]) shown.push(el("span", { class: "same" }, "  …\n"));
  });
  return el("pre", { class: "diff" }, shown);
}

function systemText(nodes) {
  const found = nodes.filter((seq) => messageAt(seq)?.role === "system");
  return found.length ? messageText(messageAt(found[found.length - 1])) : "";
}

function messagesPart(nodes, before) {
  if (before === null) return nodes.map((seq) => nodeRow("unchanged", seq));
  const runs = [];
  for (const [what, seq] of compare(nodes, before)) {
    const last = runs[runs.length - 1];
    if (last && last.what === what) last.seqs.push(seq);
    else runs.push({ what, seqs: [seq] });
  }
  return runs.flatMap(({ what, seqs }) => run(what, seqs));
}

function cachePart(request, nodes, earlier, before) {
  if (request.input === undefined) return null;
  const read = request.cache_read ?? 0;
  const parts = [
    `The provider counted ${request.input.toLocaleString("en")} input tokens and read ${read.toLocaleString("en")} of them from its cache.`,
  ];
  if (before !== null) {
    const changes = headerChanges(request.header, earlier.header);
    let same = 0;
    while (same < nodes.length && nodes[same] === before[same]) same += 1;
    const prefix = nodes.slice(0, same).reduce((total, seq) => total + tokens(seq), 0);
    if (changes.length)
      parts.push(
        `First difference: ${changes
          .map(([sign, name]) => sign + name)
          .slice(0, 4)
          .join(", ")}, before any message.`,
      );
    else if (same === before.length)
      parts.push(
        `It begins with all of the other request: ${counted(same, "message")}, ~${short(prefix)} tokens.`,
      );
    else
      parts.push(
        `Same for ${counted(same, "message")}, ~${short(prefix)} tokens; the first difference is #${nodes[same] ?? before[same]}.`,
      );
  }
  return el("p", { class: "cache" }, parts.join(" "));
}

function headerPart(request, earlier) {
  const header = request.header === undefined ? null : body(request.header)?.data.header;
  if (!header) return el("p", { class: "quiet" }, "no request header is known here");
  const names = (header.tools ?? []).map((tool) => tool.name);
  const settings = Object.entries(header.config).map(
    ([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`,
  );
  const parts = [
    el("p", { class: "quiet" }, settings.join(" · ")),
    el("p", { class: "quiet" }, `${counted(names.length, "tool")}: ${names.join(", ")}`),
  ];
  if (earlier) {
    const changes = headerChanges(request.header, earlier.header);
    if (changes.length) {
      parts.push(
        el(
          "p",
          { class: "changes" },
          changes.map(([sign, name]) =>
            el("span", { class: { "+": "plus", "-": "minus", "~": "tilde" }[sign] }, `${sign} ${name} `),
          ),
        ),
      );
    }
  }
  return el("div", { class: "header" }, parts);
}

function copied(nodes, button) {
  const lines = nodes.map((seq) => JSON.stringify(messageAt(seq))).join("\n") + "\n";
  const cut = nodes.some((seq) => body(seq)?.cut);
  navigator.clipboard.writeText(lines).then(
    () => (button.textContent = cut ? "copied; long texts are cut, see --full" : "copied"),
    () => (button.textContent = "the browser does not allow copying"),
  );
}

/** The index of the request to compare with: the one named, or the previous one sent. */
function otherRequest(number, named) {
  const found = named ? requestNamed(named) : null;
  if (found !== null) return found;
  return number > 0 ? number - 1 : null;
}

/** The tab for a row. `versus` is what the reader wants to compare with, as typed. */
export function sawTab(index, versus, onversus) {
  const number = requestOf(index);
  if (number === null) return [el("p", { class: "quiet" }, "Nothing had been sent to a model up to here.")];
  const request = log.requests[number];
  const other = otherRequest(number, versus);
  const earlier = other === null ? null : log.requests[other];
  const nodes = nodesOf(request);
  const before = earlier === null ? null : nodesOf(earlier);
  const field = el("input", {
    value: earlier === null ? "" : requestLabel(earlier),
    "aria-label": "compare with",
    placeholder: "1.1",
    size: 7,
    onchange: (event) => onversus(event.target.value),
  });
  const copy = el("button", { type: "button", onclick: () => copied(nodes, copy) }, "copy request");
  const sum = nodes.reduce((total, seq) => total + tokens(seq), 0);
  const [now, then] = [systemText(nodes), before === null ? "" : systemText(before)];
  return [
    el(
      "div",
      { class: "versus" },
      el("b", {}, "request " + requestLabel(request)),
      " compared with ",
      field,
      copy,
    ),
    el(
      "p",
      { class: "quiet" },
      `${counted(nodes.length, "message")}, ~${short(sum)} tokens without the tools`,
    ),
    cachePart(request, nodes, earlier, before),
    headerPart(request, earlier),
    before !== null && now !== then
      ? el("section", {}, el("h3", {}, "system prompt"), promptDiff(then, now))
      : null,
    el("div", { class: "nodes" }, messagesPart(nodes, before)),
  ];
}
