// All sentences of the room Sweeps.

import { count, wordNumber } from "attnlab/draw/report/elements.js";

const percent = (share) => `${Math.round(100 * share)} %`;
const wordFigure = (figure) => figure.replaceAll("_", " ");

export const SWEEP_WORDS = {
  title: "Sweeps",
  subtitle: "One training for every combination of some settings, each with many seeds. See where it can be learned.",
  sweep: "Sweep",
  none: "There is no sweep yet. Start one in the room Runs, with several values in a field, or with this command:",
  more: "Another one: start it in the room Runs, with several values in a field, or with this command:",
  command: (out) => `attnlab sweep sorting --set d_model=4,6,10 recipe=fast steps=500 --seeds 8${out}`,
  toRuns: "Start one in Runs",
  missing: (name) => `There is no sweep ${name} in this folder.`,
  begins: "Its first models are in training; they are shown here as soon as they are done.",
  told: ({ told, models, expected }) =>
    (models === expected ? `${told}.` : `${told}. ${models.toLocaleString("en-GB")} of ${expected.toLocaleString("en-GB")} are trained so far.`),

  grid: "All cells",
  figure: "Shown",
  figures: (names) => [["share", "share of seeds that solve the problem"], ["solvedAt", "step at which it was first solved"],
    ["loss", "loss at the end"], ...names.map((name) => [name, wordFigure(name)])],
  medians: "Medians over the seeds of a cell; a dash where there is none.",
  keys: "Arrow keys read cells, Enter chooses one",
  square: (name, words) => `${name}: ${words}.`,
  notTrained: "not trained yet",
  impossible: "not possible",
  hatched: "not possible",

  solved: ({ solved, members, share: [share, low, high] }) =>
    `${solved} of ${count(members.length, "seed")} solve the problem: ${percent(share)}, 95 % interval ${percent(low)} to ${percent(high)}.`,
  medianStep: (step) => `Half of them have solved it by step ${wordNumber(step)}.`,
  never: "Half of them or more never do.",
  loss: (loss) => `The median loss at the end is ${wordNumber(loss)}.`,
  ofFigures: (figures) => `Medians of the kept weights: ${Object.entries(figures).map(([name, value]) => `${wordFigure(name)} ${wordNumber(value)}`).join(", ")}.`,
  waits: "Its models are not trained yet.",
  refused: (reason) => `These values cannot be combined: ${reason}`,
  seeds: "The seeds of this cell",
  seed([seed, solvedAt, fault]) {
    if (fault) return `Seed ${seed} diverged`;
    return solvedAt === null ? `Seed ${seed}: not solved` : `Seed ${seed}: solved, first at step ${wordNumber(solvedAt)}`;
  },
  again: "A sweep keeps numbers, not weights. This trains the models of this cell again, to look at their heads:",
  train: "Train them in Runs",
};
