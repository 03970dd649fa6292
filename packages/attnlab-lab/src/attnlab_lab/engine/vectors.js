// Vector tasks for one head, as attnlab.tasks.vectors has them; designs that solve them, as attnlab.design computes
// them; and the check of a head on every input, as attnlab.prove does it. A head is
//   { gain, Km, Qm, Vm, pos }   matrices as rows; queries are [x ; pos] Qm · gain; pos is null for no positions.

import { requireKnown, requireWhole } from "./errors.js";
import { log, softmaxInto } from "./numbers.js";

const USUAL_LONGEST = { identity: 6, copy_first: 4, unique: 4 };
const HEADROOM = 1.001; // as in attnlab.design.designs
const ALIKE = 1 - 1e-6; // as in attnlab.design.proof
const MOST_INPUTS = 20_000;
const CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

export const VECTOR_RULES = Object.keys(USUAL_LONGEST);

/** A rule over every sequence of letters up to the longest: { inputs (ids), targets, texts, … }. */
export function makeVectorTask({ rule, letters = 3, longest = USUAL_LONGEST[rule] }) {
  requireKnown("rule", rule, VECTOR_RULES);
  requireWhole("longest", longest, 2, 8);
  requireWhole("letters", letters, 2, Math.floor(MOST_INPUTS ** (1 / longest)));
  const hasCls = rule === "unique";
  const names = [...CAPITALS.slice(0, letters), ...(hasCls ? ["CLS"] : [])];
  const inputs = [];
  let words = [[]];
  for (let length = 1; length <= longest; length++) {
    words = words.flatMap((word) => Array.from({ length: letters }, (_, letter) => [...word, letter]));
    inputs.push(...words.map((word) => (hasCls ? [letters, ...word] : word)));
  }
  const texts = inputs.map((ids) => ids.slice(hasCls ? 1 : 0).map((id) => names[id]).join(""));
  const sizes = { inputDim: names.length, outputDim: hasCls ? 1 : letters, places: longest + hasCls };
  const task = { rule, letters, longest, hasCls, names, inputs, texts, ...sizes };
  return { ...task, targets: inputs.map((ids) => ids.map((_, place) => targetOf(task, ids, place))) };
}

/** What shall come out where one token of an input stands. */
export function targetOf({ rule, letters }, ids, place) {
  if (rule === "unique") return [ids.filter((id) => id === ids[place]).length === 1 ? 1 : -1];
  const right = rule === "identity" ? ids[place] : ids[0];
  return Array.from({ length: letters }, (_, letter) => (letter === right ? 1 : 0));
}

/** The numbers of a head that its inputs share: the scores of all pairs of tokens at their places, and the values. */
export function prepareHead(task, { gain, Km, Qm, Vm, pos }) {
  const places = pos ? task.places : 1;
  const codes = Array.from({ length: task.inputDim * places }, (_, code) => [Math.floor(code / places), code % places]);
  const through = (matrix, [token, place]) =>
    matrix[token].map((value, column) =>
      (pos ? pos[place] : []).reduce((sum, share, i) => sum + share * matrix[task.inputDim + i][column], value));
  const [keys, queries, values] = [Km, Qm, Vm].map((matrix) => codes.map((code) => through(matrix, code)));
  const factor = gain / Math.sqrt(Km[0].length);
  const scoreOf = (query, key) => factor * query.reduce((sum, part, i) => sum + part * key[i], 0);
  const scores = queries.map((query) => keys.map((key) => scoreOf(query, key)));
  const codeOf = (token, place) => (pos ? token * places + place : token);
  return { task, values, scores, codeOf, codesOf: (ids) => ids.map(codeOf) };
}

/** Where a token of an input looks, and what comes out there; into arrays of the caller, as there are many inputs. */
export function readPlace({ task, values, scores }, codes, place, weights = [], output = []) {
  const row = scores[codes[place]];
  for (let key = 0; key < codes.length; key++) weights[key] = row[codes[key]];
  softmaxInto(weights, weights, 0, codes.length);
  for (let i = 0; i < task.outputDim; i++) output[i] = 0;
  for (let key = 0; key < codes.length; key++) {
    const value = values[codes[key]];
    for (let i = 0; i < task.outputDim; i++) output[i] += weights[key] * value[i];
  }
  return { weights, output };
}

/** Where each token of an input looks, and what comes out there. */
export function readInput(task, head, index) {
  const prepared = prepareHead(task, head);
  const codes = prepared.codesOf(task.inputs[index]);
  return codes.map((_, place) => readPlace(prepared, codes, place));
}

