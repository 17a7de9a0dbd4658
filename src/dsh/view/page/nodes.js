// What a request was made of: the operations on the surface, folded as the session folds them, and
// the difference between two requests.

import { body, log } from "./data.js";

function textOfBlock(block) {
  if (block.type === "text" || block.type === "reasoning") return block.text;
  if (block.type === "tool-call") return block.name + " " + block.arguments;
  return block.attachment
    ? block.type + " " + (block.attachment.name ?? block.attachment.attachmentId)
    : block.type;
}

const NODES = ["user/message", "system/message", "assistant/message", "tool/result"];

/** The message of a node, or null: a reply without content and an empty prompt have none, nor have
 * events of other types, whatever they call a message. */
export function messageAt(seq) {
  const event = body(seq);
  if (event === null || !NODES.includes(event.type)) return null;
  const message = event.data?.message;
  if (!Array.isArray(message?.content)) return null;
  if (event.type === "assistant/message" && message.content.length === 0) return null;
  const blank = message.content.every((block) => block.type === "text" && block.text === "");
  return event.type === "system/message" && blank ? null : message;
}

/** All text of a message. */
export function messageText(message) {
  return message.content.map(textOfBlock).join("\n");
}

/** A guess: four characters a token. Always shown with `~`. */
export function tokens(seq) {
  const message = messageAt(seq);
  return message === null ? 0 : Math.ceil(messageText(message).length / 4);
}

function place(nodes, seq) {
  return nodes.lastIndexOf(seq);
}

/** The seqs a request was made of, in order. */
export function nodesOf(request) {
  const nodes = [];
  for (const op of log.ops.slice(0, request.ops)) {
    if (op.start === undefined) nodes.push(op.seq);
    else {
      const first = place(nodes, op.start);
      nodes.splice(first, place(nodes, op.end) - first + 1, op.seq);
    }
  }
  return nodes.filter((seq) => messageAt(seq) !== null);
}

function hiddenBy() {
  const hidden = new Map();
  const nodes = [];
  for (const op of log.ops) {
    if (op.start === undefined) {
      nodes.push(op.seq);
      continue;
    }
    const first = place(nodes, op.start);
    const gone = nodes.splice(first, place(nodes, op.end) - first + 1, op.seq);
    hidden.set(
      op.seq,
      gone.flatMap((seq) => [...(hidden.get(seq) ?? []), seq]),
    );
  }
  return hidden;
}

/** The nodes of `now`, and those of `before` that are gone: `[what, seq]` in one order. */
export function compare(now, before) {
  const stood = new Set(before);
  const here = new Set(now);
  const hidden = hiddenBy();
  const named = new Set();
  const told = [];
  for (const seq of now) {
    if (stood.has(seq)) {
      told.push(["unchanged", seq]);
      continue;
    }
    for (const gone of hidden.get(seq) ?? []) {
      if (!stood.has(gone)) continue;
      named.add(gone);
      told.push(["replaced", gone]);
    }
    told.push(["added", seq]);
  }
  for (const seq of before) if (!here.has(seq) && !named.has(seq)) told.push(["removed", seq]);
  return told;
}

/** `1.2`, or `1.2 try 2`. */
export function requestLabel(request) {
  const tries = log.requests.filter((one) => one.turn === request.turn && one.step === request.step).length;
  return request.turn + "." + request.step + (tries > 1 ? " try " + request.attempt : "");
}

/** The index of the request a row belongs to: its own, or the last one of its step before it. */
export function requestOf(index) {
  const row = log.rows[index];
  if (row.request !== undefined) return row.request;
  let found = null;
  log.requests.forEach((request, number) => {
    const before =
      request.turn < row.turn || (request.turn === row.turn && request.step <= (row.step || Infinity));
    if (before && (row.step || request.turn === row.turn)) found = number;
  });
  return found;
}

/** The request that `1.2` or `1.2 try 1` names (the last one of that step), or null. */
export function requestNamed(text) {
  const match = /^(\d+)\.(\d+)(?: *(?:try|t) *(\d+))?$/.exec(text.trim());
  if (!match) return null;
  let found = null;
  log.requests.forEach((request, number) => {
    if (request.turn !== +match[1] || request.step !== +match[2]) return;
    if (!match[3] || request.attempt === +match[3]) found = number;
  });
  return found;
}

/** Everything of a header that is not a message, by name: what a field diff compares. */
function headerFields(seq) {
  const header = seq === undefined ? null : body(seq)?.data.header;
  const fields = new Map();
  if (!header) return fields;
  for (const [name, value] of Object.entries(header.config)) fields.set(name, JSON.stringify(value));
  for (const tool of header.tools ?? []) fields.set("tool " + tool.name, JSON.stringify(tool));
  return fields;
}

/** How two headers differ: `[sign, name]` with `+`, `-` or `~`. */
export function headerChanges(now, before) {
  const [here, there] = [headerFields(now), headerFields(before)];
  const told = [];
  for (const [name, value] of here) {
    if (!there.has(name)) told.push(["+", name]);
    else if (there.get(name) !== value) told.push(["~", name]);
  }
  for (const name of there.keys()) if (!here.has(name)) told.push(["-", name]);
  return told;
}

/** Lines of two texts as `[sign, line]`: the longest common run of lines stays. */
export function lineDiff(before, now) {
  const [a, b] = [before.split("\n"), now.split("\n")];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (
    tail < a.length - head &&
    tail < b.length - head &&
    a[a.length - 1 - tail] === b[b.length - 1 - tail]
  )
    tail += 1;
  const [x, y] = [a.slice(head, a.length - tail), b.slice(head, b.length - tail)];
  const told = a.slice(0, head).map((line) => [" ", line]);
  if (x.length * y.length > 1000000) {
    told.push(...x.map((line) => ["-", line]), ...y.map((line) => ["+", line]));
  } else told.push(...middleDiff(x, y));
  told.push(...a.slice(a.length - tail).map((line) => [" ", line]));
  return told;
}

function middleDiff(x, y) {
  const best = Array.from({ length: x.length + 1 }, () => new Uint32Array(y.length + 1));
  for (let i = x.length - 1; i >= 0; i -= 1) {
    for (let j = y.length - 1; j >= 0; j -= 1) {
      best[i][j] = x[i] === y[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
    }
  }
  const told = [];
  let [i, j] = [0, 0];
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) {
      told.push([" ", x[i]]);
      i += 1;
      j += 1;
    } else if (j >= y.length || (i < x.length && best[i + 1][j] >= best[i][j + 1])) {
      told.push(["-", x[i]]);
      i += 1;
    } else {
      told.push(["+", y[j]]);
      j += 1;
    }
  }
  return told;
}
