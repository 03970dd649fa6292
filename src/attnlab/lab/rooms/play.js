// Play: a model trains by itself; then one click cuts an edge.

import { make } from "../../draw/report/elements.js";
import { WORDS } from "../words.js";
import { makeAnswer } from "../parts/answer.js";
import { makeCode } from "../parts/code.js";
import { makeDots, makeMargin } from "../parts/dots.js";
import { findEdit, headOf } from "../parts/edits.js";
import { makeEditsList } from "../parts/edits_list.js";
import { makeKeys } from "../parts/keys.js";
import { makeLoss } from "../parts/loss.js";
import { badgeOf, makeHeadMap, makeLegend, sourceOf } from "../parts/maps.js";
import { makeModel } from "../parts/model.js";
import { makePredict } from "../parts/predict.js";
import { makeWorth } from "../parts/worth.js";

export function makePlay(session, page) {
  const { lab } = session;
  const parts = {
    answer: makeAnswer(session), predict: makePredict(session, page), dots: makeDots(session), margin: makeMargin(session),
    model: makeModel(session, page), loss: makeLoss(session, page.again), edits: makeEditsList(session), worth: makeWorth(session),
    code: makeCode(session),
  };
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

  const cut = (name, [query, key]) => {
    const edit = { kind: "cut", ...headOf(name), query, key };
    const there = findEdit(lab.edits, edit);
    const { mask, columns } = lab.now.ask.steps.at(-1).heads.find((head) => head.name === name);
    if (!there && !mask[query * columns + key]) page.say(WORDS.nothingToCut);
    else session.toggle(edit, there);
  };
  const makeMap = (name, i) => makeHeadMap({
    read: (cell) => heads.forEach((other, k) => k !== i && other.point(cell)),
    press: (cell) => cut(name, cell),
    key(event, cell) {
      if (!cell || !["x", "Enter", " "].includes(event.key)) return false;
      cut(name, cell);
      return true;
    },
  }, WORDS.playKeys);

  return {
    root,
    show() {
      for (const part of Object.values(parts)) part.show();
      if (!lab.now) return;
      const step = lab.now.ask.steps.at(-1);
      if (heads.length !== step.heads.length) {
        heads = step.heads.map(({ name }, i) => makeMap(name, i));
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
