// Maps side by side. A cell that is read in one is read in all of them, and each can be enlarged.

import { make, makeButton } from "./elements.js";
import { mountMap } from "../map/map.js";
import { followColors } from "../map/shades.js";

export function makeSideBySide(place) {
  let colors = null;
  let maps = [];
  followColors(place, (found) => {
    colors = found;
    maps.forEach((map) => map.show({ colors }));
  });
  return {
    follow: (row) => maps.forEach((map) => map.follow(row)),
    // `figures` are { heading, name, source, below }: a node, its words, what to draw, and what follows the map.
    show(figures, pin) {
      maps = [];
      place.replaceChildren();
      for (const figure of figures) maps.push(addMap(place, { ...figure, source: { ...figure.source, colors } }, {
        pin,
        read: (cell, own) => maps.filter((map) => map !== own).forEach((map) => map.point(cell)),
      }));
    },
  };
}

function addMap(place, { heading, name, source, below = "" }, { pin, read }) {
  const enlarge = makeButton("Enlarge", () => {
    const isWide = root.classList.toggle("wide");
    enlarge.setAttribute("aria-pressed", isWide);
    map.show({ isEnlarged: isWide });
  }, { "aria-pressed": false, "aria-label": `Enlarge ${name}` });
  const box = make("div");
  const root = make("figure", { class: "map" }, make("div", { class: "map-head" }, heading, enlarge), box, below);
  place.append(root);
  const map = mountMap(box, source, {
    pin,
    read: (cell) => read(cell, map),
    // Where all numbers are legible, there is nothing to enlarge.
    moved: ({ isLegible }) => { enlarge.hidden = isLegible && !root.classList.contains("wide"); },
  });
  return map;
}
