// Models: decoder, encoder and single head, with the names and the settings of the Python ones.

import { constant, indexOf, sizeOf, Tape } from "./arrays.js";
import { EngineError, requireKnown, requireNumber, requireWhole } from "./errors.js";
import { attended, attention, feedForward, linear, normed, sinusoidalPositions, visit } from "./parts.js";
import { normal, uniform } from "./random.js";

const MOST_PARAMETERS = 5_000_000;
// What a setting may be; of the last ones, what the sorters of attnlab have.
const CHOICES = {
  activation: ["relu", "gelu", "swiglu"],
  norm: ["layer", "rms"],
  norm_place: ["pre", "post", "none"],
  positions: ["none", "sinusoidal", "learned", "concatenated", "rotary", "alibi"],
  projections: ["dense", "gated", "strict"],
  num_kv_heads: [null], final_norm: [true], position_width: [null], scale_embedding: [false], tie_output: [true],
};
const TRANSFORMER = {
  vocab_size: 32, max_length: 64, d_model: 64, num_heads: 4, num_kv_heads: null, num_layers: 1, d_ff: null,
  activation: "relu", norm: "layer", norm_place: "pre", final_norm: true, positions: "sinusoidal",
  position_width: null, projections: "dense", rank: null, temperature: 1, bias: true, scale_embedding: false,
  dropout: 0,
};
const DEFAULTS = {
  decoder: { ...TRANSFORMER, tie_output: true },
  encoder: TRANSFORMER,
  single_head: { input_dim: 3, qk_dim: 3, v_dim: 3, pos_dim: null, max_seq_len: 10 },
};

/** Check the settings of a model of some kind, and fill in those that are not given. */
export function readConfig(kind, told) {
  const defaults = DEFAULTS[requireKnown("kind of model", kind, Object.keys(DEFAULTS))];
  for (const [name, value] of Object.entries(told)) {
    const usual = defaults[requireKnown("setting", name, Object.keys(defaults))];
    if (name in CHOICES) requireKnown(name, value, CHOICES[name]);
    else if (typeof usual === "boolean") requireKnown(name, value, [true, false]);
    else if (name === "temperature") requireNumber(name, value, 1e-3, 1e3);
    else if (name === "dropout") requireNumber(name, value, 0, 0.99);
    else if (usual !== null || value !== null) requireWhole(name, value, 1, name.endsWith("layers") ? 100 : 65_536);
  }
  const config = { ...defaults, ...told };
  if (kind === "single_head") return config;
  const { d_model: width, num_heads: heads } = config;
  if (width % heads) throw new EngineError(`d_model must be a multiple of num_heads; got ${width} and ${heads}.`);
  if (config.positions === "concatenated") requireWhole("d_model", width, 2, 65_536);
  return config;
}

