// Shared by all charts: hues, margins, the extent of values and the vertical axis.

import { clamp, longest, makeSvg } from "./elements.js";
import { linearTicks, logTicks, wordTicks } from "./scales.js";

export const HUES = 6;
export const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 4"];
export const MARGIN = { top: 14, right: 16, bottom: 40, left: 56 };
export const HEIGHT = 320;

export function extent(values) {
  return [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)];
}

export function paddedExtent(values, isLog) {
  const [low, high] = values.length ? extent(values) : [1, 10];
  if (isLog) return low === high ? [low / 2, high * 2] : [low * 0.95, high * 1.05];
  const pad = (high - low || Math.abs(high) || 1) * 0.05;
  // A loss close to zero is compared with zero.
  return [low >= 0 && low < 0.25 * high ? 0 : low - pad, high + pad];
}

// Ticks of the vertical axis; the plot begins right of their labels.
export function uprightTicks(chart, ys) {
  const ticks = (chart.isLog ? logTicks : linearTicks)(ys[0], ys[1], 6);
  const words = wordTicks(ticks, chart.isLog);
  chart.left = clamp(30 + 7 * longest(words), MARGIN.left, 110);
  return ticks.map((tick, i) => [tick, words[i]]);
}

// Grid lines, their values and the name of the axis.
export function drawUprightAxis(chart, ticks, right, bottom) {
  const group = makeSvg("g");
  ticks.forEach(([tick, word]) => {
    const y = chart.scaleY(tick);
    group.append(makeSvg("line", { class: "gridline", x1: chart.left, x2: right, y1: y, y2: y }),
      makeSvg("text", { x: chart.left - 8, y: y + 4, "text-anchor": "end" }, word));
  });
  group.append(makeSvg("text", { x: 0, y: 0, "text-anchor": "middle", transform: `translate(12 ${(MARGIN.top + bottom) / 2}) rotate(-90)` },
    chart.section.y_label));
  return group;
}

// Reads out a chart: where the pointer is, or the next of `last + 1` things by arrow keys, Home and End. `reach(event)`
// gives { now, last, stride } of a key.
export function listenToReading(svg, { point, rest, reach, go }) {
  svg.addEventListener("pointermove", (event) => point(event, svg.getBoundingClientRect()));
  svg.addEventListener("pointerleave", rest);
  svg.addEventListener("blur", rest);
  svg.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const { now, last, stride = 1 } = reach(event);
    const target = { ArrowLeft: now - stride, ArrowRight: now + stride, Home: 0, End: last }[event.key];
    if (target === undefined || last < 0) return;
    event.preventDefault();
    event.stopPropagation();
    go(clamp(target, 0, last));
  });
}
