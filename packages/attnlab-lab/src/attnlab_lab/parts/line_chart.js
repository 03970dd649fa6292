// A small chart of numbers over steps, above zero, with a title and the number it has come to.

import { make, makeSvg } from "attnlab/draw/report/elements.js";

export const CHART_WIDTH = 360;
const CHART_HEIGHT = 84;

// `lines` are what it draws, as elements of SVG.
export function makeLineChart(title, ...lines) {
  const name = make("span", { class: "label" }, title);
  const value = make("output", {});
  const edge = CHART_HEIGHT - 0.5;
  const look = { viewBox: `0 0 ${CHART_WIDTH} ${CHART_HEIGHT}`, preserveAspectRatio: "none" };
  const svg = makeSvg("svg", { class: "loss", role: "img", ...look },
    makeSvg("line", { class: "axis", x1: 0, x2: CHART_WIDTH, y1: edge, y2: edge }), ...lines);
  const box = make("div", { class: "loss-box" }, svg);
  return { name, value, svg, box, nodes: [make("p", { class: "margin-line" }, name, value), box] };
}

// The line through pairs of a step and a number, or nothing.
export function writeLine(pairs, steps, most) {
  const x = (step) => ((step / steps) * CHART_WIDTH).toFixed(1);
  const points = pairs.map(([step, number]) => `${x(step)} ${heightOf(number, most)}`);
  return points.length ? `M${points.join("L")}` : "";
}

export function heightOf(number, most) {
  return ((1 - number / most) * CHART_HEIGHT).toFixed(1);
}
