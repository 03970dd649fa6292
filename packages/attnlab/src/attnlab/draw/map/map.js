// The attention map of one head: queries are rows, keys are columns. It draws any other table of numbers, too.
//
// mountMap(element, source, hear) draws a source into an element. A source is
//   { rows, columns, values,      numbers row by row, NaN where there is none
//     rowNames, columnNames, rowTitle, columnTitle,
//     scale, colors,              of shades.js
//     label,                      for screen readers
//     say(i, j),                  the sentence that reads a cell
//     word(value),                the number in a cell
//     isMasked(i, j),             whether a NaN is masked, which is hatched, or just missing, which is blank
//     markOf(i, j),               "cut" (a cross), "more" or "less" (a corner), "brush" (a frame), or ""; or null
//     keys,                       what the keys do, for screen readers
//     paints,                     whether a drag tells the cells under it instead of moving the map
//     row, fadesLaterRows,        the row that is followed or -1, and whether those below are still to come
//     isTable,                    whether cells may be lower than they are wide
//     isEnlarged }                numbers are legible, and what does not fit is reached by moving
// and hears read(cell or null), pin(row) and moved({ left, width, cell, x, isLegible }). Wheel, fingers and keys zoom and
// move. Where cells are tools, it also hears press(cell, event), brush(cell, or null at the end of a drag), walk(cell)
// after an arrow key, and key(event, cell), which returns whether it took the key; tapReads: the first tap of a finger on
// a cell reads it, the next one presses it.

import { clamp, isTouched, make, onWidth, wordBriefly } from "../report/elements.js";
import { cellSize, centreOf, isLegible, layOut, reveal, stayInside } from "./layout.js";
import { listenToKeys, listenToPointer } from "./navigation.js";
import { draw } from "./paint.js";

const DEFAULTS = {
  isMasked: () => true, markOf: null, word: wordBriefly, row: -1, rowTitle: "query", columnTitle: "key",
  keys: "Arrow keys read cells, plus and minus zoom", paints: false,
};
const NOTHING = () => {};
const START = { zoom: 1, x: 0, y: 0, cursor: null };

export function mountMap(element, source, hear = {}) {
  const { read = NOTHING, pin = NOTHING, moved = NOTHING, press = NOTHING } = hear;
  const { brush = NOTHING, walk = NOTHING, key = NOTHING, tapReads = false } = hear;
  const canvas = make("canvas", { class: "heatmap", tabindex: 0, role: "application", "aria-roledescription": "heat map" });
  const reading = make("p", { class: "map-reading" });
  const pen = canvas.getContext("2d");
  const view = { ...DEFAULTS, levels: new Map(), frame: 0, hover: null };
  element.classList.add("map-box");
  element.append(canvas, reading);
  view.width = Math.round(element.getBoundingClientRect().width);

  const paint = () => {
    if (!view.width) return;
    layOut(view, canvas, pen);
    draw(view, canvas, pen);
    const { left, plotWidth, plotHeight } = view.box;
    const [width, height] = cellSize(view);
    const isBeyond = width * view.columns > plotWidth + 1 || height * view.rows > plotHeight + 1;
    canvas.classList.toggle("zoomed", isBeyond);
    moved({ left, width: plotWidth, cell: width, x: view.x, isLegible: isLegible(view, width, height) });
  };
  const redraw = () => {
    view.frame ||= requestAnimationFrame(() => {
      view.frame = 0;
      paint();
    });
  };
  const say = () => {
    const cell = view.hover ?? view.cursor;
    reading.textContent = cell ? view.say(...cell) : sayHow();
    reading.classList.toggle("reading", cell !== null);
    reading.setAttribute("aria-live", canvas.matches(":focus") ? "polite" : "off");
  };
  const act = {
    redraw, press, brush, walk, key, tapReads,
    zoomBy(factor, at = null) {
      const { left, top, plotWidth, plotHeight, mostZoom } = view.box;
      const [px, py] = at ?? centreOf(view) ?? [left + plotWidth / 2, top + plotHeight / 2];
      const zoom = clamp(view.zoom * factor, 1, mostZoom);
      view.x = ((px - left + view.x) / view.zoom) * zoom - (px - left);
      view.y = ((py - top + view.y) / view.zoom) * zoom - (py - top);
      view.zoom = zoom;
      stayInside(view);
      redraw();
    },
    // Reads a cell without telling, as its owner does where another map is read.
    point(cell) {
      view.hover = cell && cell[0] < view.rows && cell[1] < view.columns ? cell : null;
      say();
      redraw();
    },
    read(cell) {
      act.point(cell);
      read(view.hover ?? view.cursor);
    },
    moveTo(i, j) {
      view.cursor = [clamp(i, 0, view.rows - 1), clamp(j, 0, view.columns - 1)];
      reveal(view, ...view.cursor);
      if (view.cursor[0] !== view.row) pin(view.cursor[0]);
      act.read(null);
    },
    // Follows another row, and the cursor with it.
    follow(row) {
      view.row = row;
      if (view.cursor && row >= 0) view.cursor = [row, view.cursor[1]];
      if (row >= 0) reveal(view, row, null);
      say();
      redraw();
    },
    // Shows another source, or changes some of it. The visible part stays if the size does.
    show(changes) {
      const isOther = ["rows", "columns"].some((size) => size in changes && changes[size] !== view[size]);
      Object.assign(view, isOther ? START : {}, changes, { hover: null });
      view.levels.clear();
      canvas.setAttribute("aria-label", `${view.label}. ${view.keys}.`);
      canvas.classList.toggle("painting", view.paints);
      say();
      paint(); // at once: printing does not wait for the next frame
    },
  };
  listenToPointer(canvas, view, act);
  listenToKeys(canvas, view, act);
  act.show(source);
  onWidth(element, (width) => {
    if (width === view.width) return;
    view.width = width;
    paint();
  });
  return act;
}

function sayHow() {
  return isTouched() ? "Tap a cell to read it." : "Point at a cell, or move with the arrow keys, to read it.";
}

// "Query 4 ‘a’ → key 0 ‘c’: 0.25"; without words, the key is masked.
export function sayWeight(from, to, words) {
  return words === null ? `${from} may not attend to ${to}: masked.` : `${from} → ${to}: ${words}`;
}
