// Any table of numbers, drawn by the attention map.

import { make, wordTrimmed } from "../../draw/report/elements.js";
import { mountMap } from "../../draw/map/map.js";

// Without a `say` and titles, rows are queries and columns are keys.
export function makeTableMap(title, hear = {}) {
  const heading = make("h3", {}, title);
  const place = make("div", {});
  let map = null;
  return {
    root: make("div", { class: "map" }, make("div", { class: "map-head" }, heading), place),
    point: (cell) => map?.point(cell),
    show(numbers, { names, titles: [rowTitle, columnTitle] = ["query", "key"], ...source }, words = title) {
      heading.textContent = words;
      const [rowNames, columnNames] = names;
      const [rows, columns] = [rowNames.length, columnNames.length];
      const wordAt = (i, j) => wordTrimmed(numbers[i * columns + j], 4);
      const sayCell = (i, j) => `Query ${rowNames[i]} → key ${columnNames[j]}: ${wordAt(i, j)}.`;
      const whole = {
        rows, columns, rowNames, columnNames, rowTitle, columnTitle, values: Float32Array.from(numbers),
        keys: "Arrow keys read squares", say: sayCell, ...source,
      };
      if (map) map.show(whole);
      else map = mountMap(place, whole, hear);
    },
  };
}
