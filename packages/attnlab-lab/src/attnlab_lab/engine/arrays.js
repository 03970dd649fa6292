// Arrays of numbers, and the operations on them with their gradients.
//
// A tape runs operations and, if it records, what their gradients need; `backward` goes back over it. It keeps its
// memory: a program that asks for the same sizes in the same order, as a training step does, takes none anew. So what
// a tape gave is overwritten after `restart`. Every sum is taken in a fixed order, so that bits are reproducible.

import { EngineError } from "./errors.js";
import { log, softmaxInto } from "./numbers.js";

/**
 * Numbers row by row; grad is null where no gradient is asked for.
 * @typedef {{ shape: number[], data: Float64Array, grad: Float64Array | null }} NumberArray
 */

export function sizeOf(shape) {
  return shape.reduce((size, length) => size * length, 1);
}

/** An array without a gradient. */
export function constant(shape, data) {
  return { shape, data: Float64Array.from(data), grad: null };
}

/** Whole numbers, each a function of its place. */
export function indexOf(size, at) {
  const found = new Int32Array(size);
  for (let i = 0; i < size; i++) found[i] = at(i);
  return found;
}

export class Tape {
  constructor({ isRecording = false } = {}) {
    this.isRecording = isRecording;
    this.buffers = [];
    this.taken = 0;
    this.steps = [];
    this.constants = new Map();
  }

  /** Begin anew, in the same memory. */
  restart() {
    this.taken = 0;
    this.steps.length = 0;
  }

  /** Return what was made under this name before, or make it. */
  once(name, make) {
    if (!this.constants.has(name)) this.constants.set(name, make());
    return this.constants.get(name);
  }

  /** Numbers of any value. */
  take(size) {
    const held = this.buffers[this.taken];
    const buffer = held?.length >= size ? held : new Float64Array(size);
    this.buffers[this.taken++] = buffer;
    return buffer.length === size ? buffer : buffer.subarray(0, size);
  }

  result(shape, ...inputs) {
    const size = sizeOf(shape);
    const hasGradient = this.isRecording && inputs.some((input) => input.grad !== null);
    return { shape, data: this.take(size), grad: hasGradient ? this.take(size).fill(0) : null };
  }

  /** Note how the gradient of a result goes on to its inputs. */
  note(out, step) {
    if (out.grad !== null) this.steps.push(step);
    return out;
  }

  /** Add the gradients of a single number to those of everything that it was made from. */
  backward(loss) {
    loss.grad[0] = 1;
    for (let index = this.steps.length - 1; index >= 0; index--) this.steps[index]();
  }

  /** out[i] = x[index[i]], or 0 where that is -1: everything that only moves or repeats numbers. */
  pick(x, shape, index) {
    const out = this.result(shape, x);
    for (let i = 0; i < index.length; i++) out.data[i] = index[i] < 0 ? 0 : x.data[index[i]];
    return this.note(out, () => {
      for (let i = 0; i < index.length; i++) if (index[i] >= 0) x.grad[index[i]] += out.grad[i];
    });
  }

  reshape(x, shape) {
    return { shape, data: x.data, grad: x.grad };
  }

  /** x + y; y is repeated along the leading axes that it does not have. */
  add(x, y) {
    return this.pair(x, y, false);
  }

  /** x · y, number by number; y is repeated along the leading axes that it does not have. */
  times(x, y) {
    return this.pair(x, y, true);
  }

  pair(x, y, isProduct) {
    const out = this.result(x.shape, x, y);
    const size = y.data.length;
    for (let at = 0; at < out.data.length; at += size) {
      for (let i = 0; i < size; i++) {
        out.data[at + i] = isProduct ? x.data[at + i] * y.data[i] : x.data[at + i] + y.data[i];
      }
    }
    return this.note(out, () => {
      for (let at = 0; at < out.data.length; at += size) {
        for (let i = 0; i < size; i++) {
          if (x.grad) x.grad[at + i] += out.grad[at + i] * (isProduct ? y.data[i] : 1);
          if (y.grad) y.grad[i] += out.grad[at + i] * (isProduct ? x.data[at + i] : 1);
        }
      }
    });
  }

  scale(x, factor) {
    return this.apply(x, (value) => value * factor, () => factor);
  }

  /** A function of each number by itself, and its slope. */
  apply(x, valueAt, slopeAt) {
    const out = this.result(x.shape, x);
    for (let i = 0; i < out.data.length; i++) out.data[i] = valueAt(x.data[i]);
    return this.note(out, () => {
      for (let i = 0; i < out.data.length; i++) x.grad[i] += out.grad[i] * slopeAt(x.data[i]);
    });
  }

