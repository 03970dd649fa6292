// One model in the page: trained, asked and edited. It knows the engine and no element of the page.

import { clamp } from "attnlab/draw/report/elements.js";
import { countRight, WORDS } from "../words.js";
import { BORROWED, headOf, toJson, wordDone } from "./edits.js";
import { shapeOf } from "./link.js";

const SLICE = 20; // milliseconds of training between two pictures
const MOST_SLICE = 500;
const CALM_SLICE = 450; // for those who asked their system for less motion
const REHEARSALS = 12;
const HOLD = 700; // milliseconds in which the untrained model is seen
// The model of `attnlab run sorting`.
const MODEL = { d_model: 6, d_ff: 6, projections: "gated", rank: 3, positions: "learned", bias: false };

export function makeSession(call, hear) {
  const lab = {
    settings: null, shape: null, model: null, input: "", step: 0, losses: [], isRunning: false, isDone: false,
    edits: [], past: [], future: [], now: null, before: null, worth: null,
    awaited: null, // the edits of a link, and the step at which they are put back
  };
  let plain = null; // what the model says without edits, kept until it has learned more
  let latest = null; // what was asked last; older answers are dropped
  let newest = null; // the promise of what was asked last: whether it is shown
  let looping = null; // the model whose training loop runs

  // With a model that the engine has opened already, that one; otherwise one is made and trained.
  async function start(settings, { input, edits = [], at = null, opened = null }) {
    const old = lab.model;
    Object.assign(lab, {
      settings, input, shape: shapeOf(settings), model: null, step: 0, losses: [], isRunning: false, isDone: false,
      edits: [], past: [], future: [], now: null, before: null, worth: null,
    });
    const mine = {};
    latest = mine;
    newest = Promise.resolve(false);
    lab.awaited = edits.length || at !== null ? { edits, at } : null;
    if (old) call("drop", old.id);
    const { task, letters, length, seed, heads, layers, run } = settings;
    const shape = { ...MODEL, num_heads: heads, num_layers: layers };
    const model = opened ?? await call("create", run ? settings : { task, letters, length, seed, model: shape });
    if (latest !== mine) {
      call("drop", model.id);
      return;
    }
    Object.assign(lab, { model, isRunning: !opened, isDone: Boolean(opened) });
    forget();
    await look(() => (opened ? WORDS.answered(lab) : ""));
    if (opened) return;
    if (!lab.awaited) await Promise.all([rehearse(model), new Promise((over) => setTimeout(over, HOLD))]);
    await goOn(model);
  }

  // Answers some edits that are not shown: code is slow until it has run a few times, and a click should not be.
  async function rehearse({ id }) {
    for (let i = 0; i < REHEARSALS && lab.model?.id === id; i++) {
      const edits = [toJson({ kind: "cut", layer: 0, head: 0, query: 1, key: 0 })];
      await Promise.all([call("check", id, edits), call("ask", id, lab.input, edits)]);
    }
  }

  function forget() {
    plain = { check: null, asks: new Map() };
    lab.worth = null;
  }

  function train() {
    if (lab.isRunning || lab.isDone) return null;
    lab.isRunning = true;
    return goOn(lab.model);
  }

  // Trains until it is done, paused, or at the step that a link asks for.
  async function goOn(model) {
    if (lab.model !== model || looping === model) return; // paused and gone on within one slice
    looping = model;
    const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const last = Math.min(lab.awaited?.at ?? model.steps, model.steps);
    const pace = isCalm ? CALM_SLICE : SLICE;
    // The engine counts in milliseconds: to a step that is asked for it goes one by one.
    const isExact = last < model.steps;
    let slice = isExact ? 0 : pace;
    let seen = 0; // when the last picture was asked for
    while (lab.model === model && lab.isRunning && lab.step < last) {
      await untilSeen(() => document.body.dataset.rests !== "true");
      if (lab.model !== model) return;
      const told = await call("advance", model.id, slice);
      if (lab.model !== model) return;
      Object.assign(lab, { step: told.step, isDone: told.isDone });
      lab.losses.push(...told.losses);
      forget();
      if (told.isDone || performance.now() - seen < pace / 2) continue;
      const began = performance.now();
      await look();
      seen = performance.now();
      // On a busy computer, too, half of the time goes into training.
      if (!isExact) slice = clamp(seen - began, pace, MOST_SLICE);
    }
    if (lab.model !== model) return;
    lab.isRunning = false;
    looping = null;
    const isThere = lab.step >= last;
    const edits = (isThere && lab.awaited?.edits) || [];
    if (isThere) lab.awaited = null;
    await look();
    if (edits.length) await take(edits, () => WORDS.linkOpened(lab), { past: [] });
    else hear(lab.isDone && !lab.edits.length ? WORDS.trained(lab) : "", true); // the page shows it anyway
  }

  function pause() {
    lab.isRunning = false;
  }

  async function check(json) {
    if (json.length) return call("check", lab.model.id, json);
    plain.check ??= call("check", lab.model.id, []);
    return plain.check;
  }

  async function ask(input, json) {
    if (json.length) return call("ask", lab.model.id, input, json);
    if (!plain.asks.has(input)) plain.asks.set(input, call("ask", lab.model.id, input, []));
    return plain.asks.get(input);
  }

  async function jsonOf(edits) {
    const asked = new Map();
    const inputsOf = ({ kind, input }) => (kind === "mean" ? lab.model.inputs : [input]);
    const borrowed = edits.filter(({ kind }) => BORROWED.includes(kind));
    for (const input of borrowed.flatMap(inputsOf)) asked.set(input, await ask(input, []));
    return edits.map((edit) => toJson(edit, () => patternOf(inputsOf(edit).map((input) => asked.get(input)), edit.layer)));
  }

  // Asks for everything that is shown, without and with the edits, and tells it with these words. Where something newer
  // was asked meanwhile, its answer is waited for; false if that is another model.
  async function look(words = () => "") {
    newest = lookOnce();
    const isThere = await newest;
    if (isThere) hear(words());
    return isThere;
  }

  async function lookOnce() {
    const mine = {};
    latest = mine;
    const { input, edits } = lab;
    const json = await jsonOf(edits);
    if (latest !== mine) return newest.catch(() => false); // told where it was asked
    const [was, told, is, answer] = await Promise.all([check([]), ask(input, []), check(json), ask(input, json)]);
    if (latest !== mine) return newest.catch(() => false);
    lab.before = { ...was, ask: told };
    lab.now = { ...is, ask: answer };
    return true;
  }

  // Takes other edits; if the engine refuses them, those before stay, and its sentence is told.
  async function take(edits, words, { past = [...lab.past, lab.edits], future = [] } = {}) {
    pause();
    lab.awaited = null; // what is done by hand counts
    const kept = { edits: lab.edits, past: lab.past, future: lab.future };
    Object.assign(lab, { edits, past, future });
    try {
      await look(words);
    } catch (error) {
      Object.assign(lab, kept);
      await look(() => error.message);
    }
  }

  const change = (edits, edit, isAdded) =>
    take(edits, () => WORDS.changed(lab, edit, wordDone(edit, isAdded, lab.now.ask.steps.at(-1).tokens)));
  const toggle = (edit, there) => {
    if (there) return change(lab.edits.filter((each) => each !== there), there, false);
    return change([...lab.edits, edit], edit, true);
  };

  function undo() {
    if (!lab.past.length) return hear(WORDS.nothingToUndo);
    const past = [...lab.past];
    return take(past.pop(), () => WORDS.undone(lab), { past, future: [lab.edits, ...lab.future] });
  }

  function redo() {
    if (!lab.future.length) return hear(WORDS.nothingToRedo);
    const [edits, ...future] = lab.future;
    return take(edits, () => WORDS.redone(lab), { past: [...lab.past, lab.edits], future });
  }

  // How many inputs stay right if one head is knocked out and nothing else is done, for every head.
  async function weigh() {
    const { model } = lab;
    const names = lab.before.ask.steps[0].heads.map((head) => head.name);
    const knockOut = (name) => toJson({ kind: "zero", ...headOf(name) });
    const told = await Promise.all(names.map((name) => call("check", model.id, [knockOut(name)])));
    if (lab.model !== model || lab.isRunning) return;
    lab.worth = names.map((name, i) => ({ name, right: countRight(told[i]) }));
    hear(WORDS.weighed(lab));
  }

  async function setInput(input) {
    lab.input = input;
    if (lab.model) await look(() => WORDS.answered(lab));
  }

  const deeds = {
    start, train, pause, undo, redo, weigh, setInput, toggle, change,
    reset: () => lab.edits.length && take([], () => WORDS.reset(lab)),
    setEdits: (edits) => take(edits, () => WORDS.linkOpened(lab)),
  };
  return { lab, deeds };
}

// The edits that a link should hold: before those of a link are put back, they.
export function wantedEdits(lab) {
  return lab.awaited?.edits ?? lab.edits;
}

// The mean weights of all heads of a layer at the last step of these answers, in the form (1, heads, query, key).
function patternOf(answers, layer) {
  const heads = answers.map(({ steps }) => steps.at(-1).heads.filter(({ name }) => name.split(".")[0] === String(layer)));
  const meanOf = (head, cell) => heads.reduce((sum, each) => sum + each[head].weights[cell], 0) / heads.length;
  return [heads[0].map(({ rows, columns }, head) =>
    Array.from({ length: rows }, (_, i) => Array.from({ length: columns }, (_, j) => meanOf(head, i * columns + j))))];
}

// A page in the background does not train; nor does a model that its room does not show.
export async function untilSeen(isShown = () => true) {
  while (document.hidden || !isShown()) {
    await new Promise((seen) => document.addEventListener("visibilitychange", seen, { once: true }));
  }
}
