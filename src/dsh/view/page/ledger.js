// The ledger: one line a row, of one height, and only those in sight are in the document. The list
// itself keeps the focus, so that scrolling never loses it.

import { log } from "./data.js";
import { byId, counted, el, seconds, short } from "./text.js";
import { visible } from "./filter.js";

const HEIGHT = 28;
const OVERSCAN = 10;

/** What is listed and chosen. `selected` is the index of a row, or null. */
export const ledger = { shown: [], hidden: 0, selected: null, matching: new Set(), onselect: () => {} };

const places = new Map(); // index of a row → its place in `shown`
const drawn = new Map(); // index of a row → its element

const SIGNS = {
  reply: "●",
  try: "✗",
  tool: "■",
  user: "▸",
  context: "◇",
  system: "◆",
  compaction: "≡",
  prune: "≡",
  replace: "≡",
  decision: "◐",
  rewrite: "↻",
  queue: "…",
  request: "·",
  event: "·",
  unknown: "?",
  seed: "⑂",
  turn: "",
};

function timeOf(row) {
  if (row.end === undefined || ["user", "context", "system", "queue"].includes(row.kind)) return "";
  return seconds(row.end - row.begin - (row.waited ?? 0));
}

function draw(index) {
  const row = log.rows[index];
  const place = places.get(index);
  const { title, about, result } = row;
  const time = timeOf(row);
  const label = row.kind === "turn" || row.step === 0 ? "" : `${row.turn}.${row.step}`;
  const spent = row.kind === "turn" && row.spent ? usage(row.spent) : "";
  const made = el(
    "div",
    {
      class: `row ${row.kind} is-${row.state ?? "ok"}`,
      role: "option",
      id: "row-" + index,
      "aria-posinset": place + 1,
      "aria-setsize": ledger.shown.length,
      "aria-selected": String(index === ledger.selected),
      "aria-label": [label && "step " + label, title, about, result, time].filter(Boolean).join(", "),
    },
    el("span", { class: "label" }, ["reply", "try"].includes(row.kind) || label === "" ? label : ""),
    el("span", { class: "name" }, el("i", { "aria-hidden": "true" }, SIGNS[row.kind]), title),
    el("span", { class: "about" }, row.kind === "reply" ? about.replace(/\*\*|`+|^#{1,6} /g, "") : about),
    el("span", { class: "result" }, spent ? el("span", { class: "spent" }, spent + " · ") : null, result),
    el("span", { class: "took" }, time),
    el("span", { class: "seq" }, "#" + row.seqs[0]),
  );
  if (ledger.matching.has(index)) made.classList.add("matches");
  made.style.transform = `translateY(${place * HEIGHT}px)`;
  made.dataset.index = index;
  return made;
}

/** `in 18.4k (82% cached) · out 612`. */
export function usage(spent) {
  const [input, cached, output] = [spent.input ?? 0, spent.cached ?? 0, spent.output ?? 0];
  if (input === 0 && output === 0) return "";
  const share = cached ? ` (${Math.floor((100 * cached) / input)}% cached)` : "";
  return `in ${short(input)}${share} · out ${short(output)}`;
}

/** Draw what is in sight. `anew`: also what is drawn already. */
export function paint({ anew = false } = {}) {
  const list = byId("ledger");
  const first = Math.max(Math.floor(list.scrollTop / HEIGHT) - OVERSCAN, 0);
  const last = Math.min(
    Math.ceil((list.scrollTop + list.clientHeight) / HEIGHT) + OVERSCAN,
    ledger.shown.length,
  );
  const wanted = new Set(ledger.shown.slice(first, last));
  for (const [index, element] of drawn) {
    if (anew || !wanted.has(index)) {
      element.remove();
      drawn.delete(index);
    }
  }
  const fresh = document.createDocumentFragment();
  for (const index of wanted) {
    if (drawn.has(index)) continue;
    drawn.set(index, draw(index));
    fresh.append(drawn.get(index));
  }
  byId("rows").append(fresh);
}

/** Choose anew which rows are listed, and draw them. */
export function list() {
  Object.assign(ledger, visible());
  places.clear();
  ledger.shown.forEach((index, place) => places.set(index, place));
  byId("rows").style.height = ledger.shown.length * HEIGHT + "px";
  byId("hidden").textContent = ledger.hidden ? counted(ledger.hidden, "row") + " hidden" : "";
  paint({ anew: true });
}

/** Whether the newest row is in sight. */
export function atEnd() {
  const box = byId("ledger");
  return box.scrollTop + box.clientHeight >= box.scrollHeight - HEIGHT;
}

/** Scroll to the end. */
export function toEnd() {
  const box = byId("ledger");
  box.scrollTop = box.scrollHeight;
  paint();
}

/** Where the details are a sheet over the list: know how much of the list lies behind it. */
export function coverList() {
  const box = byId("ledger");
  const sheet = byId("inspector");
  const { top } = box.getBoundingClientRect();
  document.body.style.setProperty("--list-top", top + "px");
  const open = document.body.dataset.sheet === "open" && getComputedStyle(sheet).position === "fixed";
  // The sheet moves in; where it will stand is known before.
  box.style.paddingBottom = open ? Math.max(top + box.offsetHeight - sheet.offsetTop + 4, 0) + "px" : "";
}

/** Bring a listed row into sight, and not behind the sheet. */
export function reveal(index) {
  const place = places.get(index);
  if (place === undefined) return;
  const box = byId("ledger");
  const top = place * HEIGHT;
  const height = box.clientHeight - (parseFloat(box.style.paddingBottom) || 0);
  const edge = height < 4 * HEIGHT ? 0 : HEIGHT;
  if (top < box.scrollTop + edge) box.scrollTop = Math.max(top - height / 3, 0);
  else if (top + HEIGHT > box.scrollTop + height - edge)
    box.scrollTop = Math.min(top - (height * 2) / 3 + HEIGHT, top);
}

/** Choose a row, listed or not; null chooses none. */
export function select(index) {
  drawn.get(ledger.selected)?.setAttribute("aria-selected", "false");
  ledger.selected = index;
  reveal(index);
  paint();
  drawn.get(index)?.setAttribute("aria-selected", "true");
  if (places.has(index)) byId("ledger").setAttribute("aria-activedescendant", "row-" + index);
  else byId("ledger").removeAttribute("aria-activedescendant");
  ledger.onselect(index);
}

/** The place in the list from which to move on: that of the chosen row, or before where it was. */
export function placeNow() {
  if (ledger.selected === null) return -1;
  if (places.has(ledger.selected)) return places.get(ledger.selected);
  return ledger.shown.filter((index) => index < ledger.selected).length - 1;
}