  /**
   * Matrix products: (…, rows, inner) with (…, inner, columns), or, turned, with (…, columns, inner).
   * The second may be one matrix for all.
   */
  product(x, y, isTurned = false) {
    const inner = x.shape.at(-1);
    const [width, columns] = [y.shape.at(-1), y.shape.at(isTurned ? -2 : -1)];
    if (y.shape.at(isTurned ? -1 : -2) !== inner) {
      throw new EngineError(`matrices of shapes ${x.shape.join("×")} and ${y.shape.join("×")} do not multiply.`);
    }
    const out = this.result([...x.shape.slice(0, -1), columns], x, y);
    const rows = y.shape.length === 2 ? x.data.length / inner : x.shape.at(-2);
    const batch = x.data.length / (rows * inner);
    const at = (number, data, size, row, turned) => grid(data, number * size, row, turned);
    out.data.fill(0);
    for (let n = 0; n < batch; n++) {
      const target = at(n, out.data, rows * columns, columns, false);
      const second = at(n, y.data, inner * columns, width, isTurned);
      addProduct(target, at(n, x.data, rows * inner, inner, false), second, rows, inner, columns);
    }
    return this.note(out, () => {
      for (let n = 0; n < batch; n++) {
        const came = at(n, out.grad, rows * columns, columns, false);
        if (x.grad) {
          const turned = at(n, y.data, inner * columns, width, !isTurned);
          addProduct(at(n, x.grad, rows * inner, inner, false), came, turned, rows, columns, inner);
        }
        if (y.grad) {
          const turned = at(n, x.data, rows * inner, inner, true);
          addProduct(at(n, y.grad, inner * columns, width, isTurned), turned, came, inner, rows, columns);
        }
      }
    });
  }

  /** Along the last axis; a row of nothing but -inf becomes zeros. */
  softmax(x) {
    const width = x.shape.at(-1);
    const out = this.result(x.shape, x);
    for (let at = 0; at < x.data.length; at += width) softmaxInto(out.data, x.data, at, width);
    return this.note(out, () => {
      for (let at = 0; at < out.data.length; at += width) {
        let mean = 0;
        for (let i = at; i < at + width; i++) mean += out.grad[i] * out.data[i];
        for (let i = at; i < at + width; i++) x.grad[i] += out.data[i] * (out.grad[i] - mean);
      }
    });
  }

  /** (x - mean) / √(variance + ε) · gain + bias over the last axis; without centering, the RMS norm. */
  normalize(x, gain, bias, { epsilon, isCentered }) {
    const width = x.shape.at(-1);
    const out = this.result(x.shape, x, gain);
    const normed = this.take(x.data.length);
    const factors = this.take(x.data.length / width);
    for (let at = 0; at < x.data.length; at += width) {
      let [mean, squares] = [0, 0];
      for (let i = at; isCentered && i < at + width; i++) mean += x.data[i] / width;
      for (let i = at; i < at + width; i++) squares += (x.data[i] - mean) * (x.data[i] - mean);
      const factor = 1 / Math.sqrt(squares / width + epsilon);
      factors[at / width] = factor;
      for (let i = 0; i < width; i++) {
        normed[at + i] = (x.data[at + i] - mean) * factor;
        out.data[at + i] = normed[at + i] * gain.data[i] + (bias ? bias.data[i] : 0);
      }
    }
    return this.note(out, () => {
      for (let at = 0; at < x.data.length; at += width) {
        let [mean, along] = [0, 0];
        for (let i = 0; i < width; i++) {
          const came = out.grad[at + i];
          gain.grad[i] += came * normed[at + i];
          if (bias) bias.grad[i] += came;
          if (isCentered) mean += (came * gain.data[i]) / width;
          along += (came * gain.data[i] * normed[at + i]) / width;
        }
        for (let i = 0; i < width; i++) {
          const own = out.grad[at + i] * gain.data[i] - mean - normed[at + i] * along;
          x.grad[at + i] += own * factors[at / width];
        }
      }
    });
  }

  /** The sum over rows of share · -log softmax(logits)[target]: a single number. */
  crossEntropy(logits, targets, shares) {
    const width = logits.shape.at(-1);
    const out = this.result([1], logits);
    const probabilities = this.take(logits.data.length);
    out.data[0] = 0;
    for (let row = 0; row < targets.length; row++) {
      const [highest, total] = softmaxInto(probabilities, logits.data, row * width, width);
      out.data[0] += shares[row] * (highest + log(total) - logits.data[row * width + targets[row]]);
    }
    return this.note(out, () => {
      for (let row = 0; row < targets.length; row++) {
        for (let i = 0; i < width; i++) {
          const wanted = i === targets[row] ? 1 : 0;
          logits.grad[row * width + i] += out.grad[0] * shares[row] * (probabilities[row * width + i] - wanted);
        }
      }
    });
  }
}

/** A matrix inside longer data: where it begins, and the distance from one row or column to the next. */
function grid(data, at, width, isTurned) {
  return { data, at, row: isTurned ? 1 : width, column: isTurned ? width : 1 };
}

/** out += x y. */
function addProduct(out, x, y, rows, inner, columns) {
  const [result, left, right] = [out.data, x.data, y.data];
  const [leftStep, rightStep] = [x.column, y.row];
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      let [sum, a, b] = [0, x.at + i * x.row, y.at + j * y.column];
      for (let k = 0; k < inner; k++, a += leftStep, b += rightStep) sum += left[a] * right[b];
      result[out.at + i * out.row + j * out.column] += sum;
    }
  }
}
