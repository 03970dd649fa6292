// What can be done to a model: each kind as the engine's JSON, as words, in a link, in Python and as a command.

import { WORDS } from "../words.js";

const HEAD_FORM = "(\\d{1,2})\\.(\\d{1,2})";
const EDGE_FORM = `${HEAD_FORM}\\.(\\d{1,2})\\.(\\d{1,2})`;

// `link` is the form in a link, `read` what its parts mean, `json` what the engine takes besides layer and head.
const KINDS = {
  cut: {
    link: new RegExp(`^c${EDGE_FORM}$`), write: (edit) => `c${edgeName(edit)}`, read: readEdge,
    json: ({ query, key }) => ({ edit: "CutEdge", query, key }), isEdge: true,
  },
  add: {
    link: new RegExp(`^s${EDGE_FORM}\\.(-?\\d{1,2})$`), write: (edit) => `s${edgeName(edit)}.${edit.amount}`,
    read: ([layer, head, query, key, amount]) => ({ ...readEdge([layer, head, query, key]), amount: Number(amount) }),
    json: ({ query, key, amount }) => ({ edit: "AddToScores", query, key, amount }), isEdge: true,
  },
  mask: {
    link: new RegExp(`^m${HEAD_FORM}\\.([01]{4,144})$`), write: (edit) => `m${headName(edit)}.${edit.open}`,
    read: ([layer, head, open]) => ({ ...readHead([layer, head]), open }),
    json: ({ open }) => ({ edit: "SetMask", mask: { tensor: rowsOf(open, (bit) => bit === "1"), dtype: "bool" } }),
  },
  zero: headKind("z", () => ({ edit: "ZeroHead" })),
  first: headKind("r", () => ({ edit: "RedirectToFirst" })),
  freeze: {
    link: new RegExp(`^f${HEAD_FORM}\\.([a-z]{1,12})$`), write: (edit) => `f${headName(edit)}.${edit.input}`,
    read: ([layer, head, input]) => ({ ...readHead([layer, head]), input }),
    json: usePattern,
  },
  mean: headKind("a", usePattern),
  uniform: headKind("u", () => ({ edit: "UniformPattern" })),
};

// Edits that put a pattern of other inputs in the place of a head's own.
export const BORROWED = ["freeze", "mean"];

// The five ways to take a head out of the game, in the order of the key h.
export const SWITCHES = ["zero", "first", "freeze", "mean", "uniform"];

function usePattern({ layer }, pattern) {
  const tensor = { tensor: pattern, dtype: "float64" };
  return { edit: "FreezePattern", recording: { values: { [`layers.${layer}.attention.weights`]: tensor } } };
}

function headKind(letter, json) {
  const link = new RegExp(`^${letter}${HEAD_FORM}$`);
  return { link, write: (edit) => `${letter}${headName(edit)}`, read: readHead, json };
}

function readHead([layer, head]) {
  return { layer: /^\d+$/.test(layer) ? Number(layer) : layer, head: Number(head) };
}

function readEdge([layer, head, query, key]) {
  return { ...readHead([layer, head]), query: Number(query), key: Number(key) };
}

function headName({ layer, head }) {
  return `${layer}.${head}`;
}

// "0.1" is head 1 of layer 0; "cross 0.1", of the layer "cross 0".
export function headOf(name) {
  const at = name.lastIndexOf(".");
  return readHead([name.slice(0, at), name.slice(at + 1)]);
}

function edgeName(edit) {
  return `${headName(edit)}.${edit.query}.${edit.key}`;
}

export function rowsOf(cells, turn) {
  const side = Math.sqrt(cells.length);
  return Array.from({ length: side }, (_, i) => Array.from({ length: side }, (_, j) => turn(cells[i * side + j])));
}

// The edit of this kind at this edge or head, or undefined.
export function findEdit(edits, { kind, layer, head, query, key }) {
  return edits.find((edit) => edit.kind === kind && edit.layer === layer && edit.head === head
    && (!KINDS[kind].isEdge || (edit.query === query && edit.key === key)));
}

// What is done to a whole head: one thing at most.
export function findSwitch(edits, { layer, head }) {
  return SWITCHES.map((kind) => findEdit(edits, { kind, layer, head })).find(Boolean);
}

// `patternOf(edit)` gives what a borrowed pattern is: (1, heads, query, key) as nested lists.
export function toJson(edit, patternOf) {
  const { layer, head } = edit;
  return { ...KINDS[edit.kind].json(edit, BORROWED.includes(edit.kind) ? patternOf(edit) : null), layer, head };
}

export function writeEdits(edits) {
  return edits.map((edit) => KINDS[edit.kind].write(edit)).join(",");
}

// Reads what `writeEdits` wrote. What does not fit a model of this shape is an error of one sentence.
export function readEdits(text, { layers, heads, places, isInput }) {
  if (text === "") return [];
  return text.split(",").map((word) => {
    const found = Object.entries(KINDS).find(([, { link }]) => link.test(word));
    if (!found) throw new Error(WORDS.badEdit(word));
    const [kind, { link, read }] = found;
    const edit = { kind, ...read(link.exec(word).slice(1)) };
    const { layer, head, query = 0, key = 0, open, input } = edit;
    const fits = layer < layers && head < heads && query < places && key < places
      && (open === undefined || open.length === places ** 2) && (input === undefined || isInput(input));
    if (!fits) throw new Error(WORDS.badEdit(word));
    return edit;
  });
}

export function wordEdit(edit, places) {
  const name = headName(edit);
  return WORDS.edits[edit.kind]({ ...edit, name, from: places[edit.query], to: places[edit.key] });
}
