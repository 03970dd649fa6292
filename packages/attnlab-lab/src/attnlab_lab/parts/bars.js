// Bars beside their numbers, from 0 to 1 or to both sides of 0.

import { clamp, make, setVariable, wordNumber, wordProbability } from "attnlab/draw/report/elements.js";

const LONGEST = 3; // where a bar to one side of zero ends

// Numbers from 0 to 1 as bars: rows of a name, a number, its words and a class.
export function makeBars(title = null) {
  const [heading, list] = [make("h3", {}, title ?? ""), make("ul", { class: "bars" })];
  return {
    root: make("div", { class: "bars-part" }, ...(title === null ? [] : [heading]), list),
    show(rows, words = title) {
      heading.textContent = words;
      list.replaceChildren(...rows.map(([name, value, wordOf, kind = ""]) => {
        const look = { class: Number.isNaN(value) ? `${kind} nan` : kind };
        const figure = make("span", { class: "figure" }, wordOf);
        return make("li", look, make("span", {}, name), makeTrack(value || 0), figure);
      }));
    },
  };
}

// A bar of so much of its track.
export function makeTrack(share, look = {}) {
  const bar = setVariable(make("i", look), "--w", share);
  return make("span", { class: "track", "aria-hidden": true }, bar);
}

// A bar to the left or to the right of zero, which ends at `longest`.
export function makeSigned(value, longest = LONGEST, words = value.toFixed(2).replace("-", "−")) {
  const share = clamp(Math.abs(value) / longest, 0, 1);
  const track = makeTrack(share, { class: value < 0 ? "minus" : "" });
  const figure = make("span", { class: "figure" }, words);
  return make("span", { class: "signed" }, track, figure);
}

// Three decimals; what is less is written as a power of ten, for it is not nothing.
export function wordShare(value) {
  if (Number.isNaN(value)) return "NaN";
  return value < 5e-4 ? wordNumber(value) : wordProbability(value);
}
