// Models: a pretrained model, or that of a run, reads a text; its heads are seen, knocked out and cut.

import { makeMaskedNote, makeRamp, makeScale } from "attnlab/draw/map/shades.js";
import {
  make, makeButton, quote, setVariable, wordNumber, wordProbability, wordToken, wordTrimmed,
} from "attnlab/draw/report/elements.js";
import { makeAllHeads, MEASURES } from "../parts/all_heads.js";
import { makeChoice, makeFact, makeNotice, makeTyped, AS_TYPED } from "../parts/controls.js";
import { findEdit, headOf, writeEdits } from "../parts/edits.js";
import { makeEditsList } from "../parts/edits_list.js";
import { makeKeys } from "../parts/keys.js";
import { badgeOf, makeHeadMap, sourceOf } from "../parts/maps.js";
import { makeModelSession } from "../parts/model_session.js";
import { makePatching } from "../parts/patching.js";
import { makeReasons } from "../parts/reasons.js";
import { makeHeadings, makeRow } from "../parts/one_input.js";
import { askServer } from "../parts/server.js";
import { onKeys } from "../parts/table_map.js";
import { makeWholeMap } from "../parts/whole_map.js";
import { WORDS } from "../words.js";
import { MODEL_WORDS, WHY_WORDS } from "../words_models.js";
import { changeOf } from "./bench.js";

const PRESSES = ["cut", "why"];
const VIEWS = ["before", "after", "difference"];
const SHARES = makeScale(0, 1, true); // square roots: most weights of a real model are small
const SHIFTS = makeScale(-1, 1, true);
const LONGEST_IN_LINK = { model: 300, text: 1000, look: 50, part: 20, by: 50, changes: 300 }; // characters

