// The Markdown that models write, as nodes: headings, lists, fences, quotes, bold, italics, code.
// Links stay text with their address in sight, and nothing is ever loaded.

import { el, inert } from "./text.js";

// Every repetition is bounded, or a text of nothing but beginnings would take for ever.
const INLINE =
  /(?<!`)(`{1,20})([^`]|[^`][^]{0,4000}?[^`])\1(?!`)|\*\*(?=\S)([^]{0,1000}?\S)\*\*|(?<![\w*])\*(?=\S)([^*]{0,1000}?[^\s*])\*(?![\w*])|\[([^\]\n]{1,500})\]\(([^)\s]{1,1000})\)/g;

function inline(text) {
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > from) nodes.push(inert(text.slice(from, match.index)));
    if (match[2] !== undefined) nodes.push(el("code", {}, match[2]));
    else if (match[3] !== undefined) nodes.push(el("strong", {}, inline(match[3])));
    else if (match[4] !== undefined) nodes.push(el("em", {}, inline(match[4])));
    else nodes.push(inert(match[5]), el("span", { class: "address" }, ` (${match[6]})`));
    from = match.index + match[0].length;
  }
  if (from < text.length) nodes.push(inert(text.slice(from)));
  return nodes;
}

const ITEM = /^(\s*)(?:[-*+]|\d{1,4}[.)])\s+(.*)$/;

function fence(lines, at) {
  const mark = /^\s*(`{3,}|~{3,})/.exec(lines[at])[1];
  let end = at + 1;
  while (end < lines.length && !lines[end].trim().startsWith(mark)) end += 1;
  return [el("pre", {}, lines.slice(at + 1, end).join("\n")), end + 1];
}

function bullets(lines, at) {
  const ordered = /^\s*\d/.test(lines[at]);
  const made = el(ordered ? "ol" : "ul");
  let end = at;
  while (end < lines.length && ITEM.test(lines[end])) {
    const [, indent, text] = ITEM.exec(lines[end]);
    const rest = [text];
    end += 1;
    while (end < lines.length && /^\s+\S/.test(lines[end]) && !ITEM.test(lines[end])) {
      rest.push(lines[end].trim());
      end += 1;
    }
    const item = el("li", {}, inline(rest.join("\n")));
    item.style.marginLeft = Math.min(Math.floor(indent.length / 2), 6) + "em";
    if (ordered) item.value = parseInt(lines[end - rest.length].trim(), 10);
    made.append(item);
  }
  return [made, end];
}

/** Text as nodes. */
export function markdown(text) {
  const lines = text.split("\n");
  const made = el("div", { class: "prose" });
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const heading = /^(#{1,6})\s+(.*)$/.exec(line);
    let node = null;
    if (/^\s*(`{3,}|~{3,})/.test(line)) [node, at] = fence(lines, at);
    else if (heading)
      [node, at] = [el("h" + Math.min(heading[1].length + 2, 6), {}, inline(heading[2])), at + 1];
    else if (ITEM.test(line)) [node, at] = bullets(lines, at);
    else if (/^>\s?/.test(line)) {
      let end = at;
      while (end < lines.length && /^>\s?/.test(lines[end])) end += 1;
      node = el(
        "blockquote",
        {},
        inline(
          lines
            .slice(at, end)
            .map((one) => one.replace(/^>\s?/, ""))
            .join("\n"),
        ),
      );
      at = end;
    } else if (line.trim() === "") at += 1;
    else {
      let end = at + 1;
      while (
        end < lines.length &&
        lines[end].trim() !== "" &&
        !/^\s*(`{3,}|~{3,}|#{1,6}\s|>)/.test(lines[end]) &&
        !ITEM.test(lines[end])
      )
        end += 1;
      node = el("p", {}, inline(lines.slice(at, end).join("\n")));
      at = end;
    }
    if (node) made.append(node);
  }
  return made;
}
