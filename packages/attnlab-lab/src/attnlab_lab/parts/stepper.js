// The steps of an answer: which letter is written, how likely each one was, and what the heads looked at.

import { make, makeButton, makeShare, wordProbability } from "attnlab/draw/report/elements.js";
import { makeStrip } from "attnlab/draw/report/strip.js";
import { WORDS } from "../words.js";

export function makeStepper({ lab }, state, { goTo, choose }) {
  const slider = make("input", { type: "range", min: 0, value: 0, "aria-label": WORDS.step });
  slider.addEventListener("input", () => goTo(Number(slider.value)));
  const makeStep = (sign, by, name, key) =>
    makeButton(sign, () => goTo(state.step + by), { "aria-label": name, "aria-keyshortcuts": key });
  const [back, on] = [makeStep("◀", -1, WORDS.stepBack, "["), makeStep("▶", 1, WORDS.stepOn, "]")];
  const said = make("p", { class: "said" });
  const place = make("div", {});
  const chances = make("ul", { class: "chances" });
  const root = make("div", { class: "stepper-part", "data-part": "steps" },
    make("div", { class: "bar stepping" }, back, on, slider), said, place, chances);
  let strip = null;
  let drawn = null;
  return {
    root,
    // `ask` is the answer that is shown, before the edits or after.
    show(ask) {
      const step = ask.steps[state.step];
      slider.max = ask.steps.length - 1;
      slider.value = state.step;
      slider.setAttribute("aria-valuetext", WORDS.stepName(state.step, ask));
      back.disabled = state.step === 0;
      on.disabled = state.step === ask.steps.length - 1;
      said.textContent = WORDS.stepSaid(state.step, ask, step);
      if (drawn !== ask) {
        drawn = ask;
        strip = makeStrip(traceOf(ask), choose);
        place.replaceChildren(strip.root);
      }
      const query = lab.settings.length + state.step;
      strip.show({ position: query }, state.head);
      // SEP is never chosen: an answer is made of letters.
      const letters = lab.model.vocabulary.map((token, id) => [token, step.probabilities[id]]).slice(1);
      chances.replaceChildren(...letters.map(([token, chance]) => makeChance(token, chance, step)));
    },
  };
}

// What the strip reads: tokens, and of each head the rows that write the answer.
function traceOf(ask) {
  const tokens = [...ask.steps.at(-1).tokens, ask.steps.at(-1).answer];
  const heads = ask.steps[0].heads;
  const attention = heads.map(({ name }, k) => {
    const most = ask.steps.at(-1).heads[k].rows;
    const lengths = Array(most).fill(0);
    const weights = new Float32Array(most * most);
    for (const { heads: these } of ask.steps) {
      const { weights: all, rows, columns } = these[k];
      lengths[rows - 1] = columns;
      weights.set(all.subarray((rows - 1) * columns, rows * columns), (rows - 1) * most);
    }
    return { name, lengths, weights };
  });
  const steps = ask.steps.map(({ tokens: read }) => ({ position: read.length - 1 }));
  return { tokens, input: [...ask.input], steps, attention };
}

function makeChance(token, chance, { answer, expected }) {
  const isRight = token === expected;
  const chosen = isRight ? WORDS.chosenRight : WORDS.chosenWrong;
  const other = isRight ? WORDS.expected : "";
  const look = { class: token === answer ? "is-choice" : "" };
  return makeShare(token, chance, wordProbability(chance), token === answer ? chosen : other, look);
}
