// The layout of a map in pixels of its canvas: names, cells, the visible part.

import { clamp, wordLabel, wordToken } from "../report/elements.js";

export const FONT = '12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace';
export const LEGIBLE = 25; // pixels of the smallest cell with a number
const LOWEST = 15; // of a cell of a table, which may be lower than it is wide
const PAIR = " / "; // between the names of a place in two recordings
const LINE = 14; // pixels between two names, at least
const EDGE = 7; // right of the last column and below the last row: half of a name at a narrow one
const AXIS = 48; // the least length of the title beside the rows
const LARGEST_CELL = 46;
const WIDEST_CELL = 72; // of a table
const MOST_NAME = 112;
const MOST_PAIR = 200; // of the two names of a place where recordings differ

// Square cells unless the map is much longer than wide, or a table, whose cells may be lower than they are wide; room
// for the longest names.
export function layOut(view, canvas, pen) {
  const { rows, columns, width } = view;
  pen.font = FONT;
  const mostLeft = Math.min(mostRoom(view.rowNames), width * 0.3);
  const rowRoom = clamp(widest(pen, view.rowNames) + 10, 22, mostLeft) + 16;
  const columnRoom = clamp(widest(pen, view.columnNames) + 12, LINE + 6, mostRoom(view.columnNames));
  const room = Math.max(width - rowRoom - EDGE, 40);
  const tallest = clamp(innerHeight * 0.7, 280, 660);
  const [across, down] = [Math.min(LARGEST_CELL, room / columns), Math.min(LARGEST_CELL, tallest / rows)];
  // An enlarged map has legible numbers and may be larger than what is visible of it.
  const least = Math.max(Math.min(across, down), view.isEnlarged ? LEGIBLE + 1 : 0);
  const broad = Math.min(WIDEST_CELL, room / columns);
  const isTable = view.isTable && !view.isEnlarged && broad > down;
  const isSquare = view.isEnlarged || (rows < 2 * columns && columns < 2 * rows);
  const cellWidth = isTable ? broad : isSquare ? least : Math.min(across, Math.max(least, LINE));
  const cellHeight = isSquare ? least : Math.min(down, Math.max(least, LINE));
  const isUpright = columnRoom - 12 > cellWidth - 4;
  const top = (isUpright ? columnRoom : LINE + 8) + 16;
  view.box = {
    left: rowRoom, top, cellWidth, cellHeight,
    plotWidth: Math.min(room, cellWidth * columns), plotHeight: Math.min(tallest, cellHeight * rows),
    mostZoom: Math.max(1, LARGEST_CELL / Math.min(cellWidth, cellHeight)),
  };
  view.zoom = clamp(view.zoom, 1, view.box.mostZoom);
  stayInside(view);
  view.ratio = setSize(canvas, pen, width, top + Math.max(view.box.plotHeight + EDGE, AXIS));
  // The cells in pixels of the canvas, for tests and tools outside.
  Object.assign(canvas.dataset, { left: rowRoom, top, cellWidth, cellHeight });
}

// As sharp as the screen: returns how many pixels of the canvas are one of the page.
export function setSize(canvas, pen, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) {
    Object.assign(canvas, { width: wide, height: high });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return ratio;
}

function mostRoom(names) {
  return names.some((name) => name.includes(PAIR)) ? MOST_PAIR : MOST_NAME;
}

// If there are many names, only those with most letters are measured.
function widest(pen, names) {
  const byLength = (one, other) => other.length - one.length;
  const some = names.length > 200 ? [...names].sort(byLength).slice(0, 50) : names;
  return some.reduce((most, name) => Math.max(most, pen.measureText(isolated(name)).width), 0);
}

// The letters of a name keep their own direction and do not change that of their neighbors.
export function isolated(name) {
  return `\u2068${name}\u2069`;
}

// Is there room for numbers in cells of this size?
export function isLegible({ isTable }, width, height) {
  return width >= LEGIBLE && height >= (isTable ? LOWEST : LEGIBLE);
}

export function cellSize({ box, zoom }) {
  return [box.cellWidth * zoom, box.cellHeight * zoom];
}

export function stayInside(view) {
  const { plotWidth, plotHeight } = view.box;
  const [width, height] = cellSize(view);
  view.x = clamp(view.x, 0, Math.max(0, width * view.columns - plotWidth));
  view.y = clamp(view.y, 0, Math.max(0, height * view.rows - plotHeight));
}

export function centreOf(view) {
  if (!view.cursor) return null;
  const [width, height] = cellSize(view);
  const [i, j] = view.cursor;
  return [view.box.left + (j + 0.5) * width - view.x, view.box.top + (i + 0.5) * height - view.y];
}

export function reveal(view, i, j) {
  if (!view.box) return;
  const [width, height] = cellSize(view);
  if (j !== null) view.x = clamp(view.x, (j + 1) * width - view.box.plotWidth, j * width);
  view.y = clamp(view.y, (i + 1) * height - view.box.plotHeight, i * height);
  stayInside(view);
}

export function cellAt(view, px, py) {
  const { left, top, plotWidth, plotHeight } = view.box;
  if (px < left || py < top || px >= left + plotWidth || py >= top + plotHeight) return null;
  const [width, height] = cellSize(view);
  const i = Math.floor((py - top + view.y) / height);
  const j = Math.floor((px - left + view.x) / width);
  return i < view.rows && j < view.columns ? [i, j] : null;
}

// Names that fit, at even steps; marked names take precedence over their neighbors.
export function thinned([first, last], size, length, marked) {
  const strides = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
  const stride = strides.find((each) => each * size >= LINE) ?? Math.max(1, length);
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

// Names on an axis: white space, empty tokens, direction marks and invisible characters become visible; a blank between
// two words, as in "out 2", stays one.
export function axisName(token) {
  const name = token.includes(PAIR) ? wordLabel(token) : wordToken(token.replace(/(?<=\S) (?=\S)/g, "\u00a0"));
  const isUnseen = /^[\p{C}\p{Z}]+$/u.test(name);
  const hidden = isUnseen ? /[\p{C}\p{Z}]/gu : /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;
  const spell = (letter) => letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  return name.replace(hidden, (letter) => `‹U+${spell(letter)}›`);
}
