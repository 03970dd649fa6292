// Attention taken apart: the numbers of each experiment in the anatomy room, by the parts that the models are made of.

import { constant, Tape } from "./arrays.js";
import { requireKnown } from "./errors.js";
import { forward, makeModel } from "./models.js";
import { exp, softmaxInto } from "./numbers.js";
import { attended, sinusoidalPositions } from "./parts.js";
import { normal } from "./random.js";

const SEED = 1;
const [TOKENS, WIDEST] = [10, 1024]; // of the scaling
const [WORDS_LONG, HEAD_WIDTH] = [6, 8]; // of the small head
const [HEADS_OF, WIDER] = [64, 4]; // channels of a head, and d_ff over d_model, of the costs
const kept = new Map();

/** Random numbers of a stream, drawn once. */
function drawn(stream, size) {
  if (!kept.has(stream)) kept.set(stream, Float64Array.from({ length: size }, (_, i) => normal(SEED, stream, i)));
  return kept.get(stream);
}

/** The softmax of rows of scores; the mean of their largest weights, and of the norms of their derivatives. */
function softmaxed({ shape: [rows, columns], data }) {
  const weights = new Float64Array(data.length);
  let [largest, gradient] = [0, 0];
  for (let at = 0; at < data.length; at += columns) {
    softmaxInto(weights, data, at, columns);
    const row = weights.subarray(at, at + columns);
    const slopes = row.reduce((sum, one, i) =>
      sum + row.reduce((part, other, j) => part + (one * (Number(i === j) - other)) ** 2, 0), 0);
    largest += Math.max(...row) / rows;
    gradient += Math.sqrt(slopes) / rows;
  }
  return { weights, largest, gradient };
}

/** Ten queries and ten keys of a width: what softmax makes of their products, with 1/√d_k and without. */
function scaling({ width }) {
  const tape = new Tape();
  const [query, key] = [1, 2].map((stream) => {
    const all = drawn(stream, TOKENS * WIDEST);
    return constant([TOKENS, width], Array.from({ length: TOKENS * width }, (_, i) =>
      all[Math.floor(i / width) * WIDEST + (i % width)]));
  });
  const products = tape.product(query, key, true);
  return { scaled: softmaxed(tape.scale(products, 1 / Math.sqrt(width))), plain: softmaxed(products) };
}

/** One head over six words under masks, each a list of 0 and 1, row by row; 1 = may look. */
function masking({ masks }) {
  const shape = [1, 1, WORDS_LONG, HEAD_WIDTH];
  const [query, key] = [3, 4].map((stream) => constant(shape, drawn(stream, WORDS_LONG * HEAD_WIDTH)));
  const look = (open) => {
    const seen = {};
    const hook = { visit: (site, array) => (seen[site] = array) };
    const mask = constant([WORDS_LONG, WORDS_LONG], open.map((each) => (each ? 0 : -Infinity)));
    attended({ tape: new Tape(), hooks: [hook] }, "", query, key, key, mask);
    return { scores: seen.scores.data, weights: seen.weights.data };
  };
  const { scores } = look(new Array(WORDS_LONG ** 2).fill(1));
  return { scores, weights: masks.map((open) => look(open).weights) };
}

/** Scores around -size with a number in place of the masked ones: weights by the usual formula and by ours. */
function maskValue({ value, size, open }) {
  const noise = drawn(5, open.length);
  const scores = noise.map((each) => each - size);
  const filled = scores.map((score, i) => (open[i] ? score : value));
  const highest = Math.max(...filled);
  const parts = filled.map((score) => exp(score - highest)); // -inf less -inf is NaN, as in PyTorch
  const total = parts.reduce((sum, part) => sum + part, 0);
  const ours = new Float64Array(open.length);
  softmaxInto(ours, scores.map((score, i) => (open[i] ? score : -Infinity)), 0, open.length);
  return { noise, usual: parts.map((part) => part / total), ours };
}

/** What a small encoder with random weights makes of words in two orders; rows of both in the first order. */
function ordering({ positions, first, second }) {
  const length = first.length;
  const sizes = { vocab_size: Math.max(...first) + 1, max_length: 16, d_model: HEAD_WIDTH, num_heads: 2, d_ff: 16 };
  const tokens = { batch: 2, length, ids: Int32Array.from([...first, ...second]) };
  const { data } = forward(makeModel("encoder", { ...sizes, positions }, SEED), new Tape(), tokens);
  const row = (batch, place) => {
    const begin = (batch * length + place) * HEAD_WIDTH;
    return data.slice(begin, begin + HEAD_WIDTH);
  };
  const change = (place, other) => {
    const wanted = row(1, other);
    return row(0, place).reduce((most, value, i) => Math.max(most, Math.abs(value - wanted[i])), 0);
  };
  const places = matched(first, second, change);
  return {
    first: first.map((_, i) => row(0, i)), second: places.map((place) => row(1, place)), places,
    changes: places.map((place, i) => change(i, place)), table: sinusoidalPositions(32, 32),
  };
}

/** Where each word is in the other order; a word that is there twice is matched in the closer way. */
function matched(first, second, change) {
  const places = first.map((word, i) => {
    const nth = first.slice(0, i).filter((each) => each === word).length;
    return second.flatMap((each, place) => (each === word ? [place] : []))[nth];
  });
  first.forEach((word, i) => {
    const j = first.indexOf(word, i + 1);
    if (j < 0) return;
    const straight = Math.max(change(i, places[i]), change(j, places[j]));
    const crossed = Math.max(change(i, places[j]), change(j, places[i]));
    if (crossed < straight) [places[i], places[j]] = [places[j], places[i]];
  });
  return places;
}

/** Numbers as they are, after layer norm and after RMS norm, each with its mean and length. */
function norming({ numbers }) {
  const x = constant([1, numbers.length], numbers);
  const gain = constant([numbers.length], numbers.map(() => 1));
  const told = (data) => ({
    values: data, mean: data.reduce((sum, each) => sum + each, 0) / data.length,
    size: Math.sqrt(data.reduce((sum, each) => sum + each * each, 0)),
  });
  const normalized = (epsilon, isCentered) => told(new Tape().normalize(x, gain, null, { epsilon, isCentered }).data);
  return { none: told(x.data), layer: normalized(1e-5, true), rms: normalized(1e-6, false) };
}

/** Multiply-adds and bytes (float32) of attention, its weights kept, and of the feed-forward part, counted. */
function costs({ width, lengths }) {
  const [heads, hidden] = [width / HEADS_OF, WIDER * width];
  return {
    heads, hidden, overtakes: hidden - 2 * width,
    counts: {
      attention: lengths.map((length) => 4 * length * width ** 2 + 2 * length ** 2 * width),
      feedForward: lengths.map((length) => 2 * length * width * hidden),
    },
    bytes: {
      attention: lengths.map((length) => 4 * heads * length ** 2),
      feedForward: lengths.map((length) => 4 * length * hidden),
    },
  };
}

const EXPERIMENTS = { scaling, masking, maskValue, ordering, norming, costs };

/** Return the numbers of an experiment by its name. */
export function anatomy(name, settings) {
  return EXPERIMENTS[requireKnown("experiment", name, Object.keys(EXPERIMENTS))](settings);
}
