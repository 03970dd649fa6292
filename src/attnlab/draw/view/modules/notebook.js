// The page in the frame of a notebook. If the widget of widget.js answers, the map gets its tools, each change of the
// edits is told to it, and what the kernel makes of them is shown. Without a kernel the page is as it is in a file.

import { make, wordProbability } from "../../report/elements.js";
import { makeTools } from "./tools.js";

const NO_MODEL = "No model is behind these maps: the edits are kept for Python, in shown.edits.";
const WAITING = "The model answers …";
const COLUMNS = ["Step", "Before", "Probability", "After", "Probability"];

// home: the source that the page holds, which is shown where nothing is edited.
export function listenToNotebook(view, home) {
  const { name } = window;
  if (window.parent === window || !name.startsWith("attnlab-")) return;
  const tell = (message) => window.parent.postMessage({ attnlab: name, ...message }, "*");
  let tools = null;
  let hasModel = false;
  let shown = home;
  let turn = Promise.resolve(); // answers are shown one after the other

  const open = (source) => {
    if (source === shown) return;
    shown = source;
    turn = turn.then(() => source === shown && view.open(source));
  };
  const wait = (edits) => tools.tell(...(hasModel && edits.length ? [make("p", { class: "note" }, WAITING)] : []));
  const hear = (edits) => {
    view.redraw();
    tell({ edits });
    wait(edits);
    if (!edits.length) open(home);
  };
  const take = ({ edits, result }) => {
    tools.take(edits);
    view.redraw();
    if (!tools.isAt(result.edits)) return wait(edits); // it answers earlier ones
    tools.tell(...wordsOf(result, hasModel));
    if (result.manifest) open({ manifest: result.manifest, tile: async (tile) => result.tiles[tile] });
    else if (!edits.length) open(home);
  };
  window.addEventListener("message", ({ source, data }) => {
    if (source !== window.parent || data?.attnlab !== name) return;
    ({ hasModel } = data);
    if (!tools) {
      tools = makeTools(view.head, hear);
      view.use(tools);
    }
    take(data);
  });
  tell({});
}

// The answer before and after, step by step, and the certificate; or why there is none.
function wordsOf({ edits, error, steps = [], certificate }, hasModel) {
  if (error) return [make("p", { class: "failures", role: "alert" }, error)];
  if (!edits.length) return [];
  if (!hasModel) return [make("p", { class: "note" }, NO_MODEL)];
  const cellsOf = ({ choice, probability }) => [
    make("td", {}, choice), make("td", { class: "figure" }, probability === null ? "" : wordProbability(probability)),
  ];
  const rows = steps.map(({ before, after }, i) => make("tr", { class: before.choice === after.choice ? null : "failed" },
    make("td", {}, String(i + 1)), ...cellsOf(before), ...cellsOf(after)));
  const names = COLUMNS.map((word) => make("th", { scope: "col" }, word));
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...names)), make("tbody", {}, ...rows));
  const [before, after] = ["before", "after"].map((side) => steps.map((step) => step[side].choice).filter(Boolean).join(" "));
  const words = before === after ? `Answer: ${before}, as before` : `Answer: ${before} → ${after}`;
  const summary = make("summary", {}, "Step by step, and what the edits did");
  const details = make("details", {}, summary, table, make("pre", {}, certificate));
  return rows.length ? [make("p", {}, words), details] : [details];
}
