// The whole domain: a dot for each input, green where the answer is right. A dot is a button that makes it the input.

import { clamp, listenToArrows, make, makeButton, setVariable, wordNumber } from "attnlab/draw/report/elements.js";
import { countRight, leastMargin, WORDS } from "../words.js";

const MOST_MARGIN = 10; // where the bar ends

export function makeDots({ lab, setInput }) {
  const number = make("strong", { class: "big" });
  const state = make("span", {});
  const prompt = make("p", { class: "prompt" });
  const list = make("ul", { class: "dots", "aria-label": WORDS.dots });
  let inputs = null;
  let dots = [];

  const build = () => {
    inputs = lab.model.inputs;
    dots = inputs.map((input) => makeButton("", () => setInput(input), { class: "dot", tabindex: -1 }));
    dots.forEach((dot, i) => dot.append(make("i", { "aria-hidden": true }), make("span", {}, inputs[i])));
    list.replaceChildren(...dots.map((dot) => make("li", {}, dot)));
    list.classList.toggle("many", inputs.length > 100);
  };
  const reach = (to) => dots.forEach((dot, i) => (dot.tabIndex = i === to ? 0 : -1));
  const across = () => Math.max(1, dots.findIndex((dot) => dot.offsetTop > dots[0].offsetTop));
  listenToArrows(list, () => dots, across, reach);

  const score = make("p", { class: "score" }, number, " ", state);
  const root = make("div", { class: "dots-part", "data-part": "dots" }, score, prompt, list, make("p", { class: "note" }, WORDS.dotKinds));
  return {
    root,
    show() {
      prompt.textContent = WORDS.prompt(lab);
      if (!lab.now) return;
      if (inputs !== lab.model.inputs) build();
      const { right, margins, answers } = lab.now;
      const isAll = countRight(lab.now) === right.length;
      number.textContent = `${countRight(lab.now)} of ${right.length}`;
      state.textContent = WORDS.stateOf(lab);
      root.classList.toggle("all", isAll);
      root.classList.toggle("rests", !lab.isRunning);
      dots.forEach((dot, i) => {
        dot.classList.toggle("right", Boolean(right[i]));
        const words = WORDS.dot(inputs[i], right[i], answers[i], margins[i]);
        dot.setAttribute("aria-label", words);
        dot.title = words;
        dot.setAttribute("aria-pressed", inputs[i] === lab.input);
      });
      if (!list.contains(document.activeElement)) reach(inputs.indexOf(lab.input));
    },
  };
}

// The smallest margin of all inputs, as a bar on a scale that does not change; a thin mark where it was without edits.
export function makeMargin({ lab }) {
  const value = make("output", { class: "margin-value" });
  const bar = make("i", {});
  const was = make("b", { hidden: true });
  const root = make("div", { class: "margin-part", "data-part": "margin" },
    make("p", { class: "margin-line" }, make("span", { class: "label" }, WORDS.margin), value),
    make("div", { class: "margin-track", "aria-hidden": true }, bar, was),
    make("p", { class: "note" }, WORDS.marginNote));
  return {
    root,
    show() {
      if (!lab.now) return;
      const { index, margin } = leastMargin(lab.now);
      const before = leastMargin(lab.before).margin;
      const words = [wordNumber(Number(margin.toFixed(2))), WORDS.marginOf(lab.model.inputs[index])];
      if (lab.edits.length) words.push(`(${WORDS.marginBefore(Number(before.toFixed(2)))})`);
      value.textContent = words.join(" ");
      root.classList.toggle("below", margin < 0);
      setVariable(bar, "--w", Math.abs(clamp(margin / MOST_MARGIN, -1, 1)));
      was.hidden = !lab.edits.length;
      setVariable(was, "--at", clamp(before / MOST_MARGIN, -1, 1));
    },
  };
}
