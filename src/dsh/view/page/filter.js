// Which rows are shown, and which match a search. Filters add up, and what they hide is counted.

import { log, textOf } from "./data.js";
import { endOf } from "./timeline.js";

/** The groups a reader may switch, with their rows and whether they begin switched on. */
export const GROUPS = {
  reply: { kinds: ["reply", "try"], on: true },
  tool: { kinds: ["tool"], on: true },
  user: { kinds: ["user", "context", "system"], on: true },
  decisions: { kinds: ["decision", "rewrite"], on: true },
  records: { kinds: ["request", "queue", "event"], on: false },
};

/** What a reader may ask for alone. */
export const ONLY = {
  errors: (row) => ["failed", "crashed"].includes(row.state ?? "ok"),
  retries: (row) => row.kind === "try",
  denies: (row) => ["denied", "blocked"].includes(row.state ?? "ok"),
};

const groupOf = new Map(
  Object.entries(GROUPS).flatMap(([name, group]) => group.kinds.map((kind) => [kind, name])),
);

/** The reader's choices. `range` is a stretch of time, or null. `test` finds a text, or is null. */
export const chosen = { on: new Set(), only: new Set(), range: null, query: "", test: null, problem: "" };

for (const [name, group] of Object.entries(GROUPS)) if (group.on) chosen.on.add(name);

/** The indices of the rows to show, and how many are hidden. */
export function visible() {
  const shown = [];
  let hidden = 0;
  for (let index = 0; index < log.rows.length; index += 1) {
    if (isShown(log.rows[index])) shown.push(index);
    else hidden += 1;
  }
  return { shown, hidden };
}

function isShown(row) {
  const group = groupOf.get(row.kind);
  if (group !== undefined && !chosen.on.has(group)) return false;
  if (chosen.range !== null && (endOf(row) < chosen.range[0] || row.begin > chosen.range[1])) return false;
  if (chosen.only.size === 0) return true;
  return [...chosen.only].some((name) => ONLY[name](row));
}

/** Set what is searched for: a text, any case, or `re:` and a pattern. */
export function searchFor(query) {
  chosen.query = query;
  chosen.problem = "";
  chosen.test = null;
  if (query === "" || query === "re:") return;
  if (query.startsWith("re:")) {
    try {
      const pattern = new RegExp(query.slice(3), "i");
      chosen.test = (found) => pattern.test(found.text);
    } catch (error) {
      chosen.problem = error.message;
    }
    return;
  }
  const wanted = query.toLowerCase();
  chosen.test = (found) => found.lower.includes(wanted);
}

/** The indices of all rows that match, shown or not. */
export function matches() {
  if (chosen.test === null) return [];
  const found = [];
  for (let index = 0; index < log.rows.length; index += 1) if (chosen.test(textOf(index))) found.push(index);
  return found;
}
