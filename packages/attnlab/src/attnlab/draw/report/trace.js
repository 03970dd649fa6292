// The trace: one input, one step at a time. Sentence, tokens, probabilities and maps always show the same step.

import { extent } from "./axes.js";
import { listSome, makeChooser } from "./chooser.js";
import { breakable, clamp, count, isNumber, make, makeButton, makeShare, quote, setVariable, wordProbability, wordToken, wordTokens, wordTrimmed } from "./elements.js";
import { makeSideBySide } from "./side_by_side.js";
import { makeStrip, allowedWeights } from "./strip.js";
import { axisName } from "../map/layout.js";
import { sayWeight } from "../map/map.js";
import { makeMaskedNote, makeRamp, makeScale } from "../map/shades.js";
import { unpackAll } from "../map/wire.js";

const WEIGHTS = makeScale(0, 1);
const MAX_CANDIDATES = 12;
const WEIGHT_DIGITS = 5;
const BEAT = 1200; // milliseconds between two steps while playing

export function mountTrace(stage, section) {
  const { traces } = section;
  if (traces.length === 0) {
    stage.append(make("p", { class: "note" }, "No trace was recorded."));
    return null;
  }
  const view = makeTrace(stage, traces);
  view.chooser.choose(mostVaried(traces));
  return view;
}

// The stepper without a trace as yet. `view.chosen(words)`, if it is set, hears which recorded input is chosen, and draws
// what a model answers in place of what was recorded.
export function makeTrace(stage, traces) {
  const view = { traces, trace: null, step: 0, head: 0, timer: null, strip: null, stage, chosen: null };
  const words = traces.map((trace) => wordTokens(trace.input));
  view.chooser = makeChooser(words, { label: "Input", noun: "input", refuse: (typed) => refuseInput(typed, traces, words) }, (index) => {
    if (view.chosen) view.chosen(words[index]);
    else openTrace(view, traces[index]);
  });
  view.said = make("p", { class: "said", role: "status" });
  view.looks = make("p", { class: "note" });
  view.stripPlace = make("div");
  view.chances = make("ul", { class: "chances" });
  view.mapsPlace = make("div", { class: "maps" });
  const legend = makeRamp(WEIGHTS, "0", "1");
  legend.append(makeMaskedNote("masked: not allowed"));
  view.parts = make("div", { class: "trace-parts" },
    make("div", { class: "query-part" }, make("h3", {}, "Where each head looks"),
      make("p", { class: "note" }, "Weights from the filled token; a head’s name draws its arcs."), view.stripPlace),
    make("div", { class: "next-part" }, make("h3", {}, "Next token"), view.chances),
    make("div", { class: "maps-part" }, make("h3", {}, "All queries, head by head"),
      make("p", { class: "note" }, "Framed: this step. Faint: still to come. Click a row to go to its step."), view.mapsPlace, legend));
  stage.classList.add("trace-view");
  view.stepper = makeStepper(view);
  stage.append(make("div", { class: "controls" }, view.chooser.root, view.stepper), view.said, view.looks, view.parts);
  stage.addEventListener("keydown", (event) => stepByKey(view, event));
  view.sideBySide = makeSideBySide(view.mapsPlace);
  return view;
}

// Equal tokens show little: begin with the last of the most varied inputs.
function mostVaried(traces) {
  const variety = traces.map((trace) => new Set(trace.input).size);
  return variety.lastIndexOf(extent(variety)[1]);
}

// The possible inputs in one sentence: how many, how long, of which tokens.
function refuseInput(typed, traces, words) {
  if (words.length === 1) return `“${typed}” is not recorded here; the only input is ${words[0]}.`;
  const lengths = traces.map((trace) => trace.input.length);
  const [least, most] = extent(lengths);
  const known = [...new Set(traces.flatMap((trace) => trace.input))].sort();
  const size = least === most ? count(least, "token") : `${least} to ${most} tokens`;
  const made = known.length <= 30 ? ` from ${known.map(wordToken).join(" ")}` : "";
  return `“${typed}” is not among the ${count(words.length, "input")} recorded here; each has ${size}${made}, for example ${listSome(words)}.`;
}

