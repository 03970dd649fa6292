// Training: the loss of whole rows, a rate that warms up and falls, clipping, AdamW and SGD, as attnlab.train has them.

import { Tape } from "./arrays.js";
import { EngineError, requireKnown, requireNumber, requireWhole } from "./errors.js";
import { forward } from "./models.js";
import { cos, TWO_PI } from "./numbers.js";
import { integer } from "./random.js";

/** Settings with which the sorter of three letters is done within a second or two. */
export const PLAY_SETTINGS = {
  steps: 800, learning_rate: 0.05, warmup_steps: 50, weight_decay: 0.1, batch_size: 128, clip: 1,
};
const OTHERS = { optimiser: "adamw", final_share: 0.1 };
const BOUNDS = { learning_rate: 100, weight_decay: 100, final_share: 1, clip: 1e9 };
const BETAS = [0.9, 0.999];
const DATA_STREAM = 0xda7a;

export function readSettings(told = {}) {
  const settings = { ...PLAY_SETTINGS, ...OTHERS, ...told };
  for (const [name, value] of Object.entries(settings)) {
    requireKnown("setting of training", name, Object.keys({ ...PLAY_SETTINGS, ...OTHERS }));
    if (name === "optimiser") requireKnown(name, value, ["adamw", "sgd"]);
    else if (name in BOUNDS) requireNumber(name, value, name === "clip" ? 1e-9 : 0, BOUNDS[name]);
    else requireWhole(name, value, name === "warmup_steps" ? 0 : 1, 100_000_000);
  }
  if (settings.warmup_steps > 0 && settings.warmup_steps >= settings.steps) {
    throw new EngineError(`warmup_steps must be below steps; got ${settings.warmup_steps} and ${settings.steps}.`);
  }
  return settings;
}

/** The rate of a step, counted from 0, as a share of the peak: a straight warm-up, then half a cosine. */
export function shareOfPeak(step, { steps, warmup_steps, final_share }) {
  if (step < warmup_steps) return (step + 1) / warmup_steps;
  const progress = Math.min((step - warmup_steps) / Math.max(steps - 1 - warmup_steps, 1), 1);
  return final_share + (1 - final_share) * 0.5 * (1 + cos((TWO_PI / 2) * progress));
}

/** Clips a gradient by its norm and takes steps of AdamW (Loshchilov & Hutter 2019) or SGD, in place. */
export class Optimizer {
  constructor(numbers, gradients, settings) {
    this.numbers = numbers;
    this.gradients = gradients;
    this.settings = settings;
    this.first = new Float64Array(numbers.length);
    this.second = new Float64Array(numbers.length);
    this.powers = [1, 1]; // of the betas
    this.step = 0;
  }

  /** Take a step where the gradient is finite; say whether it is. */
  update() {
    const { numbers, gradients, settings, first, second } = this;
    const rate = settings.learning_rate * shareOfPeak(this.step, settings);
    let squares = 0;
    for (const value of gradients) squares += value * value;
    if (!Number.isFinite(squares)) return false;
    const factor = Math.min(1, settings.clip / (Math.sqrt(squares) + 1e-6));
    this.step++;
    this.powers = this.powers.map((power, i) => power * BETAS[i]);
    const [firstRate, secondRoot] = [rate / (1 - this.powers[0]), Math.sqrt(1 - this.powers[1])];
    for (let i = 0; i < numbers.length; i++) {
      const gradient = gradients[i] * factor;
      if (settings.optimiser === "sgd") {
        numbers[i] -= gradient * rate;
        continue;
      }
      first[i] += (gradient - first[i]) * (1 - BETAS[0]);
      second[i] = second[i] * BETAS[1] + gradient * gradient * (1 - BETAS[1]);
      const change = (first[i] / (Math.sqrt(second[i]) / secondRoot + 1e-8)) * firstRate;
      numbers[i] = numbers[i] * (1 - rate * settings.weight_decay) - change;
    }
    return true;
  }
}

/** A training of a model, whose `lossOfStep()` is the array of the loss of what is drawn for a step. */
export class TrainingByLoss {
  constructor(model, settings, seed) {
    this.model = model;
    this.settings = settings;
    this.seed = seed;
    this.loss = null;
    this.tape = new Tape({ isRecording: true });
    this.optimizer = new Optimizer(model.numbers, model.gradients, settings);
  }

  get step() {
    return this.optimizer.step;
  }

  /** Take one step and return its loss. */
  advance() {
    this.tape.restart();
    this.model.gradients.fill(0);
    const loss = this.lossOfStep();
    this.tape.backward(loss);
    this.loss = loss.data[0];
    if (Number.isFinite(this.loss) && this.optimizer.update()) return this.loss;
    throw new EngineError(`the training is no longer finite at step ${this.step + 1}; try a smaller learning_rate.`);
  }
}

/** A training on a task. Where the domain is no larger than a batch, rows are counted, not repeated. */
export class Training extends TrainingByLoss {
  constructor(model, task, settings, seed) {
    super(model, settings, seed);
    this.rows = task.prompts.map((prompt, i) => [...prompt, 0, ...task.answers[i]]);
    const { batch_size } = settings;
    this.isCounted = this.rows.length <= batch_size;
    const [batch, length] = [this.isCounted ? this.rows.length : batch_size, task.rowLength - 1];
    this.tokens = { batch, length, ids: new Int32Array(batch * length) };
    this.targets = new Int32Array(batch * length);
    this.shares = new Float64Array(batch * length).fill(1 / (batch_size * length));
    if (this.isCounted) this.rows.forEach((row, place) => this.put(row, place));
  }

  put(row, place) {
    const { length, ids } = this.tokens;
    for (let i = 0; i < length; i++) {
      ids[place * length + i] = row[i];
      this.targets[place * length + i] = row[i + 1];
    }
  }

  /** Draw the rows of a step, uniformly from the domain. */
  draw() {
    const { batch_size } = this.settings;
    const { length } = this.tokens;
    if (this.isCounted) this.shares.fill(0);
    for (let i = 0; i < batch_size; i++) {
      const drawn = integer(this.seed, DATA_STREAM, this.step * batch_size + i, this.rows.length);
      if (!this.isCounted) this.put(this.rows[drawn], i);
      for (let j = 0; this.isCounted && j < length; j++) this.shares[drawn * length + j] += 1 / (batch_size * length);
    }
  }

  /** In nats per token. */
  lossOfStep() {
    const { model, tape } = this;
    if (model.config.dropout > 0) throw new EngineError("a model with dropout is not trained here; set dropout to 0.");
    this.draw();
    return tape.crossEntropy(forward(model, tape, this.tokens), this.targets, this.shares);
  }
}
