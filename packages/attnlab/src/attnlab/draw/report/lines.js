// A line chart: axes, bands, level lines, a legend that reads out exact values under the crosshair.

import { clamp, count, isNumber, longest, make, makeButton, makeSvg, onWidth, wordNumber, wordPlace, wordWithInterval } from "./elements.js";
import { binPoints, cleanPoints, linearScale, linearTicks, logScale, logTicks, nearestPoint, runsOf, wordTicks } from "./scales.js";
import { DASHES, drawUprightAxis, extent, HEIGHT, HUES, listenToReading, MARGIN, paddedExtent, uprightTicks } from "./axes.js";

export function mountLines(stage, section) {
  const lines = section.series.map((series, i) => ({
    name: series.name, hue: `hue-${i % HUES}`, dash: DASHES[i % DASHES.length], style: series.style ?? "line",
    bands: (series.bands ?? []).map((band) => ({ name: band.name })), ...cleanPoints(series, Boolean(section.x_log)),
  }));
  const chart = {
    section, lines,
    levels: (section.levels ?? []).filter((level) => isNumber(level.y)),
    isLog: Boolean(section.y_log), isLogX: Boolean(section.x_log), width: 0, at: null,
    svg: makeSvg("svg", { class: "chart", tabindex: 0, role: "img" }),
    note: make("p", { class: "note" }),
  };
  const values = lines.flatMap((line) => line.points.map((point) => point.y)).filter(isNumber);
  if (values.length === 0) {
    stage.append(make("p", { class: "note" }, "There is no finite value to draw."));
    return;
  }
  chart.canLog = values.some((value) => value > 0);
  chart.isLog &&= chart.canLog;
  chart.svg.setAttribute("aria-label", describeChart(section, lines));
  const head = make("div", { class: "chart-head" }, makeLegend(chart));
  if (chart.canLog) head.append(makeLogButton(chart));
  stage.append(head, chart.svg, chart.note);
  listenToChart(chart);
  onWidth(chart.svg, (width) => {
    chart.width = width;
    drawChart(chart);
  });
}

function describeChart(section, lines) {
  const parts = lines.map((line) => {
    const values = line.points.map((point) => point.y).filter(isNumber);
    if (values.length === 0) return `${line.name}: no finite value`;
    const least = values.reduce((a, b) => Math.min(a, b));
    const most = values.reduce((a, b) => Math.max(a, b));
    return `${line.name}: ${count(values.length, "point")}, from ${wordNumber(least)} to ${wordNumber(most)}`;
  });
  return `${section.y_label} over ${section.x_label}. ${parts.join(". ")}. Arrow keys read out values.`;
}

function makeLegend(chart) {
  return make("ul", { class: "legend" }, ...chart.lines.flatMap((line) => {
    line.output = make("output");
    const swatch = makeSvg("svg", { width: 26, height: 8, class: line.hue, "aria-hidden": true }, line.style === "points"
      ? makeSvg("circle", { class: "point", cx: 13, cy: 4, r: 2.75 })
      : makeSvg("line", { class: "series", x1: 1, x2: 25, y1: 4, y2: 4, "stroke-dasharray": line.dash || null }));
    return [make("li", {}, swatch, make("span", {}, line.name), line.output), ...line.bands.map((band, i) => makeBandEntry(line, band, i))];
  }));
}

// Bands overlap, the widest below: the second lies inside the first.
function makeBandEntry(line, band, i) {
  band.output = make("output");
  const layers = Array.from({ length: i + 1 }, () => makeSvg("rect", { class: "band", x: 1, y: 0, width: 24, height: 12 }));
  const swatch = makeSvg("svg", { width: 26, height: 12, class: line.hue, "aria-hidden": true }, ...layers);
  return make("li", {}, swatch, make("span", {}, band.name), band.output);
}

function makeLogButton(chart) {
  const button = makeButton("Log scale", () => {
    chart.isLog = !chart.isLog;
    button.setAttribute("aria-pressed", chart.isLog);
    drawChart(chart);
  }, { "aria-pressed": chart.isLog });
  return button;
}

