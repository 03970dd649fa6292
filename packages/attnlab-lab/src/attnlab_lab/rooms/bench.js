// Bench: the same model at rest. Step through an answer, and change what a head may look at.

import { isTouched, make, wordBriefly, wordTrimmed } from "attnlab/draw/report/elements.js";
import { axisName } from "attnlab/draw/map/layout.js";
import { WORDS } from "../words.js";
import { wordPython } from "../parts/code.js";
import { fillOptions, makeChoice } from "../parts/controls.js";
import { findEdit, findSwitch, headOf, isAllowed, SWITCHES } from "../parts/edits.js";
import { makeKeys } from "../parts/keys.js";
import { badgeOf, CHANGES, makeHeadMap, makeLegend, saySquare, sourceOf } from "../parts/maps.js";
import { cutEdge, makeModelParts } from "../parts/model_parts.js";
import { makePictureBar } from "../parts/picture.js";
import { makePuzzles } from "../parts/puzzles.js";
import { makeStepper } from "../parts/stepper.js";
import { makeThumbs } from "../parts/thumbs.js";

const VARIANTS = ["before", "after", "difference"];
const TOOLS = ["cut", "paint", "score"];
const MOST_ADDED = 20;

export function makeBench(session, page) {
  const { lab } = session;
  const state = { step: 0, head: 0, variant: "after", tool: "cut", stroke: null };
  let isFresh = true;

  const goTo = (step) => {
    if (!lab.now || step < 0 || step >= lab.now.ask.steps.length) return;
    state.step = step;
    show();
  };
  const choose = (head) => {
    state.head = head;
    show();
  };
  const parts = { ...makeModelParts(session, page), puzzles: makePuzzles(session, page) };
  const stepper = makeStepper(session, state, { goTo, choose });
  const thumbs = makeThumbs(choose);
  const variants = makeChoice(WORDS.variants, VARIANTS, (name) => {
    state.variant = name;
    show();
  });
  const tools = makeChoice(WORDS.tools, TOOLS, (name) => {
    state.tool = name;
    show();
  });
  const whole = makeSwitch((kind) => setSwitch(kind));
  const legends = { weights: makeLegend(), changes: makeLegend(true) };

  // The edges of the head that is shown.
  const nameOfHead = () => lab.now.ask.steps[0].heads[state.head].name;
  const headAt = () => headOf(nameOfHead());
  const lastHead = () => lab.now.ask.steps.at(-1).heads[state.head];

  // What is changed is seen: not in the map of before.
  function reach() {
    if (state.variant === "before") state.variant = "after";
  }

  function cut(cell) {
    reach();
    cutEdge(session, page, lastHead(), cell);
  }

  function addToScore([query, key], amount) {
    reach();
    const there = findEdit(lab.edits, { kind: "add", ...headAt(), query, key });
    const sum = (there?.amount ?? 0) + amount;
    if (findEdit(lab.edits, { kind: "cut", ...headAt(), query, key })) page.say(WORDS.isCut);
    else if (!isAllowed(lastHead(), query, key)) page.say(WORDS.noScore);
    else if (Math.abs(sum) > MOST_ADDED) page.say(WORDS.enough(MOST_ADDED));
    else {
      const edit = { kind: "add", ...headAt(), query, key, amount: sum };
      const others = lab.edits.filter((each) => each !== there);
      session.change(sum ? [...others, edit] : others, edit, sum !== 0);
    }
  }

  // The first square says what a stroke does: closes what is open, or opens what is closed.
  function paint(cell) {
    if (!cell) return endStroke();
    reach();
    state.stroke ??= { opens: !isAllowed(lastHead(), ...cell), cells: new Map() };
    state.stroke.cells.set(String(cell), cell);
    return map.redraw();
  }

  function endStroke() {
    const { stroke } = state;
    state.stroke = null;
    if (!stroke) return;
    const { scores, columns } = lastHead();
    const open = Array.from(scores, (score) => Number(!Number.isNaN(score)));
    for (const [query, key] of stroke.cells.values()) open[query * columns + key] = Number(stroke.opens);
    // The painted mask holds the head's cuts and what was painted before.
    const edit = { kind: "mask", ...headAt(), open: open.join("") };
    const isOwn = ({ layer, head }) => layer === edit.layer && head === edit.head;
    const others = lab.edits.filter((each) => !isOwn(each) || !["mask", "cut"].includes(each.kind));
    session.change([...others, edit], edit, true);
  }

  // One switch for the whole head: as it is, knocked out, first letter, frozen, everything alike.
  function setSwitch(kind) {
    const where = headAt();
    const old = findSwitch(lab.edits, where);
    const others = lab.edits.filter((each) => each !== old);
    const edit = kind === "freeze" ? { kind, ...where, input: lab.input } : { kind, ...where };
    if (kind) session.change([...others, edit], edit, true);
    else if (old) session.change(others, old, false);
  }

  function turnSwitch(by) {
    const all = ["", ...SWITCHES];
    const now = all.indexOf(findSwitch(lab.edits, headAt())?.kind ?? "");
    setSwitch(all[(now + by + all.length) % all.length]);
  }

  const map = makeHeadMap({
    press(cell, event) {
      if (state.tool === "cut") cut(cell);
      else if (state.tool === "score") addToScore(cell, event.shiftKey ? -1 : 1);
    },
    brush: paint,
    walk: (cell) => state.stroke && paint(cell),
    key(event, cell) {
      if (!cell) return false;
      const [more, less] = [1, -1].map((amount) => () => addToScore(cell, amount));
      const tool = { cut: () => cut(cell), score: more, paint: () => endStroke(paint(cell)) }[state.tool];
      const deeds = {
        x: () => cut(cell), "+": more, "=": more, "-": less, Enter: tool,
        " ": () => (state.stroke ? endStroke() : startPainting(cell)),
      };
      if (event.key === "Escape" && state.stroke) deeds.Escape = cancelStroke;
      if (!deeds[event.key]) return false;
      deeds[event.key]();
      return true;
    },
  }, WORDS.benchKeys);

  function startPainting(cell) {
    paint(cell);
    page.say(WORDS.painting(state.stroke.opens));
  }

  function cancelStroke() {
    state.stroke = null;
    map.redraw();
    page.say(WORDS.paintingCancelled);
  }

  const picture = makePictureBar(
    () => ({ canvas: map.place.querySelector("canvas"), source: state.source, name: state.source.name }),
    () => ({ attnlab: 1, link: page.linkNow(), seed: lab.settings.run || lab.settings.file ? null : lab.settings.seed, code: wordPython(lab) }));
  const hint = make("p", { class: "note" });
  const isOut = make("p", { class: "note", hidden: true });
  const root = make("div", { class: "room bench" },
    make("div", { class: "told-line" }, parts.answer.root, page.status),
    make("div", { class: "columns" },
      make("div", { class: "looking" },
        stepper.root,
        make("section", { class: "head-part", "data-part": "maps", "aria-labelledby": "maps-title" },
          make("div", { class: "head-bar" }, make("h2", { id: "maps-title" }, WORDS.oneHead), variants.root),
          make("div", { class: "head-grid" }, thumbs.root,
            make("div", { class: "one-map" }, map.root, isOut, legends.weights, legends.changes, picture.root),
            make("div", { class: "tool-part" }, tools.root, hint, whole.root))),
        parts.model.root),
      make("div", { class: "learning" }, parts.loss.root, parts.predict.root, parts.dots.root, parts.margin.root, parts.edits.root, parts.puzzles.root)),
    parts.code.root, makeKeys(WORDS.keys.bench));

  function show() {
    for (const part of Object.values(parts)) part.show();
    parts.loss.root.classList.toggle("over", lab.isDone);
    hint.textContent = (isTouched() ? WORDS.touchHints : WORDS.toolHints)[state.tool];
    if (!lab.now) return;
    if (isFresh && !lab.isRunning) {
      isFresh = false;
      state.step = Infinity; // the last one, whose map has all rows
    }
    state.step = Math.min(state.step, lab.now.ask.steps.length - 1);
    state.head = Math.min(state.head, lab.now.ask.steps[0].heads.length - 1);
    const isBefore = state.variant === "before";
    stepper.show(isBefore ? lab.before.ask : lab.now.ask);
    variants.show(state.variant);
    tools.show(state.tool);
    const turned = findSwitch(lab.edits, headAt());
    whole.show(turned?.kind ?? "", turned?.input ?? lab.input);
    const sources = lab.now.ask.steps[state.step].heads.map((_, i) => sourceAt(i));
    thumbs.show(sources, state.head);
    const source = sources[state.head];
    state.source = source;
    const marks = source.markOf;
    const markOf = (i, j) => (state.stroke?.cells.has(`${i},${j}`) ? "brush" : marks(i, j));
    const row = lab.settings.length + state.step; // the one that writes
    map.show({ ...source, markOf, paints: state.tool === "paint", row }, source.name, source.badge);
    const isDifference = state.variant === "difference";
    legends.weights.hidden = isDifference;
    legends.changes.hidden = !isDifference;
    isOut.hidden = !isDifference || turned?.kind !== "zero";
    isOut.textContent = WORDS.headIsOut(nameOfHead());
  }

  function sourceAt(i) {
    const [before, after] = [lab.before, lab.now].map(({ ask }) => ask.steps[state.step]);
    const { name } = after.heads[i];
    const badge = state.variant === "before" ? "" : badgeOf(lab, name);
    if (state.variant === "before") return { ...sourceOf({ ...lab, edits: [] }, before, before.heads[i]), name, badge };
    if (state.variant === "after") return { ...sourceOf(lab, after, after.heads[i]), name, badge };
    return { ...changeOf(lab, before, after, i), name, badge };
  }

  const keys = {
    "[": () => goTo(state.step - 1), "]": () => goTo(state.step + 1), h: () => turnSwitch(1), H: () => turnSwitch(-1),
    1: () => variants.choose("before"), 2: () => variants.choose("after"), 3: () => variants.choose("difference"),
  };
  return {
    root, show, follow: parts.puzzles.follow, link: parts.puzzles.link,
    key(event) {
      if (!keys[event.key] || !lab.now) return false;
      keys[event.key]();
      return true;
    },
  };
}

