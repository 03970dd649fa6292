// All sentences of the room Runs.

import { count } from "attnlab/draw/report/elements.js";

const GO_ON = "Resume goes on from the last checkpoint, to the same bytes.";

export const RUN_WORDS = {
  noDifference: "none",
  title: "Your runs",
  subtitle: "Start a run and watch a model learn: loss, accuracy, and which of its claims hold. Below are all runs so far.",

  away: `The lab does not answer. Start it again with the same folder and --port ${location.port}, and open its new address; this page then goes on.`,
  anew: "The lab was started anew. Open the address that its terminal shows, in this browser; this page then goes on by itself.",

  start: "Start",
  startTitle: "Start a run",
  loading: "Loading the experiments …",
  experiment: "Experiment",
  seedNote: "of all its randomness: the same seed gives the same weights",
  badSeed: (text) => `seed must be an integer of at least 0; got '${text.slice(0, 20)}'.`,
  seedsNote: "models, from this seed on; more than one is a population, shown in Populations",
  badSeeds: (text) => `seeds must be an integer from 1 to 9999; got '${text.slice(0, 20)}'.`,
  manyValues: "Several values in one field, such as 1..3 or 0.3,1,3, train every combination: a sweep.",
  more: (number) => count(number, "more setting"),
  fieldNote: ({ comment, expected }, usual) => `${comment} · ${expected} · default ${usual}`,
  started: (name) => `${name} is started.`,

  runs: "All runs",
  none: "None yet. Press Start: the sorter takes about twenty seconds.",
  claims: ({ claims, passed, undecided }) => (passed + undecided < claims
    ? `${claims - passed - undecided} of ${count(claims, "claim")} failed` : `${passed} of ${count(claims, "claim")} hold${undecided ? `, ${undecided} undecided` : ""}`),
  option: ({ name, what }) => (what.startsWith(name) ? what : `${name}: ${what}`),
  of: (what, seed) => (Number.isInteger(seed) ? `${what}, seed ${seed}` : what),
  progress: (name, share) => `${name}: ${Math.round(100 * share)} % of this stage`,
  told: {
    waiting: "It waits: two runs train at a time.", running: "It trains now.", paused: `Paused. ${GO_ON}`, canceled: `Canceled. ${GO_ON}`,
    stopped: `Stopped when the lab ended. ${GO_ON}`, failed: "It failed.", unknown: "How it stands is not known while the lab is away.", finished: "Finished.",
    unfinished: "Not finished. It was started on the command line; go on there.", damaged: "A file of this run is damaged.",
  },
  stage: (stage, step, steps, noun) => `${stage || "training"}: ${noun} ${step.toLocaleString("en-GB")} of ${steps.toLocaleString("en-GB")}`,
  left: (seconds) => (seconds < 90 ? `about ${Math.max(1, Math.round(seconds))} s left of this stage` : `about ${Math.round(seconds / 60)} min left of this stage`),
  figures: { loss: "Loss", accuracy: "Accuracy" },
  chart: (name, value, step) => `${name} over the steps: ${value} at step ${step}`,
  pause: "Pause", resume: "Resume", cancel: "Cancel",
  changed: (name, state) => `${name}: ${state}.`,

  noRun: (name) => `There is no run “${name.slice(0, 60)}” in this folder; the newest is shown.`,
  noExperiment: (name, known) => `There is no experiment “${name.slice(0, 60)}”, only ${known.join(", ")}.`,

  report: "Report",
  bench: "Open in the Bench",
  population: "Open in Populations",
  sweep: "Open in Sweeps",
  noBench: "The Bench takes sorters, reversers and copiers of 2 to 4 letters, 1 to 3 heads and 1 to 3 blocks.",
  claimMark: (passed) => (passed === null ? "–" : passed ? "✓" : "✗"),
  claimWord: (passed) => (passed === null ? "not decided" : passed ? "holds" : "failed"),
  claim: ({ statement }) => `${statement[0].toUpperCase()}${statement.slice(1)}.`,
  measured: ({ measured, bound }) => `Measured: ${measured}. Bound: ${bound}.`,
  selfChecks: (number, total) => `Self-checks: ${number} of ${total} hold`,
  compareWith: "Compare with",
  nothing: "no other run",
  compared: (names) => names.join(" beside "),
  parts: { settings: "Settings that differ", claims: "Claims", figures: "Last figures" },
};

// The settings that come first; of other experiments, the first six.
export const FIRST_SETTINGS = {
  sorting: ["task", "letters", "length", "d_model", "num_heads", "steps"],
  sentiment: ["data", "main", "seeds", "epochs", "num_heads", "most_texts"],
};
