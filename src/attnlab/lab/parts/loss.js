// The loss, step by step, above the least that is possible.

import { make, makeButton, makeSvg } from "../../draw/report/elements.js";
import { WORDS } from "../words.js";

const [WIDE, HIGH] = [360, 84];

export function makeLoss({ lab, train, pause }, again) {
  const value = make("output", {});
  const line = makeSvg("path", { class: "series" });
  const floor = makeSvg("line", { class: "level", x1: 0, x2: WIDE });
  const box = { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none" };
  const svg = makeSvg("svg", { class: "loss", role: "img", ...box },
    makeSvg("line", { class: "axis", x1: 0, x2: WIDE, y1: HIGH - 0.5, y2: HIGH - 0.5 }), floor, line);
  const run = makeButton(WORDS.pause, () => (lab.isRunning ? pause() : train()), { class: "run" });
  const other = makeButton("", again);
  const floorName = make("span", { class: "floor-name" }, WORDS.floor);
  const root = make("div", { class: "loss-part", "data-part": "loss" },
    make("p", { class: "margin-line" }, make("span", { class: "label" }, WORDS.loss), value),
    make("div", { class: "loss-box" }, svg, floorName),
    make("div", { class: "bar" }, run, other));
  let drawn = null;
  return {
    root,
    show() {
      root.classList.toggle("over", Boolean(lab.settings.file));
      other.textContent = WORDS.again(lab.settings.seed + 1);
      run.textContent = lab.isRunning ? WORDS.pause : WORDS.goOn;
      run.hidden = lab.isDone;
      run.disabled = !lab.model;
      const { losses, model } = lab;
      const last = losses.at(-1);
      floorName.hidden = !last;
      floor.setAttribute("visibility", last ? "visible" : "hidden");
      if (!last) {
        drawn = null;
        value.textContent = "";
        line.setAttribute("d", "");
        return;
      }
      if (drawn === last) return; // as it was
      drawn = last;
      const [step, loss] = last;
      value.textContent = WORDS.lossNow(loss, step, model.steps);
      svg.setAttribute("aria-label", WORDS.lossLabel(loss, step, model.steps));
      const top = losses.reduce((most, [, each]) => Math.max(most, each), 0) * 1.05;
      const y = (each) => (HIGH - (each / top) * HIGH).toFixed(1);
      const x = (at) => ((at / model.steps) * WIDE).toFixed(1);
      line.setAttribute("d", `M${losses.map(([at, each]) => `${x(at)} ${y(each)}`).join("L")}`);
      const least = leastLoss(lab.settings);
      for (const end of ["y1", "y2"]) floor.setAttribute(end, y(least));
      floorName.style.setProperty("--at", least / top);
    },
  };
}

// The letters of an input after the first cannot be known beforehand: each costs the logarithm of the alphabet, spread
// over all tokens of a row but the first.
function leastLoss({ letters, length }) {
  return ((length - 1) * Math.log(letters)) / (2 * length);
}
