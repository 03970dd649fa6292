// Play: a model trains by itself; then one click cuts an edge.

import { make } from "attnlab/draw/report/elements.js";
import { WORDS } from "../words.js";
import { makeKeys } from "../parts/keys.js";
import { badgeOf, makeHeadMap, makeLegend, sourceOf } from "../parts/maps.js";
import { cutEdge, makeModelParts } from "../parts/model_parts.js";
import { onKeys } from "../parts/table_map.js";
import { makeWorth } from "../parts/worth.js";

export function makePlay(session, page) {
  const { lab } = session;
  const parts = { ...makeModelParts(session, page), worth: makeWorth(session) };
  const place = make("div", { class: "maps" });
  const maps = make("section", { class: "heads-part", "data-part": "maps", "aria-labelledby": "maps-title" },
    make("h2", { id: "maps-title" }, WORDS.heads), make("p", { class: "note" }, WORDS.headsNote), place, makeLegend());
  const root = make("div", { class: "room" },
    make("div", { class: "told-line" }, parts.answer.root, page.status),
    make("div", { class: "columns" },
      make("div", { class: "looking" }, maps, parts.edits.root, parts.worth.root, parts.model.root),
      make("div", { class: "learning" }, parts.predict.root, parts.dots.root, parts.margin.root, parts.loss.root)),
    makeDoors(), parts.code.root, makeKeys(WORDS.keys.play));
  let heads = [];

  const makeMap = (i) => {
    const cut = (cell) => cutEdge(session, page, lab.now.ask.steps.at(-1).heads[i], cell);
    return makeHeadMap({
      read: (cell) => heads.forEach((other, k) => k !== i && other.point(cell)),
      press: cut,
      key: onKeys(["x", "Enter", " "], cut),
    }, WORDS.playKeys);
  };

  return {
    root,
    show() {
      for (const part of Object.values(parts)) part.show();
      if (!lab.now) return;
      const step = lab.now.ask.steps.at(-1);
      if (heads.length !== step.heads.length) {
        heads = step.heads.map((_, i) => makeMap(i));
        place.replaceChildren(...heads.map((head) => head.root));
      }
      step.heads.forEach((head, i) => heads[i].show(sourceOf(lab, step, head), head.name, badgeOf(lab, head.name)));
    },
  };
}

function makeDoors() {
  const doors = WORDS.doorList.map(([name, title, words]) => {
    const door = name === "bench" ? make("a", { href: "#", class: "door", "data-room": "bench" }, make("h3", {}, title))
      : make("div", { class: "door" }, make("h3", {}, title));
    door.append(make("p", {}, words));
    if (WORDS.doorCommands[name]) door.append(make("code", { class: "command" }, WORDS.doorCommands[name]));
    return door;
  });
  return make("section", { class: "doors", "data-part": "doors", "aria-label": WORDS.doors }, ...doors);
}