/** List every weight: { name, shape, start }; it begins as a word says, or uniform from -reach to reach. */
export function weightsOf(model) {
  const { kind, config } = model;
  const found = [];
  const put = (name, shape, start) => found.push({ name, shape, start });
  const putLinear = (name, inputs, outputs, { hasBias = config.bias, isXavier = false } = {}) => {
    const reach = 1 / Math.sqrt(inputs);
    put(`${name}.weight`, [outputs, inputs], { reach: isXavier ? Math.sqrt(6 / (inputs + outputs)) : reach });
    if (hasBias) put(`${name}.bias`, [outputs], { reach: isXavier ? 0 : reach });
  };
  if (kind === "single_head") {
    const { input_dim, qk_dim, v_dim, pos_dim, max_seq_len } = config;
    if (pos_dim) put("positions.weight", [max_seq_len, pos_dim], "one-hot");
    for (const [name, width] of [["query", qk_dim], ["key", qk_dim], ["value", v_dim]]) {
      putLinear(name, input_dim + (pos_dim ?? 0), width, { hasBias: false });
    }
    return found;
  }
  const { d_model: width, num_heads: heads, positions } = config;
  const putNorm = (name) => {
    put(`${name}.weight`, [width], "ones");
    if (config.norm === "layer") put(`${name}.bias`, [width], { reach: 0 });
  };
  const putProjection = (name) => {
    if (config.projections === "dense") return putLinear(name, width, width, { isXavier: true });
    const headWidth = width / heads;
    const rank = config.rank ?? headWidth;
    put(`${name}.a`, [heads, width, rank], { reach: 1 / Math.sqrt(rank) });
    put(`${name}.b`, [heads, rank, headWidth], { reach: 1 / Math.sqrt(headWidth) });
    if (config.projections === "strict") return null;
    return put(`${name}.base`, [heads, width, headWidth], { reach: Math.sqrt(6 / (width + headWidth)) });
  };
  const beside = positions === "concatenated" ? Math.floor(width / 2) : 0;
  put("embedding.tokens.weight", [config.vocab_size, width - beside], "normal");
  if (beside || positions === "learned") {
    put("embedding.positions.weight", [config.max_length, beside || width], "normal");
  }
  for (let layer = 0; layer < config.num_layers; layer++) {
    const path = `layers.${layer}`;
    const inner = config.d_ff ?? 4 * width;
    const isNormed = config.norm_place !== "none";
    if (isNormed) putNorm(`${path}.norm_attention`);
    for (const name of ["query", "key", "value"]) putProjection(`${path}.attention.${name}`);
    putLinear(`${path}.attention.output`, width, width, { isXavier: true });
    if (isNormed) putNorm(`${path}.norm_feed_forward`);
    if (config.activation === "swiglu") putLinear(`${path}.feed_forward.gate`, width, inner);
    putLinear(`${path}.feed_forward.inner`, width, inner);
    putLinear(`${path}.feed_forward.outer`, inner, width);
  }
  putNorm("final_norm");
  return found;
}

/** Make a model with initial weights, all in one row of numbers, so that an optimizer sees one array. */
export function makeModel(kind, told, seed) {
  const model = { kind, config: readConfig(kind, told), weights: new Map() };
  const specs = weightsOf(model);
  const size = specs.reduce((sum, { shape }) => sum + sizeOf(shape), 0);
  if (size > MOST_PARAMETERS) {
    throw new EngineError(`a model here has at most ${MOST_PARAMETERS} parameters; this one would have ${size}.`);
  }
  [model.numbers, model.gradients] = [new Float64Array(size), new Float64Array(size)];
  let begin = 0;
  specs.forEach(({ name, shape, start }, stream) => {
    const end = begin + sizeOf(shape);
    const data = model.numbers.subarray(begin, end);
    for (let i = 0; i < data.length; i++) {
      if (start === "normal") data[i] = normal(seed, stream, i);
      else if (start === "ones") data[i] = 1;
      else if (start === "one-hot") data[i] = Math.floor(i / shape[1]) === i % shape[1] ? 1 : 0;
      else data[i] = start.reach * (2 * uniform(seed, stream, i) - 1);
    }
    const grad = start === "one-hot" ? null : model.gradients.subarray(begin, end);
    model.weights.set(name, { shape, data, grad });
    begin = end;
  });
  return model;
}

/** Copy weights from a file's tensors, whose names and shapes must be the model's. */
export function loadWeights(model, tensors) {
  const shapeOf = (found) => found?.shape.join("×") ?? "none";
  for (const name of new Set([...model.weights.keys(), ...tensors.keys()])) {
    const [own, came] = [model.weights.get(name), tensors.get(name)];
    if (shapeOf(own) !== shapeOf(came)) {
      const shapes = `expected ${shapeOf(own)} for ${name}; got ${shapeOf(came)}`;
      throw new EngineError(`the file does not fit its config: ${shapes}.`);
    }
    if (!came.data.every(Number.isFinite)) throw new EngineError(`${name} holds NaN or infinity; the file is damaged.`);
    own.data.set(came.data);
  }
}