// After less before. A letter that differs between the two answers is named in both.
export function changeOf(lab, before, after, i) {
  const [was, is] = [before.heads[i], after.heads[i]];
  const { columns, name } = is;
  const source = sourceOf(lab, after, is);
  const nameBoth = (earlier, later) =>
    later.map((token, k) => axisName(token === earlier[k] ? token : `${earlier[k]} / ${token}`));
  const rowNames = nameBoth(before.tokens, after.tokens);
  const columnNames = after.keys ? nameBoth(before.keys, after.keys) : rowNames;
  const isMasked = (k) => [is, was].every(({ scores }) => Number.isNaN(scores[k]));
  const values = Float32Array.from(is.weights, (weight, k) => (isMasked(k) ? NaN : weight - was.weights[k]));
  return {
    ...source, values, rowNames, columnNames, scale: CHANGES, label: WORDS.changeLabel(name),
    word: (value) => wordBriefly(value).replace("<.01", "~0"),
    say(row, column) {
      const k = row * columns + column;
      const [first, start] = after.at ?? [0, 0];
      const change = WORDS.change(...[was, is].map(({ weights }) => wordTrimmed(weights[k], 4)));
      const words = Number.isNaN(values[k]) ? WORDS.maskedCell : change;
      return saySquare([first + row, rowNames[row]], [start + column, columnNames[column]], words);
    },
  };
}

function makeSwitch(choose) {
  const select = make("select", { id: "switch", "aria-keyshortcuts": "h" });
  select.addEventListener("change", () => choose(select.value));
  return {
    root: make("div", { class: "switch" }, make("label", { for: "switch" }, WORDS.wholeHead), select),
    show(chosen, input) {
      fillOptions(select, ["", ...SWITCHES].map((kind) => [kind, WORDS.switches[kind](input)]), chosen);
    },
  };
}
