// Edits, read from the JSON that attnlab.edits writes: what they change, where, and whether they landed.
//
// An edit is an object { edit: "CutEdge", layer: 0, head: 1, query: 4, key: 2 }. A target is a number, a span "2..5",
// a token's name (query and key), a list of these, or nothing for all, as attnlab.edits.targets has them.

import { sizeOf } from "./arrays.js";
import { EngineError, requireKnown } from "./errors.js";
import { sitesOf } from "./models.js";
import { sharedHeads } from "./parts.js";

const NEEDED = Symbol("needed");
const AXES = ["layer", "head", "query", "key", "row", "step", "channel"];
const EDGES = ["head", "query", "key", "row", "step"];
const ANY = [...EDGES, "channel"];
const USUAL = ["head", "query", "row", "step"];
const NO_SCORES = "the mask blocks all of these edges, and a blocked edge has no score";
const MEAN_FIELDS = { over: "all", recording: null };

const isOpen = (value) => value !== -Infinity;
const fillWith = (number) => (context) => context.values.map(() => number);
const scaleBy = ({ values, fields }) => values.map((value) => value * fields.factor);
const useRecorded = (context) => fitted(context, recordedAt(context), true);
const opened = (value) => (isOpen(value) ? value : 0);
const allow = (isAllowed) => ({ values }) => values.map((value, i) => (isAllowed(i) ? opened(value) : -Infinity));
const onOpen = (rule) => ({ values, fields }) => values.map((value) => (isOpen(value) ? rule(value, fields) : value));
const SCORES = { at: "scores", narrows: EDGES, nothing: NO_SCORES };

/** Of each kind of edit: its site, its own fields, the targets it takes besides, and its rule. */
const KINDS = {
  CutEdge: {
    at: ({ renormalise }) => (renormalise ? "mask" : "weights"), fields: { renormalise: true }, narrows: EDGES,
    nothing: "none of these queries attends to any of these keys",
    change: (context) => fillWith(context.fields.renormalise ? -Infinity : 0)(context),
  },
  SetMask: { at: "mask", fields: { mask: NEEDED }, narrows: EDGES, change: setMask },
  RelaxMask: {
    at: "mask", narrows: EDGES, change: allow(() => true),
    nothing: "all of these queries may attend to all of these keys already",
  },
  ScaleScores: { ...SCORES, fields: { factor: NEEDED }, change: onOpen((value, { factor }) => value * factor) },
  Temperature: {
    ...SCORES, fields: { temperature: NEEDED }, narrows: USUAL,
    change: onOpen((value, { temperature }) => value / temperature),
  },
  AddToScores: { ...SCORES, fields: { amount: NEEDED }, change: addToScores },
  SetPattern: {
    at: "weights", fields: { pattern: NEEDED }, narrows: EDGES, change: (context) => given(context, "pattern"),
  },
  FreezePattern: { at: "weights", fields: { recording: NEEDED }, change: useRecorded },
  UniformPattern: { at: "weights", change: (context) => weighed(context, (number) => 1 / number) },
  RedirectToFirst: { at: "weights", change: (context) => weighed(context, (_, before) => (before ? 0 : 1)) },
  ZeroHead: { at: "heads", needs: "head", change: fillWith(0) },
  ScaleHead: { at: "heads", needs: "head", fields: { factor: NEEDED }, change: scaleBy },
  MeanHead: { at: "heads", needs: "head", fields: MEAN_FIELDS, change: useMean },
  ZeroValue: { at: "value", narrows: ["head", "key", "row"], change: fillWith(0) },
  ZeroSite: { needs: "site", narrows: ANY, change: fillWith(0) },
  ScaleSite: { needs: "site", narrows: ANY, fields: { factor: NEEDED }, change: scaleBy },
  MeanSite: { needs: "site", narrows: ANY, fields: MEAN_FIELDS, change: useMean },
  Patch: { needs: "site", narrows: ANY, fields: { recording: NEEDED }, change: useRecorded },
};

function setMask(context) {
  const { mask } = context.fields;
  const [queries, keys] = context.shape.slice(-2);
  if (mask === "all") return allow(() => true)(context);
  if (mask === "causal") return allow((i) => i % keys <= Math.floor(i / keys) % queries)(context);
  const allowed = given(context, "mask");
  return allow((i) => allowed[i] !== 0)(context);
}