function makeStepper(view) {
  view.back = makeButton("‹ Back", () => goTo(view, view.step - 1), { "aria-label": "Previous step" });
  view.on = makeButton("Step ›", () => goTo(view, view.step + 1), { "aria-label": "Next step" });
  view.play = makeButton("▶ Play", () => togglePlay(view), { class: "play" });
  view.slider = make("input", { type: "range", min: 0, value: 0, "aria-label": "Step" });
  view.slider.addEventListener("input", () => goTo(view, Number(view.slider.value)));
  view.count = make("output");
  return make("div", { class: "bar stepper" }, view.back, view.on, view.play, view.slider, view.count,
    make("span", { class: "note keys" }, "← → keys step"));
}

export async function openTrace(view, packed, step = 0) {
  pause(view);
  view.opened = packed;
  packed.unpacked ??= unpackAll(packed);
  const trace = await packed.unpacked;
  if (view.opened !== packed) return undefined; // another was chosen meanwhile
  const before = view.trace;
  view.trace = trace;
  view.step = clamp(step, 0, Math.max(0, trace.steps.length - 1));
  view.head = clamp(view.head, 0, Math.max(0, view.trace.attention.length - 1));
  if (before === view.trace) return showStep(view);
  view.strip = makeStrip(view.trace, (head) => {
    view.head = head;
    showStep(view);
  });
  view.stripPlace.replaceChildren(view.strip.root);
  const { tokens, attention } = view.trace;
  setVariable(view.mapsPlace, "--map-width", `${widthOfMaps(view.trace)}px`);
  view.parts.classList.toggle("compact", tokens.length <= 12 && attention.length <= 4);
  view.sideBySide.show(attention.map((entry) => makeFigure(entry, tokens)), (row) => {
    const step = view.trace.steps.findIndex(({ position }) => position === row);
    if (step >= 0) goTo(view, step);
  });
  view.slider.max = Math.max(0, view.trace.steps.length - 1);
  return showStep(view);
}

function makeFigure(entry, tokens) {
  const keys = entry.key_tokens ?? tokens;
  const { lengths, weights } = entry;
  const columns = Math.max(0, ...lengths);
  const name = `Head ${entry.name}`;
  const isMasked = (i, j) => j >= lengths[i];
  const source = {
    rows: lengths.length, columns, values: weights, scale: WEIGHTS,
    rowNames: lengths.map((_, i) => axisName(tokens[i])), columnNames: keys.slice(0, columns).map(axisName),
    label: `Attention weights of ${name}: queries by keys`, fadesLaterRows: true,
    isMasked,
    say(i, j) {
      const weight = weights[i * columns + j];
      const words = isNumber(weight) ? wordTrimmed(weight, WEIGHT_DIGITS) : "n/a";
      return sayWeight(`Query ${i} ${quote(tokens[i])}`, `key ${j} ${quote(keys[j])}`, isMasked(i, j) ? null : words);
    },
  };
  const heading = make("h4", {}, ...breakable(name), make("code", {}, ...breakable(entry.site)));
  return { heading, name, source };
}

// Large cells if there is room, small ones for many heads of long sequences.
function widthOfMaps(trace) {
  const columns = Math.max(1, ...trace.attention.flatMap((entry) => [entry.key_tokens?.length ?? entry.lengths.length]));
  const cell = columns <= 8 ? 34 : columns <= 14 ? 26 : trace.attention.length > 4 ? 12 : 18;
  return clamp(columns * cell + 40, 280, 1000);
}

function goTo(view, step, keepPlaying = false) {
  if (!keepPlaying) pause(view);
  view.step = clamp(step, 0, Math.max(0, view.trace.steps.length - 1));
  showStep(view);
}

