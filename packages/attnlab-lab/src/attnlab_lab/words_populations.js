// All sentences of the room Populations.

import { count, wordNumber } from "attnlab/draw/report/elements.js";

const share = (part, whole) => `${Math.round((100 * part) / Math.max(1, whole))} %`;
const named = (figure) => figure.replaceAll("_", " ");

export const SEED_WORDS = {
  title: "Populations",
  subtitle: "One training, repeated over many seeds. See which heads each seed found, and whether yours is typical.",
  population: "Population",
  none: "There is no population yet. Start one in the room Runs, with more than one seed, or with this command:",
  more: "Another one: start it in the room Runs, with more than one seed, or with this command:",
  command: (out) => `attnlab run sorting --seeds 16${out} --set recipe=fast`,
  toRuns: "Start one in Runs",
  unfinished: ({ name, state }) => `${name} is ${state}: it is shown here when it is finished.`,
  missing: (name) => `There is no population ${name} in this folder.`,
  loading: (members) => `Comparing the heads of ${count(members, "seed")} …`,
  told: ({ told, problem }) => `${told}. The problem: ${problem.task}; solved: ${problem.solved}.`,
  extremes: ({ typical, oddest }) =>
    (typical === undefined ? "" : `Most typical is seed ${typical}, oddest seed ${oddest}.`),

  reads: "Show the heads on",
  readsHint: "Type an input as of the training. Empty: the mean over many inputs.",
  isRead: (text) => (text ? `Attention weights on the input ${text}, with the answer of the most typical seed.`
    : "Attention weights, the mean over the same inputs for all seeds. Heads that are alike stand side by side."),
  attention: "Attention",
  order: "Sort by",
  orders: (figures) => [["seed", "seed"], ["typical", "most typical first"], ["loss", "loss"],
    ...figures.map((figure) => [figure, named(figure)])],
  only: "Seeds with these heads",
  all: (number) => `all ${number}`,
  unsolved: (number) => `not solved ${number}`,
  kind: (kind, number) => `${kind} ${number}`,
  groups: "Groups of like heads",
  group: (letter, heads, seeds, all) =>
    `${letter}: ${count(heads, "head")} in ${seeds} of ${count(all, "seed")}, ${share(seeds, all)}`,
  listed: (number, all) => (number === all ? count(all, "seed") : `${number} of ${count(all, "seed")}`),

  typical: "Is my seed typical?",
  seed: "Seed",
  noSeed: (name, names) => `This population has no seed ${name}; its seeds are ${names[0]} to ${names.at(-1)}.`,
  isSolved({ name, solvedAt, fault }) {
    if (fault) return `Seed ${name} diverged: it was no longer finite ${fault}.`;
    if (solvedAt === null) return `Seed ${name} does not solve the problem.`;
    return `Seed ${name} solves the problem, first at step ${wordNumber(solvedAt)}.`;
  },
  ofLoss: ({ loss }, higher, others) =>
    `Its last loss is ${wordNumber(loss)}, lower than that of ${higher} of the ${others} others.`,
  ofFigures(figures) {
    const told = Object.entries(figures).map(([name, value]) => `${named(name)} ${wordNumber(value)}`);
    return `Kept weights: ${told.join(", ")}.`;
  },
  ofKind: ({ kind }, alike, all) => (alike === 1 ? `Its heads are ${kind}, as in no other seed.`
    : `Its heads are ${kind}, as in ${alike} of ${count(all, "seed")}, ${share(alike, all)}.`),
  ofDistance({ distance, percentile }, typical) {
    if (distance === 0) return "Its heads are the most typical of all.";
    const others = `${Math.round(100 * percentile)} % of the others are no further away`;
    return `Its heads are ${wordNumber(distance)} from those of seed ${typical}, the most typical one; ${others}.`;
  },
  losses: "Loss (nats)",
  lossesLabel: (name, all, last) =>
    `The loss of seed ${name} over the steps, ${last}, among those of ${count(all, "seed")}.`,
  lastLoss: (loss, step) => `${wordNumber(loss)} at step ${wordNumber(step)}`,
  head: (name, letter) => `Head ${name}, group ${letter}`,
  mean: (letter) => `Mean of group ${letter}`,
  cellSaid: (query, key, words) => `Query ${query} → key ${key}: ${words}.`,
  masked: "masked",
  bench: "Open in the Bench",
  code: "In Python and on the command line",
  python: (path, typed) => `import attnlab\n\nmodel = attnlab.load(${JSON.stringify(path)})\n\n$ attnlab open ${typed}`,
};
