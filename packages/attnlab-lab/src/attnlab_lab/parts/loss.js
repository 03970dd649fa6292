// The loss, step by step, above the least that is possible.

import { make, makeButton, makeSvg } from "attnlab/draw/report/elements.js";
import { WORDS } from "../words.js";
import { CHART_WIDTH, heightOf, makeLineChart, writeLine } from "./line_chart.js";

export function makeLoss({ lab, train, pause }, again) {
  const line = makeSvg("path", { class: "series" });
  const floor = makeSvg("line", { class: "level", x1: 0, x2: CHART_WIDTH });
  const chart = makeLineChart(WORDS.loss, floor, line);
  const run = makeButton(WORDS.pause, () => (lab.isRunning ? pause() : train()), { class: "run" });
  const other = makeButton("", again);
  const floorName = make("span", { class: "floor-name" }, WORDS.floor);
  chart.box.append(floorName);
  const root = make("div", { class: "loss-part", "data-part": "loss" },
    ...chart.nodes, make("div", { class: "bar" }, run, other));
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
        chart.value.textContent = "";
        line.setAttribute("d", "");
        return;
      }
      if (drawn === last) return; // as it was
      drawn = last;
      const [step, loss] = last;
      chart.value.textContent = WORDS.lossNow(loss, step, model.steps);
      chart.svg.setAttribute("aria-label", WORDS.lossLabel(loss, step, model.steps));
      const top = losses.reduce((most, [, each]) => Math.max(most, each), 0) * 1.05;
      line.setAttribute("d", writeLine(losses, model.steps, top));
      const least = leastLoss(lab.settings);
      for (const end of ["y1", "y2"]) floor.setAttribute(end, heightOf(least, top));
      floorName.style.setProperty("--at", least / top);
    },
  };
}

// The letters of an input after the first cannot be known beforehand: each costs the logarithm of the alphabet, spread
// over all tokens of a row but the first.
function leastLoss({ letters, length }) {
  return ((length - 1) * Math.log(letters)) / (2 * length);
}
