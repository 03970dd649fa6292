// Painting a map on its canvas: shades, hatching, numbers, names and marks.

import { make } from "../report/elements.js";
import { cellSize, cut, FONT, isLegible, isolated, thinned } from "./layout.js";
import { hatch, pixelOf, textColor } from "./shades.js";

const LEAST_DIGITS = 8.5; // pixels, the smallest legible size
const SANS = 'system-ui, "Segoe UI", sans-serif';

// A canvas of one pixel per cell.
export function makePicture(pixels, columns, rows) {
  const picture = make("canvas", { width: columns, height: rows, "aria-hidden": true });
  const image = new ImageData(new Uint8ClampedArray(pixels.buffer), columns, rows);
  picture.getContext("2d").putImageData(image, 0, 0);
  return picture;
}

// One pixel for each cell; a masked one is clear.
export function pictureOf({ rows, columns, values, scale, colors }) {
  const pixels = new Uint32Array(rows * columns);
  values.forEach((value, k) => {
    if (!Number.isNaN(value)) pixels[k] = pixelOf(value, scale, colors);
  });
  return makePicture(pixels, columns, rows);
}

// One pixel for each cell, or for several cells, of which the largest counts, if they are smaller.
function levelOf(view, step) {
  if (view.levels.has(step)) return view.levels.get(step);
  const { values, scale, colors } = view;
  const [rows, columns] = [Math.ceil(view.rows / step), Math.ceil(view.columns / step)];
  const pixels = new Uint32Array(rows * columns);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      const value = step === 1 ? values[i * columns + j] : outermost(view, i * step, j * step, step);
      if (!Number.isNaN(value)) pixels[i * columns + j] = pixelOf(value, scale, colors);
      else if (!view.isMasked(i * step, j * step)) pixels[i * columns + j] = colors.blank;
    }
  }
  const picture = makePicture(pixels, columns, rows);
  view.levels.set(step, picture);
  return picture;
}

function outermost({ values, rows, columns }, first, start, step) {
  let found = NaN;
  for (let i = first; i < Math.min(first + step, rows); i++) {
    for (let j = start; j < Math.min(start + step, columns); j++) {
      const value = values[i * columns + j];
      if (!Number.isNaN(value) && !(Math.abs(value) <= Math.abs(found))) found = value;
    }
  }
  return found;
}

export function draw(view, canvas, pen) {
  const { box, colors } = view;
  const { left, top, plotWidth, plotHeight } = box;
  const [width, height] = cellSize(view);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.save();
  pen.beginPath();
  pen.rect(left, top, plotWidth, plotHeight);
  pen.clip();
  pen.fillStyle = hatch(pen, colors, view.ratio);
  pen.fillRect(left, top, plotWidth, plotHeight);
  const fine = 1 / (Math.min(width, height) * view.ratio);
  const step = fine > 1 ? 2 ** Math.ceil(Math.log2(fine)) : 1;
  const picture = levelOf(view, step);
  pen.imageSmoothingEnabled = false;
  const size = [picture.width * step * width, picture.height * step * height];
  pen.drawImage(picture, left - view.x, top - view.y, ...size);
  const span = {
    i: [Math.floor(view.y / height), Math.min(view.rows, Math.ceil((view.y + plotHeight) / height))],
    j: [Math.floor(view.x / width), Math.min(view.columns, Math.ceil((view.x + plotWidth) / width))],
  };
  const at = (i, j) => [left + j * width - view.x, top + i * height - view.y];
  if (isAhead(view, view.rows)) {
    // Rows of later steps lose their shade, not their numbers.
    pen.globalAlpha = 0.62;
    pen.fillStyle = colors.paper;
    pen.fillRect(left, at(view.row + 1, 0)[1], plotWidth, plotHeight);
    pen.globalAlpha = 1;
  }
  if (Math.min(width, height) >= 9) drawGaps(pen, colors, span, at);
  if (isLegible(view, width, height)) drawNumbers(pen, view, span, at, width, height);
  if (view.markOf && Math.min(width, height) >= 9) drawSigns(pen, view, span, at, width, height);
  drawMarks(pen, view, at, width, height);
  pen.restore();
  drawNames(pen, view, span, at, width, height);
  drawTitles(pen, view);
}

function isAhead(view, row) {
  return view.fadesLaterRows && view.row >= 0 && row > view.row;
}

function drawGaps(pen, colors, span, at) {
  const [[left, top], [right, bottom]] = [at(span.i[0], span.j[0]), at(span.i[1], span.j[1])];
  pen.strokeStyle = colors.paper;
  pen.lineWidth = 1;
  pen.beginPath();
  for (let i = span.i[0]; i <= span.i[1]; i++) pen.rect(left, at(i, 0)[1], right - left, 0);
  for (let j = span.j[0]; j <= span.j[1]; j++) pen.rect(at(0, j)[0], top, 0, bottom - top);
  pen.stroke();
}

