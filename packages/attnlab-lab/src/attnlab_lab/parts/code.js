// The Python lines and the command that do the same to a model trained by attnlab.

import { WORDS } from "../words.js";
import { makeCodes } from "./controls.js";
import { BORROWED, nameEdit, placesOfEdit, rowsOf } from "./edits.js";
import { folderOf, RUNS_FOLDER } from "./runs_folder.js";

const AT_THE_TOP = ["CutEdge", "ZeroHead"]; // of attnlab; the others are in attnlab.edits
// Of a setting: its name here, its name in `attnlab run sorting`, and what it is there.
const SETTINGS = [
  ["task", "task", "sort"], ["letters", "letters", 3], ["length", "length", 3],
  ["heads", "num_heads", 2], ["layers", "num_layers", 1],
];

export function makeCode({ lab }) {
  const { root, note, python, command } = makeCodes(WORDS.codeTitle, { "data-part": "code" });
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
  const fields = wordPlaces(edit);
  if (edit.kind === "freeze") fields.push(`recording=${edit.input}`);
  if (edit.kind === "mean") fields.push(`recording=mean`);
  if (edit.kind === "mask") fields.push(`mask=torch.tensor(${maskOf(edit)}) > 0`);
  const name = nameEdit(edit);
  return `attnlab.${AT_THE_TOP.includes(name) ? "" : "edits."}${name}(${fields.join(", ")})`;
}

function wordPlaces(edit) {
  return placesOfEdit(edit).map(([name, number]) => `${name}=${number}`);
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
  const known = edits.filter(({ kind }) => !BORROWED.includes(kind));
  const told = known.map((edit) => `--edit '${commandOf(edit)}'`);
  const note = known.length < edits.length ? [`# ${WORDS.onlyPython}`] : [];
  if (!known.length) return [...run, ...note].join("\n");
  return [...run, ...note, [`attnlab edit ${name} ${input}`, ...told].join(" \\\n    ")].join("\n");
}

function commandOf(edit) {
  const fields = wordPlaces(edit);
  if (edit.kind === "mask") fields.push(`mask={"tensor":${maskOf(edit)},"dtype":"bool"}`);
  const name = nameEdit(edit).replace(/\B[A-Z]/g, "-$&").toLowerCase();
  return [name, ...fields].join(" ");
}