function addToScores(context) {
  const amounts = given(context, "amount");
  return context.values.map((value, i) => (isOpen(value) ? value + amounts[i] : value));
}

/** The mean over rows, positions or both, which broadcasts to the values. */
function useMean(context) {
  const { over, recording } = context.fields;
  const positions = context.shape.length - 2;
  const axes = { all: [0, positions], rows: [0], positions: [positions] }[over];
  const { shape, data } = recording ? recordedAt(context) : { shape: context.shape, data: context.values };
  const kept = shape.map((size, axis) => (axes.includes(axis) ? 1 : size));
  const sums = new Float64Array(sizeOf(kept));
  forEachPlace(shape, (i, place) => {
    sums[kept.reduce((offset, size, axis) => offset * size + (size === 1 ? 0 : place[axis]), 0)] += data[i];
  });
  const means = sums.map((sum) => sum / (data.length / sums.length));
  return fitted(context, { shape: kept, data: means }, Boolean(recording) && over === "rows");
}

function forEachPlace(shape, tell) {
  const place = shape.map(() => 0);
  for (let i = 0; i < sizeOf(shape); i++) {
    tell(i, place);
    for (let axis = shape.length - 1; axis >= 0 && ++place[axis] === shape[axis]; axis--) place[axis] = 0;
  }
}

/** Read a value of an edit's JSON: a tensor becomes { shape, data }, a recording a map of them. */
function readValue(form) {
  if (typeof form !== "object" || form === null) return form;
  if (typeof form.number === "string") return Number(form.number.replace("inf", "Infinity"));
  if (form.values) return new Map(Object.entries(form.values).map(([site, each]) => [site, readValue(each)]));
  const shape = [];
  for (let rest = form.tensor; Array.isArray(rest); rest = rest[0]) shape.push(rest.length);
  const listed = [form.tensor].flat(Infinity);
  const numbers = listed.map((each) => (typeof each === "string" ? readValue({ number: each }) : Number(each)));
  if (numbers.length !== sizeOf(shape) || numbers.some(Number.isNaN)) {
    throw new EngineError("a value is a number, a tensor of nested lists of one length, or values by their sites.");
  }
  return { shape, data: Float64Array.from(numbers) };
}

/**
 * Split a target into numbers, spans and names; null for all.
 * @typedef {{ low?: any, high?: any, name?: any }} Atom
 * @returns {Atom[] | null}
 */
function atomsOf(axis, target) {
  const isPosition = axis === "query" || axis === "key";
  if (target === undefined || target === null || (target === "all" && !isPosition)) return null;
  const atoms = [target].flat().map((each) => {
    const span = typeof each === "string" ? each.match(/^(-?\d+)?\.\.(-?\d+)?$/) : null;
    if (Number.isSafeInteger(each)) return { low: each, high: each };
    const [low, high] = [span?.[1], span?.[2]].map((end) => (end ? Number(end) : null));
    if (low !== null || high !== null) return { low, high };
    if (isPosition && typeof each === "string" && each && !span) return { name: each };
    throw new EngineError(`${axis} takes numbers, lists and spans such as "2..5"; got ${JSON.stringify(target)}.`);
  });
  if (atoms.length) return atoms;
  throw new EngineError(`${axis} is an empty list; leave it out for all.`);
}

/** The first and last of the numbers below an end that a span means. */
function within({ low, high }, end) {
  return [low ?? 0, high ?? Infinity].map((each) => (each < 0 ? each + end : each));
}

/** The numbers below an end that atoms name; one that is out of range is an error. */
function numbersOf(axis, atoms, end, who) {
  const all = Array.from({ length: end }, (_, i) => i);
  return all.filter((number) =>
    atoms.some((atom) => {
      const [low, high] = within(atom, end);
      const last = atom.high === null ? end - 1 : high;
      if (low >= 0 && low <= last && last < end) return number >= low && number <= last;
      throw new EngineError(`${who}: ${axis} ${worded(atom)} is out of range; there are ${end}, from 0 to ${end - 1}.`);
    }),
  );
}

/** @param {Atom} atom */
function worded({ low, high, name }) {
  return name ?? (low === high ? low : `${low ?? ""}..${high ?? ""}`);
}

