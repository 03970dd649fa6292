// A map under its title, and any table of numbers as such a map.

import { make, wordTrimmed } from "attnlab/draw/report/elements.js";
import { mountMap } from "attnlab/draw/map/map.js";

// Drawn when it is shown first, as it needs its place in the page.
export function makeTitledMap(hear = {}, words = "") {
  const title = make("h3", {}, words);
  const badge = make("span", { class: "badge" });
  const place = make("div", {});
  let map = null;
  const head = make("div", { class: "map-head" }, title, badge);
  return {
    root: make("div", { class: "map" }, head, place), place,
    point: (cell) => map?.point(cell),
    redraw: () => map?.redraw(),
    show(source, shownTitle, beside = "") {
      title.textContent = shownTitle;
      badge.textContent = beside;
      if (map) map.show(source);
      else map = mountMap(place, source, hear);
    },
  };
}

// A hearer of keys that do one thing to the square that is read.
export function onKeys(keys, act) {
  return (event, cell) => keys.includes(event.key) && cell !== null && (act(cell, event), true);
}

// Without a `say` and titles, rows are queries and columns are keys.
export function makeTableMap(title, hear = {}) {
  const map = makeTitledMap(hear, title);
  return {
    ...map,
    show(numbers, { names, titles = ["query", "key"], ...source }, words = title) {
      const [rowNames, columnNames] = names;
      const [rowTitle, columnTitle] = titles;
      const columns = columnNames.length;
      const wordAt = (i, j) => wordTrimmed(numbers[i * columns + j], 4);
      map.show({
        rows: rowNames.length, columns, rowNames, columnNames, rowTitle, columnTitle,
        values: Float32Array.from(numbers), keys: "Arrow keys read squares",
        say: (i, j) => `Query ${rowNames[i]} → key ${columnNames[j]}: ${wordAt(i, j)}.`, ...source,
      }, words);
    },
  };
}
