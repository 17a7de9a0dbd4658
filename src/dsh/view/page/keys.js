// The keyboard, and the sheet that explains it.

import { log } from "./data.js";
import { byId, el } from "./text.js";
import { ledger, placeNow } from "./ledger.js";

const KEYS = [
  ["j  k  ↓  ↑", "next row, previous row"],
  ["J  K", "next step, previous step"],
  ["]  [", "next turn, previous turn"],
  ["g  G", "first row, last row"],
  ["e  E", "next error, previous error"],
  ["Enter", "into the details; Esc comes back"],
  ["1 2 3 4", "saw, said, time, log"],
  ["d", "what changed since the request before"],
  ["/", "search everything (Ctrl-F too; twice is the browser's)"],
  ["n  N", "next match, previous match"],
  ["t", "axis: time or sequence"],
  ["0", "the whole session again"],
  ["?", "this sheet"],
];
const LEGEND = [
  ["●", "a reply: hatched until its first token, then solid"],
  ["✗", "a try that failed; dots are the wait before the next"],
  ["■", "a tool call"],
  ["◆", "a message of yours, on the strip; the system prompt, in the list"],
  ["◐", "an approval"],
  ["≡", "history made shorter: compaction, pruning"],
];

function sheet(title, pairs) {
  return el(
    "section",
    {},
    el("h3", {}, title),
    el(
      "dl",
      { class: "fields" },
      pairs.flatMap(([key, what]) => [el("dt", {}, key), el("dd", {}, what)]),
    ),
  );
}

/** Show the sheet. */
export function help() {
  const box = byId("keys");
  const close = el("button", { type: "button", onclick: () => box.close() }, "close");
  box.replaceChildren(
    el("h2", {}, "Keys and signs"),
    sheet("Keys", KEYS),
    sheet("Signs", LEGEND),
    el(
      "p",
      { class: "quiet" },
      "On the strip: drag to keep what was active then, wheel to zoom, Shift-wheel to move.",
    ),
    close,
  );
  box.showModal();
}

/** The place of the next row, forwards or backwards, that `wanted` takes; null if there is none. */
export function seek(by, wanted) {
  const shown = ledger.shown;
  for (let place = placeNow() + by; place >= 0 && place < shown.length; place += by) {
    if (wanted(log.rows[shown[place]])) return place;
  }
  return null;
}

function typing(event) {
  return event.target instanceof HTMLInputElement;
}

/** Listen. `actions` maps keys to functions; keys typed into a field are the field's. */
export function listenKeys(actions) {
  let asked = 0;
  document.addEventListener("keydown", (event) => {
    if (byId("keys").open) return;
    if ((event.ctrlKey || event.metaKey) && event.key === "f") {
      // The second time within a moment is for the browser's own search.
      if (event.timeStamp - asked < 1500) return;
      asked = event.timeStamp;
      event.preventDefault();
      actions["/"]();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing(event) && event.key !== "Escape") {
      if (event.key === "Enter" && event.target.id === "search") actions.n();
      return;
    }
    const inPane = byId("inspector").contains(event.target);
    if (inPane && ["Enter", "ArrowDown", "ArrowUp", " "].includes(event.key)) return;
    if (event.target instanceof HTMLButtonElement && ["Enter", " "].includes(event.key)) return;
    const act = actions[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
