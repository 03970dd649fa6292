// The map of one head, as the one attention map of the house draws it: masked hatched, cut crossed, 0 to 1.

import { make, wordBriefly, wordTrimmed } from "attnlab/draw/report/elements.js";
import { axisName } from "attnlab/draw/map/layout.js";
import { makeMaskedNote, makeRamp, makeScale } from "attnlab/draw/map/shades.js";
import { wordEdge, WORDS } from "../words.js";
import { findEdit, findSwitch, headOf, isAllowed } from "./edits.js";
import { makeTitledMap } from "./table_map.js";

export const WEIGHTS = makeScale(0, 1);
export const CHANGES = makeScale(-1, 1);

export function makeHeadMap(hear, keys) {
  const map = makeTitledMap({ ...hear, tapReads: true }); // a press cuts
  const show = (source, name, badge) => map.show({ ...source, keys }, WORDS.head(name), badge);
  return { ...map, show };
}

// What a map shows of a head: weights, crosses and what a square says. Keys have names of their own in cross-attention.
// at: the first query and key of a map that shows a part.
export function sourceOf(lab, { tokens, keys = tokens, at: [first, start] = [0, 0] }, head) {
  const { name, weights, scores, rows, columns } = head;
  const editAt = (kind, i, j) => findEdit(lab.edits, { kind, ...headOf(name), query: first + i, key: start + j });
  return {
    rows, columns, values: Float32Array.from(weights, (weight, k) => (Number.isNaN(scores[k]) ? NaN : weight)),
    rowNames: tokens.map(axisName), columnNames: keys.map(axisName),
    scale: WEIGHTS, colors: lab.colors, label: WORDS.mapLabel(name), word: wordBriefly,
    markOf(i, j) {
      if (editAt("cut", i, j)) return "cut";
      const added = editAt("add", i, j)?.amount ?? 0;
      if (added === 0) return "";
      return added > 0 ? "more" : "less";
    },
    say(i, j) {
      const [weight, score] = [weights, scores].map((all) => wordTrimmed(all[i * columns + j], 4));
      let words = isAllowed(head, i, j) ? WORDS.weight(weight, score) : WORDS.maskedCell;
      if (editAt("cut", i, j)) words = WORDS.cutCell;
      return saySquare([first + i, tokens[i]], [start + j, keys[j]], words);
    },
  };
}

// A query and a key are pairs of a position and a token.
export function saySquare(query, key, words) {
  const edge = wordEdge(query, key);
  return `${edge[0].toUpperCase()}${edge.slice(1)}: ${words}.`;
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
