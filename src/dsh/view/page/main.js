// Putting it together: the head, the controls, and who tells whom.

import { load, log } from "./data.js";
import { byId, el, seconds } from "./text.js";
import { drawHead } from "./head.js";
import { axis, layOut } from "./timeline.js";
import { chosen, GROUPS, matches, ONLY, searchFor } from "./filter.js";
import { atEnd, coverList, ledger, list, paint, placeNow, reveal, select, toEnd } from "./ledger.js";
import { listenStrip } from "./pointer.js";
import { drawStrip, setMode, takeColours } from "./strip.js";
import { inspector, show, TABS } from "./inspector.js";
import { linkTo, readLink } from "./links.js";
import { help, listenKeys, seek } from "./keys.js";
import { follow } from "./live.js";

let found = [];
let listening = true;
let writing = 0;

/** A switch: pressed while its name is in the set. */
function chip(name, kind, set) {
  const made = el(
    "button",
    { type: "button", class: `chip ${kind}`, "aria-pressed": String(set.has(name)) },
    name,
  );
  made.addEventListener("click", () => {
    if (!set.delete(name)) set.add(name);
    made.setAttribute("aria-pressed", String(set.has(name)));
    list();
  });
  return made;
}

function drawFilters() {
  byId("filters").replaceChildren(...Object.keys(GROUPS).map((name) => chip(name, name, chosen.on)));
  const chips = Object.keys(ONLY).map((name) => chip(name, "only", chosen.only));
  byId("only").replaceChildren(el("span", { class: "quiet" }, "only"), ...chips);
}

function setRange(range) {
  chosen.range = range;
  byId("range").textContent = range === null ? "" : `active ${seconds(range[0])} – ${seconds(range[1])}`;
  byId("reset").hidden = range === null && axis.from <= 0 && axis.to >= axis.whole;
  list();
}

function reset() {
  layOut();
  setRange(null);
  drawStrip();
}

function search(query) {
  searchFor(query);
  found = matches();
  ledger.matching = new Set(found);
  list();
  tellFound();
  writeLink();
}

function tellFound() {
  if (chosen.test === null) {
    byId("found").textContent = chosen.problem;
    return;
  }
  const place = found.indexOf(ledger.selected);
  const listed = new Set(ledger.shown);
  const hidden = found.filter((index) => !listed.has(index)).length;
  byId("found").textContent =
    found.length === 0
      ? "nothing"
      : (place < 0 ? "" : `${place + 1} of `) + found.length + (hidden ? `, ${hidden} in hidden rows` : "");
}

function nextMatch(by) {
  if (!found.length) return;
  const from = ledger.selected ?? -1;
  const onward =
    by > 0
      ? (found.find((index) => index > from) ?? found[0])
      : (found.findLast((index) => index < from) ?? found[found.length - 1]);
  pick(onward);
}

function goTo(place) {
  if (place !== null && ledger.shown[place] !== undefined) select(ledger.shown[place]);
}

/** Choose a row even if filters hide it: then they are lifted as far as it needs. */
function pick(index) {
  if (index === null) return;
  if (!ledger.shown.includes(index)) {
    chosen.range = null;
    chosen.only.clear();
    const kind = log.rows[index].kind;
    for (const [name, group] of Object.entries(GROUPS)) if (group.kinds.includes(kind)) chosen.on.add(name);
    drawFilters();
    setRange(null);
  }
  select(index);
}

function writeLink() {
  if (!listening) return;
  // Not at once: browsers refuse to follow a key that is held down.
  clearTimeout(writing);
  writing = setTimeout(() => {
    const link = linkTo(ledger.selected, inspector.tab, inspector.versus, chosen.query);
    history.replaceState(null, "", link || location.pathname + location.search);
  }, 120);
}

function readPlace() {
  const link = readLink(location.hash);
  if (link === null) return;
  listening = false;
  if (link.query !== null && link.query !== chosen.query) {
    byId("search").value = link.query;
    search(link.query);
  }
  if (link.row !== null) {
    inspector.tab = link.tab ?? "said";
    pick(link.row);
    show(link.row, { tab: inspector.tab, versus: link.versus });
    openSheet();
  }
  listening = true;
}

function openSheet() {
  document.body.dataset.sheet = "open";
  coverList();
  reveal(ledger.selected);
}

function closeSheet() {
  if (document.body.dataset.sheet === "open") {
    delete document.body.dataset.sheet;
    coverList();
    byId("ledger").focus();
  } else if (byId("inspector").contains(document.activeElement) || document.activeElement === byId("search"))
    byId("ledger").focus();
  else if (chosen.query) {
    byId("search").value = "";
    search("");
  } else if (chosen.range !== null) reset();
}

function errorAfter(by) {
  goTo(seek(by, (row) => row.kind !== "turn" && ONLY.errors(row)));
}

function stepAfter(by) {
  const now = log.rows[ledger.selected ?? -1];
  goTo(
    seek(
      by,
      (row) =>
        row.step > 0 &&
        ["reply", "try"].includes(row.kind) &&
        !(now && row.turn === now.turn && row.step === now.step),
    ),
  );
}