function drawChart(chart) {
  const { svg, width, lines } = chart;
  const drawable = (y) => isNumber(y) && (!chart.isLog || y > 0);
  const shown = lines.map((line) => line.points.map((point) => (drawable(point.y) ? point : { x: point.x, y: null, bands: [] })));
  const right = width - MARGIN.right;
  const bottom = HEIGHT - MARGIN.bottom;
  const places = shown.flat().map((point) => point.x);
  const xs = extent(places);
  const heights = [...shown.flat(), ...chart.levels].flatMap((item) => [item.y, item.low, item.high, ...(item.bands ?? []).flat()]);
  if (chart.section.from_zero) heights.push(0);
  const ys = paddedExtent(heights.filter(drawable), chart.isLog);
  const ticks = uprightTicks(chart, ys);
  chart.scaleX = (chart.isLogX ? logScale : linearScale)(xs, [chart.left, right]);
  chart.scaleY = (chart.isLog ? logScale : linearScale)(ys, [bottom, MARGIN.top]);

  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.replaceChildren(drawAxes(chart, xs, ticks, right, bottom));
  let isThinned = false;
  const groups = shown.map((points, i) => {
    const group = makeSvg("g", { class: lines[i].hue });
    const isDense = points.length > 2 * (right - chart.left);
    isThinned ||= isDense;
    lines[i].bands.forEach((_, k) => drawBand(group, points, chart, (point) => point.bands[k]));
    if (isDense) drawBinned(group, binPoints(points, chart.scaleX, chart.left, right - chart.left), chart, lines[i]);
    else drawPoints(group, points, chart, lines[i]);
    return group;
  });
  svg.append(...groups);
  drawLevels(chart, drawable, right, bottom);
  chart.crosshair = svg.appendChild(makeSvg("g"));
  chart.note.textContent = wordNote(chart, isThinned);
  readOut(chart, chart.at);
}

function drawAxes(chart, xs, ticks, right, bottom) {
  const group = drawUprightAxis(chart, ticks, right, bottom);
  const places = xTicks(chart, xs);
  wordTicks(places, chart.isLogX).forEach((word, i) => {
    const x = chart.scaleX(places[i]);
    const isLast = x > right - 18;
    group.append(makeSvg("line", { class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 5 }),
      makeSvg("text", { x: isLast ? right : x, y: bottom + 19, "text-anchor": isLast ? "end" : "middle" }, word));
  });
  group.append(makeSvg("line", { class: "axis", x1: chart.left, x2: right, y1: bottom, y2: bottom }),
    makeSvg("text", { x: (chart.left + right) / 2, y: HEIGHT - 5, "text-anchor": "middle" }, chart.section.x_label));
  return group;
}

function xTicks(chart, xs) {
  const room = clamp(Math.floor(chart.width / 110), 2, 8);
  if (!chart.isLogX) {
    const isWhole = chart.lines.every((line) => line.points.every((point) => Number.isInteger(point.x)));
    return linearTicks(xs[0], xs[1], room, isWhole);
  }
  // A few places, such as 8, 16, 32, are their own best ticks: each, or every second or third where words would touch.
  // Separate points get no ticks of their own.
  if (chart.lines.some((line) => line.style === "points")) return logTicks(xs[0], xs[1], room);
  const places = [...new Set(chart.lines.flatMap((line) => line.points.map((point) => point.x)))].sort((one, other) => one - other);
  const least = 12 + 7.5 * longest(wordTicks(places, true));
  const isRoomy = (ticks) => ticks.every((x, i) => i === 0 || chart.scaleX(x) - chart.scaleX(ticks[i - 1]) >= least);
  const thinned = [1, 2, 3].map((stride) => places.filter((_, i) => i % stride === 0)).find(isRoomy);
  return places.length <= 12 && thinned ? thinned : logTicks(xs[0], xs[1], room);
}

const MOST_DOTS = 40;

