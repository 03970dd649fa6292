// The state of the room Design: which task or puzzle, which head, and what a link says of them. No element of the page.

import { designHead, emptyHead, makeVectorTask, VECTOR_RULES } from "../engine/vectors.js";
import { PUZZLES } from "../puzzles.js";
import { DESIGN } from "../words_design.js";

export const MATRICES = ["Km", "Qm", "Vm", "pos"];
export const MOST_GAIN = 1000;
export const STARTS = ["half", "empty", "worked"];
export const CRITERIA = ["0.001", "0.01", "0.1", "nearest"];
const UNFINISHED = { identity: [2], copy_first: [5, 6], unique: [4, 5, 6, 7] }; // rows of Qm that half a design lacks

// A task by the name of its rule, or a puzzle by its own.
export function makeProblem(name, start = "worked", criterion = "0.001") {
  const puzzle = PUZZLES.find((each) => each.name === name) ?? null;
  const tolerance = puzzle ? puzzle.tolerance : criterion === "nearest" ? null : Number(criterion);
  const task = makeVectorTask(puzzle ? puzzle.task : { rule: name });
  const design = designHead(task, tolerance ?? 1e-3);
  const isEmpty = puzzle ? puzzle.isEmpty : start === "empty";
  const begun = { ...(isEmpty ? { ...emptyHead(task), gain: design.gain } : design), ...puzzle?.start };
  const cleared = puzzle?.clear ?? (start === "half" ? { Qm: UNFINISHED[name] } : {});
  for (const [matrix, rows] of Object.entries(cleared)) {
    begun[matrix] = begun[matrix].map((row, i) => (rows.includes(i) ? row.map(() => 0) : row));
  }
  const isOpen = (part) => begun[part] !== null && (!puzzle || puzzle.open.includes(part));
  return { name, start, criterion, puzzle, task, tolerance, begun, needed: design.gain, isOpen };
}

export function withNumber(head, part, i, j, value) {
  if (part === "gain") return { ...head, gain: value };
  return { ...head, [part]: head[part].map((row, k) => (k === i ? row.with(j, value) : row)) };
}

// The score of a puzzle: the weights that are not zero among those that may be changed, or the gain.
export function scoreOf({ puzzle }, head) {
  if (puzzle.score === "gain") return head.gain;
  return puzzle.open.flatMap((part) => head[part].flat()).filter((value) => value !== 0).length;
}

// name~start~criterion, then what differs from that start: Km,row,column,number · gain,number · in,CAB · seed,2
export function writeDesign({ name, start, criterion, begun }, { head, input, seed }) {
  const words = [name, start, criterion];
  if (head.gain !== begun.gain) words.push(`gain,${head.gain}`);
  for (const part of MATRICES.filter((each) => head[each])) {
    head[part].forEach((row, i) => row.forEach((value, j) => {
      if (value !== begun[part][i][j]) words.push(`${part},${i},${j},${value}`);
    }));
  }
  if (input !== null) words.push(`in,${input}`);
  if (seed !== 1) words.push(`seed,${seed}`);
  return words.join("~");
}

export function readDesign(text) {
  const [name, start = "worked", criterion = "0.001", ...words] = text.split("~");
  const known = [...VECTOR_RULES, ...PUZZLES.map((puzzle) => puzzle.name)];
  const refuse = () => {
    throw new Error(DESIGN.badLink(text));
  };
  const readNumber = (word, least, most) => {
    const value = Number(word);
    return word && Number.isFinite(value) && value >= least && value <= most ? value : refuse();
  };
  if (!known.includes(name) || !STARTS.includes(start) || !CRITERIA.includes(criterion)) refuse();
  const problem = makeProblem(name, start, criterion);
  const state = { head: problem.begun, input: null, seed: 1 };
  for (const word of words) {
    const [part, ...rest] = word.split(",");
    if (part === "in") state.input = problem.task.texts.includes(rest[0]) ? rest[0] : refuse();
    else if (part === "seed") state.seed = Math.round(readNumber(rest[0], 1, 999999));
    else if (part === "gain" && problem.isOpen(part)) {
      state.head = withNumber(state.head, part, 0, 0, readNumber(rest[0], 0, MOST_GAIN));
    } else if (MATRICES.includes(part) && problem.isOpen(part)) {
      const [i, j] = [Number(rest[0]), Number(rest[1])];
      if (state.head[part][i]?.[j] === undefined) refuse();
      state.head = withNumber(state.head, part, i, j, readNumber(rest[2], -1000, 1000));
    } else refuse();
  }
  return { problem, ...state };
}

// The Python lines that build the same head and prove it.
export function wordHeadPython({ task, tolerance }, head) {
  const usual = makeVectorTask({ rule: task.rule });
  const isUsual = ["letters", "longest"].every((name) => task[name] === usual[name]);
  const own = `VectorTask("${task.rule}", letters=${task.letters}, longest=${task.longest})`;
  const rule = isUsual ? `"${task.rule}"` : own;
  const loud = { ...head, Qm: head.Qm.map((row) => row.map((value) => value * head.gain)) };
  const wordRows = (rows) => `[${rows.map((row) => JSON.stringify(row).replaceAll(",", ", ")).join(", ")}]`;
  return [
    "import attnlab",
    ...(isUsual ? [] : ["from attnlab.tasks.vectors import VectorTask"]),
    "",
    "head = attnlab.SingleHead.from_matrices(",
    ...MATRICES.filter((part) => head[part]).map((part) => `    ${part}=${wordRows(loud[part])},`),
    ")",
    `proof = attnlab.prove(head, ${rule}${tolerance === null ? "" : `, tolerance=${tolerance}`})`,
    "print(proof)",
  ].join("\n");
}
