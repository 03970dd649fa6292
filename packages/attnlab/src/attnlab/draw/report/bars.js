// Grouped bars with interval whiskers: values are read out by pointer and arrow keys.

import { clamp, count, isNumber, longest, make, makeSvg, onWidth, wordLabel, wordNumber, wordWithInterval } from "./elements.js";
import { linearScale } from "./scales.js";
import { drawUprightAxis, extent, HEIGHT, HUES, listenToReading, MARGIN, uprightTicks } from "./axes.js";

const LEAST_PITCH = 13; // pixels from bar to bar; more bars than fit scroll inside their own box
const LABEL_LETTER = 6.7;
const MOST_LETTERS = 20; // of a leaning name; the tooltip has the rest

export function mountBars(stage, section) {
  const bars = section.groups.flatMap((group, g) => section.series.map((series, s) => ({
    group, g, s, name: series.name, value: series.values[g], low: series.low?.[g] ?? null, high: series.high?.[g] ?? null,
  })));
  const finite = bars.filter((bar) => isNumber(bar.value));
  if (finite.length === 0) {
    stage.append(make("p", { class: "note" }, "There is no finite value to draw."));
    return;
  }
  const chart = {
    section, bars, at: null, isLog: false, pillars: [],
    levels: (section.levels ?? []).filter((level) => isNumber(level.y)),
    svg: makeSvg("svg", { class: "chart", tabindex: 0, role: "img", "aria-label": describeBars(section, finite) }),
    reading: make("output", { class: "reading-line" }),
  };
  chart.box = make("div", { class: "bars-scroll" }, chart.svg);
  if (section.series.length > 1 || chart.levels.length > 0) stage.append(make("div", { class: "chart-head" }, makeBarLegend(chart)));
  stage.append(chart.box, chart.reading);
  listenToBars(chart);
  onWidth(chart.box, (width) => drawBars(chart, width));
}

function describeBars(section, finite) {
  const named = finite.length <= 60 ? finite.map(wordBar).join("; ") : `${count(finite.length, "bar")}`;
  return `${section.y_label}. ${named}. Arrow keys read out values.`;
}

function wordBar(bar) {
  const words = isNumber(bar.value) ? wordWithInterval(bar.value, bar.low, bar.high) : "no value";
  return `${[wordLabel(bar.group), bar.name].filter(Boolean).join(", ")}: ${words}`;
}

// Levels are named here, as bars leave no room for labels.
function makeBarLegend(chart) {
  const named = chart.section.series.map(({ name }, s) => [name, make("span", { class: `swatch hue-${s % HUES}`, "aria-hidden": true })]);
  const dash = () => makeSvg("svg", { class: "chart-dash", width: 26, height: 8, "aria-hidden": true },
    makeSvg("line", { class: "level", x1: 1, x2: 25, y1: 4, y2: 4 }));
  return make("ul", { class: "legend" }, ...[...named, ...chart.levels.map(({ name }) => [name, dash()])].filter(([name]) => name)
    .map(([name, swatch]) => make("li", {}, swatch, make("span", {}, name))));
}

function drawBars(chart, room) {
  const { section, bars, svg } = chart;
  const numBars = section.series.length;
  const numGroups = section.groups.length;
  const width = Math.max(room, MARGIN.left + MARGIN.right + numGroups * (numBars + 0.8) * LEAST_PITCH);
  const ys = extentWithZero([...bars.flatMap((bar) => [bar.value, bar.low, bar.high]), ...chart.levels.map((level) => level.y)].filter(isNumber));
  const ticks = uprightTicks(chart, ys);
  const right = width - MARGIN.right;
  const groupWidth = (right - chart.left) / numGroups;
  const pitch = Math.min(groupWidth / (numBars + 0.8), 72);
  const names = placeNames(section.groups, groupWidth);
  const bottom = HEIGHT - MARGIN.bottom;
  const height = bottom + names.height;
  chart.scaleY = linearScale(ys, [bottom, MARGIN.top]);
  chart.middle = (bar) => chart.left + (bar.g + 0.5) * groupWidth + (bar.s - (numBars - 1) / 2) * pitch;

  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  svg.replaceChildren(drawUprightAxis(chart, ticks, right, bottom));
  chart.pillars = bars.map((bar) => svg.appendChild(drawPillar(chart, bar, pitch * 0.86)));
  for (const bar of bars) drawWhisker(chart, bar, clamp(pitch * 0.2, 2, 7));
  const zero = chart.scaleY(0);
  svg.append(makeSvg("line", { class: "axis", x1: chart.left, x2: right, y1: zero, y2: zero }));
  for (const level of chart.levels) {
    const y = chart.scaleY(level.y);
    svg.append(makeSvg("line", { class: "level", x1: chart.left, x2: right, y1: y, y2: y }));
  }
  for (const bar of bars) drawValue(chart, bar, pitch);
  section.groups.forEach((group, g) => svg.append(drawName(group, chart.left + (g + 0.5) * groupWidth, bottom, names)));
  readBar(chart, chart.at);
}

