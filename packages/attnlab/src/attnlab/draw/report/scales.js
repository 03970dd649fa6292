// Ticks of axes, and the thinning of long lines to smallest, largest and mean per pixel.

import { clamp, isNumber } from "./elements.js";

export function linearScale([low, high], [from, to]) {
  const span = high - low || 1;
  const scale = (value) => from + ((value - low) / span) * (to - from);
  scale.back = (pixel) => low + ((pixel - from) / (to - from)) * span;
  return scale;
}

export function logScale([low, high], range) {
  const inner = linearScale([Math.log10(low), Math.log10(high)], range);
  const scale = (value) => inner(Math.log10(value));
  scale.back = (pixel) => 10 ** inner.back(pixel);
  return scale;
}

function niceStep(span, aim) {
  const raw = span / Math.max(1, aim);
  const power = 10 ** Math.floor(Math.log10(raw));
  const factor = [1, 2, 2.5, 5, 10].find((candidate) => raw / power <= candidate + 1e-9);
  return factor * power;
}

// `isWhole` keeps to steps of 1, 2, 5, ...: there is no step 1.5.
export function linearTicks(low, high, aim, isWhole = false) {
  if (!(high > low)) return [low];
  const nice = niceStep(high - low, aim);
  const step = isWhole ? Math.max(1, Math.floor(nice)) : nice;
  const ticks = [];
  // Whole steps keep 0.30000000000000004 off the axis.
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
    ticks.push(Number((i * step).toPrecision(12)));
  }
  return ticks;
}

export function logTicks(low, high, aim) {
  const decades = Math.log10(high / low);
  const factors = decades <= 1.2 ? [1, 2, 3, 5, 7] : decades <= 3 ? [1, 2, 5] : [1];
  const stride = Math.max(1, Math.ceil(decades / aim));
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    if (factors.length === 1 && power % stride !== 0) continue;
    for (const factor of factors) {
      const tick = Number((factor * 10 ** power).toPrecision(12));
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  return ticks;
}

// All ticks have the decimals that one of them needs, so "0.5" and "1.0" line up.
export function wordTicks(ticks, isLog = false) {
  if (isLog) return ticks.map((tick) => (tick < 1e-3 || tick >= 1e6 ? tick.toExponential().replace("e+", "e") : tick.toLocaleString("en-GB", { maximumFractionDigits: 6 })).replace("-", "−"));
  const decimals = Math.max(...ticks.map((tick) => (String(tick).split(".")[1] ?? "").length));
  const places = { minimumFractionDigits: decimals > 4 ? 0 : decimals, maximumFractionDigits: 6 };
  return ticks.map((tick) => {
    const isExtreme = tick !== 0 && (Math.abs(tick) >= 1e6 || Math.abs(tick) < 1e-4);
    const word = isExtreme ? tick.toExponential().replace("e+", "e") : tick.toLocaleString("en-GB", places);
    return word.replace("-", "−");
  });
}

// Finite points in order of x, how many values are missing, and how many points a log axis cannot show. A gap stays
// a point with y null.
export function cleanPoints(series, isLogX = false) {
  const points = [];
  let missing = 0;
  let hidden = 0;
  series.x.forEach((x, i) => {
    const isGap = !isNumber(series.y[i]);
    if (isGap || !isNumber(x)) missing += 1;
    if (!isNumber(x)) return;
    if (isLogX && x <= 0) hidden += 1;
    else {
      const bands = (series.bands ?? []).map((band) => (isGap ? [null, null] : [band.low[i], band.high[i]]));
      points.push({ x, y: isGap ? null : series.y[i], low: series.low?.[i] ?? null, high: series.high?.[i] ?? null, bands });
    }
  });
  points.sort((one, other) => one.x - other.x);
  return { points, missing, hidden };
}

// One bin per pixel column: smallest, largest and mean of the values in it; null where all are gaps.
export function binPoints(points, scaleX, left, width) {
  const bins = Array.from({ length: width + 1 }, () => ({ points: 0, least: Infinity, most: -Infinity, sum: 0, finite: 0 }));
  for (const { x, y, low, high } of points) {
    const bin = bins[clamp(Math.round(scaleX(x) - left), 0, width)];
    bin.points += 1;
    if (y === null) continue;
    bin.finite += 1;
    bin.sum += y;
    bin.least = Math.min(bin.least, low ?? y);
    bin.most = Math.max(bin.most, high ?? y);
  }
  return bins.map((bin, i) => ({ ...bin, at: left + i })).filter((bin) => bin.points > 0);
}

// Splits at gaps, so that a missing value never turns into a straight line.
export function runsOf(items, isThere) {
  const runs = [];
  let open = null;
  for (const item of items) {
    if (!isThere(item)) open = null;
    else if (open) open.push(item);
    else runs.push((open = [item]));
  }
  return runs;
}

// Index of the point nearest to x on the screen; points are sorted.
export function nearestPoint(points, x, scale) {
  let low = 0;
  let high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle].x < x) low = middle;
    else high = middle;
  }
  const distance = (i) => Math.abs(scale(points[i]?.x) - scale(x));
  return distance(low) <= distance(high) ? low : high;
}
