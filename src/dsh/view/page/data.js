// What the document carries: the index, and bodies that are parsed when they are first looked at.

import { byId } from "./text.js";

const KINDS = ["turns", "steps", "requests", "ops", "spans", "rows"];

/** Everything known of the log. `revision` and `place` say how far it is known. */
export const log = {
  about: {},
  revision: 0,
  turns: [],
  steps: [],
  requests: [],
  ops: [],
  spans: [],
  rows: [],
};

const blockOf = new Map(); // key of a body → number of the block that holds it
const blocks = [];
const bodies = new Map();

/** Take over an index: all of it, or what changed. Returns the indices of changed rows. */
export function merge(index) {
  for (const kind of KINDS) {
    for (const [place, entity] of index[kind]) log[kind][place] = entity;
  }
  log.about = index.about;
  log.revision = index.revision;
  return index.rows.map(([place]) => place);
}

/** Read what stands in the document. */
export function load() {
  merge(JSON.parse(byId("data-index").textContent));
  JSON.parse(byId("data-keys").textContent).forEach((keys, number) => {
    for (const key of keys) blockOf.set(key, number);
  });
}

/** Add bodies that arrived later. */
export function addBodies(more) {
  for (const [key, body] of Object.entries(more)) bodies.set(key, body);
}

function openBlock(number) {
  if (blocks[number]) return;
  blocks[number] = true;
  const element = byId("data-block-" + number);
  addBodies(JSON.parse(element.textContent));
  element.remove();
}

/** The stored event with this seq, or null if the document does not hold it. */
export function body(key) {
  const name = String(key);
  if (!bodies.has(name) && blockOf.has(name)) openBlock(blockOf.get(name));
  return bodies.get(name) ?? null;
}

/** What a cut attempt had said, or an empty text. */
export function partialOf(row) {
  return body("p" + row)?.partial ?? "";
}

const texts = new Map();

function collect(value, found) {
  if (typeof value === "string") found.push(value);
  else if (Array.isArray(value)) for (const one of value) collect(one, found);
  else if (value !== null && typeof value === "object")
    for (const one of Object.values(value)) collect(one, found);
}

/** Every text of a row, as stored: what search looks through. */
export function textOf(index) {
  const row = log.rows[index];
  const version = row.seqs.length + (row.end ?? 0) + (row.partial ? 1 : 0);
  const known = texts.get(index);
  if (known && known.version === version) return known;
  const found = [row.title, row.about, row.result];
  for (const seq of row.seqs) {
    const event = body(seq);
    if (event !== null) collect(event.data, found);
  }
  if (row.partial) found.push(partialOf(index));
  const text = found.join("\n");
  const made = { version, text, lower: text.toLowerCase() };
  texts.set(index, made);
  return made;
}
