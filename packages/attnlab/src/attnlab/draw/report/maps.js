// Maps of any numbers, side by side, for one choice at a time. One color gets stronger from `low` to `high`; where
// `low` is below zero, two colors get stronger away from zero. A cell without a number stays blank.

import { listSome, makeChooser } from "./chooser.js";
import { clamp, count, isNumber, longest, make, setVariable, wordLabel, wordTrimmed } from "./elements.js";
import { makeSideBySide } from "./side_by_side.js";
import { axisName } from "../map/layout.js";
import { makeMaskedNote, makeRamp, makeScale } from "../map/shades.js";
import { unpackAll } from "../map/wire.js";

const LEGEND_DIGITS = 4;
const MOST_DECIMALS = 6;

export function mountMaps(stage, { choices }) {
  const note = make("p", { class: "choice-note", role: choices.length > 1 ? "status" : null });
  const place = make("div", { class: "maps" });
  stage.append(note, place);
  const sideBySide = makeSideBySide(place);
  let shown = null;
  const show = async (index) => {
    shown = index;
    note.textContent = choices[index].note;
    note.hidden = choices[index].note === "";
    const maps = await unpackAll(choices[index].maps);
    if (shown !== index) return; // another was chosen meanwhile
    const isAlone = maps.length === 1;
    const widths = maps.map((map) => widthOfMap(map, isAlone));
    setVariable(place, "--map-width", `${clamp(Math.max(...widths), 220, 1000)}px`);
    place.classList.toggle("alone", isAlone);
    // Maps with equal numbers of rows are aligned, whatever the heights of their titles.
    place.classList.toggle("even", new Set(maps.map((map) => map.row_labels.length)).size === 1);
    sideBySide.show(maps.map((map) => ({
      heading: make("h3", {}, map.title), name: map.title, source: sourceOf(map), below: makeMapLegend(map),
    })));
  };
  if (choices.length === 1) return show(0);
  const words = choices.map((choice) => choice.label);
  const refuse = (typed) => `“${typed}” is not among the ${count(words.length, "choice")} here, for example ${listSome(words)}.`;
  const chooser = makeChooser(words, { label: "Show", noun: "choice", refuse }, show);
  stage.prepend(chooser.root);
  return chooser.choose(0);
}

// In pixels; few cells are large, so that their numbers are legible. Several maps of a deep model stay side by side, one
// alone has the width of the page.
function widthOfMap({ column_labels: columns, row_labels: rows }, isAlone) {
  const isTall = rows.length > 16 && !isAlone;
  const cell = columns.length > 32 ? 12 : columns.length > 16 ? 18 : isTall ? 22 : columns.length > 9 ? 34 : 46;
  return columns.length * cell + 16 * clamp(longest(rows) * 0.46 + 2, 2.8, 9);
}

function sourceOf(map) {
  const { row_labels: rowLabels, column_labels: columnLabels } = map;
  const word = wordCells(map);
  // Two colors around zero: what reads "0" has neither.
  const values = map.low < 0 ? map.rows.map((value) => (word(value) === "0" ? 0 : value)) : map.rows;
  return {
    rows: rowLabels.length, columns: columnLabels.length, values,
    rowNames: rowLabels.map(axisName), columnNames: columnLabels.map(axisName),
    rowTitle: map.row_title, columnTitle: map.column_title, scale: makeScale(map.low, map.high),
    label: `${map.title}: ${map.row_title} by ${map.column_title}`,
    isTable: true, isMasked: () => Boolean(map.masked),
    word,
    say(i, j) {
      const value = map.rows[i * columnLabels.length + j];
      const words = isNumber(value) ? wordTrimmed(value) : map.masked ?? "no value";
      return `‘${wordLabel(rowLabels[i])}’, ‘${wordLabel(columnLabels[j])}’: ${words}`;
    },
  };
}

function makeMapLegend(map) {
  const [low, high] = [map.low, map.high].map((end) => wordTrimmed(end, LEGEND_DIGITS));
  const legend = makeRamp(map, low, make("span", { class: "end" }, high));
  const values = [...map.rows];
  const notes = [];
  if (values.some((value) => isNumber(value) && (value < map.low || value > map.high))) notes.push("beyond the ends: as at the ends");
  const hasBlanks = !values.every(isNumber);
  if (hasBlanks && map.masked) legend.append(makeMaskedNote(map.masked));
  else if (hasBlanks) notes.push("blank: no value");
  if (notes.length) legend.append(make("span", {}, notes.join("; ")));
  return legend;
}

// As many digits as a small cell can hold: whole numbers in full, fractions with two decimals, or two digits of the
// largest number if that is small.
function wordCells(map) {
  const values = [...map.rows].filter(isNumber);
  const most = values.reduce((high, value) => Math.max(high, Math.abs(value)), 0);
  const decimals = values.every(Number.isInteger) || most >= 100 ? 0 : most >= 10 ? 1 : clamp(1 - Math.floor(Math.log10(most)), 2, MOST_DECIMALS);
  return (value) => {
    if (!isNumber(value)) return "";
    const text = value.toFixed(decimals);
    if (Number(text) === 0) return "0";
    return text.replace(/^(-?)0\./, "$1.").replace(/^(-?1)\.00$/, "$1").replace("-", "−");
  };
}
