// The Python lines and the command that do the same to a model trained by attnlab.

import { make } from "../../draw/report/elements.js";
import { WORDS } from "../words.js";
import { rowsOf } from "./edits.js";
import { folderOf, RUNS_FOLDER } from "./runs_folder.js";

const NAMES = {
  cut: ["attnlab.CutEdge", "cut-edge"], zero: ["attnlab.ZeroHead", "zero-head"],
  add: ["attnlab.edits.AddToScores", "add-to-scores"], mask: ["attnlab.edits.SetMask", "set-mask"],
  first: ["attnlab.edits.RedirectToFirst", "redirect-to-first"],
  freeze: ["attnlab.edits.FreezePattern", null], mean: ["attnlab.edits.FreezePattern", null], uniform: ["attnlab.edits.UniformPattern", "uniform-pattern"],
};
// Of a setting: its name here, its name in `attnlab run sorting`, and what it is there.
const SETTINGS = [
  ["task", "task", "sort"], ["letters", "letters", 3], ["length", "length", 3],
  ["heads", "num_heads", 2], ["layers", "num_layers", 1],
];
const PLACES = ["layer", "head", "query", "key", "amount"];

export function makeCode({ lab }) {
  const [python, command] = [make("code", {}), make("code", {})];
  const block = (title, code) =>
    make("div", {}, make("h3", {}, title), make("pre", { tabindex: 0, "aria-label": title }, code));
  const note = make("p", { class: "note" });
  const root = make("details", { class: "code-part", "data-part": "code" }, make("summary", {}, WORDS.codeTitle),
    note, block(WORDS.python, python), block(WORDS.shell, command));
  return {
    root,
    show() {
      note.textContent = lab.settings.run ? WORDS.runCodeNote : WORDS.codeNote;
      python.textContent = wordPython(lab);
      command.textContent = wordCommand(lab);
    },
  };
}

export function wordPython({ settings: { run }, input, edits }) {
  const folder = JSON.stringify(run ? `${RUNS_FOLDER}/${run}` : "runs/sorting");
  const lines = ["import attnlab", "", `question = attnlab.ask(${folder}, "${input}")`];
  if (!edits.length) return [...lines, "print(question.trace())"].join("\n");
  if (edits.some(({ kind }) => kind === "mask")) lines[0] = "import attnlab, torch";
  const frozen = [...new Set(edits.filter(({ kind }) => kind === "freeze").map((edit) => edit.input))];
  const averaged = [...new Set(edits.filter(({ kind }) => kind === "mean").map(({ layer }) => layer))];
  if (averaged.length) lines.push(...wordMean(folder, input, averaged));
  for (const each of frozen) lines.push(`${each} = attnlab.recorded(attnlab.ask(${folder}, "${each}"))`);
  const told = edits.map((edit) => `    ${pythonOf(edit)},`);
  return [...lines, "print(attnlab.fork(", "    question,", ...told, "))"].join("\n");
}

function siteOf(layer) {
  return `layers.${layer}.attention.weights`;
}

// The mean patterns of these layers over all inputs.
function wordMean(folder, { length }, layers) {
  return [
    "from itertools import product",
    `letters = question.vocabulary[1:]`,
    `inputs = ["".join(each) for each in product(letters, repeat=${length})]`,
    `recordings = [attnlab.recorded(attnlab.ask(${folder}, each)) for each in inputs]`,
    "mean = {",
    ...layers.map((layer) => `    "${siteOf(layer)}": sum(each["${siteOf(layer)}"] for each in recordings) / len(inputs),`),
    "}",
  ];
}

function pythonOf(edit) {
  const fields = PLACES.filter((name) => name in edit).map((name) => `${name}=${edit[name]}`);
  if (edit.kind === "freeze") fields.push(`recording=${edit.input}`);
  if (edit.kind === "mean") fields.push(`recording=mean`);
  if (edit.kind === "mask") fields.push(`mask=torch.tensor(${maskOf(edit)}) > 0`);
  return `${NAMES[edit.kind][0]}(${fields.join(", ")})`;
}

function maskOf({ open }) {
  return JSON.stringify(rowsOf(open, Number));
}

function wordCommand({ settings, input, edits }) {
  const own = SETTINGS.filter(([name, , usual]) => settings[name] !== usual)
    .map(([name, field]) => `${field}=${settings[name]}`);
  const run = settings.run ? [] : [`attnlab run sorting --set ${["recipe=fast", ...own].join(" ")}`];
  const name = settings.run ? folderOf(settings.run) : "sorting";
  if (!edits.length) return [...run, `attnlab trace ${name} ${input}`].join("\n");
  const known = edits.filter(({ kind }) => NAMES[kind][1]);
  const told = known.map((edit) => `--edit '${commandOf(edit)}'`);
  const note = known.length < edits.length ? [`# ${WORDS.onlyPython}`] : [];
  if (!known.length) return [...run, ...note].join("\n");
  return [...run, ...note, [`attnlab edit ${name} ${input}`, ...told].join(" \\\n    ")].join("\n");
}

function commandOf(edit) {
  const fields = PLACES.filter((name) => name in edit).map((name) => `${name}=${edit[name]}`);
  if (edit.kind === "mask") fields.push(`mask={"tensor":${maskOf(edit)},"dtype":"bool"}`);
  return [NAMES[edit.kind][1], ...fields].join(" ");
}
