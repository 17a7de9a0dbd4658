// From times to places: the axis, in time with long silences broken, or in sequence with equal
// steps; and the part of it that is looked at.

import { log } from "./data.js";

const SILENCE = 20000;
const BREAK_SHARE = 0.035;
const BREAKS_SHARE = 0.2;

/** The axis. `cuts` are the corners of the map; `gaps` the broken silences; `from`..`to` is the
 * part in view, in the axis's own units. */
export const axis = {
  mode: "time",
  cuts: [
    [0, 0],
    [1, 1],
  ],
  gaps: [],
  from: 0,
  to: 1,
  whole: 1,
};

/** Where a span ends; one that is open reaches to the newest event. */
export function endOf(thing) {
  return thing.end ?? Math.max(log.about.length, thing.begin);
}

function busy() {
  const stretches = log.spans.filter((span) => span.kind !== "mark").map((span) => [span.begin, endOf(span)]);
  for (const turn of log.turns) stretches.push([turn.begin, turn.begin], [endOf(turn), endOf(turn)]);
  stretches.push([0, 0], [log.about.length, log.about.length]);
  stretches.sort((a, b) => a[0] - b[0]);
  const joined = [];
  for (const [begin, end] of stretches) {
    const last = joined[joined.length - 1];
    if (last && begin <= last[1]) last[1] = Math.max(last[1], end);
    else joined.push([begin, end]);
  }
  return joined;
}

function inTurn(time) {
  return log.turns.some((turn) => turn.begin <= time && time < endOf(turn));
}

function byTime() {
  const stretches = busy();
  axis.gaps = [];
  let quiet = 0;
  for (let i = 1; i < stretches.length; i += 1) {
    const [begin, end] = [stretches[i - 1][1], stretches[i][0]];
    if (end - begin > SILENCE) {
      axis.gaps.push({ begin, end, who: inTurn((begin + end) / 2) ? "" : "you" });
      quiet += end - begin;
    }
  }
  const active = Math.max(log.about.length - quiet, 1);
  const width = Math.max(active * Math.min(BREAK_SHARE, BREAKS_SHARE / Math.max(axis.gaps.length, 1)), 1);
  const cuts = [[0, 0]];
  let shift = 0;
  for (const gap of axis.gaps) {
    cuts.push([gap.begin, gap.begin - shift]);
    shift += gap.end - gap.begin - width;
    cuts.push([gap.end, gap.end - shift]);
  }
  cuts.push([Math.max(log.about.length, 1), Math.max(log.about.length, 1) - shift]);
  return cuts;
}

function byOrder() {
  axis.gaps = [];
  const times = new Set([0, log.about.length]);
  for (const span of log.spans) times.add(span.begin).add(endOf(span));
  const sorted = [...times].sort((a, b) => a - b);
  if (sorted.length === 1) sorted.push(sorted[0] + 1);
  return sorted.map((time, place) => [time, place]);
}

/** Lay the axis out anew: the log grew, or the mode changed. Keeps a zoom only if asked to. */
export function layOut({ keep = false } = {}) {
  const follows = axis.to >= axis.whole;
  axis.cuts = axis.mode === "time" ? byTime() : byOrder();
  axis.whole = axis.cuts[axis.cuts.length - 1][1];
  if (!keep) axis.from = 0;
  if (!keep || follows) axis.to = axis.whole;
}

function between(value, key, other) {
  const cuts = axis.cuts;
  let [low, high] = [0, cuts.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (cuts[middle][key] <= value) low = middle;
    else high = middle;
  }
  const [a, b] = [cuts[low], cuts[high]];
  const length = b[key] - a[key];
  return length === 0 ? a[other] : a[other] + ((value - a[key]) / length) * (b[other] - a[other]);
}

/** A time as a fraction of the view: 0 is its left edge, 1 its right one. */
export function fraction(time) {
  return (between(time, 0, 1) - axis.from) / (axis.to - axis.from);
}

/** The time at a fraction of the view. */
export function timeAt(part) {
  return between(axis.from + part * (axis.to - axis.from), 1, 0);
}

/** Zoom by a factor around a fraction of the view. */
export function zoom(factor, around) {
  const width = axis.to - axis.from;
  const next = Math.min(Math.max(width * factor, axis.whole / 5000), axis.whole);
  const centre = axis.from + around * width;
  look(centre - around * next, next);
}

/** Move the view by a part of its width. */
export function pan(part) {
  const width = axis.to - axis.from;
  look(axis.from + part * width, width);
}

function look(from, width) {
  axis.from = Math.min(Math.max(from, 0), axis.whole - width);
  axis.to = axis.from + width;
}

/** Round distances for ticks: about `count` of them in view, in milliseconds. */
export function ticks(count) {
  const length = timeAt(1) - timeAt(0);
  const rough = Math.max(length / count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const nice =
    rough < 60000
      ? [1, 2, 5, 10].map((n) => n * power)
      : [1, 2, 5, 10, 15, 30, 60, 120, 300, 600].map((n) => n * 60000);
  const distance = nice.find((one) => one >= rough) ?? 3600000 * Math.ceil(rough / 3600000);
  const found = [];
  for (let time = Math.ceil(timeAt(0) / distance) * distance; time <= timeAt(1); time += distance)
    found.push(time);
  return found;
}
