// A new run: an experiment, its settings with what is allowed, and the command that does the same.

import { make, makeButton } from "attnlab/draw/report/elements.js";
import { FIRST_SETTINGS, RUN_WORDS } from "../words_runs.js";
import { fillOptions, makeSetting, makeTyped } from "./controls.js";
import { trainingCommand, OUT_OF_RUNS } from "./runs_folder.js";
import { askServer } from "./server.js";
import { slowly } from "./slowly.js";

const CHECK_AFTER = 200; // milliseconds without a key

export function makeRunForm({ experiment: first, start, changed }) {
  let [experiments, name, fields, isStarting] = [null, first, [], false];
  const typed = new Map(); // the settings that are not as usual

  const choice = make("select", { id: "experiment" });
  const summary = make("p", { class: "note" });
  const [seed, seeds] = [makeRunSetting("seed"), makeRunSetting("seeds", null, "number-of-seeds")];
  const [few, many] = [make("div", { class: "fields" }), make("div", { class: "fields" })];
  const more = make("details", {}, make("summary", {}), many);
  const message = make("p", { class: "message refused", role: "status" });
  const command = make("code", { class: "command" });
  const bar = make("div", { class: "bar" }, makeButton(RUN_WORDS.start, begin, { class: "primary" }));
  const form = make("form", { hidden: true, "aria-labelledby": "start-title" },
    makeSetting(RUN_WORDS.experiment, choice, summary),
    few, more, make("p", { class: "note" }, RUN_WORDS.manyValues), message, bar, command);
  const loading = make("p", { class: "note" }, RUN_WORDS.loading);
  const root = make("section", { class: "run-form" }, make("h2", { id: "start-title" }, RUN_WORDS.startTitle), loading, form);

  const found = () => experiments.find((each) => each.name === name);
  const usual = ({ default: value }) => String(value ?? "none");

  // The run as it is typed.
  const typedRun = () => ({
    experiment: name, settings: Object.fromEntries(typed), seed: seed.input.value.trim(), seeds: seeds.input.value.trim(),
    sweep: fields.some(({ setting }) => isMany(setting)),
  });

  function asked() {
    const run = typedRun();
    if (!/^\d{1,15}$/.test(run.seed)) throw new Error(RUN_WORDS.badSeed(run.seed));
    if (!/^[1-9]\d{0,3}$/.test(run.seeds)) throw new Error(RUN_WORDS.badSeeds(run.seeds));
    return { ...run, seed: Number(run.seed), seeds: Number(run.seeds) };
  }

  // Several values in the field of a number.
  const isMany = ({ name: key, type }) => ["int", "float"].includes(type) && /,|\.\./.test(typed.get(key) ?? "");

  function build() {
    typed.clear();
    summary.textContent = `${found().summary[0].toUpperCase()}${found().summary.slice(1)}.`;
    fields = found().settings.map((setting) => {
      const choices = setting.choices ?? (setting.type === "bool" ? ["true", "false"] : null);
      const none = setting.is_optional ? ["none"] : [];
      return { setting, ...makeRunSetting(setting.name, choices && [...choices, ...none]) };
    });
    const names = FIRST_SETTINGS[name] ?? fields.slice(0, 6).map(({ setting }) => setting.name);
    const others = fields.filter(({ setting }) => !names.includes(setting.name));
    few.replaceChildren(...names.map((each) => fields.find(({ setting }) => setting.name === each).root), seed.root, seeds.root);
    many.replaceChildren(...others.map((field) => field.root));
    more.hidden = others.length === 0;
    more.firstChild.textContent = RUN_WORDS.more(others.length);
    for (const { input, setting } of fields) {
      input.addEventListener("input", () => {
        typed.set(setting.name, input.value.trim());
        if (["", usual(setting)].includes(input.value.trim())) typed.delete(setting.name);
        checkSoon();
      });
    }
    show();
  }

  function show() {
    for (const { input, note, setting } of fields) {
      input.value = typed.get(setting.name) ?? usual(setting);
      note.textContent = RUN_WORDS.fieldNote(setting, usual(setting));
    }
    checkSoon();
  }

  const checkSoon = slowly(() => {
    command.textContent = `${trainingCommand(typedRun())}${OUT_OF_RUNS}`;
    return attempt(async () => askServer("/api/check", asked()));
  }, CHECK_AFTER);

  // What the command line would refuse is refused with its sentence.
  async function attempt(deed) {
    const sentence = await deed().then(() => "", (error) => error.message);
    const words = sentence.split(/\W/);
    for (const { input, setting } of fields) input.setAttribute("aria-invalid", typed.has(setting.name) && words.includes(setting.name));
    seed.input.setAttribute("aria-invalid", words[0] === "seed");
    seeds.input.setAttribute("aria-invalid", words[0] === "seeds");
    const wrong = form.querySelector("[aria-invalid=true]");
    if (wrong) wrong.after(message); // beside the first field that it names
    else bar.before(message);
    if (wrong && many.contains(wrong)) more.open = true;
    message.textContent = sentence;
  }

  async function begin() {
    if (isStarting) return; // a second click starts no second run
    isStarting = true;
    await attempt(async () => start(asked()));
    isStarting = false;
  }

  choice.addEventListener("change", () => {
    name = choice.value;
    build();
    changed();
  });
  for (const { input } of [seed, seeds]) input.addEventListener("input", checkSoon);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    begin();
  });
  return {
    root,
    experiment: () => name,
    // The settings of a run that are not the usual ones, as they are typed.
    differing({ experiment, settings }) {
      const known = experiments?.find((each) => each.name === experiment)?.settings ?? [];
      const changed = known.filter((setting) => setting.name in settings && String(settings[setting.name] ?? "none") !== usual(setting));
      return changed.map((setting) => `${setting.name}=${settings[setting.name] ?? "none"}`);
    },
    async load() {
      if (experiments) return "";
      experiments = await askServer("/api/experiments");
      const refusal = found() ? "" : RUN_WORDS.noExperiment(name, experiments.map((each) => each.name));
      if (refusal) name = "sorting";
      fillOptions(choice, experiments.map((each) => [each.name, each.name]), name);
      [loading.hidden, form.hidden] = [true, false];
      [seed.input.value, seed.note.textContent] = ["0", RUN_WORDS.seedNote];
      [seeds.input.value, seeds.note.textContent] = ["1", RUN_WORDS.seedsNote];
      build();
      return refusal;
    },
  };
}

function makeRunSetting(name, choices = null, key = name) {
  const id = `setting-${key}`;
  const note = make("p", { class: "note", id: `${id}-note` });
  const look = { "aria-describedby": note.id };
  const input = choices ? make("select", { id, ...look }) : makeTyped(id, look);
  if (choices) fillOptions(input, choices.map((each) => [each, each]), choices[0]);
  return { input, note, root: makeSetting(name, input, note) };
}
