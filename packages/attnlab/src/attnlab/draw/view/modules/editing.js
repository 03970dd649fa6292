// The maps of an answer with the tools that edit the model, and the answer in words.

import { make, wordProbability } from "../../report/elements.js";
import { makeTools } from "./tools.js";

const NO_MODEL = "No model is behind these maps: the edits are kept for Python, in shown.edits.";
const WAITING = "The model answers …";
const MOST_OTHERS = 3; // candidates beside the choice

// The view of view.js shows the maps `home`, which the page holds. In a page that holds none, mountView(maps) mounts the
// view of the first ones that the kernel sends.
export function makeEditing({ view = null, home = null, mountView = null }, hasModel, change) {
  let tools = null;
  let shown = home;
  let turn = Promise.resolve(); // maps are shown one after the other
  let latest = null;

  const equip = () => {
    tools = makeTools(view.head, (edits) => {
      view.redraw();
      change({ edits });
    });
    return view.use(tools);
  };
  const refresh = () => {
    if (!tools || !latest) return;
    tools.take(latest.edits);
    view.redraw();
    tools.tell(...wordsOf(latest, hasModel));
  };
  const show = async (maps) => {
    if (maps !== shown) return;
    if (view) await view.open(maps);
    else {
      view = await mountView(maps);
      await equip();
    }
    refresh();
  };
  const open = (maps) => {
    if (maps === shown) return;
    shown = maps;
    turn = turn.then(() => show(maps));
  };
  if (view) equip();
  return {
    take({ edits }, result) {
      latest = { edits, result };
      refresh();
      if (result?.maps) open(result.maps);
      else if (result && home) open(home);
    },
  };
}

function wordsOf({ edits, result }, hasModel) {
  if (!result) return hasModel ? [make("p", { class: "note" }, WAITING)] : [];
  const { error, steps = [], certificate } = result;
  if (error) return [make("p", { class: "failures", role: "alert" }, error)];
  if (!hasModel) return edits.length ? [make("p", { class: "note" }, NO_MODEL)] : [];
  const details = edits.length
    ? makeDetails("Step by step, and what the edits did", makeComparison(steps), make("pre", {}, certificate))
    : makeDetails("Step by step", makeSteps(steps));
  const [before, after] = ["before", "after"].map((side) => steps.map((step) => step[side].choice).filter(Boolean).join(" "));
  const change = before === after ? `Answer: ${before}, as before` : `Answer: ${before} → ${after}`;
  const words = make("p", {}, edits.length ? change : `Answer: ${before}`);
  if (steps.length) return [words, details];
  return edits.length ? [details] : [];
}

function makeDetails(title, ...children) {
  return make("details", {}, make("summary", {}, title), ...children);
}

function makeComparison(steps) {
  const rows = steps.map(({ before, after }, i) => makeLine(i, before.choice !== after.choice, ...cellsOf(before), ...cellsOf(after)));
  return makeStepTable(["Step", "Before", "Probability", "After", "Probability"], rows);
}

// Each choice, and the likeliest other candidates.
function makeSteps(steps) {
  const rows = steps.map(({ before }, i) => {
    const others = before.others.slice(0, MOST_OTHERS).map(([token, share]) => `${token} ${wordProbability(share)}`);
    return makeLine(i, false, ...cellsOf(before), make("td", {}, others.join(", ")));
  });
  return makeStepTable(["Step", "Choice", "Probability", "Then"], rows);
}

function cellsOf({ choice, probability }) {
  return [make("td", {}, choice), make("td", { class: "figure" }, probability === null ? "" : wordProbability(probability))];
}

function makeLine(i, isOther, ...cells) {
  return make("tr", { class: isOther ? "failed" : null }, make("td", {}, String(i + 1)), ...cells);
}

function makeStepTable(columns, rows) {
  const names = columns.map((word) => make("th", { scope: "col" }, word));
  return make("table", {}, make("thead", {}, make("tr", {}, ...names)), make("tbody", {}, ...rows));
}