/** Logits (batch, length, vocabulary) of a decoder, or the vectors of an encoder; tokens: { batch, length, ids }. */
export function forward(model, tape, tokens, { hooks = [] } = {}) {
  const { kind, config, weights } = model;
  const run = { tape, config, weights, hooks };
  if (tokens.length > config.max_length) {
    throw new EngineError(`this model takes at most ${config.max_length} tokens; got ${tokens.length}.`);
  }
  let x = visit(run, "embedding", embedded(run, tokens));
  for (let layer = 0; layer < config.num_layers; layer++) {
    const path = `layers.${layer}`;
    const add = (name, change) => {
      const norm = `${path}.norm_${name}`;
      const update = change(config.norm_place === "pre" ? normed(run, x, norm) : x);
      const sum = tape.add(x, update);
      return config.norm_place === "post" ? normed(run, sum, norm) : sum;
    };
    x = visit(run, `${path}.residual_before`, x);
    x = add("attention", (read) => attention(run, `${path}.attention`, read, { isCausal: kind === "decoder" }));
    x = visit(run, `${path}.residual_between`, x);
    x = add("feed_forward", (read) => feedForward(run, `${path}.feed_forward`, read));
    x = visit(run, `${path}.residual_after`, x);
  }
  x = normed(run, x, "final_norm");
  return kind === "encoder" ? x : visit(run, "logits", readOut(run, x));
}

/** The output (batch, length, v_dim) of a single head, whose inputs are vectors. */
export function forwardSingleHead(model, tape, x, { hooks = [] } = {}) {
  const { config, weights } = model;
  const run = { tape, config, weights, hooks };
  const [batch, length, own] = x.shape;
  const rows = weights.get("positions.weight");
  if (rows) {
    const widened = pickRows(tape, x, [batch, length, own + config.pos_dim]);
    x = tape.add(widened, positionRows(tape, rows, length, own + config.pos_dim));
  }
  const [query, key, value] = ["query", "key", "value"].map((name) => {
    const made = linear(run, x, name);
    return visit(run, name, tape.reshape(made, [batch, 1, length, made.shape.at(-1)]));
  });
  const heads = attended(run, "", query, key, value, null);
  return visit(run, "output", tape.reshape(heads, [batch, length, config.v_dim]));
}

/** Each token's vector and its position, added to it or beside it. */
function embedded({ tape, config, weights }, { batch, length, ids }) {
  const width = config.d_model;
  const x = pickRows(tape, weights.get("embedding.tokens.weight"), [batch, length, width], { rowOf: (i) => ids[i] });
  if (config.positions === "sinusoidal") {
    return tape.add(x, tape.once(`sines ${length}`, () => sinusoidalPositions(length, width)));
  }
  const rows = weights.get("embedding.positions.weight");
  return rows ? tape.add(x, positionRows(tape, rows, length, width)) : x;
}

/** The first positions' vectors at the end of (length, width), zeros before them. */
function positionRows(tape, table, length, width) {
  const [most, own] = table.shape;
  if (length > most) throw new EngineError(`this model has ${most} positions; got ${length} tokens.`);
  return pickRows(tape, table, [length, width], { at: width - own });
}

/** Rows of a table, in their order or by a function, from some column on; zeros beside them, or nothing beyond. */
function pickRows(tape, table, shape, { rowOf = (i) => i, at = 0 } = {}) {
  const [own, width] = [table.shape.at(-1), shape.at(-1)];
  const index = indexOf(sizeOf(shape), (i) => {
    const column = (i % width) - at;
    return column >= 0 && column < own ? rowOf(Math.floor(i / width)) * own + column : -1;
  });
  return tape.pick(table, shape, index);
}

/** From the stream to the vocabulary: compared with each token's vector. */
function readOut({ tape, weights }, x) {
  const table = weights.get("embedding.tokens.weight");
  const width = table.shape[1];
  const read = x.shape.at(-1) === width ? x : pickRows(tape, x, [...x.shape.slice(0, -1), width]);
  return tape.product(read, table, true);
}
