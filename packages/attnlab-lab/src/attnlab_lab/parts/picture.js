// The large map as a picture file that carries the link of the page; such a file, dropped on the page, is followed.

import { make, makeButton, makeSvg, SVG } from "attnlab/draw/report/elements.js";
import { pixelOf, textColor } from "attnlab/draw/map/shades.js";
import { WORDS } from "../words.js";
import { carriedIn, withCarried } from "./carried.js";
import { offer } from "./model.js";

const [CELL, LETTER, TOP] = [40, 8, 64]; // pixels of an SVG
const LOOK = { "font-family": "system-ui, sans-serif", "font-size": 12 };

// shown(): { canvas, source, name } of the map; told(): what its file carries.
export function makePictureBar(shown, told) {
  const asPng = async ({ canvas, source }) => {
    const copy = make("canvas", { width: canvas.width, height: canvas.height });
    const pen = copy.getContext("2d");
    pen.fillStyle = source.colors.paper;
    pen.fillRect(0, 0, copy.width, copy.height);
    pen.drawImage(canvas, 0, 0);
    const blob = await new Promise((resolve) => copy.toBlob(resolve));
    return withCarried(new Uint8Array(await blob.arrayBuffer()), told());
  };
  const asSvg = ({ source, name }) =>
    new Blob([writeSvg(source, name, told())], { type: "image/svg+xml" });
  const makeSaver = (kind, write) => makeButton(kind.toUpperCase(), async () => {
    const now = shown();
    offer(new File([await write(now)], `attnlab-head-${now.name}.${kind}`));
  }, { "aria-label": WORDS.savePicture(kind.toUpperCase()), title: WORDS.pictureNote });
  const title = make("span", { class: "note" }, WORDS.picture);
  return { root: make("div", { class: "bar" }, title, makeSaver("png", asPng), makeSaver("svg", asSvg)) };
}

function writeSvg(source, name, carried) {
  const { rows, columns, rowNames, columnNames, colors } = source;
  const left = Math.max(76, 24 + LETTER * Math.max(...rowNames.map((each) => each.length)));
  const [wide, tall] = [left + columns * CELL + 8, TOP + rows * CELL + 8];
  const write = (text, x, y, more) =>
    makeSvg("text", { x, y, ...LOOK, "text-anchor": "middle", fill: colors.ink, ...more }, text);
  const [first, last] = [{ "text-anchor": "start" }, { "text-anchor": "end" }];
  const root = makeSvg("svg", { xmlns: SVG, viewBox: `0 0 ${wide} ${tall}`, width: wide, height: tall },
    makeSvg("metadata", { id: "attnlab" }, JSON.stringify(carried)), makeSvg("title", {}, WORDS.head(name)),
    makeSvg("rect", { width: wide, height: tall, fill: colors.paper }),
    write(WORDS.head(name), left, 18, { ...first, "font-weight": 600 }),
    write("key →", left, 38, { ...first, fill: colors.muted }),
    write("← query", 8, TOP - 6, { ...first, fill: colors.muted }),
    ...columnNames.map((each, j) => write(each, left + (j + 0.5) * CELL, TOP - 6)),
    ...rowNames.map((each, i) => write(each, left - 8, TOP + (i + 0.6) * CELL, last)));
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      const { fill, stroke, text, ink } = faceOf(source, i, j);
      const [x, y] = [left + j * CELL, TOP + i * CELL];
      root.append(makeSvg("rect", { x, y, width: CELL - 1, height: CELL - 1, fill, stroke }));
      if (text) root.append(write(text, x + CELL / 2, y + CELL * 0.6, { fill: ink }));
    }
  }
  return new XMLSerializer().serializeToString(root);
}

// A masked square is empty, with a frame; one that was cut has a cross.
function faceOf({ values, columns, scale, colors, word, markOf }, i, j) {
  const value = values[i * columns + j];
  const isCut = markOf(i, j) === "cut";
  if (Number.isNaN(value)) {
    return { fill: colors.paper, stroke: colors.shadow, text: isCut ? "×" : "", ink: colors.failed };
  }
  const fill = isCut ? colors.paper : wordPixel(pixelOf(value, scale, colors));
  return { fill, stroke: "none", text: isCut ? "×" : word(value), ink: isCut ? colors.failed : textColor(value, scale, colors) };
}

function wordPixel(pixel) {
  return `rgb(${pixel & 255}, ${(pixel >>> 8) & 255}, ${(pixel >>> 16) & 255})`;
}

// The link in a picture of this page, or null.
export async function linkIn(file) {
  const carried = carriedIn(new Uint8Array(await file.arrayBuffer()));
  return typeof carried?.link === "string" ? carried.link : null;
}
