// For a class: before what an edit did is shown, the reader says how many inputs will stay right.

import { make, makeButton } from "attnlab/draw/report/elements.js";
import { countRight, WORDS } from "../words.js";
import { makeTyped } from "./controls.js";
import { writeEdits } from "./edits.js";

export function makePredict({ lab }, page) {
  const look = { inputmode: "numeric", pattern: "[0-9]{1,3}", required: true };
  const guess = makeTyped("guess", look);
  const question = make("label", { for: "guess" });
  const form = make("form", { class: "bar" }, question, guess, makeButton(WORDS.reveal, () => form.requestSubmit()));
  const verdict = make("p", { role: "status" });
  const root = make("div", { class: "predict-part", hidden: true }, form, verdict);
  let revealed = ""; // the edits whose outcome was shown

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const all = lab.now.right.length;
    const isTooMany = Number(guess.value) > all;
    verdict.textContent = isTooMany ? WORDS.badGuess(all) : "";
    verdict.hidden = !isTooMany;
    if (isTooMany) return;
    revealed = writeEdits(lab.edits);
    verdict.textContent = WORDS.guessed(Number(guess.value), countRight(lab.now), all);
    guess.value = "";
    show();
  });

  function show() {
    const edits = writeEdits(lab.edits);
    const asks = page.link.predict && lab.now !== null && !lab.isRunning && edits !== "" && edits !== revealed;
    root.hidden = !page.link.predict || (!asks && edits !== revealed) || edits === "";
    form.hidden = !asks;
    verdict.hidden = asks;
    document.body.dataset.asks = asks;
    if (lab.now) question.textContent = WORDS.guess(lab.now.right.length);
  }

  return { root, show };
}
