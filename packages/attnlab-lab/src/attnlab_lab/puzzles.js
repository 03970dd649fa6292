// Puzzles: a head that begins with the matrices of its task's design, or with some others; what may be changed; what
// counts as solved, which is checked on every input; and our own score, the non-zero weights or the gain.

const SAME_LETTER = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
const NO_WEIGHTS = [[0, 0, 0], [0, 0, 0], [0, 0, 0]];
const NO_PLANE = [[0, 0], [0, 0], [0, 0], [0, 0]];
const FOUR_LETTERS = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]];
const COPY_FIRST = { rule: "copy_first" };
const IDENTITY = { rule: "identity" };

export const PUZZLES = [
  {
    name: "louder", title: "Speak up", task: IDENTITY,
    tolerance: 0.1, start: { gain: 1 }, open: ["gain"], score: "gain", ours: 6.6,
    aim: "The head looks at the right letters, but not firmly enough. Raise the gain until every output is within 0.1.",
  },
  {
    name: "answers", title: "Wrong words", task: IDENTITY,
    tolerance: null, start: { gain: 10, Vm: [[0, 1, 0], [0, 0, 1], [1, 0, 0]] },
    open: ["Vm"], score: "weights", ours: 3,
    aim: "It looks at its own letter and then names another one. Set the values so that each letter says its own name.",
  },
  {
    name: "shuffled", title: "Shuffled keys", task: IDENTITY, tolerance: null,
    start: { gain: 10, Km: [[0, 1, 0], [0, 0, 1], [1, 0, 0]], Qm: NO_WEIGHTS }, open: ["Qm"], score: "weights", ours: 3,
    aim: "The keys of the letters are shuffled. Set the queries so that each letter still finds its own.",
  },
  {
    name: "first", title: "Look back", task: COPY_FIRST,
    tolerance: 0.01, start: { gain: 12, Qm: Array.from({ length: 7 }, () => [0, 0, 0, 0]) },
    open: ["Qm"], score: "weights", ours: 3,
    aim: "Every place shall look at the first one. Keys tell places apart: set the queries, with few weights.",
  },
  {
    name: "marks", title: "One number a place", task: COPY_FIRST,
    tolerance: 0.01, open: ["pos"], score: "weights", ours: 1,
    start: { gain: 12, pos: [[0], [0], [0], [0]], Km: [[0], [0], [0], [1]], Qm: [[1], [1], [1], [0]],
      Vm: [...SAME_LETTER, [0, 0, 0]] },
    aim: "Each place is described by one number, its key. Choose them so that all look at the first place.",
  },
  {
    name: "narrow", title: "One channel", task: { rule: "identity", letters: 2, longest: 4 },
    tolerance: null, open: ["Km", "Qm"],
    start: { gain: 10, Km: [[0], [0]], Qm: [[0], [0]], Vm: [[1, 0], [0, 1]] }, score: "weights", ours: 3,
    aim: "Two letters, and queries and keys of one number each. Set them so that each letter looks at its own kind.",
  },
  {
    name: "plane", title: "Three in a plane", task: IDENTITY,
    tolerance: null, open: ["Km", "Qm"], score: "weights", ours: 6,
    start: { gain: 20, Km: [[0, 0], [0, 0], [0, 0]], Qm: [[0, 0], [0, 0], [0, 0]], Vm: SAME_LETTER },
    aim: "Three letters, but two channels to tell them apart. Find keys and queries that let each find its own.",
  },
  {
    name: "alone", title: "Alone or not", task: { rule: "unique" },
    tolerance: null, open: ["Qm"], score: "weights", ours: 10,
    start: { gain: 50 }, clear: { Qm: [4, 5, 6, 7] },
    aim: "Say +1 where a letter stands alone and −1 where it is repeated. As it is, each letter finds itself: stop it.",
  },
  {
    name: "whole", title: "From nothing", task: { rule: "copy_first", letters: 2, longest: 3 },
    tolerance: null, isEmpty: true,
    start: { gain: 10 }, open: ["Km", "Qm", "Vm"], score: "weights", ours: 5,
    aim: "Nothing is set. Build the whole head: every place shall say the first letter. How few weights does it take?",
  },
  {
    name: "whisper", title: "Whisper", task: { rule: "unique" },
    tolerance: null, start: { gain: 1 }, open: ["gain"], score: "gain", ours: 6.41,
    aim: "Only the sign has to be right. Raise the gain as little as you can until no input fails.",
  },
  {
    name: "unit", title: "No gain left", task: IDENTITY,
    tolerance: 0.1, start: { gain: 1 }, open: ["Qm"], score: "weights", ours: 3,
    aim: "The gain stays at 1. Let the queries do its work, until every output is within 0.1.",
  },
  {
    name: "words", title: "What to say", task: { rule: "unique" },
    tolerance: null, start: { gain: 50 }, clear: { Vm: [0, 1, 2, 3] }, open: ["Vm"], score: "weights", ours: 4,
    aim: "It looks at the right places and says nothing. What must each letter say, and what CLS, when it is looked at?",
  },
  {
    name: "square", title: "Four in a plane", task: { rule: "identity", letters: 4, longest: 4 },
    tolerance: null, open: ["Km", "Qm"], score: "weights", ours: 8,
    start: { gain: 20, Km: NO_PLANE, Qm: NO_PLANE, Vm: FOUR_LETTERS },
    aim: "Four letters and two channels. Give each a direction of its own, and let its query point there.",
  },
];
