// Which head did the work? Each is knocked out alone, and a bar says how many inputs stay right.

import { make, makeButton } from "attnlab/draw/report/elements.js";
import { WORDS } from "../words.js";
import { makeTrack } from "./bars.js";

export function makeWorth({ lab, weigh }) {
  const button = makeButton(WORDS.worthButton, weigh);
  const list = make("ul", { class: "worth" });
  const root = make("div", { class: "worth-part", "data-part": "heads" },
    make("h2", {}, WORDS.worth), make("p", { class: "note" }, WORDS.worthNote), button, list);
  return {
    root,
    show() {
      button.disabled = !lab.now || lab.isRunning;
      const all = lab.now?.right.length;
      list.replaceChildren(...(lab.worth ?? []).map(({ name, right }) => make("li", {},
        make("span", {}, WORDS.worthRow(name)),
        makeTrack(right / all),
        make("span", { class: "figure" }, `${right} of ${all}`))));
    },
  };
}
