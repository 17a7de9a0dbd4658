// The pointer on the time strip: what is under it in words, a click, a drag, the wheel.

import { log } from "./data.js";
import { byId, el, seconds } from "./text.js";
import { endOf, pan, timeAt, zoom } from "./timeline.js";
import { drawStrip, GUTTER, laneOf, SMALLEST, state, width, x } from "./strip.js";

function under(event) {
  const found = [];
  for (const span of log.spans) {
    const lane = laneOf(span);
    const reach = span.kind === "mark" ? 5 : 3;
    if (event.offsetY < lane.y - 2 || event.offsetY > lane.y + lane.height + 2) continue;
    const left = x(span.begin);
    const right = Math.max(x(endOf(span)), left + SMALLEST);
    if (event.offsetX >= left - reach && event.offsetX <= right + reach) found.push(span);
  }
  // The nearest to the pointer, the shortest first: a short call beside a long one can be hit.
  const off = (span) => Math.max(x(span.begin) - event.offsetX, event.offsetX - x(endOf(span)), 0);
  return found.sort((a, b) => off(a) - off(b) || endOf(a) - a.begin - (endOf(b) - b.begin));
}

function tell(event) {
  const tip = byId("tip");
  const found = event.offsetX < GUTTER ? [] : under(event);
  tip.hidden = found.length === 0;
  byId("strip").style.cursor = found.length ? "pointer" : "crosshair";
  if (!found.length) return;
  const span = found[0];
  const row = log.rows[span.row];
  const took = span.end === undefined ? "not finished" : seconds(span.end - span.begin);
  const what = {
    approval: "waiting for an approval",
    backoff: "waiting before the next try",
    compaction: "compaction",
  }[span.kind];
  tip.replaceChildren(
    el("b", {}, what ?? row.title),
    el("span", {}, [row.about.slice(0, 120), row.result].filter(Boolean).join(" · ")),
    el(
      "small",
      {},
      [
        row.step ? `${row.turn}.${row.step}` : "",
        took,
        span.first === undefined ? "" : `first token after ${seconds(span.first - span.begin)}`,
        found.length > 1 ? `${found.length} here` : "",
      ]
        .filter(Boolean)
        .join(" · "),
    ),
  );
  const left = Math.min(Math.max(event.offsetX - 40, 4), byId("strip").clientWidth - tip.offsetWidth - 4);
  tip.style.left = left + "px";
  tip.style.top = byId("strip").offsetTop + event.offsetY + 18 + "px";
}

/** Let the pointer work: point, click, drag a range, wheel to zoom. */
export function listenStrip({ onpick, onrange, onview }) {
  const canvas = byId("strip");
  const inside = (event) => Math.min(Math.max(event.offsetX, GUTTER), GUTTER + width());
  canvas.addEventListener("pointerdown", (event) => {
    if (event.offsetX < GUTTER || event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    state.drag = { from: inside(event), to: inside(event) };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!state.drag) return tell(event);
    state.drag.to = inside(event);
    return drawStrip();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!state.drag) return;
    const [a, b] = [state.drag.from, state.drag.to].sort((p, q) => p - q);
    state.drag = null;
    const found = under(event);
    if (b - a >= 5) onrange([timeAt((a - GUTTER) / width()), timeAt((b - GUTTER) / width())]);
    else if (found.length) onpick(found[0].row);
    drawStrip();
  });
  canvas.addEventListener("pointercancel", () => {
    state.drag = null;
  });
  canvas.addEventListener("pointerleave", () => {
    byId("tip").hidden = true;
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) > Math.abs(event.deltaY))
        pan(event.deltaX / width());
      else if (event.shiftKey) pan((event.deltaY || event.deltaX) / width());
      else zoom(Math.exp(event.deltaY / 300), Math.min(Math.max((event.offsetX - GUTTER) / width(), 0), 1));
      event.preventDefault();
      onview();
    },
    { passive: false },
  );
}