function showStep(view) {
  const { trace, step: k } = view;
  const step = trace.steps[k];
  view.back.disabled = k === 0;
  view.on.disabled = k >= trace.steps.length - 1;
  view.slider.value = k;
  view.slider.setAttribute("aria-valuetext", `step ${k + 1} of ${trace.steps.length}`);
  view.count.textContent = step ? `step ${k + 1} of ${trace.steps.length}` : "no step";
  view.said.replaceChildren(...saySentence(trace, k));
  view.looks.textContent = sayLooks(trace, step);
  view.strip.show(step, view.head);
  showChances(view.chances, step);
  view.sideBySide.follow(step ? step.position : -1);
}

function saySentence(trace, k) {
  const step = trace.steps[k];
  if (!step) return ["No token was chosen for this input."];
  const word = (token, name = "word") => make("span", { class: name }, wordToken(token));
  const known = trace.tokens.slice(0, step.position + 1);
  // Long prefixes are cut in this sentence, not in the strip below.
  const shown = known.length > 14 ? ["…", ...known.slice(-13)] : known;
  const chance = step.probabilities[step.candidates.indexOf(step.choice)];
  const words = [`Step ${k + 1} of ${trace.steps.length}: after `, make("span", { class: "word" }, shown.map(wordToken).join(" ")),
    ", the model looks back from ", word(known[known.length - 1]), " and picks ", word(step.choice, "word chosen")];
  words.push(isNumber(chance) ? ` with probability ${wordProbability(chance)}.` : " (probability n/a).");
  return words;
}

function sayLooks(trace, step) {
  if (!step) return "";
  const parts = trace.attention.slice(0, 4).map((entry) => {
    const weights = allowedWeights(entry, step.position);
    const most = weights.reduce((best, weight, j) => (isNumber(weight) && (best < 0 || weight > weights[best]) ? j : best), -1);
    if (most < 0) return null;
    return `Head ${entry.name} looks most at ${quote((entry.key_tokens ?? trace.tokens)[most])}, position ${most} (${wordProbability(weights[most])})`;
  }).filter(Boolean);
  const rest = trace.attention.length - 4;
  return parts.length ? `${parts.join("; ")}${rest > 0 ? `; ${count(rest, "more head")} below` : ""}.` : "";
}

function showChances(list, step) {
  if (!step) return list.replaceChildren();
  const pairs = step.candidates.map((token, i) => ({ token, chance: step.probabilities[i], isChoice: token === step.choice }));
  // Few candidates keep their order, so that bars can be compared between steps.
  const value = (pair) => (isNumber(pair.chance) ? pair.chance : -1) + (pair.isChoice ? 2 : 0);
  const shown = pairs.length <= MAX_CANDIDATES ? pairs : [...pairs].sort((one, other) => value(other) - value(one)).slice(0, MAX_CANDIDATES);
  const rest = pairs.filter((pair) => !shown.includes(pair));
  const mass = rest.reduce((sum, pair) => sum + (isNumber(pair.chance) ? pair.chance : 0), 0);
  const others = make("li", { class: "rest" }, make("span"), make("span", { class: "note" }, `${rest.length} others`),
    make("span", { class: "number" }, wordProbability(mass)), make("span"));
  return list.replaceChildren(...shown.map(({ token, chance, isChoice }) => makeShare(wordToken(token), chance, wordProbability(chance),
    isChoice ? "← choice" : "", { class: isChoice ? "is-choice" : "" })), ...(rest.length ? [others] : []));
}

export function stepByKey(view, event) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  // Fields, lists and sliders use the arrow keys themselves.
  if (event.target.matches?.("input, select, textarea")) return;
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (by === undefined) return;
  event.preventDefault();
  goTo(view, view.step + by);
}

function togglePlay(view) {
  if (view.timer !== null) return pause(view);
  const last = view.trace.steps.length - 1;
  goTo(view, view.step >= last ? 0 : view.step + 1);
  view.play.textContent = "❚❚ Pause";
  // With reduced motion, steps have no transitions and last twice as long.
  const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  view.timer = setInterval(() => {
    if (view.step >= last) pause(view);
    else goTo(view, view.step + 1, true);
  }, isCalm ? 2 * BEAT : BEAT);
}

function pause(view) {
  clearInterval(view.timer);
  view.timer = null;
  view.play.textContent = "▶ Play";
}
