// A matrix as a grid of numbers that one sets: typed, dragged sideways, or changed by keys.

import { clamp, make, setVariable, wordTrimmed } from "attnlab/draw/report/elements.js";
import { STRONG } from "attnlab/draw/map/shades.js";
import { DESIGN } from "../words_design.js";

const MOST_WEIGHT = 1000; // the largest number of a cell
const DRAG_PIXELS = 6; // of a drag for each tenth
const TENTH = 0.1;
const BEGUN = ["", "-", "+", ".", "-."]; // a number of which more is to come

// `hear.change(i, j, value, stroke)`: the changes of one drag, or of one stay in a cell, are one stroke.
export function makeGrid({ name, rowNames, columnNames, note }, hear) {
  const cells = rowNames.map((row, i) => columnNames.map((column, j) => makeCell(`${name}, ${row}, ${column}`, i, j)));
  let reached = cells[0][0]; // the one cell that Tab reaches
  reached.tabIndex = 0;
  const head = columnNames.map((column) => make("th", { scope: "col" }, column));
  const rows = cells.map((row, i) =>
    make("tr", {}, make("th", { scope: "row" }, rowNames[i]), ...row.map((cell) => make("td", {}, cell))));
  const table = make("table", { class: columnNames.length > 5 ? "weights wide" : "weights" },
    make("caption", {}, make("strong", {}, name), make("span", {}, note)),
    make("thead", {}, make("tr", {}, make("td", {}), ...head)), make("tbody", {}, ...rows));

  function makeCell(label, i, j) {
    const look = { class: "shade", "aria-label": label, tabindex: -1 };
    const cell = make("input", { type: "text", autocomplete: "off", spellcheck: "false", ...look });
    let stroke = {};
    const set = (value) => {
      const rounded = Number(clamp(value, -MOST_WEIGHT, MOST_WEIGHT).toFixed(6));
      cell.value = String(rounded);
      hear.change(i, j, rounded, stroke);
    };
    const nudge = (by) => set((Number(cell.value.replace("−", "-")) || 0) + by);
    const go = (row, column) => cells[row]?.[column]?.focus();
    cell.addEventListener("focus", () => {
      stroke = {};
      reached.tabIndex = -1;
      reached = cell;
      cell.tabIndex = 0;
      cell.select();
    });
    cell.addEventListener("blur", () => hear.settle());
    cell.addEventListener("input", () => {
      const text = cell.value.trim().replace("−", "-").replace(",", ".");
      const value = Number(text);
      const isNumber = /^[-+]?(\d+\.?\d*|\.\d+)$/.test(text) && Math.abs(value) <= MOST_WEIGHT;
      const isOnTheWay = BEGUN.includes(text);
      cell.setAttribute("aria-invalid", !isNumber && !isOnTheWay);
      if (isNumber) hear.change(i, j, value, stroke);
      else hear.refuse(isOnTheWay ? "" : DESIGN.badNumber(text, MOST_WEIGHT));
    });
    cell.addEventListener("keydown", (event) => {
      const isWhole = cell.selectionEnd - cell.selectionStart === cell.value.length;
      const by = event.shiftKey ? 1 : TENTH;
      const isUndo = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z";
      const deeds = {
        ArrowUp: () => (event.shiftKey || event.altKey ? nudge(by) : go(i - 1, j)),
        ArrowDown: () => (event.shiftKey || event.altKey ? nudge(-by) : go(i + 1, j)),
        Enter: () => go(i + 1, j),
        " ": () => set(Number(cell.value) === 0 ? 1 : 0),
      };
      const across = { ArrowLeft: () => go(i, j - 1), ArrowRight: () => go(i, j + 1) };
      if (isWhole && !event.shiftKey) Object.assign(deeds, across);
      if (isUndo) (event.shiftKey ? hear.redo : hear.undo)();
      else if (!event.ctrlKey && !event.metaKey && deeds[event.key]) deeds[event.key]();
      else return;
      event.preventDefault();
    });
    listenToDrag(cell, { begin: () => (stroke = {}), nudge, end: hear.settle });
    return cell;
  }

  return {
    root: table,
    // Shows numbers; those that may not be changed are read only.
    show(matrix, isOpen) {
      const most = matrix.flat().reduce((high, value) => Math.max(high, Math.abs(value)), 1);
      table.classList.toggle("locked", !isOpen);
      cells.forEach((row, i) => row.forEach((cell, j) => {
        const value = matrix[i][j];
        const depth = Math.abs(value) / most;
        const text = cell.value.replace("−", "-").replace(",", ".");
        const isTyping = cell === document.activeElement && (BEGUN.includes(text) || Number(text) === value);
        if (!isTyping) cell.value = wordTrimmed(value, 6);
        if (!isTyping) cell.setAttribute("aria-invalid", false);
        cell.readOnly = !isOpen;
        cell.classList.toggle("minus", value < 0);
        cell.classList.toggle("strong", depth > STRONG);
        cell.classList.toggle("nothing", value === 0);
        setVariable(cell, "--w", depth);
      }));
    },
  };
}

// A drag sideways changes the number, a tenth every few pixels; a press without one begins to type.
function listenToDrag(cell, { begin, nudge, end }) {
  let drag = null;
  cell.addEventListener("pointerdown", (event) => {
    if (cell.readOnly || cell === document.activeElement || event.button) return;
    event.preventDefault();
    cell.setPointerCapture(event.pointerId);
    drag = { x: event.clientX, moved: false };
  });
  cell.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const steps = Math.trunc((event.clientX - drag.x) / DRAG_PIXELS);
    if (!steps) return;
    if (!drag.moved) begin();
    drag = { x: drag.x + steps * DRAG_PIXELS, moved: true };
    nudge(steps * TENTH);
  });
  const stop = (event) => {
    if (!drag) return;
    if (!drag.moved && event.type === "pointerup") cell.focus();
    else end();
    drag = null;
  };
  cell.addEventListener("pointerup", stop);
  cell.addEventListener("pointercancel", stop);
}
