// The head of the page: the session in two lines, its sums, and what a reader must know of its log.

import { body, log } from "./data.js";
import { byId, counted, el, inert, seconds, short } from "./text.js";

function model() {
  const headers = log.rows.filter((row) => row.kind === "request");
  const last = headers.length ? body(headers[headers.length - 1].seqs[0]) : null;
  return last ? `${last.data.header.config.provider}/${last.data.header.config.model}` : "no model was asked";
}

/** Draw the head: what was asked, how it ended, the sums, what is wrong with the log. */
export function drawHead() {
  const { about } = log;
  byId("name").textContent = about.title || about.session;
  byId("name").title = about.title;
  const last = log.turns[log.turns.length - 1];
  const ending =
    last === undefined
      ? "no turn yet"
      : last.words || (document.body.dataset.mode === "follow" ? "running" : "not finished");
  byId("ending").textContent = ending;
  byId("ending").className = "is-" + (last?.state ?? "ok");
  const cwd = about.header?.cwd;
  const began = about.base
    ? new Date(about.base).toLocaleString([], { dateStyle: "medium", timeStyle: "short" })
    : "";
  byId("facts").textContent = inert([about.session, model(), cwd, began].filter(Boolean).join(" · "));
  const { turns, steps, model: asked, tools, waiting, input, cached, output, retries, errors } = about.totals;
  const totals = [
    [counted(turns, "turn"), counted(steps, "step")],
    ["took", seconds(about.length)],
    ["model", seconds(asked)],
    ["tools", seconds(tools)],
    ["waiting", waiting ? seconds(waiting) : ""],
    [
      "in",
      input === 0
        ? ""
        : short(input) + (cached ? ` (${short(cached)} cached, ${Math.floor((100 * cached) / input)}%)` : ""),
    ],
    ["out", input === 0 ? "" : short(output)],
    ["retries", retries || ""],
    ["errors", errors || ""],
  ];
  byId("totals").replaceChildren(
    ...totals
      .filter(([, value]) => value !== "")
      .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
  const warnings = [
    about.damage && `Damaged: ${about.damage}. What stands before that is shown.`,
    about.torn && `The last line is unfinished (${about.torn}); the next resume cuts it off.`,
    about.unknown &&
      `${counted(about.unknown, "event")} of types unknown to this installation, shown as they are stored.`,
    about.redacted && "What looks like a key is masked, best effort.",
  ].filter(Boolean);
  byId("warning").hidden = warnings.length === 0;
  byId("warning").textContent = inert(warnings.join(" "));
}
