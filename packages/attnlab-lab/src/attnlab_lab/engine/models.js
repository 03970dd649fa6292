// Models: decoder, encoder, encoder–decoder and single head, with the names and the settings of the Python ones.

import { constant, indexOf, sizeOf, Tape } from "./arrays.js";
import { EngineError, requireKnown, requireNumber, requireWhole } from "./errors.js";
import { attended, attention, feedForward, linear, normed, sinusoidalPositions, visit } from "./parts.js";
import { normal, uniform } from "./random.js";

const MOST_PARAMETERS = 5_000_000;
const POSITIONS = ["none", "sinusoidal", "learned", "concatenated", "rotary", "alibi"];
const CHOICES = {
  activation: ["relu", "gelu", "swiglu"],
  norm: ["layer", "rms"],
  norm_place: ["pre", "post", "none"],
  positions: POSITIONS,
  encoder_positions: [null, ...POSITIONS],
  projections: ["dense", "gated", "strict"],
};
const TRANSFORMER = {
  vocab_size: 32, max_length: 64, d_model: 64, num_heads: 4, num_kv_heads: null, num_layers: 1, d_ff: null,
  activation: "relu", norm: "layer", norm_place: "pre", final_norm: true, positions: "sinusoidal",
  position_width: null, projections: "dense", rank: null, temperature: 1, bias: true, scale_embedding: false,
  dropout: 0,
};
const DEFAULTS = {
  decoder: { ...TRANSFORMER, tie_output: true },
  encoder: { ...TRANSFORMER, num_classes: null, per_token: false, causal: false },
  encoder_decoder: { ...TRANSFORMER, num_encoder_layers: null, encoder_positions: null, tie_output: false },
  single_head: { input_dim: 3, qk_dim: 3, v_dim: 3, pos_dim: null, max_seq_len: 10, learned_positions: false },
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
  const { d_model: width, num_heads: heads, positions } = config;
  const kvHeads = config.num_kv_heads ?? heads;
  if (width % heads || heads % kvHeads) {
    const rule = "d_model must be a multiple of num_heads, and that of num_kv_heads";
    throw new EngineError(`${rule}; got ${width}, ${heads} and ${kvHeads}.`);
  }
  if (positions === "concatenated") requireWhole("position_width", positionWidth(config), 1, width - 1);
  if (config.encoder_positions === "concatenated" && positions !== "concatenated") {
    throw new EngineError(`encoder_positions=concatenated needs positions=concatenated too; got ${positions}.`);
  }
  return config;
}

function positionWidth(config) {
  return config.position_width ?? Math.floor(config.d_model / 2);
}

/** List the stacks of a model: where their names begin, their positions and layers, and whether they have a memory. */
function stacksOf({ kind, config }) {
  const { positions, num_layers: layers, encoder_positions, num_encoder_layers } = config;
  if (kind === "single_head") return [];
  if (kind !== "encoder_decoder") return [{ prefix: "", positions, layers, hasMemory: false }];
  const encoder = { positions: encoder_positions ?? positions, layers: num_encoder_layers ?? layers };
  const decoder = { prefix: "decoder.", positions, layers, hasMemory: true };
  return [{ prefix: "encoder.", ...encoder, hasMemory: false }, decoder];
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
    if (pos_dim) put("positions.weight", [max_seq_len, pos_dim], config.learned_positions ? "normal" : "one-hot");
    for (const [name, width] of [["query", qk_dim], ["key", qk_dim], ["value", v_dim]]) {
      putLinear(name, input_dim + (pos_dim ?? 0), width, { hasBias: false });
    }
    return found;
  }
  const width = config.d_model;
  const putNorm = (name) => {
    put(`${name}.weight`, [width], "ones");
    if (config.norm === "layer") put(`${name}.bias`, [width], { reach: 0 });
  };
  const putAttention = (path) => {
    const headWidth = width / config.num_heads;
    for (const name of ["query", "key", "value"]) {
      const heads = name === "query" ? config.num_heads : config.num_kv_heads ?? config.num_heads;
      if (config.projections === "dense") {
        putLinear(`${path}.${name}`, width, heads * headWidth, { isXavier: true });
        continue;
      }
      const rank = config.rank ?? headWidth;
      put(`${path}.${name}.a`, [heads, width, rank], { reach: 1 / Math.sqrt(rank) });
      put(`${path}.${name}.b`, [heads, rank, headWidth], { reach: 1 / Math.sqrt(headWidth) });
      if (config.projections === "strict") continue;
      put(`${path}.${name}.base`, [heads, width, headWidth], { reach: Math.sqrt(6 / (width + headWidth)) });
    }
    putLinear(`${path}.output`, width, width, { isXavier: true });
  };
  for (const { prefix, positions, layers, hasMemory } of stacksOf(model)) {
    const beside = positions === "concatenated" ? positionWidth(config) : 0;
    put(`${prefix}embedding.tokens.weight`, [config.vocab_size, width - beside], "normal");
    if (beside || positions === "learned") {
      put(`${prefix}embedding.positions.weight`, [config.max_length, beside || width], "normal");
    }
    for (let layer = 0; layer < layers; layer++) {
      const path = `${prefix}layers.${layer}`;
      const inner = config.d_ff ?? 4 * width;
      const isNormed = config.norm_place !== "none";
      for (const part of hasMemory ? ["attention", "cross_attention"] : ["attention"]) {
        if (isNormed) putNorm(`${path}.norm_${part}`);
        putAttention(`${path}.${part}`);
      }
      if (isNormed) putNorm(`${path}.norm_feed_forward`);
      if (config.activation === "swiglu") putLinear(`${path}.feed_forward.gate`, width, inner);
      putLinear(`${path}.feed_forward.inner`, width, inner);
      putLinear(`${path}.feed_forward.outer`, inner, width);
    }
    if (config.final_norm) putNorm(`${prefix}final_norm`);
  }
  if (kind === "encoder" && config.num_classes) putLinear("head", width, config.num_classes, { hasBias: true });
  else if (kind !== "encoder" && !config.tie_output) putLinear("head", width, config.vocab_size);
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

