// Puzzles of the Bench: a model, the edit it begins with, and what shall be reached by edits of one kind. `right` is how
// many inputs shall be right, at least and at most; `edits` how many edits that may take; `ours` is our own score.

const ALL = [27, 27];

export const BENCH_PUZZLES = [
  {
    name: "idle", title: "The idle head", settings: { task: "copy", seed: 1 }, kind: "zero",
    right: ALL, edits: [1, 1], score: "edits", ours: 1,
    aim: "One of its two heads does nothing that counts. Knock that one out: all 27 stay right.",
  },
  {
    name: "weakest", title: "The weakest edge", settings: { task: "sort", seed: 1 }, kind: "cut",
    right: [0, 8], edits: [1, 1], score: "right", ours: 2,
    aim: "Cut one edge, and leave as few inputs right as you can; 8 at most.",
  },
  {
    name: "victim", title: "One victim", settings: { task: "sort", seed: 2 }, kind: "cut",
    right: [26, 26], edits: [1, 5], score: "edits", ours: 1,
    aim: "Cut edges until exactly one input is wrong, and all others still right.",
  },
  {
    name: "lean-copy", title: "A lean copier", settings: { task: "copy", seed: 1 }, kind: "cut",
    right: ALL, edits: [15, 42], score: "edits", ours: 21,
    aim: "Cut as many edges as you can while all 27 stay right; 15 at least. A copier needs few.",
  },
  {
    name: "lean-reverse", title: "A lean reverser", settings: { task: "reverse", seed: 3 }, kind: "cut",
    right: ALL, edits: [15, 42], score: "edits", ours: 24,
    aim: "Cut as many edges as you can while all 27 stay right; 15 at least. Where must a reverser look?",
  },
  {
    name: "lean-sort", title: "A lean sorter", settings: { task: "sort", seed: 2 }, kind: "cut",
    right: ALL, edits: [6, 42], score: "edits", ours: 9,
    aim: "A sorter must look at every letter. Even so 6 edges can go, and more, while all 27 stay right.",
  },
  {
    name: "mend", title: "Mend it", settings: { task: "sort", seed: 5 }, begin: "c0.0.4.3", kind: "add",
    right: ALL, edits: [1, 20], score: "edits", ours: 2,
    aim: "One edge is cut and must stay cut. Bring all 27 back by adding to scores, in as few places as you can.",
  },
];
