// The learned twin: a head of the same shape learns the same task in the engine, and stands beside the one set by hand.

import { make, makeButton, wordBriefly, wordNumber, wordTrimmed } from "attnlab/draw/report/elements.js";
import { makeScale } from "attnlab/draw/map/shades.js";
import { checkHead, prepareHead, readInput } from "../engine/vectors.js";
import { DESIGN } from "../words_design.js";
import { makeChoice } from "./controls.js";
import { makeHeadings, makeRow, nameAxes, namePair, nameTokens } from "./one_input.js";
import { untilSeen } from "./session.js";
import { makeTableMap } from "./table_map.js";

const PANELS = ["scores", "attention", "Km", "Qm", "Vm"];
const [TWIN_SLICE, CALM_TWIN_SLICE] = [30, 450]; // milliseconds of training between two pictures

// `state` is the room's: { problem, head, found, seed }.
export function makeTwin(call, state, changed) {
  const twin = { key: "", head: null, told: null, panel: "scores", colors: null, shown: 0 };
  const progress = make("output", {});
  const again = makeButton("", () => {
    state.seed += 1;
    changed();
  });
  const table = make("table", { class: "twins" });
  const panels = makeChoice(DESIGN.panels, PANELS, (name) => {
    twin.panel = name;
    draw();
  });
  const note = make("p", { class: "note" });
  const titles = [DESIGN.hand, DESIGN.learned];
  const maps = titles.map((title) => makeTableMap(title));
  const root = make("section", { class: "twin-part", "aria-labelledby": "twin-title" },
    make("h2", { id: "twin-title" }, DESIGN.twin), make("p", { class: "note" }, DESIGN.twinNote),
    make("div", { class: "bar" }, again, progress), table,
    panels.root, note, make("div", { class: "maps" }, ...maps.map(({ root: each }) => each)));

  async function learn(rule, seed) {
    const mine = twin.key;
    const slice = matchMedia("(prefers-reduced-motion: reduce)").matches ? CALM_TWIN_SLICE : TWIN_SLICE;
    const { id } = await call("createHead", { rule, seed });
    while (twin.key === mine && !twin.told?.isDone && root.isConnected) {
      await untilSeen();
      const told = await call("advance", id, slice);
      const head = await call("readHead", id);
      if (twin.key !== mine || !root.isConnected) break;
      Object.assign(twin, { told, head });
      draw();
    }
    if (twin.key === mine && !twin.told?.isDone) twin.key = ""; // the room was left: it begins anew
    call("drop", id);
  }

  function draw() {
    const { told, head, panel, shown } = twin;
    const { task, tolerance } = state.problem;
    again.textContent = DESIGN.again(state.seed + 1);
    progress.textContent = told ? DESIGN.twinState(told.step, told.steps, told.loss) : "";
    panels.show(panel);
    note.textContent = DESIGN.panelNotes[panel];
    if (!head) return;
    if (twin.judged !== head || twin.tolerance !== tolerance) {
      Object.assign(twin, { judged: head, tolerance, words: wordScores(task, checkHead(task, head, tolerance)) });
    }
    const sentences = [wordScores(task, state.found), twin.words];
    const rows = { right: 0, [task.rule === "unique" ? "sign" : "nearest"]: 1, error: 2 };
    table.replaceChildren(makeHeadings(["", ...titles]), make("tbody", {},
      ...Object.entries(rows).map(([name, k]) => makeRow(DESIGN.rows[name], sentences.map((each) => each[k])))));
    const both = [state.head, head].map((each) => panelOf(task, each, panel, shown));
    const numbers = both.flatMap((each) => each.rows.flat());
    const most = Math.max(...numbers.map((value) => Math.abs(value) || 0), 1e-9);
    const isAttention = panel === "attention";
    both.forEach(({ rows, ...source }, i) => maps[i].show(rows.flat(), {
      ...source, keys: DESIGN.mapKeys, scale: isAttention ? makeScale(0, 1) : makeScale(-most, most),
      colors: twin.colors, isMasked: () => false, label: `${DESIGN.panels.names[panel]}, ${titles[i]}`,
      word: isAttention ? wordBriefly : (value) => wordTrimmed(value, 2),
      say(row, column) {
        const [from, to] = [source.names[0][row], source.names[1][column]];
        return DESIGN.panelCell(from, to, wordTrimmed(rows[row][column], 4));
      },
    }));
  }

  return {
    root,
    show(colors, shown) {
      const { problem: { puzzle, task }, seed } = state;
      Object.assign(twin, { colors, shown });
      root.hidden = puzzle !== null;
      if (puzzle || !root.isConnected) return;
      const key = `${task.rule} ${seed}`;
      if (twin.key !== key) {
        Object.assign(twin, { key, head: null, told: null });
        learn(task.rule, seed);
      }
      draw();
    },
  };
}

// Inputs right by what is asked, by the nearest target, and the largest error.
function wordScores(task, { failures, unclear, error }) {
  const all = task.inputs.length;
  const counts = [failures, unclear].map((wrong) => DESIGN.ofAll(all - wrong, all));
  return [...counts, wordNumber(Number(error.toPrecision(3)))];
}

// A table of numbers of a head, with the names of its rows and columns.
function panelOf(task, head, panel, shown) {
  if (panel === "scores") return scorePanel(task, head);
  if (panel === "attention") {
    const names = nameTokens(task, shown);
    const rows = readInput(task, head, shown).map(({ weights }) => weights);
    return { rows, names: [names, names] };
  }
  const factor = panel === "Qm" ? head.gain : 1;
  const { rowNames, columnNames } = nameAxes(task, head, panel);
  const rows = head[panel].map((row) => row.map((value) => value * factor));
  const titles = ["token", panel === "Vm" ? "output" : "channel"];
  return { rows, names: [rowNames, columnNames], titles };
}

// attnlab.design.score_table: every token at every place where it can stand, less the mean of each row.
function scorePanel(task, head) {
  const { scores, codeOf } = prepareHead(task, head);
  let pairs = task.names.map((_, token) => [token, -1]);
  if (head.pos) {
    const places = Array.from({ length: task.longest }, (_, i) => i + task.hasCls);
    pairs = Array.from({ length: task.letters }, (_, token) => places.map((place) => [token, place])).flat();
    if (task.hasCls) pairs.unshift([task.letters, 0]);
  }
  const meet = ([one, at], [other, where]) => at !== where || at < 0 || one === other;
  const rows = pairs.map((query) => {
    const row = pairs.map((key) => (meet(query, key) ? scores[codeOf(...query)][codeOf(...key)] : NaN));
    const known = row.filter((value) => !Number.isNaN(value));
    const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
    return row.map((value) => value - mean);
  });
  const names = pairs.map(([token, place]) => namePair(task, token, place));
  const first = task.hasCls ? 1 : 0; // what comes out at CLS is ignored
  return { rows: rows.slice(first), names: [names.slice(first), names] };
}