/** Check one edit's JSON against its kind and the model. */
function readEdit(form, model, all, vocabulary) {
  const { edit: name, version = 2, ...told } = form ?? {};
  const kind = KINDS[requireKnown("edit here", name, Object.keys(KINDS))];
  requireKnown(`version of ${name}`, version, [2]);
  const [fields, known] = [{ ...kind.fields }, ["layer", "site", ...(kind.narrows ?? USUAL)]];
  for (const [field, value] of Object.entries(told)) {
    if (field in fields) fields[field] = readValue(value);
    else requireKnown(`field of ${name}`, field, [...known, ...Object.keys(fields)]);
  }
  const atoms = Object.fromEntries(AXES.map((axis) => [axis, atomsOf(axis, told[axis])]));
  const missing = Object.keys(fields).filter((field) => fields[field] === NEEDED);
  if (kind.needs && (told[kind.needs] ?? null) === null) missing.push(kind.needs);
  if (name === "CutEdge" && !atoms.query && !atoms.key) missing.push("query or key");
  if (missing.length) throw new EngineError(`${name} needs ${missing.join(" and ")}; none was given.`);
  checkFields(name, fields);
  if (atoms.head) numbersOf("head", atoms.head, model.config.num_heads ?? 1, name);
  for (const atom of [atoms.query, atoms.key].flatMap((each) => each ?? [])) {
    if (atom.name) requireKnown("token called", atom.name, vocabulary);
  }
  if (atoms.step?.some(({ low, high }) => (low ?? 1) < 1 || (high ?? 1) < 1)) {
    throw new EngineError(`${name}: step counts forward passes from 1.`);
  }
  const own = typeof kind.at === "function" ? kind.at(fields) : kind.at;
  const sites = findSites(model, all, own, told.site, atoms, name);
  return { name, kind, fields, atoms, sites, met: new Set(), most: {}, wasApplied: false, hasChanged: false };
}

function checkFields(name, fields) {
  for (const [field, value] of Object.entries(fields)) {
    const isTensor = value instanceof Object && "data" in value;
    const isFine = {
      factor: Number.isFinite(value), temperature: value > 0 && value < Infinity, pattern: isTensor,
      renormalise: typeof value === "boolean",
      amount: isTensor || (typeof value === "number" && value < Infinity),
      mask: isTensor || value === "causal" || value === "all", over: ["all", "rows", "positions"].includes(value),
      recording: value === null || value instanceof Map,
    }[field];
    if (!isFine) throw new EngineError(`${name}: ${field} cannot be ${JSON.stringify(value)}.`);
  }
}

const ownName = (site) => site.slice(site.lastIndexOf(".") + 1);
const partOf = (site) => site.slice(0, Math.max(site.lastIndexOf("."), 0));

/** List those of all sites that a kind of edit, a pattern and a layer select; their axes must have all targets. */
function findSites(model, all, own, pattern, atoms, who) {
  let found = all.filter((site) => !own || ownName(site) === own);
  if (pattern !== undefined && pattern !== null) {
    const escaped = String(pattern).replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".");
    found = found.filter((site) => new RegExp(`^(.*\\.)?${escaped}$`).test(own ? partOf(site) : site));
  }
  if (atoms.layer) {
    const layerOf = (site) => (model.kind === "single_head" ? 0 : Number(site.match(/layers\.(\d+)\./)?.[1] ?? -1));
    const chosen = numbersOf("layer", atoms.layer, 1 + Math.max(...found.map(layerOf)), who);
    found = found.filter((site) => chosen.includes(layerOf(site)));
    const isDouble = found.some((site, i) => found.slice(0, i).some((other) => layerOf(other) === layerOf(site)));
    if (isDouble && !pattern) throw new EngineError(`${who}: a layer has several of these; say which with site.`);
  }
  if (!found.length) throw new EngineError(`${who}: this model has no such site.`);
  for (const site of found) {
    const isEdge = ["mask", "scores", "weights"].includes(ownName(site));
    if (!own && isEdge && (who !== "Patch" || ownName(site) === "mask")) {
      throw new EngineError(`${who} is not for ${site}; that has edits of its own.`);
    }
    if (isEdge && atoms.channel) throw new EngineError(`${who}: the last axis of ${site} are keys; use key.`);
    const there = [...axesOf(ownName(site), 3), ...(["key", "value"].includes(ownName(site)) ? [] : ["step"])];
    const wrong = ["head", "query", "key", "step"].find((axis) => atoms[axis] && !there.includes(axis));
    if (wrong && !(wrong === "query" && there.includes("length"))) {
      throw new EngineError(`${who}: ${site} has no ${wrong}; leave it out.`);
    }
  }
  return found;
}