/** How far an output is from its target, and how clearly it means it: above 0 is right. */
export function judge({ rule }, output, target) {
  let [error, right, others] = [0, 0, -Infinity];
  for (let i = 0; i < target.length; i++) {
    error = Math.max(error, Math.abs(output[i] - target[i]));
    if (target[i] === 1) right = output[i];
    else others = Math.max(others, output[i]);
  }
  return { error, clearance: rule === "unique" ? output[0] * target[0] : right - others };
}

/**
 * Put a head to every input. tolerance: how far an output may be from its target; null asks only that the target be the
 * nearest one. Returns which are right, how many are not, the first of them and its place, the worst error and where,
 * the margin: how far the worst is inside of what is asked; and how many have some target that is not the nearest.
 */
export function checkHead(task, head, tolerance) {
  const [prepared, weights, output] = [prepareHead(task, head), [], []];
  const right = new Uint8Array(task.inputs.length).fill(1);
  const found = { right, failures: 0, first: null, error: 0, worst: 0, clearance: Infinity, unclear: 0 };
  let named = 0; // the error of the input that is named: of those that differ in rounding alone, the first
  for (let index = 0; index < right.length; index++) {
    const codes = prepared.codesOf(task.inputs[index]);
    let least = Infinity;
    for (let place = task.hasCls ? 1 : 0; place < codes.length; place++) {
      readPlace(prepared, codes, place, weights, output);
      const { error, clearance } = judge(task, output, task.targets[index][place]);
      least = Math.min(least, clearance);
      found.error = Math.max(found.error, error);
      if (error * ALIKE > named) [found.worst, named] = [index, error];
      if (clearance > 0 && (tolerance === null || error <= tolerance)) continue;
      found.first ??= { index, place };
      right[index] = 0;
    }
    found.clearance = Math.min(found.clearance, least);
    found.unclear += least > 0 ? 0 : 1;
    found.failures += 1 - right[index];
  }
  return { ...found, margin: tolerance === null ? found.clearance : tolerance - found.error };
}

/** The least gap between scores of right and wrong keys that keeps every output within a tolerance of its target. */
function neededGap({ rule, longest }, tolerance) {
  const wrong = longest - 1;
  if (rule !== "unique") return log((wrong * (1 - tolerance)) / tolerance);
  const odds = (2 - tolerance) / tolerance;
  let [low, high] = [1, (wrong + 1) * odds];
  for (let i = 0; i < 200; i++) {
    const middle = (low + high) / 2;
    if (middle < (wrong + 1 / (middle * middle)) * odds) low = middle;
    else high = middle;
  }
  return 2 * log(high);
}

const zeros = (rows, columns) => Array.from({ length: rows }, () => new Array(columns).fill(0));
const unit = (size) => zeros(size, size).map((row, i) => row.map((_, j) => (i === j ? 1 : 0)));

/** A head of a design's shape with nothing in it but positions. */
export function emptyHead(task) {
  const { rule, letters, longest, inputDim, outputDim } = task;
  const pos = { identity: null, copy_first: unit(longest), unique: [...zeros(1, longest), ...unit(longest)] }[rule];
  const rows = inputDim + (pos ? longest : 0);
  const width = { identity: letters, copy_first: longest, unique: letters + longest + 1 }[rule];
  return { gain: 1, Km: zeros(rows, width), Qm: zeros(rows, width), Vm: zeros(rows, outputDim), pos };
}

/** The head that solves a task within a tolerance: attnlab.design.design_for, its gain set apart. */
export function designHead(task, tolerance = 1e-3) {
  const { rule, letters, longest, inputDim } = task;
  const head = emptyHead(task);
  const { Km, Qm, Vm } = head;
  const gain = neededGap(task, tolerance) * HEADROOM * Math.sqrt(Km[0].length);
  for (let letter = 0; letter < letters; letter++) {
    if (rule === "unique") Vm[letter][0] = -1;
    else Vm[letter][letter] = 1;
    if (rule !== "copy_first") Km[letter][letter] = Qm[letter][letter] = 1;
    if (rule === "unique") Qm[letter][letters + longest] = 0.5;
  }
  if (rule === "unique") [Km[letters][letters + longest], Vm[letters][0]] = [1, 1];
  for (let place = 0; rule !== "identity" && place < longest; place++) {
    const column = rule === "unique" ? letters + place : place;
    Km[inputDim + place][column] = 1;
    if (rule === "unique") Qm[inputDim + place][column] = -2;
    else Qm[inputDim + place][0] = 1;
  }
  return { ...head, gain: Math.ceil(gain * 1e6) / 1e6 };
}
