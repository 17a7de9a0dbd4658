// The session at a glance, shown while no row is chosen: its facts, its tools, what took longest.

import { log } from "./data.js";
import { el, seconds } from "./text.js";
import { fields, part } from "./parts.js";

/** One line a tool: how often, how long, how many failed. */
export function toolTable() {
  const tools = new Map();
  for (const row of log.rows) {
    if (row.kind !== "tool") continue;
    const one = tools.get(row.name) ?? { calls: 0, ms: 0, bad: 0 };
    one.calls += 1;
    one.ms += row.end === undefined ? 0 : row.end - row.begin - (row.waited ?? 0);
    one.bad += row.state === undefined ? 0 : 1;
    tools.set(row.name, one);
  }
  const sorted = [...tools].sort((a, b) => b[1].ms - a[1].ms).slice(0, 20);
  if (!sorted.length) return null;
  const lines = sorted.map(([name, one]) =>
    el(
      "tr",
      {},
      el("td", {}, name),
      el("td", {}, String(one.calls)),
      el("td", {}, seconds(one.ms)),
      el("td", { class: one.bad ? "failure" : "quiet" }, one.bad ? String(one.bad) : "–"),
    ),
  );
  return part(
    "tools",
    el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          ["tool", "calls", "time", "not ok"].map((name) => el("th", {}, name)),
        ),
      ),
      el("tbody", {}, lines),
    ),
  );
}

/** Links to the rows that took longest. */
export function slowest() {
  const took = (row) => row.end - row.begin - (row.waited ?? 0);
  const rows = log.rows.filter(
    (row) => ["reply", "tool", "compaction"].includes(row.kind) && row.end !== undefined,
  );
  const lines = rows
    .sort((a, b) => took(b) - took(a))
    .slice(0, 6)
    .map((row) =>
      el(
        "tr",
        {},
        el("td", {}, el("a", { href: "#seq=" + row.seqs[0] }, `${row.turn}.${row.step}`)),
        el("td", {}, row.title),
        el("td", { class: "clip" }, row.about),
        el("td", {}, seconds(took(row))),
      ),
    );
  return lines.length ? part("took longest", el("table", { class: "slow" }, el("tbody", {}, lines))) : null;
}

/** What the log says of itself. */
export function session() {
  const { about } = log;
  const header = about.header ?? {};
  return fields([
    ["session", about.session],
    ["workspace", header.cwd],
    ["created", header.createdAt === undefined ? "" : new Date(header.createdAt).toLocaleString()],
    ["forked from", header.parentSession],
    ["events", about.events.toLocaleString("en")],
    ["requests", log.requests.length.toLocaleString("en")],
    ["unknown events", about.unknown || ""],
    ["texts cut", about.cut ? `${about.cut}; --full keeps them` : ""],
    ["this page", "holds full prompts and results: mind whom you give it to"],
  ]);
}