function axesOf(own, rank) {
  if (["mask", "scores", "weights"].includes(own)) return ["batch", "head", "query", "key"];
  if (["query", "heads"].includes(own)) return ["batch", "head", "query", "width"];
  if (["key", "value"].includes(own)) return ["batch", "head", "key", "width"];
  return rank === 2 ? ["batch", "width"] : ["batch", "length", "width"];
}

/** A hook that applies edits in their order, and knows afterwards whether each landed. */
export class Editor {
  visible = new Map();
  text = null;
  source = null;

  constructor(model, forms, vocabulary = []) {
    if (!Array.isArray(forms)) throw new EngineError("edits are a list of objects.");
    const sites = forms.length ? sitesOf(model) : [];
    this.edits = forms.map((form) => readEdit(form, model, sites, vocabulary));
    this.vocabulary = vocabulary;
  }

  /** Say what the next pass reads. A generation's first pass had `first` tokens; the later ones came one by one. */
  read(tokens, { first = tokens.length, source = null } = {}) {
    this.text = { ...tokens, first };
    this.source = source && { ...source, first: source.length };
  }

  visit(site, array, run) {
    const own = ownName(site);
    for (const edit of this.edits.filter(({ sites }) => sites.includes(site))) {
      const isByHead = edit.atoms.head || "recording" in edit.fields;
      if (["key", "value"].includes(own) && isByHead) array = sharedHeads(run.tape, array, run.config.num_heads ?? 1);
      this.apply(edit, site, array);
    }
    if (own === "scores") this.visible.set(partOf(site), Uint8Array.from(array.data, (value) => Number(isOpen(value))));
    return array;
  }

  apply(edit, site, { shape, data }) {
    const axes = axesOf(ownName(site), shape.length);
    const isMeant = this.chooser(edit, site, axes, shape);
    const chosen = new Uint8Array(data.length);
    forEachPlace(shape, (i, place) => {
      chosen[i] = isMeant(place) ? 1 : 0;
    });
    if (!chosen.includes(1)) return;
    edit.wasApplied = true;
    const { name, fields, kind } = edit;
    const visible = this.visible.get(partOf(site));
    const changed = kind.change({ name, fields, site, axes, shape, values: data, chosen, visible });
    for (let i = 0; i < chosen.length; i++) {
      if (!chosen[i]) continue;
      edit.hasChanged ||= kind.nothing === NO_SCORES ? isOpen(data[i]) : changed[i] !== data[i];
      data[i] = changed[i];
    }
  }

  /** Return a function that says whether a place is meant; it notes which targets it met. */
  chooser(edit, site, axes, shape) {
    const { atoms, name } = edit;
    const isCross = partOf(site).endsWith("cross_attention");
    const queryText = site.startsWith("encoder.") ? this.source : this.text;
    const keyText = isCross ? this.source : queryText;
    const endAt = (position) => Math.max(queryText?.first ?? shape.at(-2), position + 1);
    const heads = atoms.head && numbersOf("head", atoms.head, shape[1], name);
    const channels = atoms.channel && numbersOf("channel", atoms.channel, shape.at(-1), name);
    const meets = (axis, position, end, text, row) => {
      edit.most[axis] = Math.max(edit.most[axis] ?? 0, position + 1);
      const here = atoms[axis].filter((atom) => {
        if (atom.name && !text) throw new EngineError(`${name}: vectors have no names; give positions.`);
        if (atom.name) return this.vocabulary[text.ids[row * text.length + position]] === atom.name;
        const [low, high] = within(atom, end);
        return position >= low && position <= high;
      });
      for (const atom of here) edit.met.add(atom);
      return here.length > 0;
    };
    // A place has many companions of the same row and position: what was found of one holds for all.
    const remembered = (axis, text) => {
      const byEnd = new Map();
      return (position, end, row = 0) => {
        if (!atoms[axis]) return true;
        if (!byEnd.has(end)) byEnd.set(end, []);
        const known = byEnd.get(end);
        return (known[position * shape[0] + row] ??= meets(axis, position, end, text, row));
      };
    };
    const [isRow, isStep] = [remembered("row"), remembered("step")];
    const [isQuery, isKey] = [remembered("query", queryText), remembered("key", keyText)];
    const queryAxis = axes.findIndex((axis) => axis === "query" || axis === "length");
    const keyAxis = axes.indexOf("key");
    return (place) => {
      if (heads && !heads.includes(place[1])) return false;
      if (channels && !channels.includes(place.at(-1))) return false;
      const [row, query, key] = [place[0], place[queryAxis], place[keyAxis]];
      const keyEnd = isCross ? shape[keyAxis] : endAt(queryAxis < 0 ? key : query);
      const met = [isRow(row, shape[0]), isStep(this.stepOf(site, query), 0)];
      if (queryAxis >= 0) met.push(isQuery(query, endAt(query), row));
      if (keyAxis >= 0) met.push(isKey(key, keyEnd, row));
      return !met.includes(false);
    };
  }

