// The time strip: model, tools and waits in lanes over one axis. Drawn on one canvas, so that ten
// thousand spans cost what their pixels cost; what is under the pointer is said in words.

import { log } from "./data.js";
import { byId, counted, el, seconds } from "./text.js";
import { axis, endOf, fraction, layOut, ticks, timeAt } from "./timeline.js";
import { ledger } from "./ledger.js";

export const GUTTER = 54;
const AXIS = 20;
const TURNS = 16;
export const SMALLEST = 2;
const FONT = "11px system-ui, sans-serif";
const GROUP = {
  model: "model",
  backoff: "model",
  compaction: "model",
  tool: "tools",
  approval: "wait",
  mark: "wait",
};

/** What is drawn, and how: `drag` is the stretch being marked, as two places, or null. */
export const state = { lanes: [], height: 0, colours: {}, drag: null, hatch: null };

function colour(name) {
  const probe = el("i", { class: "probe" });
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** Take the colours of the theme over. */
export function takeColours() {
  for (const name of [
    "text",
    "faint",
    "line",
    "ground",
    "raised",
    "model",
    "tool",
    "wait",
    "bad",
    "compact",
    "accent",
  ]) {
    state.colours[name] = colour(name);
  }
  const tile = document.createElement("canvas");
  [tile.width, tile.height] = [6, 6];
  const pen = tile.getContext("2d");
  pen.strokeStyle = state.colours.model;
  pen.globalAlpha = 0.75;
  pen.lineWidth = 1.4;
  for (const shift of [-6, 0, 6]) {
    pen.beginPath();
    pen.moveTo(shift, 6);
    pen.lineTo(shift + 6, 0);
    pen.stroke();
  }
  state.hatch = tile;
}

function laneHeights() {
  const counts = { model: 1, tools: 1, wait: 1 };
  for (const span of log.spans) counts[GROUP[span.kind]] = Math.max(counts[GROUP[span.kind]], span.lane + 1);
  const tall = { model: 14, tools: counts.tools > 4 ? 8 : 12, wait: 10 };
  const lanes = new Map();
  let y = TURNS;
  for (const group of ["model", "tools", "wait"]) {
    for (let lane = 0; lane < counts[group]; lane += 1) {
      lanes.set(group + lane, { y, height: tall[group] });
      y += tall[group] + 3;
    }
    y += 4;
  }
  state.lanes = lanes;
  state.height = y + AXIS;
}

/** The lane of a span: where it begins, from above, and how high it is. */
export function laneOf(span) {
  return state.lanes.get(GROUP[span.kind] + span.lane);
}

/** How wide the axis is. */
export function width() {
  return Math.max(byId("strip").clientWidth - GUTTER - 8, 40);
}

/** Where on the canvas a time is. */
export function x(time) {
  return GUTTER + fraction(time) * width();
}

function fillOf(span) {
  if (["failed", "retried", "denied", "crashed"].includes(span.state)) return state.colours.bad;
  if (span.kind === "tool") return state.colours.tool;
  if (span.kind === "compaction") return state.colours.compact;
  if (span.kind === "approval" || span.kind === "mark") return state.colours.wait;
  return state.colours.model;
}

function drawModel(pen, span, lane, left, right) {
  const first = span.first === undefined ? right : Math.min(Math.max(x(span.first), left), right);
  if (first - left >= 1) {
    pen.fillStyle = pen.createPattern(state.hatch, "repeat");
    pen.fillRect(left, lane.y, first - left, lane.height);
  }
  pen.fillStyle = fillOf(span);
  pen.fillRect(first, lane.y, Math.max(right - first, SMALLEST), lane.height);
  if (span.state === "failed" || span.state === "retried") {
    pen.strokeStyle = state.colours.bad;
    pen.lineWidth = 1.6;
    const [middle, reach] = [lane.y + lane.height / 2, 3.5];
    pen.beginPath();
    pen.moveTo(right - reach, middle - reach);
    pen.lineTo(right + reach, middle + reach);
    pen.moveTo(right + reach, middle - reach);
    pen.lineTo(right - reach, middle + reach);
    pen.stroke();
  }
}

function drawBackoff(pen, span, lane, left, right) {
  pen.strokeStyle = state.colours.bad;
  pen.setLineDash([2, 3]);
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(left + 6, lane.y + lane.height / 2);
  pen.lineTo(right, lane.y + lane.height / 2);
  pen.stroke();
  pen.setLineDash([]);
  if (right - left > 46)
    label(pen, seconds(endOf(span) - span.begin), (left + right) / 2, lane.y + lane.height / 2, "center");
}

function label(pen, text, at, y, align, tone = "faint") {
  pen.textAlign = align;
  pen.textBaseline = "middle";
  const half = pen.measureText(text).width / 2 + 3;
  if (align === "center") {
    pen.fillStyle = state.colours.raised;
    pen.fillRect(at - half, y - 6, half * 2, 12);
  }
  pen.fillStyle = state.colours[tone];
  pen.fillText(text, at, y);
}

function drawMark(pen, lane, left) {
  pen.fillStyle = state.colours.accent;
  const [middle, reach] = [lane.y + lane.height / 2, 4];
  pen.beginPath();
  pen.moveTo(left, middle - reach);
  pen.lineTo(left + reach, middle);
  pen.lineTo(left, middle + reach);
  pen.lineTo(left - reach, middle);
  pen.fill();
}

function nameSpan(pen, span, lane, left, right) {
  if (lane.height < 10 || right - left < 40) return;
  const text = span.kind === "tool" ? log.rows[span.row].title : span.kind;
  pen.font = "10px system-ui, sans-serif";
  if (pen.measureText(text).width + 10 < right - left) {
    pen.fillStyle = state.colours.raised;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.fillText(text, left + 5, lane.y + lane.height / 2 + 0.5);
  }
  pen.font = FONT;
}

function drawSpan(pen, span) {
  const lane = laneOf(span);
  const left = Math.max(x(span.begin), GUTTER);
  const right = Math.min(Math.max(x(endOf(span)), left + SMALLEST), GUTTER + width() + 4);
  if (span.kind === "mark") drawMark(pen, lane, left);
  else if (span.kind === "backoff") drawBackoff(pen, span, lane, left, right);
  else if (span.kind === "model") drawModel(pen, span, lane, left, right);
  else {
    pen.fillStyle = fillOf(span);
    pen.fillRect(left, lane.y, right - left, lane.height);
    nameSpan(pen, span, lane, left, right);
  }
  if (span.end === undefined) {
    pen.fillStyle = state.colours.ground;
    for (let notch = lane.y; notch < lane.y + lane.height; notch += 4) pen.fillRect(right - 3, notch, 3, 2);
  }
  if (span.row === ledger.selected) {
    pen.strokeStyle = state.colours.text;
    pen.lineWidth = 1.5;
    pen.strokeRect(left - 1.5, lane.y - 1.5, right - left + 3, lane.height + 3);
  }
}

function inView(span) {
  return fraction(endOf(span)) >= 0 && fraction(span.begin) <= 1;
}

function drawSpans(pen) {
  const reached = new Map(); // lane → the pixel up to which small spans were drawn already
  for (const span of log.spans) {
    if (!inView(span)) continue;
    const [left, right] = [x(span.begin), x(endOf(span))];
    const lane = GROUP[span.kind] + span.lane;
    const plain = span.row !== ledger.selected && span.kind !== "mark" && (span.state ?? "ok") === "ok";
    if (plain && right - left < SMALLEST && right < (reached.get(lane) ?? -1)) continue;
    if (span.kind === "mark" && left < (reached.get(lane + "mark") ?? -1)) continue;
    if (span.kind === "mark") reached.set(lane + "mark", left + 7);
    drawSpan(pen, span);
    reached.set(lane, Math.max(reached.get(lane) ?? 0, left + SMALLEST));
  }
}

function drawTurns(pen, bottom) {
  let free = GUTTER;
  for (const turn of log.turns) {
    const at = x(turn.begin);
    if (at > GUTTER + width() || x(endOf(turn)) < GUTTER) continue;
    pen.fillStyle = state.colours.line;
    if (at >= GUTTER) pen.fillRect(Math.round(at), TURNS - 4, 1, bottom - TURNS + 4);
    const text = "turn " + turn.number;
    const begin = Math.max(at, GUTTER);
    if (begin < free || x(endOf(turn)) - begin < pen.measureText("9").width * 3) continue;
    label(
      pen,
      text,
      begin + 4,
      7,
      "left",
      turn.state === "failed" || turn.state === "crashed" ? "bad" : "faint",
    );
    free = begin + pen.measureText(text).width + 12;
  }
}

function silence(ms) {
  return ms < 100000
    ? Math.round(ms / 1000) + " s"
    : ms < 3600000
      ? Math.round(ms / 60000) + " min"
      : Math.round(ms / 3600000) + " h";
}

function drawGaps(pen, bottom) {
  for (const gap of axis.gaps) {
    const [left, right] = [x(gap.begin), x(gap.end)];
    if (right < GUTTER || left > GUTTER + width()) continue;
    pen.fillStyle = state.colours.ground;
    pen.fillRect(left, TURNS, right - left, bottom - TURNS);
    pen.strokeStyle = state.colours.line;
    pen.setLineDash([1, 3]);
    for (const edge of [left, right]) {
      pen.beginPath();
      pen.moveTo(Math.round(edge) + 0.5, TURNS);
      pen.lineTo(Math.round(edge) + 0.5, bottom);
      pen.stroke();
    }
    pen.setLineDash([]);
    const text = silence(gap.end - gap.begin);
    if (right - left > pen.measureText(text).width + 4) {
      label(pen, text, (left + right) / 2, (TURNS + bottom) / 2 - 6, "center");
      if (gap.who) label(pen, gap.who, (left + right) / 2, (TURNS + bottom) / 2 + 6, "center");
    }
  }
}

function drawAxis(pen, bottom) {
  pen.fillStyle = state.colours.line;
  pen.fillRect(GUTTER, bottom, width(), 1);
  if (axis.mode !== "time") {
    label(pen, "in order; widths mean nothing", GUTTER + width(), bottom + 10, "right");
    return;
  }
  let free = -1;
  for (const time of ticks(Math.max(Math.floor(width() / 90), 2))) {
    const at = x(time);
    if (axis.gaps.some((gap) => gap.begin < time && time < gap.end) || at < free) continue;
    pen.fillStyle = state.colours.line;
    pen.fillRect(Math.round(at), bottom, 1, 4);
    const text =
      time === 0
        ? "0"
        : timeAt(1) - timeAt(0) < 2000
          ? time.toFixed(0) + " ms"
          : seconds(time).replace(/\.0 s| 00 s/, (end) => (end === ".0 s" ? " s" : ""));
    if (at + pen.measureText(text).width > GUTTER + width()) continue;
    label(pen, text, at + 3, bottom + 10, "left");
    free = at + pen.measureText(text).width + 14;
  }
}

function drawLaneNames(pen) {
  pen.fillStyle = state.colours.raised;
  pen.fillRect(0, 0, GUTTER - 1, state.height);
  for (const group of ["model", "tools", "wait"]) {
    const lane = state.lanes.get(group + 0);
    label(pen, group, GUTTER - 8, lane.y + lane.height / 2, "right");
  }
}

/** Draw the whole strip. */
export function drawStrip() {
  const canvas = byId("strip");
  if (canvas.clientWidth === 0) return;
  laneHeights();
  const scale = window.devicePixelRatio || 1;
  canvas.style.height = state.height + "px";
  canvas.width = Math.round(canvas.clientWidth * scale);
  canvas.height = Math.round(state.height * scale);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.font = FONT;
  const bottom = state.height - AXIS;
  drawGaps(pen, bottom);
  drawTurns(pen, bottom);
  drawSpans(pen);
  drawAxis(pen, bottom);
  drawLaneNames(pen);
  if (state.drag) {
    const [a, b] = [state.drag.from, state.drag.to].sort((p, q) => p - q);
    pen.fillStyle = state.colours.accent;
    pen.globalAlpha = 0.18;
    pen.fillRect(a, TURNS, b - a, bottom - TURNS);
  }
  const told = `Timeline: ${counted(log.turns.length, "turn")}, ${counted(log.spans.length, "span")}; the list below tells the same in words`;
  canvas.setAttribute("aria-label", told);
}

/** Change between time and sequence. */
export function setMode(mode) {
  axis.mode = mode;
  layOut();
  byId("by-time").setAttribute("aria-pressed", String(mode === "time"));
  byId("by-order").setAttribute("aria-pressed", String(mode !== "time"));
  drawStrip();
}
