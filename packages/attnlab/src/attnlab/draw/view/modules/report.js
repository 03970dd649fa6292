// The report of a run or a population, or the card of a model, in a notebook. While a kernel answers, its living picture
// takes any input, the maps below it take edits, and the seeds of a population stand before it. Without a kernel it is
// the page of report/page.js.

import { make, wordLabel, wordProbability } from "../../report/elements.js";
import { mountSections } from "../../report/sections.js";
import { foldTables } from "../../report/tables.js";
import { mountTheme } from "../../report/theme.js";
import { makeTrace, openTrace } from "../../report/trace.js";
import { makeAsking } from "./asking.js";
import { makeEditing } from "./editing.js";
import { listenToNotebook } from "./notebook.js";
import { makeSeeds } from "./seeds.js";
import { mount } from "./view.js";

foldTables();
mountTheme();
const [recorded = null] = mountSections().values();

listenToNotebook(({ prompt, seeds }, change) => {
  const parts = [];
  if (seeds.members) {
    const place = makeSection("Choose a seed", "The weights of each seed’s heads, the mean over the same inputs. Letters are groups of like heads. Python knows the choice as shown.seed.");
    parts.push(makeSeeds(place, seeds, change));
  }
  if (prompt) parts.push(...makeLivePicture(recorded, seeds.members ? "Ask the chosen seed" : "Ask the model", prompt, change));
  return parts;
});

// The picture that the report has, or one of its own under a title.
function makeLivePicture(found, title, prompt, change) {
  const picture = found ?? makeTrace(makeSection(title, "Python answers what is typed here, and knows it as shown.input."), []);
  const place = make("div");
  const edits = make("details", { class: "live-edits", hidden: true }, make("summary", {}, "Look closer, and edit the model"), place);
  picture.stage.after(edits); // its arrow keys step no trace
  const mountView = (maps) => {
    edits.hidden = false;
    return mount(place, maps);
  };
  picture.chosen = (input) => change({ input });
  const draw = (result, isOther) => {
    if (!result.steps && (found || result.error)) return; // what is there stays
    if (result.steps && edits.hidden) edits.open = !result.trace;
    drawAnswer(picture, result, isOther ? 0 : picture.step);
  };
  return [makeAsking(picture.chooser, prompt, change, draw), makeEditing({ mountView }, true, change)];
}

// An answer without a query for each step, such as a class, is a sentence; its maps are below.
function drawAnswer(picture, { trace, steps }, step) {
  for (const part of [picture.stepper, picture.looks, picture.parts]) part.hidden = !trace;
  if (trace) openTrace(picture, trace, step);
  else picture.said.replaceChildren(...(steps ? sayAnswer(steps.map(({ after }) => after)) : []));
}

function sayAnswer(steps) {
  if (steps.length === 0) return ["The model chooses nothing; its maps are below."];
  const choices = steps.map(({ choice }) => wordLabel(choice)).join(" ");
  const words = ["The model answers ", make("span", { class: "word chosen" }, choices)];
  const [{ probability, others }] = steps;
  if (steps.length > 1 || probability === null) return [...words, "."];
  const likely = others.map(([token, share]) => `${token} ${wordProbability(share)}`).join(", ");
  return [...words, ` with probability ${wordProbability(probability)}`, likely && `; then come ${likely}`, "."];
}

// A section of its own before all others; returns the place of its content.
function makeSection(title, caption) {
  const content = document.getElementById("content");
  const stage = make("div", { class: "stage" });
  const section = make("section", { class: "live-section" }, make("h2", {}, title), make("p", { class: "caption" }, caption), stage);
  const first = content.querySelector("section:not(.live-section)");
  content.insertBefore(section, first);
  return stage;
}
