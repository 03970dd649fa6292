// One head on a canvas: queries are rows, keys are columns. It can be zoomed and moved with wheel, fingers, buttons and
// keys, and read with pointer and keys; masked cells are hatched, never shaded.

import { clamp, make, makeButton, onWidth } from "../../report/elements.js";
import { centreOf, layOut, placeOf, reveal, stayInside } from "./layout.js";
import { listenToKeys, listenToPointer } from "./navigation.js";
import { draw } from "./canvas.js";

// `hear` receives { read(cell or null), pin(row), moved() }.
export function makeHeatmap(hear) {
  const canvas = make("canvas", { class: "heatmap", tabindex: 0, role: "application", "aria-roledescription": "heat map", "aria-describedby": "map-keys" });
  const pen = canvas.getContext("2d");
  const view = { map: null, rowNames: [], columnNames: [], scale: null, colors: null, zoom: 1, x: 0, y: 0, cursor: null, hover: null, row: 0, levels: new Map(), frame: 0, width: 0 };

  const redraw = () => {
    if (view.frame || !view.map || !view.width) return;
    view.frame = requestAnimationFrame(() => {
      view.frame = 0;
      paint();
    });
  };
  let sayDrawn;
  const drawn = new Promise((resolve) => (sayDrawn = resolve));
  const paint = () => {
    layOut(view, canvas, pen);
    draw(view, canvas, pen);
    sayDrawn();
    hear.moved(placeOf(view));
  };
  const zoomBy = (factor, at = null) => {
    const { left, top, plotWidth, plotHeight } = view.box;
    const [px, py] = at ?? centreOf(view) ?? [left + plotWidth / 2, top + plotHeight / 2];
    const zoom = clamp(view.zoom * factor, 1, view.box.mostZoom);
    view.x = ((px - left + view.x) / view.zoom) * zoom - (px - left);
    view.y = ((py - top + view.y) / view.zoom) * zoom - (py - top);
    view.zoom = zoom;
    stayInside(view);
    canvas.classList.toggle("zoomed", zoom > 1);
    redraw();
  };
  const fit = () => zoomBy(1 / view.zoom);
  const read = (cell) => {
    view.hover = cell;
    hear.read(cell ?? view.cursor);
    redraw();
  };
  const moveTo = (i, j) => {
    view.cursor = [clamp(i, 0, view.map.rows - 1), clamp(j, 0, view.map.columns - 1)];
    view.hover = null;
    reveal(view, ...view.cursor);
    if (view.cursor[0] !== view.row) pin(view.cursor[0]);
    hear.read(view.cursor);
    redraw();
  };
  const pin = (row) => {
    view.row = row;
    hear.pin(row);
    redraw();
  };

  listenToPointer(canvas, view, { zoomBy, read, pin, redraw, moveTo });
  listenToKeys(canvas, view, { zoomBy, fit, moveTo });
  const buttons = [
    makeButton("−", () => zoomBy(1 / 1.5), { "aria-label": "Zoom out" }),
    makeButton("+", () => zoomBy(1.5), { "aria-label": "Zoom in" }),
    makeButton("Fit", fit, { "aria-label": "Fit the whole map" }),
  ];
  const root = make("div", { class: "heatmap-box" }, canvas);
  onWidth(root, (width) => {
    view.width = width;
    redraw();
  });
  return {
    root,
    buttons,
    drawn, // resolves with the first picture
    // `names` of rows and columns; the view stays in place if the new map has the same size.
    show(map, { rowNames, columnNames, scale, colors, label, row }) {
      const isSame = view.map && view.map.rows === map.rows && view.map.columns === map.columns;
      Object.assign(view, { map, rowNames, columnNames, scale, colors, row, hover: null }, isSame ? {} : { zoom: 1, x: 0, y: 0, cursor: null });
      view.levels.clear();
      canvas.setAttribute("aria-label", label);
      if (view.width) paint();
      redraw();
    },
    shade(scale, colors) {
      Object.assign(view, { scale, colors });
      view.levels.clear();
      if (view.width) paint(); // at once: printing does not wait for the next frame
    },
    pinRow(row) {
      view.row = row;
      if (view.cursor) view.cursor = [row, view.cursor[1]];
      reveal(view, row, null);
      redraw();
    },
    reading: () => view.hover ?? view.cursor,
  };
}
