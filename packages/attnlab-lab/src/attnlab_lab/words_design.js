// All sentences of the room Design.

import { wordNumber, wordTrimmed } from "attnlab/draw/report/elements.js";

const LAWS = {
  identity: "each token comes out as it went in",
  copy_first: "the first token comes out at every place",
  unique: "+1 comes out where a letter stands alone, −1 where it is repeated",
};

// An output as one reads it: a vector for letters, a sign otherwise.
export function wordOutput(values, digits = 5) {
  const words = values.map((value) => wordTrimmed(Number(value.toFixed(digits)), 6)).join(" ");
  return values.length > 1 ? `(${words})` : words;
}

export const DESIGN = {
  heading: {
    title: "Design a head by hand",
    subtitle: "These are all the weights of one attention head, and some are not set yet. Change a number: every input "
      + "there is is checked.",
  },
  rules: { identity: "Identity", copy_first: "Copy the first", unique: "Unique or not" },
  law: (rule) => `The task: ${LAWS[rule]}.`,
  tasks: "Task",
  starts: "Begin with",
  startNames: { worked: "A design that works", half: "Half finished", empty: "Nothing" },
  puzzles: "Puzzles",
  puzzle: ({ title }, i, isSolved) => `${i + 1} ${title}${isSolved ? " ✓" : ""}`,
  puzzleScore: { weights: (own) => `${own} non-zero weights`, gain: (own) => `gain ${wordNumber(own)}` },
  solved: (score, ours) => `Solved, on every input, with ${score}; ours has ${wordNumber(ours)}.`,
  unsolved: (score, ours) => `So far ${score}; ours solves it with ${wordNumber(ours)}.`,

  weights: "The weights",
  weightsNote: "Rows: what a token is made of. Click a number and type, or drag it sideways.",
  keys: [
    ["arrow keys", "move among the numbers of a matrix, or among inputs"], ["space", "0, or 1 where it is 0"],
    ["Shift ↑ ↓", "add 1 or take it away"], ["Alt ↑ ↓", "add a tenth or take it away"],
    ["z Z", "undo, redo; inside a number with Ctrl"], ["?", "these keys"],
  ],
  notes: { Km: "keys", Qm: "queries", Vm: "values", pos: "places" },
  place: (i) => `place ${i}`,
  feature: (i) => `pos ${i}`, // a column of pos
  gain: "Gain",
  gainNote: "All queries times this number. The greater it is, the firmer the head looks.",
  gainComputed: (gain) => `The design needs ${wordNumber(gain)}.`,
  badNumber: (text, most) => `Expected a number from −${most} to ${most}; got “${text.slice(0, 20)}”.`,
  badGain: (text, most) => `Expected a gain from 0 to ${most}; got “${text.slice(0, 20)}”.`,
  undo: "Undo", redo: "Redo",

  holds: (all) => `Holds on all ${wordNumber(all)} inputs.`,
  counterexample: (text, token, place, wanted, got) =>
    `The first that fails: ${text}. At ${token} in place ${place} it says ${got} and should say ${wanted}.`,
  noFailure: (text, error) => `The worst is ${text}: its output is off by ${wordNumber(error)}.`,
  field: "All inputs",
  square: (text, isRight) => `${text}, ${isRight ? "right" : "wrong"}`,
  criterion: "What counts as right",
  criteria: (rule) => ({
    0.001: "within 0.001 of the target", 0.01: "within 0.01 of the target", 0.1: "within 0.1 of the target",
    nearest: rule === "unique" ? "the sign is right" : "the right letter is the largest",
  }),
  margin: "Smallest margin",
  marginNote: "How far the worst input is inside of what is asked. Below 0: outside.",

  input: "One input",
  typed: "Input",
  badInput: (text, example) => `Expected letters such as ${example}; got “${text.slice(0, 20)}”.`,
  toFailure: "The first that fails",
  toWorst: "The worst",
  map: "Where each token looks",
  mapLabel: (text) => `Attention weights on ${text}`,
  cell: (from, to, weight) => `${from} looks at ${to}: weight ${weight}.`,
  columns: ["Token", "Wanted", "Comes out", "Off by"],
  answers: "What comes out",
  outputs: (text) => `What comes out of ${text}`,

  twin: "The same head, learned",
  twinNote: "A head of the same shape learns the task from random weights: gradient descent, one input a step.",
  twinState: (step, steps, loss) =>
    (step < steps ? `Step ${step} of ${steps}, squared error ${loss.toFixed(4)}` : `Done after ${wordNumber(steps)} steps.`),
  again: (seed) => `Again with seed ${seed}`,
  hand: "By hand",
  learned: "Learned",
  rows: {
    right: "Right inputs, as asked above", nearest: "Right, if only the largest counts",
    sign: "Right, if only the sign counts", error: "Largest error",
  },
  ofAll: (right, all) => `${wordNumber(right)} of ${wordNumber(all)}`,
  panels: {
    label: "What is compared",
    names: { scores: "Scores", attention: "Attention", Km: "Km", Qm: "Qm", Vm: "Vm" },
  },
  panelNotes: {
    scores: "What each token thinks of each other, less the mean of its row: all that attention can see of Km and Qm.",
    attention: "Where each token of the input above looks.",
    Km: "Keys may differ and the head still does the same: only the scores matter.",
    Qm: "Queries may differ and the head still does the same: only the scores matter.",
    Vm: "What each token says when it is looked at.",
  },
  sign: "sign",
  mapKeys: "Arrow keys read cells, plus and minus zoom",
  panelCell: (from, to, value) => `${from}, ${to}: ${value}.`,

  code: "The same in Python",
  codeNote: "These lines build the head and check it on every input.",
  badLink: (text) =>
    `This link describes no design that this page knows (“${text.slice(0, 30)}”); the room shows its first one.`,
};
