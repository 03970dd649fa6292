// The map of one head, as the one attention map of the house draws it: masked hatched, cut crossed, 0 to 1.

import { make, quote, wordBriefly, wordTrimmed } from "../../draw/report/elements.js";
import { axisName } from "../../draw/map/layout.js";
import { mountMap } from "../../draw/map/map.js";
import { makeMaskedNote, makeRamp, makeScale } from "../../draw/map/shades.js";
import { WORDS } from "../words.js";
import { findEdit, findSwitch, headOf } from "./edits.js";

export const WEIGHTS = makeScale(0, 1);
export const CHANGES = makeScale(-1, 1);

export function makeHeadMap(hear, keys) {
  const title = make("h3", {});
  const badge = make("span", { class: "badge" });
  const place = make("div", {});
  const root = make("div", { class: "map" }, make("div", { class: "map-head" }, title, badge), place);
  let map = null;
  return {
    root, place,
    point: (cell) => map?.point(cell),
    redraw: () => map?.redraw(),
    show(source, name, words = "") {
      title.textContent = WORDS.head(name);
      badge.textContent = words;
      if (map) map.show({ ...source, keys });
      else map = mountMap(place, { ...source, keys }, hear);
    },
  };
}

// What a map shows of a head: weights, crosses and what a square says. Keys have names of their own in cross-attention.
// at: the first query and key of a map that shows a part.
export function sourceOf(lab, { tokens, keys = tokens, at: [first, start] = [0, 0] }, head) {
  const { name, weights, scores, mask, rows, columns } = head;
  const editAt = (kind, i, j) => findEdit(lab.edits, { kind, ...headOf(name), query: first + i, key: start + j });
  const isOpen = (i, j) => mask[i * columns + j] === 1;
  return {
    rows, columns, values: Float32Array.from(weights, (weight, k) => (mask[k] ? weight : NaN)),
    rowNames: tokens.map(axisName), columnNames: keys.map(axisName),
    scale: WEIGHTS, colors: lab.colors, label: WORDS.mapLabel(name), word: wordBriefly,
    markOf(i, j) {
      if (editAt("cut", i, j)) return "cut";
      const added = editAt("add", i, j)?.amount ?? 0;
      if (added === 0) return "";
      return added > 0 ? "more" : "less";
    },
    say(i, j) {
      const [from, to] = [`Query ${first + i} ${quote(tokens[i])}`, `key ${start + j} ${quote(keys[j])}`];
      if (editAt("cut", i, j)) return `${WORDS.cell(from, to, WORDS.cutCell)}.`;
      if (!isOpen(i, j)) return `${WORDS.cell(from, to, WORDS.maskedCell)}.`;
      const k = i * columns + j;
      return `${WORDS.cell(from, to, WORDS.weight(wordTrimmed(weights[k], 4), wordTrimmed(scores[k], 4)))}.`;
    },
    isOpen,
  };
}

// What is done to the whole head, in a word or two.
export function badgeOf(lab, name) {
  const edit = findSwitch(lab.edits, headOf(name));
  return edit ? WORDS.badges[edit.kind] : "";
}

export function makeLegend(isDifference = false) {
  const legend = isDifference ? makeRamp(CHANGES, "−1", "1") : makeRamp(WEIGHTS, "weight 0", "1");
  const swatch = make("span", { class: "cut-swatch", "aria-hidden": true }, "×");
  legend.append(makeMaskedNote(WORDS.masked), make("span", { class: "masked-note" }, swatch, WORDS.cut));
  return legend;
}
