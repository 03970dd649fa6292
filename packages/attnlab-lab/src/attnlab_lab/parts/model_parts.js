// What Play and Bench have in common: the parts around the maps, and a click that cuts.

import { WORDS } from "../words.js";
import { makeAnswer } from "./answer.js";
import { makeCode } from "./code.js";
import { makeDots, makeMargin } from "./dots.js";
import { findEdit, headOf, isAllowed } from "./edits.js";
import { makeEditsList } from "./edits_list.js";
import { makeLoss } from "./loss.js";
import { makeModel } from "./model.js";
import { makePredict } from "./predict.js";

export function makeModelParts(session, page) {
  return {
    answer: makeAnswer(session), predict: makePredict(session, page), dots: makeDots(session),
    margin: makeMargin(session), model: makeModel(session, page),
    loss: makeLoss(session, page.again), edits: makeEditsList(session), code: makeCode(session),
  };
}

// Cuts an edge of a head as it was at the last step, or mends it.
export function cutEdge(session, page, head, [query, key]) {
  const edit = { kind: "cut", ...headOf(head.name), query, key };
  const there = findEdit(session.lab.edits, edit);
  if (!there && !isAllowed(head, query, key)) page.say(WORDS.nothingToCut);
  else session.toggle(edit, there);
}
