// The engine that a page uses: makes models, trains them for a while at a time, asks them, and applies edits.

import { Tape } from "./arrays.js";
import { Editor } from "./edits.js";
import { EngineError, requireKnown, requireNumber, requireObject, requireWhole } from "./errors.js";
import { forward, loadWeights, makeModel } from "./models.js";
import { softmaxInto } from "./numbers.js";
import { readTensors, writeTensors } from "./safetensors.js";
import { SEPARATOR, SequenceTask } from "./tasks.js";
import { readSettings, Training } from "./training.js";
import { TwinTraining } from "./twin.js";

/** The sorter of attnlab.experiments.sorting: 480 parameters. */
export const PLAY_MODEL = {
  d_model: 6, num_heads: 2, num_layers: 1, d_ff: 6, projections: "gated", rank: 3, positions: "learned", bias: false,
};
const CHUNK = 1_000; // inputs answered at once

/** @param {{ now?: () => number }} options a clock, in milliseconds */
export function makeEngine({ now = () => performance.now() } = {}) {
  return new LocalEngine(now);
}

class LocalEngine {
  constructor(now) {
    this.now = now;
    this.held = new Map();
    this.count = 0;
  }

  /**
   * Make a model with initial weights, ready to be trained.
   * @param {{ task?: string, letters?: number, length?: number, seed?: number, model?: object, train?: object }} told
   */
  create(told = {}) {
    const { seed = 1, model = PLAY_MODEL, train = {}, ...task } = requireObject("what to create", told);
    requireWhole("seed", seed, 0, 4_294_967_295);
    requireObject("model", model);
    requireObject("train", train);
    const found = new SequenceTask(task);
    const sizes = { vocab_size: found.vocabulary.length, max_length: found.rowLength };
    const settings = readSettings(train);
    return this.hold(makeModel("decoder", { ...sizes, ...model }, seed), found, settings, seed);
  }

  hold(model, task, settings, seed) {
    const { vocab_size, max_length } = model.config;
    if (vocab_size < task.vocabulary.length || max_length < task.rowLength - 1) {
      const wanted = `${task.vocabulary.length} tokens and rows of ${task.rowLength - 1}`;
      throw new EngineError(`the task needs ${wanted}; the model has ${vocab_size} and ${max_length}.`);
    }
    const id = ++this.count;
    const training = new Training(model, task, settings, seed);
    this.held.set(id, { model, task, training, tape: new Tape() });
    const inputs = task.prompts.map((prompt) => task.text(prompt));
    const { kind, config, numbers } = model;
    return { id, kind, config, parameters: numbers.length, vocabulary: task.vocabulary, inputs, steps: settings.steps };
  }

  get(id) {
    const found = this.held.get(id);
    if (!found) throw new EngineError(`there is no model ${JSON.stringify(id)}; create or open one.`);
    return found;
  }

  /** Train for about so long, at least one step, and never beyond the last. @param {number} milliseconds */
  advance(id, milliseconds) {
    const { training } = this.get(id);
    const { steps } = training.settings;
    const [end, losses] = [this.now() + requireNumber("milliseconds", milliseconds, 0, 1e9), []];
    while (training.step < steps && (!losses.length || this.now() < end)) {
      const loss = training.advance();
      losses.push([training.step, loss]);
    }
    return { step: training.step, steps, loss: training.loss, losses, isDone: training.step === steps };
  }

  /** Answer the whole domain, as a batch: which are right, by how much, and the answers. */
  check(id, edits = []) {
    const { task, model } = this.get(id);
    const [answers, margins] = [[], new Float64Array(task.prompts.length)];
    const editor = new Editor(model, edits);
    for (let first = 0; first < task.prompts.length; first += CHUNK) {
      const found = this.answer(id, task.prompts.slice(first, first + CHUNK), editor);
      answers.push(...found.answers);
      margins.set(found.margins, first);
    }
    editor.finish();
    const right = Uint8Array.from(answers, (answer, i) => Number(isSame(answer, task.answers[i])));
    return { right, margins, answers: answers.map((answer) => task.text(answer)) };
  }

