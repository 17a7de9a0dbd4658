// Links into the page: `#1.2`, `#seq=412`, `#1.2/saw?vs=1.1&q=money`. Every row has one.

import { log } from "./data.js";
import { TABS } from "./inspector.js";

/** What a link says: `{row, tab, versus, query}`, each of it perhaps missing; null for no link. */
export function readLink(hash) {
  let text = hash.replace(/^#/, "");
  if (text === "") return null;
  const mark = text.indexOf("?");
  const asked = new URLSearchParams(mark < 0 ? "" : text.slice(mark + 1));
  text = mark < 0 ? text : text.slice(0, mark);
  const [place, tab] = text.split("/");
  return {
    row: rowAt(place),
    tab: TABS.includes(tab) ? tab : undefined,
    versus: asked.get("vs") ?? "",
    query: asked.get("q"),
  };
}

/** The index of the row that a place means: a step, a turn, or an event's seq; null if none. */
function rowAt(place) {
  const seq = /^seq=(\d+)$/.exec(place);
  if (seq) return rowOfSeq(Number(seq[1]));
  const step = /^(\d+)(?:\.(\d+))?$/.exec(place);
  if (!step) return null;
  const [turn, number] = [Number(step[1]), step[2] === undefined ? null : Number(step[2])];
  let found = null;
  log.rows.forEach((row, index) => {
    if (row.turn !== turn) return;
    if (
      number === null
        ? row.kind === "turn"
        : row.step === number && (row.kind === "reply" || (row.kind === "try" && found === null))
    )
      found = index;
  });
  return found ?? firstOf(turn, number);
}

function firstOf(turn, number) {
  const found = log.rows.findIndex((row) => row.turn === turn && row.step === number);
  return found < 0 ? null : found;
}

function rowOfSeq(seq) {
  let nearest = null;
  for (let index = 0; index < log.rows.length; index += 1) {
    if (log.rows[index].seqs.includes(seq)) return index;
    if (log.rows[index].seqs[0] <= seq) nearest = index;
  }
  return nearest;
}

/** The link to a row and a tab of it. */
export function linkTo(index, tab, versus, query) {
  const asked = new URLSearchParams();
  if (tab === "saw" && versus) asked.set("vs", versus);
  if (query) asked.set("q", query);
  const rest = asked.size ? "?" + asked : "";
  if (index === null) return rest ? "#" + rest : "";
  return `#seq=${log.rows[index].seqs[0]}${tab === "said" ? "" : "/" + tab}${rest}`;
}
