// Drawing a map on its canvas: shades, hatching, numbers, names and marks.

import { make, wordBriefly } from "../../report/elements.js";
import { STRONG } from "../../report/grid.js";
import { cut, FONT, isolated, thinned } from "./layout.js";
import { hatch, pixelOf } from "./shades.js";

const WITH_NUMBERS = 32; // pixels of a cell that holds its number

// The map as an image with one pixel per cell, or per several cells, of which the largest counts, if they are smaller.
function pictureOf(view, step) {
  if (view.levels.has(step)) return view.levels.get(step);
  const { map, scale, colors } = view;
  const [rows, columns] = [Math.ceil(map.rows / step), Math.ceil(map.columns / step)];
  const picture = make("canvas", { width: columns, height: rows });
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      const value = step === 1 ? map.values[i * columns + j] : outermost(map, i * step, j * step, step);
      if (!Number.isNaN(value)) pixels[i * columns + j] = pixelOf(value, scale, colors);
    }
  }
  picture.getContext("2d").putImageData(image, 0, 0);
  view.levels.set(step, picture);
  return picture;
}

function outermost(map, first, start, step) {
  let found = NaN;
  for (let i = first; i < Math.min(first + step, map.rows); i++) {
    for (let j = start; j < Math.min(start + step, map.columns); j++) {
      const value = map.values[i * map.columns + j];
      if (!Number.isNaN(value) && !(Math.abs(value) <= Math.abs(found))) found = value;
    }
  }
  return found;
}

export function draw(view, canvas, pen) {
  const { box, zoom, colors, map } = view;
  const { left, top, plotWidth, plotHeight } = box;
  const [width, height] = [box.cellWidth * zoom, box.cellHeight * zoom];
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.save();
  pen.beginPath();
  pen.rect(left, top, plotWidth, plotHeight);
  pen.clip();
  pen.fillStyle = hatch(pen, colors, view.ratio);
  pen.fillRect(left, top, plotWidth, plotHeight);
  const fine = 1 / (Math.min(width, height) * view.ratio);
  const step = fine > 1 ? 2 ** Math.ceil(Math.log2(fine)) : 1;
  const picture = pictureOf(view, step);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(picture, left - view.x, top - view.y, picture.width * step * width, picture.height * step * height);
  const span = {
    i: [Math.floor(view.y / height), Math.min(map.rows, Math.ceil((view.y + plotHeight) / height))],
    j: [Math.floor(view.x / width), Math.min(map.columns, Math.ceil((view.x + plotWidth) / width))],
  };
  const at = (i, j) => [left + j * width - view.x, top + i * height - view.y];
  if (Math.min(width, height) >= 9) drawGaps(pen, colors, span, at, width, height);
  if (Math.min(width, height) >= WITH_NUMBERS) drawNumbers(pen, view, span, at, width, height);
  drawMarks(pen, view, at, width, height);
  pen.restore();
  drawNames(pen, view, span, at, width, height);
}

function drawGaps(pen, colors, span, at, width, height) {
  pen.strokeStyle = colors.paper;
  pen.lineWidth = 1;
  pen.beginPath();
  for (let i = span.i[0]; i <= span.i[1]; i++) {
    const [x, y] = at(i, span.j[0]);
    pen.moveTo(x, y);
    pen.lineTo(at(i, span.j[1])[0], y);
  }
  for (let j = span.j[0]; j <= span.j[1]; j++) {
    const [x, y] = at(span.i[0], j);
    pen.moveTo(x, y);
    pen.lineTo(x, at(span.i[1], j)[1]);
  }
  pen.stroke();
}

function drawNumbers(pen, view, span, at, width, height) {
  const { map, colors, scale } = view;
  pen.font = '11px system-ui, "Segoe UI", sans-serif';
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (let i = span.i[0]; i < span.i[1]; i++) {
    for (let j = span.j[0]; j < span.j[1]; j++) {
      const value = map.values[i * map.columns + j];
      if (Number.isNaN(value)) continue;
      pen.fillStyle = scale.depth(value) >= STRONG === colors.isDark ? "#000" : "#fff";
      const [x, y] = at(i, j);
      pen.fillText(wordCell(value, map.isDifference), x + width / 2, y + height / 2);
    }
  }
}

// Only an exact zero is written as 0.
function wordCell(value, isDifference) {
  const words = wordBriefly(value);
  if (words !== "0" || value === 0) return words.replace("-", "−");
  return isDifference ? "~0" : "<.01";
}

// The marks of the selected row and of the current cell.
function drawMarks(pen, view, at, width, height) {
  const { colors, map } = view;
  const frame = (x, y, w, h, line) => {
    pen.lineWidth = line + 2;
    pen.strokeStyle = colors.paper;
    pen.strokeRect(x, y, w, h);
    pen.lineWidth = line;
    pen.strokeStyle = colors.ink;
    pen.strokeRect(x, y, w, h);
  };
  const [x, y] = at(view.row, 0);
  const tall = Math.max(height, 3);
  frame(x, y + height / 2 - tall / 2, map.columns * width, tall, 1.5);
  const cell = view.hover ?? view.cursor;
  if (!cell) return;
  const [cx, cy] = at(...cell);
  const [w, h] = [Math.max(width, 5), Math.max(height, 5)];
  frame(cx + width / 2 - w / 2, cy + height / 2 - h / 2, w, h, 2);
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
  const isUpright = columnNames.slice(...span.j).some((name) => pen.measureText(isolated(name)).width > width - 4);
  thinned(span.j, width, columnNames.length, [cell?.[1]]).forEach(([j, isMarked]) => {
    const x = at(0, j)[0] + width / 2;
    const half = isUpright ? Math.min(6, width / 2) : Math.min(pen.measureText(isolated(columnNames[j])).width, width) / 2;
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
  pen.fillStyle = colors.muted;
  pen.font = '11px system-ui, "Segoe UI", sans-serif';
  pen.textBaseline = "alphabetic";
  pen.textAlign = "left";
  pen.fillText("key →", box.left, 11);
  pen.save();
  pen.translate(11, box.top);
  pen.rotate(-Math.PI / 2);
  pen.textAlign = "right";
  pen.fillText("← query", 0, 0);
  pen.restore();
}
