// The layout of a map in pixels of its canvas: names, cells, the visible part.

import { clamp, wordLabel, wordToken } from "../../report/elements.js";

export const FONT = '12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace';
const PAIR = " / "; // between the names of a place in two recordings
const LINE = 14; // pixels between two names, at least
const EDGE = 7; // right of the last column and below the last row: half of a name at a narrow one
const AXIS = 48; // the width of the title beside the rows
const LARGEST_CELL = 46;
const MOST_NAME = 112;
const MOST_PAIR = 200; // of the two names of a place where recordings differ

// The layout: square cells unless the map is much longer than wide, room for the longest names.
export function layOut(view, canvas, pen) {
  const { map, width } = view;
  pen.font = FONT;
  const rowRoom = clamp(widest(pen, view.rowNames) + 10, 22, Math.min(mostRoom(view.rowNames), width * 0.3)) + 16;
  const columnRoom = clamp(widest(pen, view.columnNames) + 12, LINE + 6, mostRoom(view.columnNames));
  const room = Math.max(width - rowRoom - EDGE, 40);
  const tallest = clamp(innerHeight * 0.7, 280, 660);
  const [across, down] = [Math.min(LARGEST_CELL, room / map.columns), Math.min(LARGEST_CELL, tallest / map.rows)];
  const least = Math.min(across, down);
  const isSquare = map.rows < 2 * map.columns && map.columns < 2 * map.rows;
  const cellWidth = isSquare ? least : Math.min(across, Math.max(least, LINE));
  const cellHeight = isSquare ? least : Math.min(down, Math.max(least, LINE));
  const isUpright = columnRoom - 12 > cellWidth - 4;
  const top = (isUpright ? columnRoom : LINE + 8) + 16;
  view.box = {
    left: rowRoom, top, cellWidth, cellHeight, plotWidth: cellWidth * map.columns, plotHeight: cellHeight * map.rows,
    mostZoom: Math.max(1, LARGEST_CELL / Math.min(cellWidth, cellHeight)),
  };
  view.zoom = clamp(view.zoom, 1, view.box.mostZoom);
  stayInside(view);
  const ratio = window.devicePixelRatio || 1;
  const height = top + Math.max(view.box.plotHeight + EDGE, AXIS);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  view.ratio = ratio;
  // The cells in pixels of the canvas, for tests and tools outside.
  Object.assign(canvas.dataset, { left: rowRoom, top, cellWidth, cellHeight });
}

function mostRoom(names) {
  return names.some((name) => name.includes(PAIR)) ? MOST_PAIR : MOST_NAME;
}

// If there are many names, only those with most letters are measured.
function widest(pen, names) {
  const some = names.length > 200 ? [...names].sort((one, other) => other.length - one.length).slice(0, 50) : names;
  return some.reduce((most, name) => Math.max(most, pen.measureText(isolated(name)).width), 0);
}

// The letters of a name keep their own direction and do not change that of their neighbors.
export function isolated(name) {
  return `\u2068${name}\u2069`;
}

export function stayInside(view) {
  const { plotWidth, plotHeight } = view.box;
  view.x = clamp(view.x, 0, plotWidth * (view.zoom - 1));
  view.y = clamp(view.y, 0, plotHeight * (view.zoom - 1));
}

export function placeOf(view) {
  return { left: view.box.left, width: view.box.plotWidth, cell: view.box.cellWidth * view.zoom, x: view.x };
}

export function centreOf(view) {
  if (!view.cursor) return null;
  const { left, top, cellWidth, cellHeight } = view.box;
  return [left + (view.cursor[1] + 0.5) * cellWidth * view.zoom - view.x, top + (view.cursor[0] + 0.5) * cellHeight * view.zoom - view.y];
}

export function reveal(view, i, j) {
  if (!view.box) return;
  const { cellWidth, cellHeight, plotWidth, plotHeight } = view.box;
  const [width, height] = [cellWidth * view.zoom, cellHeight * view.zoom];
  if (j !== null) view.x = clamp(view.x, (j + 1) * width - plotWidth, j * width);
  view.y = clamp(view.y, (i + 1) * height - plotHeight, i * height);
  stayInside(view);
}

export function cellAt(view, px, py) {
  const { left, top, plotWidth, plotHeight, cellWidth, cellHeight } = view.box;
  if (px < left || py < top || px >= left + plotWidth || py >= top + plotHeight) return null;
  const i = Math.floor((py - top + view.y) / (cellHeight * view.zoom));
  const j = Math.floor((px - left + view.x) / (cellWidth * view.zoom));
  return i < view.map.rows && j < view.map.columns ? [i, j] : null;
}

// Names that fit, at even steps; marked names take precedence over their neighbors.
export function thinned([first, last], size, length, marked) {
  const stride = Math.max(1, [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((each) => each * size >= LINE) ?? length);
  const own = marked.filter((each) => each >= first && each < last);
  const found = own.map((each) => [each, true]);
  for (let each = Math.ceil(first / stride) * stride; each < last; each += stride) {
    if (own.every((mark) => Math.abs(mark - each) * size >= LINE - 1)) found.push([each, false]);
  }
  return found;
}

export function cut(pen, name, room) {
  if (pen.measureText(isolated(name)).width <= room) return isolated(name);
  const both = name.split(PAIR);
  if (both.length === 2) {
    // Neither of two names is cut away: one may use the room that the other leaves.
    const rest = room - pen.measureText(PAIR).width;
    const [one, other] = both.map((each) => pen.measureText(each).width);
    const first = Math.min(one, Math.max(rest / 2, rest - other));
    return isolated(`${cut(pen, both[0], first)}${PAIR}${cut(pen, both[1], rest - first)}`);
  }
  const letters = [...new Intl.Segmenter().segment(name)].map((each) => each.segment);
  let most = letters.length;
  while (most > 1 && pen.measureText(`${letters.slice(0, most).join("")}…`).width > room) most -= 1;
  return isolated(`${letters.slice(0, most).join("")}…`);
}

// Names on an axis: white space, empty tokens, direction marks and invisible characters become visible.
export function axisName(token) {
  const name = token.includes(PAIR) ? wordLabel(token) : wordToken(token);
  const isUnseen = /^[\p{C}\p{Z}]+$/u.test(name);
  const hidden = isUnseen ? /[\p{C}\p{Z}]/gu : /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;
  return name.replace(hidden, (letter) => `‹U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
}