  /** Answer one input, with every head's weights and scores at every step. */
  ask(id, input, edits = []) {
    const { task, model } = this.get(id);
    const prompt = task.parse(input);
    const expected = task.answer(prompt);
    const [editor, recorder, steps] = [new Editor(model, edits), new HeadRecorder(), []];
    const { answers, margins } = this.answer(id, [prompt], editor, recorder, (tokens, probabilities, chosen) => {
      const [answer, right] = [chosen, expected[steps.length]].map((token) => task.vocabulary[token]);
      const names = Array.from(tokens.ids, (token) => task.vocabulary[token]);
      steps.push({ tokens: names, answer, expected: right, probabilities, heads: recorder.takeHeads() });
    });
    editor.finish();
    const told = { input: task.text(prompt), answer: task.text(answers[0]), expected: task.text(expected) };
    return { ...told, isRight: isSame(answers[0], expected), margin: margins[0], steps };
  }

  /**
   * Answer prompts greedily, SEP forbidden, one letter for all of them at a time.
   * @param {(tokens: object, probabilities: Float64Array, chosen: number) => void} tell hears of every letter
   */
  answer(id, prompts, editor, recorder = null, tell = () => {}) {
    const { task, model, tape } = this.get(id);
    const hooks = [...(editor.edits.length ? [editor] : []), ...(recorder ? [recorder] : [])];
    const rows = prompts.map((prompt) => [...prompt, SEPARATOR]);
    const margins = new Float64Array(prompts.length).fill(Infinity);
    for (let step = 0; step < task.length; step++) {
      tape.restart();
      const length = rows[0].length;
      const tokens = { batch: rows.length, length, ids: Int32Array.from(rows.flat()) };
      const logits = forward(model, tape, tokens, { hooks });
      const width = logits.shape.at(-1);
      rows.forEach((row, i) => {
        const last = (i * length + length - 1) * width;
        const letters = logits.data.slice(last, last + task.vocabulary.length).fill(-Infinity, 0, SEPARATOR + 1);
        const expected = task.answer(prompts[i])[step];
        const others = letters.map((value, letter) => (letter === expected ? -Infinity : value));
        margins[i] = Math.min(margins[i], letters[expected] - others.reduce((most, value) => Math.max(most, value)));
        const probabilities = new Float64Array(letters.length);
        softmaxInto(probabilities, letters, 0, letters.length);
        const chosen = probabilities.indexOf(probabilities.reduce((most, value) => Math.max(most, value)));
        if (chosen < 0) throw new EngineError("the logits are no longer finite under these edits; make them weaker.");
        tell(tokens, probabilities, chosen);
        row.push(chosen);
      });
    }
    return { margins, answers: rows.map((row) => row.slice(task.length + 1)) };
  }

  /** Open a saved model: what config.json says of it, the bytes of model.safetensors, and its task. */
  open(told) {
    const { config: description, weights, task = {} } = requireObject("what to open", told);
    const { kind, config } = requireObject("config", description);
    requireKnown("kind of model that answers here", kind, ["decoder"]);
    const model = makeModel(kind, requireObject("the model's config", config), 0);
    loadWeights(model, readTensors(weights));
    return this.hold(model, new SequenceTask(task), readSettings({}), 0);
  }

  /** Return what `open` takes, and `attnlab.models.load_model` reads from config.json and model.safetensors. */
  save(id) {
    const { model } = this.get(id);
    const config = { kind: model.kind, dtype: "float64", config: model.config };
    return { config, weights: writeTensors(model.weights) };
  }

  /** Make a single head with initial weights, that `advance` trains on a vector task. */
  createHead(rule, train = {}) {
    const training = new TwinTraining(rule, train);
    this.held.set(++this.count, { training });
    return { id: this.count, steps: training.settings.steps };
  }

  /** The matrices of a single head in training. */
  readHead(id) {
    return this.get(id).training.head;
  }

  drop(id) {
    this.get(id);
    this.held.delete(id);
  }
}

function isSame(one, other) {
  return one.every((value, i) => value === other[i]);
}

/** A hook that copies the scores and weights of every head in passes of one row. */
class HeadRecorder {
  heads = [];

  takeHeads() {
    return this.heads.splice(0);
  }

  visit(site, array) {
    const [, layer, own] = site.match(/(\d+)\.attention\.(scores|weights)$/) ?? [];
    for (let head = 0; own && head < array.shape[1]; head++) {
      const [name, rows, columns] = [`${layer}.${head}`, ...array.shape.slice(2)];
      const values = array.data.slice(head * rows * columns, (head + 1) * rows * columns);
      if (own === "weights") {
        this.heads.find((each) => each.name === name).weights = values;
        continue;
      }
      const scores = values.map((value) => (value === -Infinity ? NaN : value));
      this.heads.push({ name, scores, rows, columns });
    }
    return array;
  }
}
