// One head of a design's shape that learns the design's task: plain gradient descent, one sequence a step, as
// attnlab.experiments.handmade has it.

import { constant } from "./arrays.js";
import { forwardSingleHead, makeModel } from "./models.js";
import { integer } from "./random.js";
import { readSettings, TrainingByLoss } from "./training.js";
import { emptyHead, makeVectorTask, targetOf } from "./vectors.js";

const TWIN_SETTINGS = {
  steps: 10_001, learning_rate: 0.03, optimiser: "sgd", warmup_steps: 0, weight_decay: 0, batch_size: 1, clip: 1e9,
  final_share: 1,
};
const [LENGTHS, LETTERS] = [0x1e46, 0x1e77]; // streams

/** A training of one head, on one sequence a step: each length equally often, each letter too. */
export class TwinTraining extends TrainingByLoss {
  constructor({ seed, ...rule }, told) {
    const task = makeVectorTask(rule);
    const settings = readSettings({ ...TWIN_SETTINGS, ...told });
    const { Km, Vm, pos } = emptyHead(task);
    const places = pos ? { pos_dim: pos[0].length, max_seq_len: pos.length } : {};
    const sizes = { input_dim: task.inputDim, qk_dim: Km[0].length, v_dim: Vm[0].length };
    super(makeModel("single_head", { ...sizes, ...places }, seed), settings, seed);
    this.task = task;
    if (pos) this.model.weights.get("positions.weight").data.set(pos.flat());
  }

  /** The mean squared error. */
  lossOfStep() {
    const { task, tape, model, seed, step } = this;
    const length = 1 + integer(seed, LENGTHS, step, task.longest);
    const letters = Array.from({ length }, (_, i) => integer(seed, LETTERS, step * task.longest + i, task.letters));
    const ids = task.hasCls ? [task.letters, ...letters] : letters;
    const vectors = ids.flatMap((id) => task.names.map((_, token) => (token === id ? 1 : 0)));
    const targets = ids.flatMap((_, place) => targetOf(task, ids, place).map((value) => -value));
    const size = targets.length;
    const skipped = size - length * task.outputDim; // what comes out at CLS does not count
    const shares = Array.from({ length: size }, (_, i) => (i < skipped ? 0 : 1 / (size - skipped)));
    const output = forwardSingleHead(model, tape, constant([1, ids.length, task.inputDim], vectors));
    const differences = tape.add(tape.reshape(output, [1, size]), constant([1, size], targets));
    return tape.product(tape.times(differences, differences), constant([size, 1], shares));
  }

  /** The matrices as one writes them, which are the weights turned. */
  get head() {
    const { weights } = this.model;
    const [Km, Qm, Vm] = ["key", "query", "value"].map((name) => {
      const { shape: [columns, rows], data } = weights.get(`${name}.weight`);
      return Array.from({ length: rows }, (_, i) => Array.from({ length: columns }, (__, j) => data[j * rows + i]));
    });
    return { gain: 1, Km, Qm, Vm, pos: emptyHead(this.task).pos };
  }
}