export function makeModels({ lab: own }, page) {
  const view = { by: "first", variant: "after", press: "cut", query: null };
  const clock = make("span", { class: "note", "aria-hidden": "true" }); // not read out each second
  const { lab, deeds } = makeModelSession({
    hear, say: page.say,
    clock: (seconds) => (clock.textContent = seconds === null ? "" : MODEL_WORDS.clock(seconds)),
    busy: (isBusy) => {
      document.body.dataset.busy = isBusy;
    },
  });

  const name = makeTyped("model", { placeholder: MODEL_WORDS.hint });
  const text = make("textarea", { id: "model-text", rows: 2, ...AS_TYPED });
  const there = make("ul", { class: "there" });
  const others = make("details", { open: true }, make("summary", {}, MODEL_WORDS.there), there);
  const notice = makeNotice();
  const facts = make("dl", { class: "facts" });
  const expected = make("p", { class: "note" });
  const answerTitle = make("h2", {});
  const answer = make("div", { class: "answers" });
  const strip = makeTokens(view);
  const knock = makeButton("", deeds.knockOut, { "aria-keyshortcuts": "h" });
  const choice = (words, known, field) => makeChoice(words, known, (value) => {
    view[field] = value;
    show();
  });
  const measures = choice(MODEL_WORDS.measures, MEASURES, "by");
  const variants = choice(WORDS.variants, VIEWS, "variant");
  const presses = choice(WHY_WORDS.presses, PRESSES, "press");
  const heads = makeAllHeads(lab, view, deeds.choose);
  const whole = makeWholeMap(deeds.goTo);
  const map = makeHeadMap({
    press,
    read: (cell) => lab.shown && strip.show(lab.shown, cell ? cell[0] : queryNow()),
    key: (...pressed) => [onKeys(["Enter"], press), onKeys(["x"], cut), onKeys(["w"], why)].some((hear) => hear(...pressed)),
  }, MODEL_WORDS.mapKeys);
  const legends = [makeRamp(SHARES, "weight 0", "1"), makeRamp(SHIFTS, "−1", "1")];
  legends.forEach((legend) => legend.append(makeMaskedNote(WORDS.masked)));
  const headIsOut = make("p", { class: "note" });
  const [patching, reasons] = [makePatching(), makeReasons()];
  const edits = makeEditsList({ lab, ...deeds, tokensOf });
  const nameForm = makeForm(MODEL_WORDS.model, name, MODEL_WORDS.open, () => begin({ model: name.value.trim().replace(/\/+$/, "") }));
  const textForm = makeForm(MODEL_WORDS.text, text, MODEL_WORDS.read, () => {
    view.query = null;
    deeds.setText(text.value);
  });
  const fade = () => reading.classList.toggle("old", text.value !== lab.text); // what is shown is of another text
  text.addEventListener("input", fade);
  text.addEventListener("keydown", (event) => {
    event.stopPropagation(); // no key of the room
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    textForm.requestSubmit();
  });
  const reading = make("div", { class: "columns" },
    make("div", { class: "looking" },
      make("section", { class: "head-part", "aria-labelledby": "maps-title" },
        make("div", { class: "head-bar" }, make("h2", { id: "maps-title" }, WORDS.oneHead), variants.root),
        make("div", { class: "one-map" }, map.root, headIsOut, whole.root, ...legends), make("div", { class: "bar" }, knock, presses.root), strip.root),
      reasons.root,
      heads.list),
    make("div", { class: "learning" },
      make("section", {}, answerTitle, answer), edits.root,
      make("section", { class: "heads-part" }, heads.squares, measures.root, make("p", { class: "note" }, MODEL_WORDS.headsNote))));
  const root = make("div", { class: "room models-room" }, nameForm, others, facts, textForm, expected,
    make("div", { class: "told-line" }, page.status, clock, notice.root), reading, patching.root,
    makeKeys(MODEL_WORDS.keys));

  function hear(refusal) {
    notice.tell(refusal);
    show();
    page.keepLater();
  }

  async function list() {
    const found = await askServer("/api/models").catch(({ message }) => message);
    if (typeof found === "string") return there.replaceChildren(make("li", { class: "note" }, found));
    there.replaceChildren(...found.map(({ name: each, kind }) =>
      make("li", {}, makeButton(each, () => open(each)), make("span", { class: "note" }, MODEL_WORDS.kinds[kind]))));
    if (!found.length) there.append(make("li", { class: "note" }, MODEL_WORDS.none));
  }

  async function open(model, link = {}) {
    const was = lab.model;
    Object.assign(view, { query: null, by: MEASURES.includes(link.by) ? link.by : view.by });
    await deeds.open(model, link);
    if (lab.model !== was) list();
    others.open = lab.model === null;
  }

  // What is cut is seen: not in the map of before.
  function cut(cell) {
    if (view.variant === "before") view.variant = "after";
    deeds.cut(cell);
  }

  function why(cell) {
    reasons.ask(lab, cell);
  }

  function press(cell) {
    if (view.press === "why") why(cell);
    else cut(cell);
  }

  // The tokens that an edge may name: those of the text.
  function tokensOf({ layer }) {
    return typeof layer === "number" || layer.startsWith("encoder") ? lab.told.tokens : [];
  }

  // The token that looks: unless one is chosen, the last, which answers, or the first of a model without an answer.
  function queryNow() {
    const last = lab.shown.queries.length - 1;
    return Math.min(view.query ?? (lab.told.places.length ? last : 0), last);
  }

  function show() {
    const { facts: known, shown, head } = lab;
    for (const part of [facts, textForm, expected, reading]) part.hidden = !shown;
    patching.root.hidden = !lab.told?.has_one_answer;
    reasons.show(lab);
    if (!shown) return;
    if (document.activeElement !== name) name.value = lab.model;
    if (document.activeElement !== text) text.value = lab.text;
    fade();
    facts.replaceChildren(...MODEL_WORDS.facts(known, wordNumber(known.parameters)).map(makeFact));
    expected.textContent = MODEL_WORDS.reads(known.expected);
    measures.show(view.by);
    variants.show(view.variant);
    presses.show(view.press);
    edits.show();
    const isOut = findEdit(lab.edits, { kind: "zero", ...headOf(head) }) !== undefined;
    knock.textContent = isOut ? MODEL_WORDS.giveBack(head) : MODEL_WORDS.knockOut(head);
    const isDifference = view.variant === "difference";
    [legends[0].hidden, legends[1].hidden] = [isDifference, !isDifference];
    headIsOut.hidden = !isDifference || !isOut;
    headIsOut.textContent = WORDS.headIsOut(head);
    const badge = view.variant === "before" ? "" : badgeOf(lab, head);
    map.show(makeSource({ ...lab, colors: own.colors }, view.variant), head, badge);
    whole.show(shown, view.variant, isDifference ? SHIFTS : SHARES, own.colors);
    heads.show(own.colors);
    strip.show(shown, queryNow());
    answerTitle.textContent = MODEL_WORDS.answerTitle(lab.told);
    answer.replaceChildren(...makeAnswers(lab));
    patching.show(lab, own.colors);
    page.keepLater();
  }

  const begin = ({ model, ...link }) => model && open(model, link);
  list();
  begin(page.link.own);
  show();
  const keys = {
    h: deeds.knockOut, "[": () => deeds.chooseNext(-1), "]": () => deeds.chooseNext(1),
    ...Object.fromEntries(VIEWS.map((each, i) => [i + 1, () => variants.choose(each)])),
  };
  return {
    root, heading: { title: MODEL_WORDS.title, subtitle: MODEL_WORDS.subtitle },
    show, undo: deeds.undo, redo: deeds.redo, follow: begin, leave: deeds.leave,
    key: (event) => Boolean(lab.shown && keys[event.key]) && (keys[event.key](), true),
    link() {
      if (!lab.model && notice.root.hidden) return {}; // what a link asks for stays in it until it is there
      const { model, text: words, head: look, at } = lab;
      const fitsText = encodeURIComponent(words).length <= LONGEST_IN_LINK.text;
      const kept = lab.edits.filter(({ kind }) => fitsText || kind === "zero"); // a cut is one of its text
      const told = { model, text: words, look, part: at && fitsText ? at.join(".") : "", by: model && view.by, changes: writeEdits(kept) };
      const fits = (key) => encodeURIComponent(told[key] ?? "").length <= LONGEST_IN_LINK[key];
      return Object.fromEntries(Object.entries(told).map(([key, value]) => [key, fits(key) ? value : null]));
    },
  };
}

