// What can be done to a model: each kind as the engine's JSON, as words, in a link.

import { wordEdge, WORDS } from "../words.js";

// Of each kind: its letter in a link, the engine's name for it, and what it says besides a head.
const KINDS = {
  cut: { letter: "c", edit: "CutEdge", fields: ["query", "key"] },
  add: { letter: "s", edit: "AddToScores", fields: ["query", "key", "amount"] },
  mask: { letter: "m", edit: "SetMask", fields: ["open"] },
  zero: { letter: "z", edit: "ZeroHead", fields: [] },
  first: { letter: "r", edit: "RedirectToFirst", fields: [] },
  freeze: { letter: "f", edit: "FreezePattern", fields: ["input"] },
  mean: { letter: "a", edit: "FreezePattern", fields: [] },
  uniform: { letter: "u", edit: "UniformPattern", fields: [] },
};
const FORMS = {
  query: "\\d+", key: "\\d+", amount: "-?\\d{1,2}", open: "[01]{4,144}", input: "[a-z]{1,12}",
};
// What of an edit is a number, or the name of a layer such as "cross 0".
const PLACES = ["layer", "head", "query", "key", "amount"];

// Edits that put a pattern of other inputs in the place of a head's own.
export const BORROWED = ["freeze", "mean"];

// The five ways to take a head out of the game, in the order of the key h.
export const SWITCHES = ["zero", "first", "freeze", "mean", "uniform"];

// A pair of a head that is not masked has a score.
export function isAllowed({ scores, columns }, query, key) {
  return !Number.isNaN(scores[query * columns + key]);
}

export function nameEdit({ kind }) {
  return KINDS[kind].edit;
}

// Its places, as pairs of a name and a number.
export function placesOfEdit(edit) {
  return PLACES.filter((name) => name in edit).map((name) => [name, edit[name]]);
}

function headName({ layer, head }) {
  return `${layer}.${head}`;
}

// "0.1" is head 1 of layer 0; "cross 0.1", of the layer "cross 0".
export function headOf(name) {
  const at = name.lastIndexOf(".");
  const layer = name.slice(0, at);
  return { layer: /^\d+$/.test(layer) ? Number(layer) : layer, head: Number(name.slice(at + 1)) };
}

export function rowsOf(cells, turn) {
  const side = Math.sqrt(cells.length);
  return Array.from({ length: side }, (_, i) => Array.from({ length: side }, (_, j) => turn(cells[i * side + j])));
}

// The edit of this kind at this edge or head, or undefined.
export function findEdit(edits, { kind, layer, head, query, key }) {
  const isEdge = KINDS[kind].fields.includes("query");
  return edits.find((edit) => edit.kind === kind && edit.layer === layer && edit.head === head
    && (!isEdge || (edit.query === query && edit.key === key)));
}

// What is done to a whole head: one thing at most.
export function findSwitch(edits, { layer, head }) {
  return SWITCHES.map((kind) => findEdit(edits, { kind, layer, head })).find(Boolean);
}

// `patternOf(edit)` gives what a borrowed pattern is: (1, heads, query, key) as nested lists.
export function toJson(edit, patternOf) {
  const told = { edit: nameEdit(edit), ...Object.fromEntries(placesOfEdit(edit)) };
  if (edit.kind === "mask") {
    told.mask = { tensor: rowsOf(edit.open, (bit) => bit === "1"), dtype: "bool" };
  }
  if (BORROWED.includes(edit.kind)) {
    const tensor = { tensor: patternOf(edit), dtype: "float64" };
    told.recording = { values: { [`layers.${edit.layer}.attention.weights`]: tensor } };
  }
  return told;
}

export function writeEdits(edits) {
  return edits.map((edit) => {
    const { letter, fields } = KINDS[edit.kind];
    return `${letter}${[headName(edit), ...fields.map((name) => edit[name])].join(".")}`;
  }).join(",");
}

// The edit that a word of a link says, or null.
export function readEdit(word) {
  for (const [kind, { letter, fields }] of Object.entries(KINDS)) {
    const form = fields.map((name) => `\\.(${FORMS[name]})`).join("");
    const [, name, ...told] = new RegExp(`^${letter}(.+?\\.\\d+)${form}$`).exec(word) ?? [];
    if (name === undefined) continue;
    const edit = { kind, ...headOf(name) };
    fields.forEach((field, i) => (edit[field] = PLACES.includes(field) ? Number(told[i]) : told[i]));
    return edit;
  }
  return null;
}

// Reads what `writeEdits` wrote. What does not fit a model of this shape is an error of one sentence.
export function readEdits(text, { layers, heads, places, isInput }) {
  if (text === "") return [];
  return text.split(",").map((word) => {
    const edit = readEdit(word);
    const { layer, head, query = 0, key = 0, open, input } = edit ?? {};
    const fits = Number.isInteger(layer) && layer < layers && head < heads
      && query < places && key < places
      && (open === undefined || open.length === places ** 2)
      && (input === undefined || isInput(input));
    if (!fits) throw new Error(WORDS.badEdit(word));
    return edit;
  });
}

// What was done: the edit itself, or that it is gone.
export function wordDone(edit, isAdded, tokens) {
  return isAdded ? wordEdit(edit, tokens) : WORDS.takenBack;
}

export function wordEdit(edit, tokens) {
  const name = headName(edit);
  const edge = wordEdge([edit.query, tokens[edit.query]], [edit.key, tokens[edit.key]]);
  return WORDS.edits[edit.kind]({ ...edit, name, edge });
}
