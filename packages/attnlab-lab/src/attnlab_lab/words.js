// All sentences of the page, in one place.

import { count, isTouched, quote, wordNumber } from "attnlab/draw/report/elements.js";

const DOES = {
  sort: (letters) => `writes ${letters} in order`,
  reverse: (letters) => `writes ${letters} backwards`,
  copy: (letters) => `writes ${letters} again`,
};
const COUNTS = ["no", "one", "two", "three", "four"];

const AFRESH = "; the page starts afresh.";
const brief = (text) => String(text).slice(0, 20);
const cutAnEdge = () => (isTouched() ? "Tap any square of a head to read it, and again to cut that edge." : "Click any square of a head to cut that edge.");
const verdict = (isRight) => (isRight ? "right" : "wrong");
const ofAll = (lab, now = lab.now) => `${countRight(now)} of ${now.right.length} inputs right`;

export function countRight({ right }) {
  return right.reduce((sum, each) => sum + each, 0);
}

export function leastMargin({ margins }) {
  const margin = Math.min(...margins);
  return { index: margins.indexOf(margin), margin };
}

function outcome(lab) {
  const { now, before } = lab;
  const lost = countRight(before) - countRight(now);
  const fewer = lost > 0 ? `${lost} fewer` : `${-lost} more`;
  const change = lost === 0 ? "as many as before" : `${fewer} than before`;
  const [was, is] = [before.ask.answer, now.ask.answer];
  const answer = was === is ? `${lab.input} still becomes ${is}` : `${lab.input} became ${was}, now ${is}`;
  return `${ofAll(lab)}, ${change}. Smallest margin ${wordNumber(leastMargin(now).margin)}. ${answer}.`;
}

