// The model itself: its task and size by controls, saved as files that torch opens, and opened from such files.

import { make, makeButton } from "attnlab/draw/report/elements.js";
import { WORDS } from "../words.js";
import { makeSetting, makeTyped } from "./controls.js";
import { firstInput, NUMBERS, readLink, shapeOf, TASKS, writeLink } from "./link.js";

const FILES = { config: "config.json", weights: "model.safetensors" };
const SIZES = ["letters", "length", "heads", "layers"];

export function makeModel({ lab, start }, page) {
  const fields = Object.fromEntries([
    ["task", makeChooser("task", TASKS)],
    ...SIZES.map((name) => [name, makeChooser(name, range(NUMBERS[name]))]),
  ]);
  const whole = { inputmode: "numeric", pattern: " *[1-9][0-9]{0,5} *", required: true };
  fields.seed = makeTyped("model-seed", { title: WORDS.seedNote, ...whole });
  for (const [name, field] of Object.entries(fields)) {
    field.addEventListener("change", () => field.reportValidity() && change(name, field.value));
  }
  const files = make("input", { type: "file", multiple: true, hidden: true });
  files.addEventListener("change", () => page.openSaved([...files.files]));
  const keep = makeButton(WORDS.save, page.save);
  const settings = Object.entries(fields).map(([name, field]) => makeSetting(WORDS.settings[name], field));
  const root = make("section", { class: "model-part", "data-part": "model", "aria-labelledby": "model-title" },
    make("h2", { id: "model-title" }, WORDS.modelTitle), make("div", { class: "fields" }, ...settings),
    make("div", { class: "bar" }, keep, makeButton(WORDS.open, () => files.click()), files));

  // What was typed stays as the input where the new model can be asked it.
  function change(name, value) {
    const settings = { ...lab.settings, [name]: name === "task" ? value : Number(value) };
    delete settings.file;
    const input = shapeOf(settings).isInput(lab.input) ? lab.input : firstInput(settings);
    start(settings, { input });
  }

  return {
    root,
    show() {
      root.classList.toggle("over", Boolean(lab.settings.run));
      keep.disabled = !lab.model;
      for (const [name, field] of Object.entries(fields)) {
        const isKnown = name !== "seed" || !lab.settings.file;
        if (document.activeElement !== field) field.value = isKnown ? lab.settings[name] : "";
      }
      fields.seed.disabled = Boolean(lab.settings.file);
    },
  };
}

function makeChooser(name, values) {
  const word = (value) => (name === "task" ? WORDS.tasks[value] : value);
  return make("select", { id: `model-${name}` }, ...values.map((value) => make("option", { value }, word(value))));
}

function range([least, most]) {
  return Array.from({ length: most - least + 1 }, (_, i) => least + i);
}

// The two files of a model, as `attnlab.load` reads them from one folder.
export function filesOf({ config, weights }, { task, letters, length }) {
  const told = { model: config, settings: { task, letters, length } };
  return [new File([JSON.stringify(told, null, 2)], FILES.config), new File([weights], FILES.weights)];
}

export function offer(file) {
  const address = URL.createObjectURL(file);
  make("a", { href: address, download: file.name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// The settings of a link to the model in these files, and what the engine opens.
export async function readFiles(files) {
  const [config, weights] = [FILES.config, FILES.weights].map((name) => files.find((file) => file.name === name));
  if (!config || !weights) throw new Error(WORDS.needsFiles(files.map(({ name }) => name)));
  const told = await config.text().then(JSON.parse).catch(() => null);
  const { model, settings } = told ?? {};
  if (!model?.config || !settings?.letters) throw new Error(WORDS.noModelInFile);
  const { num_heads: heads, num_layers: layers } = model.config;
  const { task, letters, length } = settings;
  const shown = { task, seed: 1, letters, length, heads, layers };
  try {
    const link = { room: "bench", settings: shown, input: firstInput(shown), edits: [], at: null, hide: [], own: {} };
    readLink(writeLink(link));
  } catch {
    throw new Error(WORDS.tooLarge);
  }
  return { ...shown, file: { config: model, weights: await weights.arrayBuffer(), task: { task, letters, length } } };
}

// Files that are dropped on the page; a folder is taken for that of a model.
export function onDrop(open) {
  const turn = (start) => new Promise((done) => start(done, () => done(null)));
  const fileOf = (entry) => entry && turn((done, fail) => entry.file(done, fail));
  const find = (folder) => Object.values(FILES).map((name) =>
    turn((done, fail) => folder.getFile(name, {}, done, fail)).then(fileOf));
  const hasFiles = ({ dataTransfer }) => dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  document.addEventListener("drop", async (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    const files = [...event.dataTransfer.items].flatMap((item) => {
      const entry = item.webkitGetAsEntry();
      return entry?.isDirectory ? find(entry) : [item.getAsFile()];
    });
    const found = (await Promise.all(files)).filter(Boolean);
    if (found.length) open(found);
  });
}
