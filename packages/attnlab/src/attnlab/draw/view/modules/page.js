// The offline page: the view, with the data inside the page as its source. In a notebook it takes edits, too, and
// another input.

import { makeChooser } from "../../report/chooser.js";
import { make } from "../../report/elements.js";
import { mountTheme } from "../../report/theme.js";
import { makeAsking } from "./asking.js";
import { makeEditing } from "./editing.js";
import { listenToNotebook } from "./notebook.js";
import { mount } from "./view.js";

mountTheme();
const place = document.getElementById("view");
const home = JSON.parse(document.getElementById("maps").textContent);
mount(place, home).then((view) => listenToNotebook(({ hasModel, prompt }, change) => [
  makeEditing({ view, home }, hasModel, change), makeHeader(), ...(prompt ? [makeField(prompt, change)] : []),
])).catch((error) => {
  place.replaceChildren(make("p", { class: "failures", role: "alert" }, `The maps cannot be shown: ${error.message}`));
  place.dataset.ready = "failed";
});

// Below the title stand the facts of the input that is shown.
function makeHeader() {
  const list = document.querySelector(".top .facts");
  const first = [...list.children];
  const makeFact = ([name, text, kind]) => make("div", { class: kind || null }, make("dt", {}, name), make("dd", {}, text));
  return {
    take: (_, result) => result && list.replaceChildren(...(result.facts?.map(makeFact) ?? first)),
  };
}

function makeField(prompt, change) {
  const chooser = makeChooser([], { label: "Input", noun: "input" }, () => {});
  place.before(chooser.root);
  return makeAsking(chooser, prompt, change, () => {});
}
