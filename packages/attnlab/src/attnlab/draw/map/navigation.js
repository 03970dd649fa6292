// Navigation in a map: wheel, mouse, fingers and keys.

import { clamp } from "../report/elements.js";
import { cellAt, stayInside } from "./layout.js";

export function listenToPointer(canvas, view, act) {
  const fingers = new Map();
  let drag = null;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    const scale = canvas.offsetWidth / box.width || 1; // if the surrounding page is zoomed
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  };
  const canMove = () => canvas.classList.contains("zoomed");
  canvas.addEventListener("wheel", (event) => {
    // The page must scroll past a map: the wheel zooms only with Ctrl, as a pinch does, or after a click on the map.
    if (!event.ctrlKey && document.activeElement !== canvas) return;
    event.preventDefault();
    act.zoomBy(Math.exp(-clamp(event.deltaY, -100, 100) * 0.004), place(event));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, place(event));
    canvas.setPointerCapture(event.pointerId);
    drag = { from: place(event), x: view.x, y: view.y, moved: false, spread: spreadOf(fingers), cell: "" };
    if (view.paints) brushAt(place(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = place(event);
    if (!fingers.has(event.pointerId)) {
      act.read(cellAt(view, ...at));
      return;
    }
    fingers.set(event.pointerId, at);
    if (view.paints) brushAt(at);
    else if (fingers.size === 2) {
      const [spread, middle] = [spreadOf(fingers), middleOf(fingers)];
      if (drag.spread > 0) act.zoomBy(spread / drag.spread, middle);
      Object.assign(drag, { spread, moved: true });
    } else if (drag && canMove() && (drag.moved || Math.hypot(at[0] - drag.from[0], at[1] - drag.from[1]) > 4)) {
      drag.moved = true;
      view.x = drag.x + drag.from[0] - at[0];
      view.y = drag.y + drag.from[1] - at[1];
      stayInside(view);
      act.redraw();
    }
  });
  // Each cell under a drag is told once, as it is entered.
  const brushAt = (at) => {
    const cell = cellAt(view, ...at);
    if (!cell || !drag || String(cell) === drag.cell) return;
    drag.cell = String(cell);
    act.brush(cell);
  };
  const end = (event) => {
    const at = place(event);
    if (view.paints && drag) act.brush(null);
    else if (event.type === "pointerup" && drag && !drag.moved) {
      const cell = cellAt(view, ...at);
      // A hand that trembles stays in its cell; one that was dragged away means nothing.
      if (cell && String(cell) === String(cellAt(view, ...drag.from))) {
        // A finger cannot point: where a press changes something, its first tap reads the cell.
        const isRead = !act.tapReads || event.pointerType !== "touch" || String(cell) === String(view.cursor);
        act.moveTo(...cell);
        if (isRead) act.press(cell, event);
      }
    }
    fingers.delete(event.pointerId);
    // The remaining finger continues from its position.
    const [rest] = fingers.values();
    drag = rest ? { from: rest, x: view.x, y: view.y, moved: true, spread: 0 } : null;
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", () => act.read(null));
}

function spreadOf(fingers) {
  const [one, other] = fingers.values();
  return other ? Math.hypot(one[0] - other[0], one[1] - other[1]) : 0;
}

function middleOf(fingers) {
  const [one, other] = fingers.values();
  return [(one[0] + other[0]) / 2, (one[1] + other[1]) / 2];
}

export function listenToKeys(canvas, view, act) {
  canvas.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || !view.box) return;
    const [i, j] = view.cursor ?? [Math.max(view.row, 0), 0];
    const page = 10;
    const moves = {
      ArrowLeft: [i, j - 1], ArrowRight: [i, j + 1], ArrowUp: [i - 1, j], ArrowDown: [i + 1, j],
      Home: [i, 0], End: [i, view.columns - 1], PageUp: [i - page, j], PageDown: [i + page, j],
    };
    if (act.key(event, view.cursor)) view.hover = null; // what the key did is read, not what the pointer is at
    else if (event.key in moves) {
      act.moveTo(...moves[event.key]);
      act.walk(view.cursor);
    } else if (event.key === "+" || event.key === "=") act.zoomBy(1.5);
    else if (event.key === "-") act.zoomBy(1 / 1.5);
    else if (event.key === "0") act.zoomBy(0);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  canvas.addEventListener("focus", () => {
    if (!view.cursor && canvas.matches(":focus-visible")) act.moveTo(Math.max(view.row, 0), 0);
  });
}