// Band, line, and a dot at each point if there are few.
function drawPoints(group, points, chart, line) {
  const areApart = line.style === "points";
  drawBand(group, points, chart, (point) => [point.low, point.high], areApart); // a gap has no interval either
  for (const run of runsOf(points, (point) => point.y !== null)) {
    const corners = run.map((point) => [chart.scaleX(point.x), chart.scaleY(point.y)]);
    if (!areApart) drawPath(group, line.style === "steps" ? corners.flatMap(holdUntil) : corners, line.dash);
    if (!areApart && (points.length > MOST_DOTS || line.style === "steps")) continue;
    for (const [x, y] of corners) group.append(makeSvg("circle", { class: "point", cx: x.toFixed(2), cy: y.toFixed(2), r: areApart ? 3.5 : 2.75 }));
  }
}

// A value holds until the next one: first horizontal, then vertical.
function holdUntil([x, y], i, corners) {
  return i + 1 < corners.length ? [[x, y], [corners[i + 1][0], y]] : [[x, y]];
}

// A band needs two neighbors; an interval without any is a vertical stroke, as are those of separate points.
function drawBand(group, points, chart, ends, areApart = false) {
  const isBanded = (point) => (ends(point) ?? []).filter(isNumber).length === 2;
  const floor = chart.isLog ? chart.scaleY.back(HEIGHT - MARGIN.bottom) : -Infinity; // a log scale has no 0
  for (const run of runsOf(points, isBanded)) {
    const edge = (k) => run.map((point) => `${chart.scaleX(point.x).toFixed(2)} ${chart.scaleY(Math.max(ends(point)[k], floor)).toFixed(2)}`);
    const [lower, upper] = [edge(0), edge(1)];
    if (run.length > 1 && !areApart) {
      group.append(makeSvg("path", { class: "band", d: `M${upper.join("L")}L${lower.reverse().join("L")}Z` }));
    } else {
      run.forEach((_, i) => group.append(makeSvg("path", { class: areApart ? "series reach" : "series", d: `M${lower[i]}L${upper[i]}` })));
    }
  }
}

// Long lines: a band from the smallest to the largest value behind each pixel, and their mean as the line.
function drawBinned(group, bins, chart, line) {
  for (const run of runsOf(bins, (bin) => bin.finite > 0)) {
    const upper = run.map((bin) => `${bin.at} ${chart.scaleY(bin.most).toFixed(2)}`);
    const lower = run.map((bin) => `${bin.at} ${chart.scaleY(bin.least).toFixed(2)}`).reverse();
    group.append(makeSvg("path", { class: "envelope", d: `M${upper.join("L")}L${lower.join("L")}Z` }));
    drawPath(group, run.map((bin) => [bin.at, chart.scaleY(bin.sum / bin.finite)]), line.dash);
  }
}

function drawPath(group, corners, dash) {
  // A single point between two gaps is a path of no length, which round line ends turn into a dot.
  const d = corners.map(([x, y]) => `${x.toFixed(2)} ${y.toFixed(2)}`).join("L") + (corners.length === 1 ? "h0.01" : "");
  group.append(makeSvg("path", { class: "series", d: `M${d}`, "stroke-dasharray": dash || null,
    "stroke-width": corners.length === 1 ? 4 : null }));
}

function drawLevels(chart, drawable, right, bottom) {
  let above = Infinity;
  const levels = chart.levels.filter((level) => drawable(level.y)).sort((one, other) => one.y - other.y);
  levels.forEach((level, i) => {
    const y = chart.scaleY(level.y);
    // Data usually lies above the lowest level: its name goes below the line if there is room.
    const crowd = (base) => countBehind(chart, right - 2 - 7 * level.name.length, right, base - 13, base + 4);
    const isBelow = i === 0 && bottom - y >= 20 && crowd(y + 15) <= crowd(y - 6);
    // Names of close levels are pushed apart; the lines stay where they are.
    if (!isBelow) above = Math.max(MARGIN.top - 2, Math.min(y - 6, above - 15));
    chart.svg.append(makeSvg("line", { class: "level", x1: chart.left, x2: right, y1: y, y2: y }),
      makeSvg("text", { class: "level-name", x: right - 2, y: isBelow ? y + 15 : above, "text-anchor": "end" }, level.name));
  });
}

