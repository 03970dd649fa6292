// The input, typed by the reader, and the model's answer: each letter right or wrong, before edits and after.

import { make } from "attnlab/draw/report/elements.js";
import { WORDS } from "../words.js";
import { makeTyped } from "./controls.js";
import { firstInput } from "./link.js";

export function makeAnswer({ lab, setInput }) {
  const field = makeTyped("input", { class: "typed", autocapitalize: "off", maxlength: 24 });
  const message = make("p", { class: "message refused", id: "input-message", role: "status" });
  const answer = make("output", { class: "answer", for: "input" });
  field.setAttribute("aria-describedby", "input-message");
  const refusal = () =>
    WORDS.badInput(field.value, lab.shape.alphabet, lab.settings.length, firstInput(lab.settings));
  const read = () => field.value.toLowerCase().replace(/[\s,]/g, "");
  field.addEventListener("input", () => {
    const { shape, settings } = lab;
    const typed = read();
    const fits = shape.isInput(typed);
    // Who is still typing is not corrected.
    const isOnTheWay = typed.length < settings.length && [...typed].every((letter) => shape.alphabet.includes(letter));
    field.setAttribute("aria-invalid", !fits && !isOnTheWay);
    root.classList.toggle("unanswered", !fits);
    message.textContent = fits || isOnTheWay ? "" : refusal();
    if (fits) setInput(typed);
  });
  field.addEventListener("change", () => {
    if (lab.shape.isInput(read())) field.value = read();
    else message.textContent = refusal();
  });
  const makeArrow = () => make("span", { class: "becomes", "aria-hidden": true }, "→");
  const root = make("div", { class: "answer-part", "data-part": "input" },
    make("div", { class: "answer-line" }, make("label", { for: "input" }, WORDS.input), field,
      makeArrow(), answer),
    message);
  return {
    root,
    show() {
      field.size = Math.max(lab.settings.length, 3);
      if (document.activeElement !== field) {
        field.value = lab.input;
        field.setAttribute("aria-invalid", false);
        root.classList.remove("unanswered");
        message.textContent = "";
      }
      if (!lab.now) return;
      const { now, before } = lab;
      const parts = [makeLetters(now.ask)];
      if (lab.edits.length) {
        parts.unshift(makeLetters(before.ask, "before"), makeArrow());
      }
      answer.replaceChildren(...parts);
    },
  };
}

function makeLetters({ answer, expected, isRight }, state = "") {
  const letters = [...answer].map((letter, i) =>
    make("span", { class: letter === expected[i] ? "letter" : "letter wrong" }, letter));
  const name = [answer, WORDS.verdict(isRight), ...(state ? [WORDS.asBefore] : [])].join(", ");
  return make("span", { class: `letters ${isRight ? "right" : "wrong"} ${state}`, role: "img", "aria-label": name },
    ...letters, make("span", { class: "mark" }, isRight ? "✓" : "✗"));
}
