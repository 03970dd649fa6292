// The whole pattern of one head on a long text, in squares of many weights; a press shows the part around one exactly.

import { wordBriefly } from "attnlab/draw/report/elements.js";
import { MODEL_WORDS } from "../words_models.js";
import { makeTableMap, onKeys } from "./table_map.js";

// `goTo([query, key])` hears where the part begins that is to be shown.
export function makeWholeMap(goTo) {
  let shown = null;
  const press = (square) => {
    const { cell, queries, keys } = shown;
    const sizes = [queries.length, keys.length];
    goTo(square.map((place, axis) => Math.max(0, Math.round((place + 0.5) * cell[axis] - sizes[axis] / 2))));
  };
  const map = makeTableMap("", { press, key: onKeys(["Enter"], press) });
  return {
    root: map.root,
    // Only a long text has one.
    show(told, variant, scale, colors) {
      shown = told;
      map.root.hidden = !told.whole;
      if (!told.whole) return;
      const { at, queries, keys, lengths, cell, whole: { before, after } } = told;
      const names = lengths.map((length, axis) =>
        Array.from({ length: Math.ceil(length / cell[axis]) }, (_, i) => String(i * cell[axis])));
      const columns = names[1].length;
      const values = { before, after, difference: after.map((value, k) => value - before[k]) }[variant];
      const span = (axis, from, size) => `${from} to ${Math.min(from + size, lengths[axis]) - 1}`;
      const label = MODEL_WORDS.whole(lengths[0], span(0, at[0], queries.length), span(1, at[1], keys.length));
      map.show(values, {
        names, scale, colors, label, keys: MODEL_WORDS.wholeKeys, word: wordBriefly,
        say: (i, j) => MODEL_WORDS.wholeCell(span(0, i * cell[0], cell[0]), span(1, j * cell[1], cell[1]), wordBriefly(values[i * columns + j])),
      }, label);
    },
  };
}