  /** The pass, counted from 1, in which a position was read first. */
  stepOf(site, position) {
    const { first, length } = (site.startsWith("encoder.") ? this.source : this.text) ?? { first: Infinity };
    return Math.max(1, (position ?? length - 1) - first + 2);
  }

  /** Throw where an edit found one of its targets nowhere, or changed nothing where that must be a mistake. */
  finish() {
    for (const { name, kind, atoms, met, most, wasApplied, hasChanged } of this.edits) {
      for (const axis of ["step", "row", "query", "key"]) {
        for (const atom of atoms[axis] ?? []) {
          const ends = atom.name || axis === "step" ? [] : [atom.low ?? 0, atom.high ?? 0];
          if (met.has(atom) && ends.every((end) => end >= -most[axis] && end < most[axis])) continue;
          throw new EngineError(`${name} landed nowhere or only in part: ${axis} ${worded(atom)} was never reached.`);
        }
      }
      if (!wasApplied) throw new EngineError(`${name} landed nowhere: its targets never occurred together.`);
      if (kind.nothing && !hasChanged) throw new EngineError(`${name} changed nothing: ${kind.nothing}.`);
    }
  }
}

/** What was recorded at this site. */
function recordedAt({ name, fields, site }) {
  const found = fields.recording.get(site);
  if (found?.data) return found;
  throw new EngineError(`${name}: the recording has no ${site}.`);
}

/** A field that is a number or a tensor, for each value. */
function given(context, field) {
  const value = context.fields[field];
  return typeof value === "number" ? context.values.map(() => value) : fitted(context, value);
}

/** New weights: of each visible key a function of the number of visible keys, and of how many came before it. */
function weighed({ shape, values, visible }, weigh) {
  const keys = shape.at(-1);
  const count = (from, to) => visible.subarray(from, to).reduce((sum, seen) => sum + seen, 0);
  return values.map((_, i) => {
    const start = i - (i % keys);
    return visible[i] ? weigh(count(start, start + keys), count(start, i)) : 0;
  });
}

/** Line a tensor up with the values from the last axis on; what was recorded must have every position. */
function fitted(context, { shape, data }, isRecorded = false) {
  const { site, axes, shape: wanted, chosen } = context;
  const own = [...wanted.slice(shape.length).map(() => 1), ...shape];
  const shapes = `${shape.join("×")} do not fit ${site} of ${wanted.join("×")}`;
  const misfit = () => new EngineError(`${context.name}: values of ${shapes}.`);
  const servesAll = own.map((size, axis) => size === 1 && (axis === 0 || !isRecorded));
  const isFree = axes.map((axis) => ["query", "key", "length"].includes(axis));
  const isFine = own.every((size, axis) => servesAll[axis] || isFree[axis] || size === wanted[axis]);
  if (own.length !== wanted.length || !isFine) throw misfit();
  const [out, last] = [new Float64Array(chosen.length), own.length - 1];
  const isOfKeys = axes[last] === "key" && !servesAll[last];
  forEachPlace(wanted, (i, place) => {
    if (!chosen[i]) return;
    const beyond = own.map((size, axis) => !servesAll[axis] && place[axis] >= size);
    const isSeen = !isOfKeys || (context.visible ?? chosen)[i];
    if (beyond.slice(0, -1).includes(true) || (beyond[last] && isSeen)) throw misfit();
    if (beyond[last]) return;
    const offset = own.reduce((sum, size, axis) => sum * size + (servesAll[axis] ? 0 : place[axis]), 0);
    out[i] = data[offset];
    if (!isOfKeys || ownName(site) !== "weights") return;
    const rest = data.subarray(offset - place[last] + wanted[last], offset - place[last] + own[last]);
    if (rest.some((weight) => weight !== 0)) throw misfit(); // weights that this shorter text would lose
  });
  return out;
}