// Points inside a box, in pixels, which a name there would cover.
function countBehind(chart, left, right, top, bottom) {
  const isIn = (value, low, high) => value >= low && value <= high;
  return chart.lines.flatMap((line) => (line.style === "points" ? line.points : [])).filter((point) => isNumber(point.y)
    && isIn(chart.scaleX(point.x), left, right) && isIn(chart.scaleY(point.y), top, bottom)).length;
}

function wordNote(chart, isThinned) {
  const notes = [];
  if (isThinned) notes.push("Band: smallest to largest value behind each pixel; line: their mean.");
  else if (chart.lines.some((line) => line.style !== "points" && line.points.some((point) => isNumber(point.low)))) notes.push("Shaded: the interval around each value.");
  if (chart.lines.some((line) => line.style === "points" && line.points.some((point) => isNumber(point.low)))) notes.push("Vertical strokes: the interval around each point.");
  const missing = chart.lines.reduce((sum, line) => sum + line.missing, 0);
  if (missing) notes.push(`${count(missing, "value")} not finite, left as ${missing === 1 ? "a gap" : "gaps"}.`);
  const left = chart.lines.reduce((sum, line) => sum + line.hidden, 0);
  if (left) notes.push(`${count(left, "point")} at ${chart.section.x_label} 0 or below cannot be drawn on a log axis.`);
  const hidden = chart.isLog ? chart.lines.flatMap((line) => line.points).filter((point) => point.y !== null && point.y <= 0).length : 0;
  if (hidden) notes.push(`${count(hidden, "value")} of 0 or below cannot be drawn on a log scale.`);
  return notes.join(" ");
}

function listenToChart(chart) {
  const { points } = chart.lines.reduce((most, line) => (line.points.length > most.points.length ? line : most));
  listenToReading(chart.svg, {
    point: (event, box) => readOut(chart, chart.scaleX.back(event.clientX - box.left)),
    rest: () => readOut(chart, null),
    reach: (event) => ({
      now: chart.at === null ? points.length - 1 : nearestPoint(points, chart.at, chart.scaleX),
      last: points.length - 1,
      // Shift moves point by point, otherwise a hundredth of the line at a time.
      stride: event.shiftKey ? 1 : Math.max(1, Math.round(points.length / 100)),
    }),
    go: (index) => readOut(chart, points[index].x),
  });
}

// The last point with a value.
function lastPoint(points) {
  return points.findLast((point) => point.y !== null) ?? points[points.length - 1];
}

// Writes the values at x into the legend and moves the crosshair; without x, the last values.
function readOut(chart, x) {
  chart.at = x;
  chart.crosshair.replaceChildren();
  for (const line of chart.lines) {
    const point = x === null ? lastPoint(line.points) : line.points[nearestPoint(line.points, x, chart.scaleX)];
    line.bands.forEach((band, i) => {
      const [low, high] = point?.bands[i] ?? [null, null];
      band.output.textContent = isNumber(low) && isNumber(high) ? `${wordNumber(low)} to ${wordNumber(high)}` : "n/a";
    });
    if (!point) {
      line.output.textContent = "n/a";
      continue;
    }
    line.output.textContent = `${wordWithInterval(point.y, point.low, point.high)} at ${wordPlace(point.x)}`;
    if (x === null) continue;
    const at = chart.scaleX(point.x);
    if (!chart.crosshair.firstChild) {
      chart.crosshair.append(makeSvg("line", { class: "hair", x1: at, x2: at, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }));
    }
    if (point.y === null || (chart.isLog && point.y <= 0)) continue;
    chart.crosshair.append(makeSvg("circle", { class: `dot ${line.hue}`, cx: at, cy: chart.scaleY(point.y), r: 5 }));
  }
}