function makeForm(label, field, action, act) {
  const form = make("form", { class: "model-line" }, make("label", { for: field.id }, label), field,
    make("button", { type: "submit", class: "primary" }, action));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    act();
  });
  return form;
}

// The tokens that a head may look at, shaded by the weights of one query.
function makeTokens(view) {
  const list = make("div", { class: "token-strip", role: "group", "aria-label": MODEL_WORDS.text });
  const note = make("p", { class: "note" });
  let [drawn, now] = [null, null];
  function show(shown, query) {
    now = shown;
    const { queries, keys } = shown;
    const { weights } = view.variant === "before" ? shown.before : shown.after;
    if (drawn !== JSON.stringify(keys)) {
      drawn = JSON.stringify(keys);
      list.replaceChildren(...keys.map((key, i) => makeButton(wordToken(key), () => pin(i), { class: "token-chip" })));
    }
    keys.forEach((key, i) => {
      const weight = weights[query * keys.length + i];
      const chip = setVariable(list.children[i], "--w", weight);
      chip.title = `${quote(key)}: ${wordTrimmed(weight, 4)}`;
      chip.setAttribute("aria-pressed", keys.length === queries.length && i === query);
    });
    note.textContent = MODEL_WORDS.tokensNote(`${shown.at[0] + query} ${quote(queries[query])}`);
  }
  function pin(i) {
    view.query = Math.min(i, now.queries.length - 1);
    show(now, view.query);
  }
  return { root: make("div", {}, list, note), show };
}

// The map of the one head, as the Bench draws it.
function makeSource(lab, variant) {
  const { queries, keys, at, before, after } = lab.shown;
  const step = (head) => ({ tokens: queries, keys, at, heads: [head] });
  if (variant === "difference") return { ...changeOf(lab, step(before), step(after), 0), scale: SHIFTS };
  const isBefore = variant === "before";
  const source = sourceOf(isBefore ? { ...lab, edits: [] } : lab, step(), isBefore ? before : after);
  return { ...source, scale: SHARES };
}

function makeAnswers({ told: { places, cosine, moved, tokens }, edits }) {
  const columns = edits.length ? MODEL_WORDS.columns : [];
  if (cosine !== undefined) {
    const words = edits.length ? MODEL_WORDS.cosine(cosine, moved, tokens) : MODEL_WORDS.asItWas;
    return [make("p", { class: "note" }, MODEL_WORDS.vector), make("p", { class: "said" }, words)];
  }
  return places.map(({ title, rows }) => {
    const lines = rows.map(([token, was, is]) => {
      const shares = edits.length ? [was, is] : [was];
      const row = makeRow(wordToken(token), shares.map(wordProbability));
      shares.forEach((share, i) => setVariable(row.cells[i + 1], "--w", share));
      return row;
    });
    return make("table", { class: "outputs shares" }, make("caption", {}, title || MODEL_WORDS.likeliest),
      makeHeadings(columns), make("tbody", {}, ...lines));
  });
}
