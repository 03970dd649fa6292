// Colors of a map, read from the CSS of attnlab.draw.colors, and the scale from value to shade.

import { clamp, make, setVariable } from "../report/elements.js";

const STEPS = 255;
export const STRONG = 0.575; // as in attnlab.draw.colors

// Calls `repaint(colors)` now and whenever light, dark or paper colors take over, as a canvas does not follow the CSS.
export function followColors(root, repaint) {
  const change = () => repaint(readColors(root));
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", change);
  new MutationObserver(change).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  change();
}

// The two ramps, plus and minus, as 256 pixels each, and the named colors that a canvas draws with.
function readColors(root) {
  const probe = make("div", { class: "probe", "aria-hidden": "true" });
  const add = (attributes) => probe.appendChild(make("i", attributes));
  const ramp = (name) => Array.from({ length: STEPS + 1 }, (_, i) => setVariable(add({ class: name }), "--w", i / STEPS));
  const [plus, minus] = [ramp("shade"), ramp("shade minus")];
  const names = ["ink", "muted", "paper", "accent", "shadow", "failed", "on-shade", "on-strong"].map((name) => {
    const node = add();
    node.style.color = `var(--${name})`;
    return [name, node];
  });
  root.append(probe);
  const pen = make("canvas", { width: STEPS + 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const pixels = (fills) => {
    fills.forEach((fill, i) => {
      pen.fillStyle = fill;
      pen.fillRect(i, 0, 1, 1);
    });
    return new Uint32Array(pen.getImageData(0, 0, STEPS + 1, 1).data.buffer);
  };
  const backgrounds = (nodes) => pixels(nodes.map((node) => getComputedStyle(node).backgroundColor));
  const colors = { plus: backgrounds(plus), minus: backgrounds(minus) };
  for (const [name, node] of names) colors[name] = getComputedStyle(node).color;
  [colors.blank] = pixels([colors.paper]);
  probe.remove();
  return colors;
}

// From `low` to `high` in equal steps of value, or of its root; below zero in the other hue, where there is such a range.
export function makeScale(low, high, isRoot = false) {
  const linear = (value) => clamp(low < 0 ? Math.abs(value) / high : (value - low) / (high - low), 0, 1);
  return { low, high, isRoot, depth: isRoot ? (value) => Math.sqrt(linear(value)) : linear };
}

// The color of text on the shade of a value.
export function textColor(value, scale, colors) {
  return colors[scale.depth(value) >= STRONG ? "on-strong" : "on-shade"];
}

export function pixelOf(value, scale, colors) {
  return (value < 0 && scale.low < 0 ? colors.minus : colors.plus)[Math.round(scale.depth(value) * STEPS)];
}

// The color bar of a scale between the words of its ends, and how shades are spread.
export function makeRamp({ low, high, isRoot }, from, to) {
  const ramp = make("span", { class: low < 0 ? "ramp two" : "ramp", "aria-hidden": true });
  const steps = low < 0 ? 40 : 20;
  const scale = makeScale(low, high);
  for (let i = 0; i <= steps; i++) {
    const value = low + ((high - low) * i) / steps;
    const shade = make("i", { class: value < 0 && low < 0 ? "shade minus" : "shade" });
    ramp.append(setVariable(shade, "--w", scale.depth(value)));
  }
  return make("div", { class: "scale" }, from, ramp, to, make("span", {}, `shade: ${isRoot ? "square root" : "linear"}`));
}

// What masked cells look like, for the side of a color bar.
export function makeMaskedNote(words) {
  return make("span", { class: "masked-note" }, make("span", { class: "masked", "aria-hidden": "true" }), words);
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