// The numbers shrink a little to fit, and are left out if that is not enough.
function drawNumbers(pen, view, span, at, width, height) {
  const { colors, scale } = view;
  const words = [];
  for (let i = span.i[0]; i < span.i[1]; i++) {
    for (let j = span.j[0]; j < span.j[1]; j++) {
      const value = view.values[i * view.columns + j];
      if (!Number.isNaN(value) || !view.isMasked(i, j)) words.push([i, j, value, view.word(value)]);
    }
  }
  pen.font = `11px ${SANS}`;
  const widest = words.reduce((most, each) => Math.max(most, pen.measureText(each[3]).width), 1);
  const size = Math.min(11, (11 * (width - 2)) / widest);
  if (size < LEAST_DIGITS) return;
  pen.font = `${size}px ${SANS}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  words.forEach(([i, j, value, word]) => {
    if (Number.isNaN(value)) pen.fillStyle = colors.muted;
    else if (isAhead(view, i)) pen.fillStyle = colors.ink;
    else pen.fillStyle = textColor(value, scale, colors);
    const [x, y] = at(i, j);
    pen.fillText(word, x + width / 2, y + height / 2);
  });
}

// What was done to a cell: a cross where an edge is cut, a corner where its score is changed, a frame under the brush.
function drawSigns(pen, view, span, at, width, height) {
  const { colors } = view;
  for (let i = span.i[0]; i < span.i[1]; i++) {
    for (let j = span.j[0]; j < span.j[1]; j++) {
      const [x, y] = at(i, j);
      const sign = view.markOf(i, j);
      if (sign === "cut") drawCross(pen, colors, x, y, width, height);
      else if (sign === "brush") {
        pen.strokeStyle = colors.accent;
        pen.lineWidth = 3;
        pen.strokeRect(x + 2.5, y + 2.5, width - 5, height - 5);
      } else if (sign) drawCorner(pen, colors, x + width, sign === "more" ? y : y + height, sign === "more" ? 1 : -1);
    }
  }
}

function drawCross(pen, colors, x, y, width, height) {
  pen.fillStyle = colors.paper;
  pen.fillRect(x + 0.5, y + 0.5, width - 1, height - 1);
  pen.strokeStyle = colors.failed;
  pen.lineWidth = 2;
  const [across, down] = [width * 0.24, height * 0.24];
  pen.beginPath();
  pen.moveTo(x + across, y + down);
  pen.lineTo(x + width - across, y + height - down);
  pen.moveTo(x + width - across, y + down);
  pen.lineTo(x + across, y + height - down);
  pen.stroke();
}

function drawCorner(pen, colors, right, y, down) {
  pen.beginPath();
  pen.moveTo(right - 11, y);
  pen.lineTo(right, y);
  pen.lineTo(right, y + 11 * down);
  pen.closePath();
  pen.fillStyle = colors.failed;
  pen.strokeStyle = colors.paper;
  pen.lineWidth = 1.5;
  pen.fill();
  pen.stroke();
}

// The marks of the followed row and of the current cell.
function drawMarks(pen, view, at, width, height) {
  const { colors } = view;
  const frame = (x, y, w, h, line) => {
    pen.lineWidth = line + 2;
    pen.strokeStyle = colors.paper;
    pen.strokeRect(x, y, w, h);
    pen.lineWidth = line;
    pen.strokeStyle = colors.ink;
    pen.strokeRect(x, y, w, h);
  };
  if (view.row >= 0) {
    const [x, y] = at(view.row, 0);
    const tall = Math.max(height, 3);
    frame(x, y + height / 2 - tall / 2, view.columns * width, tall, 1.5);
  }
  const cell = view.hover ?? view.cursor;
  if (!cell) return;
  const [x, y] = at(...cell);
  const [w, h] = [Math.max(width, 5), Math.max(height, 5)];
  frame(x + width / 2 - w / 2, y + height / 2 - h / 2, w, h, 2);
}

function drawNames(pen, view, span, at, width, height) {
  const { box, colors, rowNames, columnNames } = view;
  const cell = view.hover ?? view.cursor;
  pen.font = FONT;
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  // A cell half outside has no name, which would overlap those of the other axis.
  thinned(span.i, height, rowNames.length, [view.row, cell?.[0]]).forEach(([i, isMarked]) => {
    const y = at(i, 0)[1] + height / 2;
    if (y < box.top + Math.min(6, height / 2) - 1 || y > box.top + box.plotHeight) return;
    pen.fillStyle = isMarked ? colors.ink : colors.muted;
    pen.fillText(cut(pen, rowNames[i], box.left - 8 - 16), box.left - 6, y);
  });
  const room = box.top - 16 - 8;
  const wide = (name) => pen.measureText(isolated(name)).width;
  const isUpright = columnNames.slice(...span.j).some((name) => wide(name) > width - 4);
  thinned(span.j, width, columnNames.length, [cell?.[1]]).forEach(([j, isMarked]) => {
    const x = at(0, j)[0] + width / 2;
    const half = Math.min(isUpright ? 6 : wide(columnNames[j]) / 2, width / 2);
    if (x < box.left + half - 1 || x > box.left + box.plotWidth) return;
    pen.fillStyle = isMarked ? colors.ink : colors.muted;
    pen.save();
    pen.translate(x, box.top - 6);
    pen.textAlign = isUpright ? "left" : "center";
    pen.textBaseline = isUpright ? "middle" : "alphabetic";
    if (isUpright) pen.rotate(-Math.PI / 2);
    pen.fillText(isUpright ? cut(pen, columnNames[j], room) : isolated(columnNames[j]), 0, 0);
    pen.restore();
  });
}

function drawTitles(pen, { box, colors, rowTitle, columnTitle }) {
  pen.fillStyle = colors.muted;
  pen.font = `11px ${SANS}`;
  pen.textBaseline = "alphabetic";
  pen.textAlign = "left";
  if (columnTitle) pen.fillText(cut(pen, `${columnTitle} →`, Math.max(box.plotWidth, 48)), box.left, 11);
  if (!rowTitle) return;
  pen.save();
  pen.translate(11, box.top);
  pen.rotate(-Math.PI / 2);
  pen.textAlign = "right";
  pen.fillText(cut(pen, `← ${rowTitle}`, Math.max(box.plotHeight, 48)), 0, 0);
  pen.restore();
}
