// One query: a profile of its weights below the map, its largest weights as a list, all of them as a table.

import { clamp, count, make, makeShare, wordNumber, wordProbability } from "../../report/elements.js";
import { setSize } from "../../map/layout.js";

const LISTED = 8;
const MOST_ROWS = 2_000;
const PROFILE_HEIGHT = 72;

export function makeRow() {
  const canvas = make("canvas", { class: "profile", "aria-hidden": "true" });
  const list = make("ul", { class: "chances" });
  const rest = make("p", { class: "note" });
  const table = make("table", {});
  const body = make("div", { class: "scroll weights-table", tabindex: 0, role: "region", "aria-label": "All weights of this query" }, table);
  const details = make("details", {}, make("summary", {}, "All weights of this query as a table"), body);
  const state = { map: null, row: 0, names: [], place: null, colors: null, numbers: null };
  const fill = () => {
    if (details.open && state.map) fillTable(table, state);
  };
  details.addEventListener("toggle", fill);
  return {
    profile: canvas,
    root: make("div", { class: "row-words" }, list, rest, details),
    show(next) {
      Object.assign(state, next);
      drawProfile(canvas, state);
      showLargest(list, rest, state);
      fill();
    },
    move(place) {
      state.place = place;
      drawProfile(canvas, state);
    },
  };
}

function weightsOf({ map, row }) {
  return map.values.subarray(row * map.columns, (row + 1) * map.columns);
}

function drawProfile(canvas, state) {
  const { place, map, colors } = state;
  if (!place || !map) return;
  const pen = canvas.getContext("2d");
  pen.reset();
  setSize(canvas, pen, place.left + place.width + 2, PROFILE_HEIGHT);
  const weights = weightsOf(state);
  const most = weights.reduce((high, value) => (Math.abs(value) > high ? Math.abs(value) : high), 0);
  const isSigned = weights.some((value) => value < 0);
  const ground = isSigned ? PROFILE_HEIGHT / 2 : PROFILE_HEIGHT - 4;
  const tall = isSigned ? PROFILE_HEIGHT / 2 - 4 : PROFILE_HEIGHT - 12;
  pen.strokeStyle = colors.muted;
  pen.beginPath();
  pen.moveTo(place.left, ground + 0.5);
  pen.lineTo(place.left + place.width, ground + 0.5);
  pen.stroke();
  pen.beginPath();
  pen.rect(place.left, 0, place.width, PROFILE_HEIGHT);
  pen.fillStyle = colors.muted;
  pen.font = '11px system-ui, "Segoe UI", sans-serif';
  pen.textAlign = "right";
  pen.fillText(wordSize(most, most), place.left - 6, 14);
  pen.fillText("0", place.left - 6, ground + 3);
  pen.clip();
  pen.fillStyle = colors.accent;
  const gap = place.cell >= 6 ? 1 : 0;
  weights.forEach((value, j) => {
    if (!(Math.abs(value) > 0)) return;
    const high = (value / (most || 1)) * tall;
    pen.fillRect(place.left + j * place.cell - place.x + gap / 2, high > 0 ? ground - high : ground, Math.max(place.cell - gap, 0.75), Math.abs(high));
  });
}

function ranked(state) {
  return [...weightsOf(state)].map((value, j) => ({ value, j })).filter(({ value }) => !Number.isNaN(value))
    .sort((one, other) => Math.abs(other.value) - Math.abs(one.value) || one.j - other.j);
}

function showLargest(list, rest, state) {
  const all = ranked(state);
  const most = Math.abs(all[0]?.value ?? 0) || 1;
  const listed = all.slice(0, LISTED).filter(({ value }) => value !== 0);
  list.replaceChildren(...listed.map(({ value, j }) =>
    makeShare(state.names[j], Math.abs(value), signed(value, state, most), `key ${state.numbers(j)}`)));
  const masked = state.map.columns - all.length;
  const others = all.slice(listed.length);
  const sum = others.reduce((total, { value }) => total + value, 0);
  const parts = [];
  if (all.length === 0) parts.push("This query has no allowed key.");
  if (others.length > 0) parts.push(`${count(others.length, state.isSquares ? "other square" : "other key")}${state.isSquares ? "." : ` together ${signed(sum, state, most)}.`}`);
  if (masked > 0) parts.push(`${masked.toLocaleString("en-GB")} masked.`);
  rest.textContent = parts.join(" ");
}

// Three decimals are too few if all weights are small.
function wordSize(size, most) {
  return most < 0.01 ? wordNumber(size) : wordProbability(size);
}

function signed(value, state, most) {
  const words = wordSize(Math.abs(value), most);
  if (!state.isDifference) return words;
  return value < 0 ? `−${words}` : value > 0 ? `+${words}` : words;
}

function fillTable(table, state) {
  const head = make("thead", {}, make("tr", {}, ...["Key", "Token", state.isDifference ? "Difference" : "Weight", "±"].map((name) => make("th", { scope: "col", class: name === "Token" ? null : "figure" }, name))));
  const weights = weightsOf(state);
  const rows = [...weights.subarray(0, MOST_ROWS)].map((value, j) => make("tr", {},
    make("td", { class: "figure" }, state.numbers(j)), make("th", { scope: "row" }, state.names[j]),
    ...(Number.isNaN(value) ? ["masked", ""] : wordReading(value, state.map.error(state.row, j), state.isDifference)).map((words) => make("td", { class: "figure" }, words))));
  const caption = make("caption", {}, weights.length > MOST_ROWS ? `The first ${MOST_ROWS.toLocaleString("en-GB")} of ${weights.length.toLocaleString("en-GB")} keys.` : `${state.title}.`);
  table.replaceChildren(caption, head, make("tbody", {}, ...rows));
}

// A weight with the digits of its error, and the error with the rounding of these digits: both are true as written.
export function wordReading(value, error, isDifference) {
  if (value === 0) return ["0", wordError(error)];
  const size = Math.abs(value);
  const places = 1 - Math.floor(Math.log10(error > 0 ? error : size * 1e-3));
  const isPlain = size >= 1e-4 && places <= 9;
  const told = isPlain ? size.toFixed(Math.max(0, places)) : size.toExponential(clamp(Math.floor(Math.log10(size)) + places, 2, 9));
  const text = Number.isInteger(size) ? String(size) : told;
  const sign = value < 0 ? "−" : isDifference ? "+" : "";
  return [`${sign}${text.replace("e-", "e−")}`, wordError(error + Math.abs(size - Number(text)))];
}

// Errors are rounded up, so that the bound always holds.
export function wordError(error) {
  if (!(error > 0)) return "0";
  const power = Math.floor(Math.log10(error)) - 1;
  const unit = 10 ** power;
  const rounded = Math.ceil(error / unit - 1e-9) * unit;
  return rounded < 1e-4 ? rounded.toExponential(1).replace("e-", "e−") : rounded.toFixed(Math.max(0, -power));
}
