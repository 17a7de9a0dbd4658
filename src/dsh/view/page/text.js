// Texts and nodes. Foreign text becomes text nodes, and what could move or hide letters is made
// visible first; nothing here, or anywhere in the page, makes markup from text.

const HOSTILE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** The text with controls, bidi controls and lone surrogates as visible escapes. */
export function inert(text) {
  return String(text).replace(HOSTILE, (letter) => {
    const code = letter.charCodeAt(0).toString(16);
    return code.length <= 2 ? "\\x" + code.padStart(2, "0") : "\\u" + code.padStart(4, "0");
  });
}

/** An element. `what` are attributes (`class`, `title`, …) or listeners (`onclick`); children are
 * elements or texts. */
export function el(tag, what = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(what)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === "") continue;
    made.append(typeof child === "object" ? child : inert(child));
  }
  return made;
}

/** The element with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** `40 ms`, `0.4 s`, `2 min 04 s`, `3 h 07 min`. */
export function seconds(ms) {
  if (ms < 100) return Math.round(ms) + " ms";
  if (ms < 60000) return (Math.floor(ms / 100) / 10).toFixed(1) + " s";
  const whole = Math.floor(ms / 1000);
  if (whole < 3600) return Math.floor(whole / 60) + " min " + String(whole % 60).padStart(2, "0") + " s";
  return Math.floor(whole / 3600) + " h " + String(Math.floor(whole / 60) % 60).padStart(2, "0") + " min";
}

/** `612`, `18.4k`, `1.2M`. */
export function short(count) {
  if (count < 1000) return String(count);
  if (count < 1000000) return (count / 1000).toFixed(1) + "k";
  return (count / 1000000).toFixed(1) + "M";
}

/** `1 step`, `3 steps`. */
export function counted(count, word) {
  return count.toLocaleString("en") + " " + word + (count === 1 ? "" : "s");
}

/** Kilobytes or megabytes, in words. */
export function size(bytes) {
  return bytes < 1000000
    ? Math.max(1, Math.round(bytes / 1000)) + " kB"
    : (bytes / 1000000).toFixed(1) + " MB";
}
