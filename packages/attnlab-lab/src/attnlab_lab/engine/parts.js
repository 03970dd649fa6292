// Parts: everything a transformer is made of. A run is
//   { tape, weights (arrays by their names), config, hooks } and each hook's visit(site, array, run) returns the array
// to go on with; the names of weights and sites are those of the Python models.

import { constant, indexOf } from "./arrays.js";
import { cos, erf, exp, log, pow, sin } from "./numbers.js";

export function visit(run, site, array) {
  return run.hooks.reduce((value, hook) => hook.visit(site, value, run), array);
}

/** x Wᵀ + b, where there is a bias. */
export function linear(run, x, name) {
  const bias = run.weights.get(`${name}.bias`);
  const out = run.tape.product(x, run.weights.get(`${name}.weight`), true);
  return bias ? run.tape.add(out, bias) : out;
}

export function normed(run, x, name) {
  const [gain, bias] = [run.weights.get(`${name}.weight`), run.weights.get(`${name}.bias`)];
  const isCentered = run.config.norm === "layer";
  return run.tape.normalize(x, gain, bias, { epsilon: isCentered ? 1e-5 : 1e-6, isCentered });
}

/** One projection of all heads: dense, or each head's own softmax_row(A B / temperature), gated by a base or not. */
function projected(run, x, name) {
  const { tape, weights, config } = run;
  if (!weights.has(`${name}.a`)) return linear(run, x, name);
  const product = tape.product(weights.get(`${name}.a`), weights.get(`${name}.b`));
  let mixture = tape.softmax(tape.scale(product, 1 / config.temperature));
  if (weights.has(`${name}.base`)) mixture = tape.times(mixture, weights.get(`${name}.base`));
  const [heads, rows, columns] = mixture.shape;
  const turned = swapped(tape, mixture, [heads, rows, columns, 1]);
  return tape.product(x, tape.reshape(turned, [heads * columns, rows]), true);
}

/** (a, b, c, width) -> (a, c, b, width). */
function swapped(tape, x, [first, second, third, width]) {
  const placeOf = (i) => {
    const row = Math.floor(i / width);
    const [a, c, b] = [Math.floor(row / (second * third)), Math.floor(row / second) % third, row % second];
    return ((a * second + b) * third + c) * width + (i % width);
  };
  const size = first * second * third * width;
  const index = tape.once(`swap ${first} ${second} ${third} ${width}`, () => indexOf(size, placeOf));
  return tape.pick(x, [first, third, second, width], index);
}

/** (batch, length, head · width) -> (batch, head, length, width). */
function splitHeads(tape, x, heads) {
  const [batch, length, width] = x.shape;
  return swapped(tape, x, [batch, length, heads, width / heads]);
}

/** Multi-head self-attention: rotary positions turn queries and keys, "alibi" biases the scores. */
export function attention(run, path, x, { isCausal }) {
  const { tape, config } = run;
  const { num_heads: heads, positions } = config;
  const [batch, length] = x.shape;
  const [query, key, value] = ["query", "key", "value"].map((name) => {
    const part = splitHeads(tape, projected(run, x, `${path}.${name}`), heads);
    const isTurned = positions === "rotary" && name !== "value";
    return visit(run, `${path}.${name}`, isTurned ? rotated(tape, part) : part);
  });
  const mask = attentionMask(tape, { length, isCausal, heads: positions === "alibi" ? heads : 0 });
  const mixed = attended(run, path, query, key, value, mask);
  const joined = tape.reshape(swapped(tape, mixed, mixed.shape), [batch, length, config.d_model]);
  return visit(run, `${path}.output`, linear(run, joined, `${path}.output`));
}

/** softmax(QKᵀ/√d + mask) V, all at sites; query (batch, head, query, width). */
export function attended(run, path, query, key, value, mask) {
  const { tape } = run;
  const at = path ? `${path}.` : "";
  const products = tape.product(tape.scale(query, 1 / Math.sqrt(query.shape[3])), key, true);
  if (run.hooks.length) {
    const whole = products.data.map((_, i) => (mask ? mask.data[i % mask.data.length] : 0));
    mask = visit(run, `${at}mask`, { shape: products.shape, data: whole, grad: null });
  }
  const scores = visit(run, `${at}scores`, mask ? tape.add(products, mask) : products);
  const weights = visit(run, `${at}weights`, tape.softmax(scores));
  return visit(run, `${at}heads`, tape.product(weights, value));
}

