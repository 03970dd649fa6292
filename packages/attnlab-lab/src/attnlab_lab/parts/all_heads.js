// All heads of a model by four means: a square for each, and a table of those with most.

import { make, makeButton, wordBriefly, wordNumber, wordTrimmed } from "attnlab/draw/report/elements.js";
import { makeScale } from "attnlab/draw/map/shades.js";
import { WORDS } from "../words.js";
import { MODEL_WORDS } from "../words_models.js";
import { badgeOf } from "./maps.js";
import { makeHeadings, makeRow } from "./one_input.js";
import { makeTableMap, onKeys } from "./table_map.js";

export const MEASURES = ["first", "previous", "own", "entropy"];
const MOST_LISTED = 100;

export function makeAllHeads(lab, view, choose) {
  const nameAt = ([row, column]) => `${lab.facts.layers[row][0]}.${column}`;
  const chooseAt = (cell) => cell[1] < lab.facts.layers[cell[0]][1] && choose(nameAt(cell));
  const squares = makeTableMap(WORDS.allHeads, { press: chooseAt, key: onKeys(["Enter"], chooseAt) });
  const table = make("table", { class: "outputs" });
  const look = { class: "scroll head-table", tabindex: 0, role: "group", "aria-label": WORDS.allHeads };
  const list = make("div", look, table);

  function showSquares(valueOf, colors) {
    const { layers } = lab.facts;
    const columns = Math.max(...layers.map(([, size]) => size));
    const at = new Map(lab.told.heads.map((each) => [each.name, each]));
    const columnNames = Array.from({ length: columns }, (_, j) => String(j));
    const cells = layers.flatMap((_, i) => columnNames.map((__, j) => at.get(nameAt([i, j]))));
    const numbers = cells.map((each) => (each && valueOf(each, view.by)) ?? NaN);
    const most = view.by === "entropy" ? Math.max(...numbers.map((value) => Math.abs(value) || 0), 1e-9) : 1;
    const isDifference = view.variant === "difference";
    const word = (value) => (isDifference ? wordBriefly(value).replace("<.01", "~0") : wordBriefly(value));
    const label = `${WORDS.allHeads}: ${MODEL_WORDS.measures.names[view.by]}`;
    squares.show(numbers, {
      names: [layers.map(([layer]) => layer), columnNames],
      titles: ["layer", "head"], scale: makeScale(isDifference ? -most : 0, most), colors, label,
      keys: MODEL_WORDS.headKeys, isMasked: () => false, word,
      say: (i, j) => MODEL_WORDS.headCell(nameAt([i, j]), wordTrimmed(numbers[i * columns + j], 4)),
      markOf: (i, j) => (nameAt([i, j]) === lab.head ? "brush" : badgeOf(lab, nameAt([i, j])) && "cut"),
    }, label);
  }

  function showTable(valueOf) {
    const sizeOf = (each) => Math.abs(valueOf(each, view.by) ?? -1);
    const sorted = [...lab.told.heads].sort((one, two) => sizeOf(two) - sizeOf(one)).slice(0, MOST_LISTED);
    const rows = sorted.map((each) => {
      const row = makeRow("", MEASURES.map((by) => wordNumber(valueOf(each, by))));
      // The squares are the way of the keyboard.
      const look = { "aria-current": each.name === lab.head ? "true" : null, tabindex: -1 };
      row.firstChild.append(makeButton(each.name, () => choose(each.name), look));
      return row;
    });
    const headings = makeHeadings([MODEL_WORDS.head, ...MEASURES.map((by) => MODEL_WORDS.measures.names[by])]);
    headings.firstChild.children[1 + MEASURES.indexOf(view.by)].setAttribute("aria-sort", "descending");
    const caption = make("caption", {}, MODEL_WORDS.sorted(sorted.length, lab.told.heads.length));
    table.replaceChildren(caption, headings, make("tbody", {}, ...rows));
  }

  return {
    squares: squares.root, list,
    show(colors) {
      const valueOf = ({ before, after }, by) => {
        const at = MEASURES.indexOf(by);
        return meanOf(before[at], after[at], view.variant);
      };
      showSquares(valueOf, colors);
      showTable(valueOf);
    },
  };
}

function meanOf(was, is, variant) {
  if (variant === "difference") return was === null ? null : is - was;
  return variant === "before" ? was : is;
}
