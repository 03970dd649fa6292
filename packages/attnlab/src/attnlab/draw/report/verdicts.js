// One cell per input: the output, whether it is right, and a link to its trace.

import { clamp, count, isNumber, make, makeButton, setVariable, wordProbability, wordTokens } from "./elements.js";

export function mountVerdicts(stage, section, traces) {
  const items = section.items;
  if (items.length === 0) {
    stage.append(make("p", { class: "note" }, "No input was evaluated."));
    return;
  }
  const wrong = items.filter((item) => !item.correct).length;
  // Only a list that scrolls is a tab stop.
  const isLong = items.length > 60;
  const list = make("ul", { class: isLong ? "cells long" : "cells", tabindex: isLong ? 0 : null, "aria-label": section.title });
  setVariable(list, "--cell-width", `${widthOfCells(items)}rem`);
  const cells = items.map((item) => makeVerdict(item, traces));
  list.append(...cells);

  const head = make("div", { class: "bar verdict-head" }, make("p", { class: "note" }, wordVerdicts(items, wrong)));
  if (wrong > 0) {
    const filter = makeButton(`Only wrong (${wrong})`, () => {
      const isOn = filter.getAttribute("aria-pressed") !== "true";
      filter.setAttribute("aria-pressed", isOn);
      cells.forEach((cell, i) => { cell.hidden = isOn && items[i].correct; });
    }, { "aria-pressed": false });
    head.append(filter);
  }
  stage.append(head, list);
}

// Wide enough for the longest "input → output", in rem, up to a limit.
function widthOfCells(items) {
  const letters = items.reduce(
    (most, item) => Math.max(most, wordTokens(item.input).length + wordTokens(item.output).length), 0);
  return clamp(4 + 0.6 * letters, 8.5, 22);
}

function wordVerdicts(items, wrong) {
  const rated = items.filter((item) => isNumber(item.confidence));
  const right = (items.length - wrong).toLocaleString("en-GB");
  const total = `Shown here: ${count(items.length, "input")}, ${right} of them right`;
  if (rated.length === 0) return `${total}.`;
  const least = rated.reduce((low, item) => (item.confidence < low.confidence ? item : low));
  return `${total}. Least confident: ${wordTokens(least.input)}, ${wordProbability(least.confidence)}.`;
}

function makeVerdict(item, traces) {
  const word = item.correct ? "right" : "wrong";
  const content = [
    make("span", { class: "word" }, wordTokens(item.input), make("span", { class: "arrow" }, "→"), wordTokens(item.output)),
    make("span", { class: "mark", role: "img", "aria-label": word, title: word }, item.correct ? "✓" : "✗"),
  ];
  if (!item.correct) content.push(make("span", { class: "expected" }, "expected ", make("span", { class: "word" }, wordTokens(item.expected))));
  if (isNumber(item.confidence)) content.push(make("span", { class: "sure" }, `confidence ${wordProbability(item.confidence)}`));
  const attributes = { class: item.correct ? "cell" : "cell wrong" };
  if (!traces.has(item.input)) return make("li", {}, make("div", attributes, ...content));
  const button = makeButton("", () => traces.open(item.input), { ...attributes, title: "Open the trace of this input" });
  button.replaceChildren(...content);
  return make("li", {}, button);
}