// Bars begin at zero, so zero is always in sight.
function extentWithZero(values) {
  const [low, high] = extent([0, ...values]);
  const pad = (high - low || 1) * 0.08;
  return [low < 0 ? low - pad : 0, high > 0 ? high + pad : low < 0 ? 0 : 1];
}

function drawPillar(chart, bar, width) {
  const zero = chart.scaleY(0);
  if (!isNumber(bar.value)) {
    return makeSvg("text", { x: chart.middle(bar), y: zero - 5, "text-anchor": "middle" }, "n/a");
  }
  const end = chart.scaleY(bar.value);
  return makeSvg("rect", { class: `pillar hue-${bar.s % HUES}`, x: (chart.middle(bar) - width / 2).toFixed(2), y: Math.min(zero, end).toFixed(2),
    width: width.toFixed(2), height: Math.max(1, Math.abs(zero - end)).toFixed(2) });
}

function drawWhisker(chart, bar, reach) {
  if (!isNumber(bar.value) || !isNumber(bar.low) || !isNumber(bar.high)) return;
  const x = chart.middle(bar);
  const [low, high] = [chart.scaleY(bar.low), chart.scaleY(bar.high)];
  const d = `M${x - reach} ${high}h${2 * reach}M${x} ${high}V${low}M${x - reach} ${low}h${2 * reach}`;
  chart.svg.append(makeSvg("path", { class: "whisker halo", d }), makeSvg("path", { class: "whisker", d }));
}

function drawValue(chart, bar, pitch) {
  if (!isNumber(bar.value) || pitch < 34) return;
  const isBelow = bar.value < 0;
  const ends = [bar.value, bar.low, bar.high].filter(isNumber);
  const y = chart.scaleY(isBelow ? Math.min(...ends) : Math.max(...ends)) + (isBelow ? 14 : -5);
  chart.svg.append(makeSvg("text", { class: "value", x: chart.middle(bar), y, "text-anchor": "middle" }, wordNumber(bar.value)));
}

// Names are horizontal if they fit in a few lines, and slanted if they do not.
function placeNames(groups, groupWidth) {
  const letters = Math.floor((groupWidth - 6) / LABEL_LETTER);
  const broken = groups.map((group) => breakWords(wordLabel(group), letters));
  const mostLines = broken.reduce((high, lines) => Math.max(high, lines.length), 1);
  const fits = broken.every((lines) => lines.length <= 4 && lines.every((line) => [...line].length <= letters));
  if (fits) return { isLevel: true, letters, height: 14 + mostLines * 15 };
  // Long names slant more, or the first would leave the picture.
  const most = Math.min(MOST_LETTERS, longest(groups));
  const angle = most <= 12 ? 41 : 65;
  return { isLevel: false, angle, height: 26 + most * LABEL_LETTER * Math.sin((angle * Math.PI) / 180) };
}

function breakWords(text, letters) {
  const lines = [];
  for (const word of text.split(" ").filter(Boolean)) {
    const last = lines[lines.length - 1];
    if (last !== undefined && [...last].length + 1 + [...word].length <= letters) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines.length ? lines : [text];
}

function drawName(group, x, bottom, names) {
  const words = wordLabel(group);
  if (!names.isLevel) {
    const letters = [...words];
    const brief = letters.length > MOST_LETTERS ? `${letters.slice(0, MOST_LETTERS - 1).join("")}…` : words;
    return makeSvg("text", { class: "group-name", "text-anchor": "end", transform: `translate(${x + 4} ${bottom + 16}) rotate(-${names.angle})` },
      makeSvg("title", {}, words), brief);
  }
  const lines = breakWords(words, names.letters);
  return makeSvg("text", { class: "group-name", "text-anchor": "middle" },
    ...lines.map((line, i) => makeSvg("tspan", { x, y: bottom + 19 + 15 * i }, line)));
}

function listenToBars(chart) {
  const last = chart.bars.length - 1;
  listenToReading(chart.svg, {
    point(event, box) {
      const x = event.clientX - box.left;
      const distance = (bar) => Math.abs(chart.middle(bar) - x);
      readBar(chart, chart.bars.reduce((best, bar, i) => (distance(bar) < distance(chart.bars[best]) ? i : best), 0));
    },
    rest: () => readBar(chart, null),
    reach: (event) => ({ now: chart.at ?? (event.key === "ArrowLeft" ? last + 1 : -1), last }),
    go(index) {
      readBar(chart, index);
      const x = chart.middle(chart.bars[index]);
      if (x < chart.box.scrollLeft + 40 || x > chart.box.scrollLeft + chart.box.clientWidth - 20) chart.box.scrollLeft = x - chart.box.clientWidth / 2;
    },
  });
}

function readBar(chart, index) {
  chart.at = index;
  chart.pillars.forEach((pillar, i) => pillar.classList.toggle("read", i === index));
  chart.reading.classList.toggle("reading", index !== null);
  const hasIntervals = chart.bars.some((bar) => isNumber(bar.low));
  chart.reading.textContent = index !== null ? wordBar(chart.bars[index])
    : `Point at a bar, or use the arrow keys, to read its value.${hasIntervals ? " Whiskers: the interval around each value." : ""}`;
}