function openTab(tab) {
  show(ledger.selected, { tab, versus: inspector.versus });
  openSheet();
}

const ACTIONS = {
  j: () => goTo(Math.min(placeNow() + 1, ledger.shown.length - 1)),
  k: () => goTo(Math.max(placeNow() - 1, 0)),
  J: () => stepAfter(1),
  K: () => stepAfter(-1),
  "]": () => goTo(seek(1, (row) => row.kind === "turn")),
  "[": () => goTo(seek(-1, (row) => row.kind === "turn")),
  g: () => goTo(0),
  G: () => goTo(ledger.shown.length - 1),
  e: () => errorAfter(1),
  E: () => errorAfter(-1),
  Enter: () => {
    openSheet();
    byId("pane").focus();
  },
  d: () => openTab("saw"),
  "/": () => {
    byId("search").focus();
    byId("search").select();
  },
  n: () => nextMatch(1),
  N: () => nextMatch(-1),
  t: () => setMode(axis.mode === "time" ? "sequence" : "time"),
  0: reset,
  "?": help,
  Escape: closeSheet,
};
ACTIONS.ArrowDown = ACTIONS.j;
ACTIONS.ArrowUp = ACTIONS.k;
ACTIONS.Home = ACTIONS.g;
ACTIONS.End = ACTIONS.G;
TABS.forEach((tab, place) => {
  ACTIONS[place + 1] = () => openTab(tab);
});

function nextTheme() {
  const root = document.documentElement;
  const order = ["", "light", "dark"];
  root.dataset.theme = order[(order.indexOf(root.dataset.theme ?? "") + 1) % order.length];
  byId("theme").textContent = root.dataset.theme || "theme";
  takeColours();
  drawStrip();
}

function foldStrip() {
  const open = byId("fold").getAttribute("aria-expanded") !== "true";
  byId("fold").setAttribute("aria-expanded", String(open));
  byId("time").classList.toggle("folded", !open);
  drawStrip();
}

function arrived(changed, before) {
  const stick = atEnd();
  layOut({ keep: true });
  drawHead();
  if (chosen.query) {
    found = matches();
    ledger.matching = new Set(found);
    tellFound();
  }
  list();
  drawStrip();
  if (ledger.selected !== null && changed.includes(ledger.selected))
    show(ledger.selected, { versus: inspector.versus });
  const fresh = log.rows.length - before;
  if (stick) toEnd();
  else if (fresh > 0) {
    byId("news").hidden = false;
    byId("news").dataset.count = Number(byId("news").dataset.count ?? 0) + fresh;
    byId("news").textContent = byId("news").dataset.count + " new";
  }
  const last = changed
    .map((index) => log.rows[index])
    .findLast((row) => row.end !== undefined && row.kind !== "turn");
  if (last)
    byId("status").textContent = `step ${last.turn}.${last.step}, ${last.title}, ${last.result || "done"}`;
}

function listen() {
  byId("ledger").addEventListener("scroll", () => {
    paint();
    if (!byId("news").hidden && atEnd()) {
      byId("news").hidden = true;
      byId("news").dataset.count = 0;
    }
  });
  byId("rows").addEventListener("click", (event) => {
    const row = event.target.closest(".row");
    if (!row) return;
    select(Number(row.dataset.index));
    openSheet();
    byId("ledger").focus({ preventScroll: true });
  });
  byId("search").addEventListener("input", (event) => search(event.target.value));
  byId("by-time").addEventListener("click", () => setMode("time"));
  byId("by-order").addEventListener("click", () => setMode("sequence"));
  byId("reset").addEventListener("click", reset);
  byId("theme").addEventListener("click", nextTheme);
  byId("help").addEventListener("click", help);
  byId("close").addEventListener("click", closeSheet);
  byId("news").addEventListener("click", toEnd);
  byId("fold").addEventListener("click", foldStrip);
  ledger.onselect = (index) => {
    show(index, { versus: "" });
    drawStrip();
    tellFound();
  };
  inspector.onchange = writeLink;
  listenStrip({
    onpick: (index) => {
      pick(index);
      openSheet();
    },
    onrange: setRange,
    onview: () => {
      byId("reset").hidden = false;
      drawStrip();
    },
  });
  listenKeys(ACTIONS);
  window.addEventListener("hashchange", readPlace);
  new ResizeObserver(() => {
    coverList();
    drawStrip();
    paint();
  }).observe(byId("ledger"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    takeColours();
    drawStrip();
  });
}

function start() {
  load();
  if (matchMedia("(max-width: 600px)").matches) foldStrip();
  drawHead();
  drawFilters();
  layOut();
  takeColours();
  list();
  show(null);
  listen();
  drawStrip();
  readPlace();
  if (document.body.dataset.mode === "follow") {
    byId("save").hidden = false;
    byId("save").href = "file";
    toEnd();
    follow(arrived);
  }
  document.body.dataset.ready = String(Math.round(performance.now()));
}

start();
