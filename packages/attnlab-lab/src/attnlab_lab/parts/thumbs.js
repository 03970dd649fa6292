// All heads at one glance: a picture for each, as radio buttons.

import { make, makeButton } from "attnlab/draw/report/elements.js";
import { makePicture } from "attnlab/draw/map/paint.js";
import { pixelOf } from "attnlab/draw/map/shades.js";
import { WORDS } from "../words.js";
import { listenToArrows } from "./controls.js";

export function makeThumbs(choose) {
  const root = make("div", { class: "thumbs", role: "radiogroup", "aria-label": WORDS.allHeads });
  let buttons = [];
  listenToArrows(root, () => buttons, () => 1, choose);
  return {
    root,
    // `sources` as of the maps, with a name and a badge each.
    show(sources, chosen) {
      if (buttons.length !== sources.length) {
        buttons = sources.map((_, i) => makeButton("", () => choose(i), { class: "thumb", role: "radio" }));
        root.replaceChildren(...buttons);
      }
      sources.forEach((source, i) => {
        const [name, badge] = [make("span", {}, source.name), make("span", { class: "badge" }, source.badge)];
        buttons[i].replaceChildren(pictureOfHead(source), name, badge);
        buttons[i].setAttribute("aria-checked", i === chosen);
        buttons[i].tabIndex = i === chosen ? 0 : -1;
      });
    },
  };
}

function pictureOfHead({ values, rows, columns, scale, colors }) {
  const pixels = new Uint32Array(rows * columns);
  values.forEach((value, k) => {
    if (!Number.isNaN(value)) pixels[k] = pixelOf(value, scale, colors);
  });
  const picture = makePicture(pixels, columns, rows);
  picture.setAttribute("aria-hidden", "true");
  return picture;
}
