// What details are put together from: parts, names with values, texts as they are.

import { el } from "./text.js";

/** A text as it is, in lines of its own. */
export function pre(text, kind = "") {
  return el("pre", { class: kind }, text);
}

/** A part with a heading. */
export function part(title, ...content) {
  return el("section", {}, el("h3", {}, title), ...content);
}

/** Names and values; those without a value are left out. */
export function fields(pairs) {
  const made = el("dl", { class: "fields" });
  for (const [name, value] of pairs) {
    if (value === "" || value === null || value === undefined) continue;
    made.append(el("dt", {}, name), el("dd", {}, String(value)));
  }
  return made;
}
