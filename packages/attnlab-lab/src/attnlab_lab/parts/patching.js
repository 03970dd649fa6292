// Activation patching: a clean and a corrupted text, and a map of what each place brings back.

import { make, wordNumber, wordTrimmed } from "attnlab/draw/report/elements.js";
import { axisName } from "attnlab/draw/map/layout.js";
import { makeRamp, makeScale } from "attnlab/draw/map/shades.js";
import { PATCH_WORDS } from "../words_models.js";
import { AS_TYPED, makeSelect, makeSetting, makeTyped } from "./controls.js";
import { makeAsker } from "./server.js";
import { makeTableMap, onKeys } from "./table_map.js";

const PATCH_PAGE = `patch ${Math.random()}`; // the server drops what this page asked before

export function makePatching() {
  const makeText = (id) => make("textarea", { id, rows: 2, ...AS_TYPED });
  const [clean, corrupted] = ["clean-text", "corrupted-text"].map(makeText);
  const target = makeTyped("patch-target", { placeholder: PATCH_WORDS.ownAnswer });
  const choice = makeSelect("patch-kind", PATCH_WORDS.kind, (chosen) => {
    kind = chosen["patch-kind"];
    forget();
  });
  choice.fill(PATCH_WORDS.kinds, "stream");
  const refusal = make("p", { class: "message refused", role: "alert" });
  const notice = { tell: (words) => (refusal.textContent = words) };
  const server = makeAsker(notice);
  const said = make("p", { class: "said", "aria-live": "polite" });
  const caution = make("p", { class: "note" });
  const chosen = make("p", { class: "patch-cell", "aria-live": "polite" });
  const map = makeTableMap(PATCH_WORDS.map, { press: choose, key: onKeys(["Enter", " "], choose) });
  const legend = make("div", {});
  const result = make("div", { class: "patch-result", hidden: true }, said, caution, map.root, legend, chosen);
  const form = make("form", { class: "patch-form" },
    makeSetting(PATCH_WORDS.clean, clean), makeSetting(PATCH_WORDS.corrupted, corrupted), makeSetting(PATCH_WORDS.target, target), choice.root,
    make("div", { class: "bar" }, make("button", { type: "submit", class: "primary" }, PATCH_WORDS.patch)));
  const root = make("section", { class: "patch-part", "aria-labelledby": "patch-title" },
    make("h2", { id: "patch-title" }, PATCH_WORDS.title), make("p", { class: "note" }, PATCH_WORDS.note), form, refusal, result);
  let [told, model, read, colors, kind] = [null, null, null, null, "stream"];

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    patch();
  });
  for (const field of [clean, corrupted, target]) {
    field.addEventListener("keydown", (event) => event.stopPropagation()); // no key of the room
    field.addEventListener("input", forget); // what is shown is of other texts
  }

  function forget() {
    server.drop();
    told = null;
    result.hidden = true;
  }

  async function patch() {
    if (!corrupted.value.trim()) {
      forget();
      notice.tell(PATCH_WORDS.noCorrupted);
      corrupted.focus();
      return;
    }
    const texts = { clean: clean.value, corrupted: corrupted.value, target: target.value, kind };
    const answer = await server.ask("patch", "/api/models/patch", { model, ...texts, page: PATCH_PAGE });
    if (!answer) return;
    forget();
    if (answer.refusal) return;
    told = answer;
    result.hidden = false;
    chosen.textContent = PATCH_WORDS.choose;
    draw();
  }

  function sayCell(i, j) {
    const { shares, ends } = told;
    const share = shares[i][j];
    const value = ends[1] + share * (ends[0] - ends[1]);
    return PATCH_WORDS.cell(told, i, j, wordTrimmed(share, 3), wordTrimmed(value, 4));
  }

  function choose([i, j]) {
    chosen.textContent = sayCell(i, j);
  }

  function draw() {
    if (!told || !colors) return;
    const { layers, columns, axes, shares } = told;
    const values = shares.flat();
    const most = Math.max(1, ...values.map(Math.abs));
    said.textContent = PATCH_WORDS.said(told, wordNumber);
    caution.textContent = told.caution;
    caution.hidden = told.caution === "";
    legend.replaceChildren(makeRamp(makeScale(-most, most), wordTrimmed(-most, 2), wordTrimmed(most, 2)));
    map.show(values, {
      names: [layers, columns.map(axisName)], titles: axes, scale: makeScale(-most, most), colors, say: sayCell,
      label: PATCH_WORDS.label(told), keys: PATCH_WORDS.keys, isEnlarged: true,
    }, PATCH_WORDS.mapTitle(told));
  }

  return {
    root,
    // The text that was read is the clean one, unless another is typed.
    show(lab, shownColors) {
      if (model !== lab.model) forget();
      if (model !== lab.model) notice.tell("");
      if (clean.value === "" || clean.value === read) clean.value = lab.text;
      [model, read, colors] = [lab.model, lab.text, shownColors];
      draw();
    },
  };
}