export const WORDS = {
  verdict,
  title: ({ task }) => `A transformer learns to ${task}`,
  subtitle({ settings: { task, length }, model, step, isDone, isRunning }) {
    const rests = isDone ? "It has trained in this page" : "It trains in this page, and rests";
    const state = step && !isRunning ? rests : "It trains in this page, right now";
    const start = step ? "which started out random" : "which start out random";
    return `${state}. It reads ${COUNTS[length]} letters and ${DOES[task]("them")}. ${model
      ? `All it knows are ${wordNumber(model.parameters)} numbers, ${start}.` : ""}`;
  },

  fileTitle: ({ task }) => `A saved transformer that learned to ${task}`,
  fileSubtitle: ({ settings: { task, length }, model }) => `It was opened from its files. It reads ${COUNTS[length]} letters and ${DOES[task]("them")}.${model
    ? ` All it knows are ${wordNumber(model.parameters)} numbers.` : ""}`,

  modelTitle: "The model",
  settings: { task: "Task", letters: "Letters", length: "Length", heads: "Heads", layers: "Blocks", seed: "Seed" },
  tasks: { sort: "Sort", reverse: "Reverse", copy: "Copy" },
  seedNote: "A whole number from 1 to 999999",
  save: "Save it",
  saved: "Two files are saved. In one folder, attnlab.load opens them, and so does this page.",
  open: "Open a saved one",
  needsFiles: (names) => `Expected config.json and model.safetensors of a run or a saved model, or a picture of this page; got ${names.map(brief).join(", ") || "no file"}.`,
  noModelInFile: "Expected a config.json of a sorter that attnlab or this page saved; this one names no model and task.",
  tooLarge: "This page takes models of 2 to 4 letters, 1 to 3 heads and 1 to 3 blocks that sort, reverse or copy.",
  notOpened: (message) => `The model is not opened. ${message[0].toUpperCase()}${message.slice(1)}`,
  fileIsGone: "The model of this link was opened from files, which a link cannot hold: open them again. A new one trains here.",

  rooms: { play: "Play", bench: "Bench", design: "Design", anatomy: "Anatomy", runs: "Runs", populations: "Populations", sweeps: "Sweeps", models: "Models", programs: "Programs", course: "Course" },
  groups: { learn: "Learn", work: "Work" },
  copyLink: "Copy link",
  linkCopied: "The link is copied. It opens the page as it is now.",
  linkShown: "Copy the address of this page: it opens the page as it is now.",

  input: "Input",
  asBefore: "without edits",
  badInput(text, alphabet, length, example) {
    const came = text ? `“${brief(text)}”` : "nothing";
    const expected = `${COUNTS[length]} letters from ${alphabet[0]} to ${alphabet.at(-1)}, such as ${example}`;
    return `Expected ${expected}; got ${came}.`;
  },

  stateOf(lab) {
    if (!lab.now) return "";
    const isAll = countRight(lab.now) === lab.now.right.length;
    if (lab.edits.length) return "inputs still right";
    if (lab.step === 0 && !lab.settings.file) return "inputs right, by chance.";
    if (lab.isRunning) return "inputs right. It is learning.";
    if (!lab.isDone) return "inputs right. Training is paused.";
    if (isAll) return "inputs right: every input there is.";
    return lab.settings.file || lab.settings.run ? "inputs right." : "inputs right. This seed did not learn them all: try another.";
  },
  prompt(lab) {
    if (!lab.now || lab.isRunning || (lab.step === 0 && !lab.isDone)) return "One dot for each input.";
    if (!lab.edits.length) return cutAnEdge();
    return `Cut more, or mend it by another ${isTouched() ? "tap" : "click"}.`;
  },
  dots: "All inputs",
  dotKinds: "Green: right. Red with a cross: wrong. Framed: the input that is shown.",
  dot: (input, isRight, answer, margin) => `${input} → ${answer}, ${verdict(isRight)}, margin ${wordNumber(margin)}`,
  margin: "Smallest margin",
  marginNote: "How far the right letter is ahead of the best wrong one, where it is closest. Below 0: a wrong answer.",
  marginOf: (input) => `at ${input}`,
  marginBefore: (margin) => `was ${wordNumber(margin)}`,

  loss: "Loss",
  lossNow: (loss, step, steps) => `${loss.toFixed(3)} · step ${step} of ${steps}`,
  lossLabel: (loss, step, steps) => `Loss over the steps of training: ${loss.toFixed(3)} at step ${step} of ${steps}.`,
  floor: "least possible",
  pause: "Pause",
  goOn: "Go on",
  again: (seed) => `Again with seed ${seed}`,

  heads: "Where its heads look",
  headsNote: "Row: the query, the letter that looks. Column: the key, the letter that it looks at. Only rows from SEP on write the answer.",
  head: (name) => `Head ${name}`,
  mapLabel: (name) => `Attention weights of head ${name}`,
  playKeys: "Arrow keys read squares, Enter or x cuts an edge or mends it",
  benchKeys: "Arrow keys read squares, Enter uses the tool; x cuts, plus and minus change the score, space paints",
  weight: (weight, score) => `weight ${weight}, score ${score}`,
  cutCell: "cut",
  maskedCell: "masked",
  masked: "masked",
  cut: "cut by you",
  nothingToCut: "There is nothing to cut: this letter may not be looked at anyway.",

  edits: {
    cut: ({ name, edge }) => `Head ${name}: ${edge} is cut.`,
    add({ name, edge, amount }) {
      const sign = amount > 0 ? "plus" : "minus";
      return `Head ${name}: ${sign} ${Math.abs(amount)} on the score of ${edge}.`;
    },
    mask: ({ name }) => `Head ${name} has a painted mask.`,
    zero: ({ name }) => `Head ${name} is knocked out.`,
    first: ({ name }) => `Head ${name} looks at the first letter only.`,
    freeze: ({ name, input }) => `Head ${name} is frozen: it looks as it did at ${input}.`,
    mean: ({ name }) => `Head ${name} looks as it does on average over all inputs.`,
    uniform: ({ name }) => `Head ${name} looks at everything alike.`,
  },
  badges: { zero: "knocked out", first: "first letter only", freeze: "frozen", mean: "as on average", uniform: "everything alike" },
  editsTitle: "Your edits",
  noEdits: "None yet.",
  remove: (words) => `Remove: ${words}`,
  guess: (all) => `Before you look: how many of ${all} inputs are still right?`,
  reveal: "Show",
  badGuess: (all) => `Expected a number from 0 to ${all}.`,
  guessed: (said, is, all) => `You said ${said}. ${said === is ? "So it is" : `It is ${is}`}, of ${all}.`,
  undo: "Undo", redo: "Redo", resetButton: "Reset",
  nothingToUndo: "There is nothing to undo.",
  nothingToRedo: "There is nothing to redo.",

  worth: "Which head did the work?",
  worthButton: "Knock out each head",
  worthNote: "Each head is taken out alone, without your edits; the bar says how many inputs stay right.",
  worthRow: (name) => `without ${name}`,

  trained: (lab) => (countRight(lab.now) === lab.now.right.length
    ? `${ofAll(lab)}: every input there is. ${cutAnEdge()}`
    : `Training is done: ${ofAll(lab)}. Try another seed.`),
  linkOpened: (lab) => (lab.edits.length ? `The edits of the link are back. ${outcome(lab)}` : WORDS.answered(lab)),
  changed(lab, edit, done) {
    const { layers, length } = lab.settings;
    const isIdle = layers === 1 && edit.query < length;
    const reason = isIdle ? " An answer is read from SEP on: the rows above write nothing." : "";
    return `${done} ${outcome(lab)}${reason}`;
  },
  answered(lab) {
    const { answer, isRight } = lab.now.ask;
    return lab.edits.length ? outcome(lab) : `${lab.input} becomes ${answer}, ${verdict(isRight)}.`;
  },
  takenBack: "Taken back.",
  undone: (lab) => `Undone. ${outcome(lab)}`,
  redone: (lab) => `Done again. ${outcome(lab)}`,
  reset: (lab) => `All edits are taken back. ${outcome(lab)}`,
  weighed({ worth, now }) {
    return worth.map((head) => `Without head ${head.name}: ${head.right} of ${now.right.length} right.`).join(" ");
  },

  doors: "Go on",
  doorList: [
    ["bench", "The bench", "The same model at rest: step through its answer, paint masks, change scores."],
    ["run", "On your computer", "The same task with every setting, a report and tests of its claims."],
    ["docs", "Real models", "The same edits on pretrained language models."],
  ],
  doorCommands: { run: "attnlab run sorting", docs: "attnlab edit MODEL TEXT --cut-edge QUERY-KEY" },

  puzzles: "Puzzles",
  noPuzzle: (name, known) => `There is no puzzle “${brief(name)}”, only ${known.join(", ")}.`,
  beginningIsGone: "The cut that the puzzle begins with must stay: cut that edge again.",
  onlyKind: {
    cut: "Only cuts count here: take the other edits back.", add: "Only changed scores count here: take the other edits back.",
    zero: "Only a knocked out head counts here: take the other edits back.",
  },
  halfTrained: ({ step, model }) => `The model is half trained: step ${step} of ${model.steps}. The puzzle counts once it is trained to the end.`,
  puzzleScore: { edits: (own) => count(own, "edit"), right: (own) => `${own} right` },
  puzzleSoFar: (now, ours) => `So far ${now.right} right with ${count(now.edits, "edit")}; ours: ${ours}.`,
  puzzleSolved: (now, ours) => `Solved, on every input: ${now.right} right with ${count(now.edits, "edit")}; ours: ${ours}.`,

  allHeads: "All heads",
  oneHead: "One head, large",
  variants: {
    label: "What is shown", names: { before: "Before", after: "After", difference: "Difference" },
    titles: { before: "key 1", after: "key 2", difference: "key 3: after less before" },
  },
  tools: {
    label: "What a click does", names: { cut: "Cut", paint: "Paint a mask", score: "Add to a score" },
  },
  toolHints: {
    cut: "Click a square: its edge is cut, or mended. Key: x.",
    paint: "Drag over squares: they close, or open. Keys: space, arrows, space.",
    score: "Click a square: its score grows by 1, with shift it shrinks. Keys: + and −.",
  },
  touchHints: {
    cut: "Tap a square to read it. Another tap cuts its edge, or mends it.",
    paint: "Drag over squares: they close, or open.",
    score: "Tap a square to read it. Each further tap adds 1 to its score.",
  },
  wholeHead: "The whole head",
  switches: {
    "": () => "as it is", zero: () => "knocked out", first: () => "first letter only",
    freeze: (input) => `frozen as at ${input}`, mean: () => "as on average", uniform: () => "everything alike",
  },
  changeLabel: (name) => `Change of the attention weights of head ${name}: after less before`,
  headIsOut: (name) => `The output of head ${name} is taken out; its weights stay.`,
  change: (was, is) => `${was} before, ${is} after`,
  isCut: "You have cut this edge: mend it first, with x.",
  noScore: "There is no score to change: this letter may not be looked at.",
  enough: (most) => `A score can be changed by ${most} at most.`,
  painting: (opens) => `Painting: arrow keys ${opens ? "open" : "close"} squares, space ends, Escape forgets.`,
  paintingCancelled: "Nothing was painted.",
  step: "Step of the answer",
  stepBack: "Previous step",
  stepOn: "Next step",
  stepName: (index, { steps }) => `step ${index + 1} of ${steps.length}`,
  stepSaid(index, { steps }, { tokens, answer, expected }) {
    const end = answer === expected ? "" : `; right would be ${expected}`;
    return `Step ${index + 1} of ${steps.length}: after ${tokens.join(" ")} it writes ${answer}${end}.`;
  },
  chosenRight: "✓ chosen",
  chosenWrong: "✗ chosen",
  expected: "right one",
  codeTitle: "The same in Python and on the command line",
  runTitle: (run) => `The run ${run}`,
  runSubtitle: ({ model }) => `Trained by attnlab, answered by PyTorch on this computer. ${model
    ? `All it knows are ${model.parameters.toLocaleString("en-GB")} numbers. ` : ""}Cut an edge and see what breaks.`,
  runCodeNote: "On the very model that this page asks.",
  noServer: "This page has no server: runs are shown by the page that the command attnlab lab opens.",
  codeNote: "On a model of the same shape that attnlab trains on your computer; its numbers differ a little.",
  python: "Python",
  shell: "Command line",
  onlyPython: "what takes a recording: see the Python lines",

  keysTitle: "Keys",
  keys: {
    play: [
      ["arrow keys", "read the squares of a map, or move among the dots"], ["x", "cut the edge, or mend it"],
      ["z Z", "undo, redo"], ["?", "these keys"],
    ],
    bench: [
      ["arrow keys", "read the squares of a map, or move among dots and heads"],
      ["x", "cut the edge, or mend it"], ["+ −", "add to the score, or take away"],
      ["space", "start painting a mask; arrow keys paint, space ends, Escape forgets"],
      ["h H", "turn the switch of the whole head, forwards or backwards"],
      ["z Z", "undo, redo"], ["[ ]", "previous and next step"], ["1 2 3", "before, after, difference"],
      ["?", "these keys"],
    ],
  },

  longLink: (length, most) => `This link has ${length} characters, and ${most} are the most${AFRESH}`,
  badVersion: (version) => `This link is of version “${brief(version)}”, and this page reads version 1${AFRESH}`,
  badKey: (key, known) => `This link says “${brief(key)}”, which is not one of ${known.join(", ")}${AFRESH}`,
  badChoice: (name, value, known) =>
    `This link says ${name}=${brief(value)}, which is not one of ${known.join(", ")}${AFRESH}`,
  badNumber: (name, text, from, to) =>
    `This link says ${name}=${brief(text)}, expected a whole number from ${from} to ${to}${AFRESH}`,
  badLinkInput: (sentence) => `This link's input does not fit its model. ${sentence.replace(/\.$/, "")}${AFRESH}`,
  badEdit: (word) => `This link holds the edit “${brief(word)}”, which does not fit this model${AFRESH}`,
  picture: "Download picture",
  savePicture: (kind) => `Download the map as ${kind}`,
  pictureNote: "Dropped on this page, the file brings back the model, the input and the edits; attnlab.open reads it.",
  badPicture: (name) => `${brief(name)} is no picture of this page: drop a PNG or an SVG that Download picture made.`,
  noWorker: "It could not be started.",
  refused: (message) => `${message[0].toUpperCase()}${message.slice(1)}`,
  failed: (message) => `The engine stopped: ${message} Reload the page to start afresh.`,
};

// An edge as the maps, the edits and the Python lines count it; a query and a key are pairs of a position and a token.
export function wordEdge(query, key) {
  const word = ([position, token]) => (token === undefined ? position : `${position} ${quote(token)}`);
  return `query ${word(query)} → key ${word(key)}`;
}
