// Colors of a map, read from the CSS so that canvas and page agree, and the scales from weight to shade.

import { clamp, make, setVariable } from "../../report/elements.js";

const STEPS = 255;

// Reads the two ramps, plus and minus, as 256 pixels each, and the named colors that a canvas draws with.
export function readColors(root) {
  const probe = make("div", { class: "probe", "aria-hidden": "true" });
  const shade = (name) => Array.from({ length: STEPS + 1 }, (_, i) => {
    const node = setVariable(make("i", { class: name }), "--w", i / STEPS);
    probe.append(node);
    return node;
  });
  const [plus, minus] = [shade("shade"), shade("shade minus")];
  const names = ["--ink", "--muted", "--paper", "--rule", "--accent", "--shadow"].map((name) => {
    const node = make("i");
    node.style.color = `var(${name})`;
    probe.append(node);
    return [name.slice(2), node];
  });
  root.append(probe);
  const pen = make("canvas", { width: STEPS + 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const pixels = (nodes) => {
    nodes.forEach((node, i) => {
      pen.fillStyle = getComputedStyle(node).backgroundColor;
      pen.fillRect(i, 0, 1, 1);
    });
    return new Uint32Array(pen.getImageData(0, 0, STEPS + 1, 1).data.buffer);
  };
  const colors = { plus: pixels(plus), minus: pixels(minus) };
  for (const [name, node] of names) colors[name] = getComputedStyle(node).color;
  colors.isDark = luminance(colors.plus[0]) < 0.5;
  probe.remove();
  return colors;
}

function luminance(pixel) {
  return ((pixel & 255) + ((pixel >> 8) & 255) + ((pixel >> 16) & 255)) / 765;
}

// A scale turns a weight into a depth of 0 to 1, and places some round weights on the ramp.
export function makeScale(kind, map) {
  const most = map.values.reduce((high, value) => (Math.abs(value) > high ? Math.abs(value) : high), 0) || 1;
  const top = kind === "own" ? most : 1;
  const depth = kind === "root" ? (value) => Math.sqrt(clamp(Math.abs(value), 0, 1)) : (value) => clamp(Math.abs(value) / top, 0, 1);
  const marks = kind === "root" ? [0, 0.01, 0.1, 0.25, 0.5, 1] : [0, top / 2, top];
  return { kind, depth, top, marks, goesBeyond: kind !== "own" && most > 1.0005 };
}

export function pixelOf(value, scale, colors) {
  return (value < 0 ? colors.minus : colors.plus)[Math.round(scale.depth(value) * STEPS)];
}

// Thumbnails store square roots: the same shades as a map on the root scale.
export function thumbPixels(codes, isDifference, colors) {
  const pixels = new Uint32Array(codes.length);
  codes.forEach((code, k) => {
    if (code === 255) return;
    const depth = isDifference ? (code - 127) / 127 : code / 254;
    pixels[k] = (depth < 0 ? colors.minus : colors.plus)[Math.round(Math.abs(depth) * STEPS)];
  });
  return pixels;
}

export function hatch(pen, colors, ratio) {
  const size = Math.round(6 * ratio);
  const tile = make("canvas", { width: size, height: size });
  const brush = tile.getContext("2d");
  brush.strokeStyle = colors.shadow;
  brush.globalAlpha = 0.55;
  brush.lineWidth = ratio * 0.9;
  for (const shift of [-size, 0, size]) {
    brush.moveTo(shift - 1, size + 1);
    brush.lineTo(shift + size + 1, -1);
  }
  brush.stroke();
  const pattern = pen.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

