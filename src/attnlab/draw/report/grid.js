// Shared by all maps of shaded cells: shades, their color bar, names of rows and columns, and reading cells by
// pointer and keyboard.

import { clamp, isNumber, longest, make, makeButton, setVariable, wordLabel } from "./elements.js";

export const STRONG = 0.575; // text changes from dark to light here, see .shade in the CSS

const LEAST_CELL = 25; // pixels of the smallest cell with a number
const LEAST_DIGITS = 8.5; // pixels, the smallest legible size

// Equal steps of value are equal steps of shade; below zero, where there is such a range, in the warm hue.
export function makeCell(value, low, high, blank, attributes) {
  const cell = (look) => make("span", { class: `weight ${look}`, role: "gridcell", ...attributes });
  if (!isNumber(value)) return cell(blank);
  const depth = clamp(low < 0 ? Math.abs(value) / high : (value - low) / (high - low), 0, 1);
  const look = `shade${low < 0 && value < 0 ? " minus" : ""}${depth < STRONG ? "" : " strong"}`;
  return setVariable(cell(look), "--w", depth);
}

export function makeRamp(low, high, from, to) {
  const ramp = make("span", { class: low < 0 ? "ramp two" : "ramp", "aria-hidden": true });
  const steps = low < 0 ? 40 : 20;
  for (let i = 0; i <= steps; i++) {
    const value = low + ((high - low) * i) / steps;
    const depth = low < 0 ? Math.abs(value) / high : i / steps;
    ramp.append(setVariable(make("i", { class: value < 0 && low < 0 ? "shade minus" : "shade" }), "--w", depth));
  }
  return make("div", { class: "scale" }, from, ramp, to);
}

// `keys` are pairs of a name and its title.
export function makeKeyRow(corner, keys) {
  return make("div", { class: "row keys", role: "row" }, make("span", { role: "columnheader" }, make("span", { class: "unseen" }, corner)),
    ...keys.map(([key, title]) => makeKey(key, title, "columnheader")));
}

export function makeKey(key, title, role = null) {
  const name = longest([key]) > 1 ? "key long" : "key";
  return make("span", { class: name, role, title }, wordLabel(key));
}

export function makeRowName(word, title) {
  return make("span", { class: "query-name", role: "rowheader", title }, word);
}

export function makeEnlargeButton(root, name) {
  const enlarge = makeButton("Enlarge", () => {
    const isWide = root.classList.toggle("wide");
    enlarge.setAttribute("aria-pressed", isWide);
    enlarge.textContent = isWide ? "Shrink" : "Enlarge";
    enlarge.setAttribute("aria-label", `${enlarge.textContent} ${name}`);
  }, { "aria-pressed": false, "aria-label": `Enlarge ${name}` });
  return enlarge;
}

// The grid is one tab stop; arrow keys move inside it.
export function makeReachable(grid, cell) {
  grid.querySelector("[tabindex]")?.removeAttribute("tabindex");
  cell?.setAttribute("tabindex", 0);
}

export function listenToGrid(grid, axes, rest) {
  const read = (event) => {
    const words = event.target.closest?.('[role="gridcell"]')?.title;
    if (!words) return;
    axes.textContent = words;
    axes.classList.add("reading");
  };
  grid.addEventListener("pointerover", read);
  grid.addEventListener("focusin", read);
  grid.addEventListener("pointerleave", rest);
  grid.addEventListener("focusout", rest);
  grid.addEventListener("keydown", (event) => {
    const cell = event.target.closest('[role="gridcell"]');
    const [down, right] = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key] ?? [];
    if (!cell || down === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const rows = [...grid.children].slice(1);
    const i = clamp(rows.indexOf(cell.parentNode) + down, 0, rows.length - 1);
    const j = clamp([...cell.parentNode.children].indexOf(cell) + right, 1, rows[i].children.length - 1);
    makeReachable(grid, rows[i].children[j]);
    rows[i].children[j].focus();
  });
}

// Values are printed where they are legible, and long key names are vertical above narrow columns.
export function fitGrid(grid, width, numKeys, letters) {
  const label = grid.querySelector(".query-name")?.offsetWidth ?? 0;
  const cell = (width - label) / numKeys;
  // Numbers shrink a little to fit, and are left out if that is not enough.
  const digits = cell < LEAST_CELL ? 0 : [...grid.querySelectorAll("[data-brief]")].reduce((most, each) => Math.max(most, each.dataset.brief.length), 1);
  const size = Math.min(11, (cell - 2) / (0.62 * digits));
  grid.classList.toggle("with-values", cell >= LEAST_CELL && size >= LEAST_DIGITS);
  setVariable(grid, "--digits", `${size / 16}rem`);
  const isUpright = letters * 7.6 > cell && letters > 1;
  grid.classList.toggle("upright", isUpright);
  // If vertical names would touch, every second or third is shown; the cells still name all of them.
  const stride = isUpright ? Math.ceil(12 / Math.max(cell, 1)) : 1;
  grid.querySelectorAll(".key").forEach((key, i) => key.classList.toggle("skipped", i % stride !== 0));
}