/**
 * Logits (batch, length, vocabulary) of a decoder, or (batch, classes) of an encoder, or of each token (batch, length,
 * classes); without classes, its vectors.
 * tokens: { batch, length, ids }; an encoder–decoder reads `source` too.
 */
export function forward(model, tape, tokens, { source = null, hooks = [] } = {}) {
  const { kind, config, weights } = model;
  const run = { tape, config, weights, hooks };
  const stacks = stacksOf(model);
  let memory = null;
  if (kind === "encoder_decoder") memory = readStack(run, stacks[0], source, { isCausal: false, memory: null });
  const x = readStack(run, stacks.at(-1), tokens, { isCausal: kind !== "encoder" || config.causal, memory });
  if (kind !== "encoder") return visit(run, "logits", readOut(run, x, stacks.at(-1).prefix));
  if (!config.num_classes) return x;
  if (config.per_token) return visit(run, "logits", linear(run, x, "head"));
  const { batch, length } = tokens;
  const shares = tape.once(`shares ${batch} ${length}`, () =>
    constant([batch, 1, length], new Float64Array(batch * length).fill(1 / length)),
  );
  const mean = tape.reshape(tape.product(shares, x), [batch, config.d_model]);
  return visit(run, "logits", linear(run, mean, "head"));
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

/** List the sites of a model, what may be seen and edited in it, in the order in which a pass comes by them. */
export function sitesOf(model) {
  const [found, tape, { input_dim: width }] = [[], new Tape(), model.config];
  const hooks = [{ visit: (site, array) => (found.push(site), array) }];
  const token = { batch: 1, length: 1, ids: new Int32Array(1) };
  if (model.kind !== "single_head") forward(model, tape, token, { source: token, hooks });
  else forwardSingleHead(model, tape, constant([1, 1, width], new Float64Array(width)), { hooks });
  return found;
}

/** Read tokens: the residual stream (batch, length, d_model) at the end of a stack. */
function readStack(run, { prefix, positions, layers }, tokens, { isCausal, memory }) {
  const { tape, config } = run;
  if (tokens.length > config.max_length) {
    throw new EngineError(`this model takes at most ${config.max_length} tokens; got ${tokens.length}.`);
  }
  let x = visit(run, `${prefix}embedding`, embedded(run, prefix, positions, tokens));
  for (let layer = 0; layer < layers; layer++) {
    const path = `${prefix}layers.${layer}`;
    const add = (name, change) => {
      const norm = `${path}.norm_${name}`;
      const update = change(config.norm_place === "pre" ? normed(run, x, norm) : x);
      const sum = tape.add(x, update);
      return config.norm_place === "post" ? normed(run, sum, norm) : sum;
    };
    x = visit(run, `${path}.residual_before`, x);
    x = add("attention", (read) => attention(run, `${path}.attention`, read, read, { isCausal, positions }));
    x = visit(run, `${path}.residual_between`, x);
    if (memory) {
      x = add("cross_attention", (read) => attention(run, `${path}.cross_attention`, read, memory));
      x = visit(run, `${path}.residual_after_cross`, x);
    }
    x = add("feed_forward", (read) => feedForward(run, `${path}.feed_forward`, read));
    x = visit(run, `${path}.residual_after`, x);
  }
  return config.final_norm ? normed(run, x, `${prefix}final_norm`) : x;
}

/** Each token's vector and its position, added to it or beside it. */
function embedded({ tape, config, weights }, prefix, positions, { batch, length, ids }) {
  const table = weights.get(`${prefix}embedding.tokens.weight`);
  const [own, width] = [table.shape[1], config.d_model];
  let x = pickRows(tape, table, [batch, length, width], { rowOf: (i) => ids[i] });
  if (config.scale_embedding) x = tape.scale(x, Math.sqrt(own));
  if (positions === "sinusoidal") {
    return tape.add(x, tape.once(`sines ${length}`, () => sinusoidalPositions(length, width)));
  }
  const rows = weights.get(`${prefix}embedding.positions.weight`);
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

/** From the stream to the vocabulary: by a layer of its own, or by comparing with each token's vector. */
function readOut(run, x, prefix) {
  if (run.weights.has("head.weight")) return linear(run, x, "head");
  const table = run.weights.get(`${prefix}embedding.tokens.weight`);
  const width = table.shape[1];
  const read = x.shape.at(-1) === width ? x : pickRows(run.tape, x, [...x.shape.slice(0, -1), width]);
  return run.tape.product(read, table, true);
}
