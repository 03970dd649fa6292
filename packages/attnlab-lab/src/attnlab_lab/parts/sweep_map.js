// The map of a sweep: a square for each cell, shaded by a figure; further axes are chosen beside it.

import { make, wordBriefly, wordNumber } from "attnlab/draw/report/elements.js";
import { makeMaskedNote, makeRamp, makeScale } from "attnlab/draw/map/shades.js";
import { SWEEP_WORDS } from "../words_sweeps.js";
import { makeSelect } from "./controls.js";
import { figureOf, layAxes, moveAlong, placeOf } from "./sweep_cells.js";
import { makeTableMap, onKeys } from "./table_map.js";

// `choose(cell)` hears of a press.
export function makeSweepMap(choose) {
  const others = make("div", { class: "fields" });
  const legend = make("div", {});
  let [sweep, chosen] = [null, 0];
  const cellAt = (i, j) => {
    const { axes } = sweep;
    const { row, column } = layAxes(axes);
    return moveAlong(axes, row === null ? chosen : moveAlong(axes, chosen, row, i), column, j);
  };
  const chooseAt = (cell) => choose(cellAt(...cell));
  const map = makeTableMap("", { press: chooseAt, key: onKeys(["Enter"], chooseAt) });

  let [selects, built] = [[], ""];
  function showOthers({ axes }) {
    const key = JSON.stringify(axes);
    if (key !== built) {
      selects = layAxes(axes).others.map((axis) => {
        const { name } = axes[axis];
        return { axis, ...makeSelect(name, name, (taken) => choose(moveAlong(axes, chosen, axis, Number(taken[name])))) };
      });
      others.replaceChildren(...selects.map(({ root }) => root));
      built = key;
    }
    const place = placeOf(axes, chosen);
    for (const { axis, fill } of selects) fill(axes[axis].labels.map((label, i) => [String(i), label]), String(place[axis]));
  }

  return {
    nodes: [others, map.root, legend],
    show(shown, figure, title, cell, colors) {
      [sweep, chosen] = [shown, cell];
      const { axes, cells } = shown;
      const { row, column } = layAxes(axes);
      const names = [row === null ? [""] : axes[row].labels, axes[column].labels];
      const all = names[0].flatMap((_, i) => names[1].map((__, j) => cells[cellAt(i, j)]));
      const at = (i, j) => all[i * names[1].length + j];
      const scale = scaleOf(cells.map((each) => figureOf(each, figure)), figure);
      const word = (value) => (figure === "share" ? wordBriefly(value) : wordNumber(value));
      map.show(all.map((each) => figureOf(each, figure)), {
        names, titles: [row === null ? "" : axes[row].name, axes[column].name], scale, colors, label: title,
        keys: SWEEP_WORDS.keys, isMasked: (i, j) => at(i, j).refusal !== "",
        word: (value) => (Number.isNaN(value) ? "–" : word(value)),
        say: (i, j) => SWEEP_WORDS.square(at(i, j).name, wordCell(at(i, j), figure, word)),
        markOf: (i, j) => cellAt(i, j) === chosen && "brush",
      }, title);
      showOthers(shown);
      const ramp = makeRamp(scale, word(scale.low), word(scale.high));
      if (cells.some(({ refusal }) => refusal)) ramp.append(makeMaskedNote(SWEEP_WORDS.hatched));
      legend.replaceChildren(ramp);
    },
  };
}

function scaleOf(values, figure) {
  if (figure === "share") return makeScale(0, 1);
  const most = values.reduce((high, value) => Math.max(high, Math.abs(value) || 0), 0) || 1;
  return makeScale(values.some((value) => value < 0) ? -most : 0, most);
}

function wordCell(cell, figure, word) {
  if (cell.refusal) return SWEEP_WORDS.impossible;
  if (cell.solved === undefined) return SWEEP_WORDS.notTrained;
  const value = figureOf(cell, figure);
  return Number.isNaN(value) ? "–" : word(value);
}