/** What is added to the scores: -inf where a query may not look, ALiBi's bias for so many heads; null for nothing. */
function attentionMask(tape, { length, isCausal, heads }) {
  if (!isCausal && !heads) return null;
  return tape.once(`mask ${length} ${isCausal} ${heads}`, () => {
    const numbers = (heads ? alibiSlopes(heads) : [0]).flatMap((slope) =>
      Array.from({ length: length ** 2 }, (_, i) => {
        const [query, key] = [Math.floor(i / length), i % length];
        return isCausal && key > query ? -Infinity : -Math.fround(slope * Math.abs(query - key));
      }),
    );
    return constant([...(heads ? [heads] : []), length, length], numbers);
  });
}

/** A falling slope for each head, in single precision as the Python models have it (Press et al. 2022). */
function alibiSlopes(heads) {
  let power = 1;
  while (2 * power <= heads) power *= 2;
  const slopes = Array.from({ length: power }, (_, i) => pow(2, (-8 * (i + 1)) / power));
  const between = Array.from({ length: power }, (_, i) => pow(2, (-8 * (2 * i + 1)) / (2 * power)));
  return [...slopes, ...between].slice(0, heads).map(Math.fround);
}

/** Turn each pair of channels i and i + half by position · 10000^(-i/half) (Su et al. 2021). */
function rotated(tape, x) {
  const [length, width] = x.shape.slice(-2);
  const half = Math.floor(width / 2);
  const { cosines, sines, partners } = tape.once(`rotary ${x.shape.join(" ")}`, () => {
    const isTurned = (channel) => channel < 2 * half;
    const table = (value, rest) =>
      Array.from({ length: length * width }, (_, i) => {
        const channel = i % width;
        const angle = Math.floor(i / width) * pow(10000, -(channel % half) / half);
        return isTurned(channel) ? value(angle, channel) : rest;
      });
    const partner = (channel) => (isTurned(channel) ? (channel + half) % (2 * half) : channel);
    return {
      cosines: constant([length, width], table(cos, 1)),
      sines: constant([length, width], table((angle, channel) => (channel < half ? -sin(angle) : sin(angle)), 0)),
      partners: indexOf(x.data.length, (i) => i - (i % width) + partner(i % width)),
    };
  });
  return tape.add(tape.times(x, cosines), tape.times(tape.pick(x, x.shape, partners), sines));
}

/** Sines and cosines of falling frequency, (length, width) (Vaswani et al. 2017, §3.5). */
export function sinusoidalPositions(length, width) {
  const numbers = Array.from({ length: length * width }, (_, i) => {
    const channel = i % width;
    const angle = Math.floor(i / width) * exp((channel - (channel % 2)) * (-log(10000) / width));
    return channel % 2 ? cos(angle) : sin(angle);
  });
  return constant([length, width], numbers);
}

const sigmoid = (x) => 1 / (1 + exp(-x));
const normalShare = (x) => 0.5 * (1 + erf(x * Math.SQRT1_2));
const normalDensity = (x) => exp(-0.5 * x * x) / Math.sqrt(2 * Math.PI);

/** Functions of each number by itself, and their slopes; swiglu gates by the last. */
const ACTIVATIONS = {
  relu: [(z) => (z > 0 ? z : 0), (z) => (z > 0 ? 1 : 0)],
  gelu: [(z) => z * normalShare(z), (z) => normalShare(z) + z * normalDensity(z)],
  swiglu: [(z) => z * sigmoid(z), (z) => sigmoid(z) * (1 + z * (1 - sigmoid(z)))],
};

/** What each position does by itself: activation(x W_inner) W_outer, or (silu(x W_gate) · x W_inner) W_outer. */
export function feedForward(run, path, x) {
  const { tape, config } = run;
  const inner = linear(run, x, `${path}.inner`);
  const isGated = config.activation === "swiglu";
  const gate = isGated ? linear(run, x, `${path}.gate`) : inner;
  const active = tape.apply(gate, ...ACTIVATIONS[config.activation]);
  const hidden = isGated ? tape.times(active, inner) : active;
  return visit(run, `${path}.output`, linear(run, visit(run, `${path}.hidden`, hidden), `${path}.outer`));
}
