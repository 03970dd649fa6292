// All heads at one glance: a picture for each, as radio buttons.

import { listenToArrows, make, makeButton } from "attnlab/draw/report/elements.js";
import { pictureOf } from "attnlab/draw/map/paint.js";
import { WORDS } from "../words.js";

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
        buttons[i].replaceChildren(pictureOf(source), name, badge);
        buttons[i].setAttribute("aria-checked", i === chosen);
        buttons[i].tabIndex = i === chosen ? 0 : -1;
      });
    },
  };
}
