// One input of a head: where each token looks, and what comes out beside what is wanted.

import { make, makeButton, wordBriefly, wordNumber, wordTrimmed } from "attnlab/draw/report/elements.js";
import { makeRamp } from "attnlab/draw/map/shades.js";
import { judge, readInput } from "../engine/vectors.js";
import { DESIGN, wordOutput } from "../words_design.js";
import { makeTyped } from "./controls.js";
import { WEIGHTS } from "./maps.js";
import { makeTitledMap } from "./table_map.js";

// `pin(text)` chooses an input, `pin(null)` the one shown without a choice; `refuse(words)` tells a mistake.
export function makeOneInput(state, { pin, refuse }) {
  const typed = makeTyped("one-input", { class: "typed" });
  typed.addEventListener("input", () => {
    const text = typed.value.toUpperCase().replace(/[\s,]/g, "");
    const { texts } = state.problem.task;
    refuse(texts.includes(text) || !text ? "" : DESIGN.badInput(typed.value, texts.at(-2)));
    if (texts.includes(text)) pin(text);
  });
  const toWorst = makeButton(DESIGN.toWorst, () => pin(null));
  const map = makeTitledMap({}, DESIGN.map);
  const outputs = make("table", { class: "outputs" });
  const root = make("section", { class: "one-input", "data-part": "maps", "aria-labelledby": "input-title" },
    make("h2", { id: "input-title" }, DESIGN.input),
    make("div", { class: "answer-line" }, make("label", { for: "one-input" }, DESIGN.typed), typed, toWorst),
    make("div", { class: "one-grid" },
      make("div", {}, map.root, makeRamp(WEIGHTS, "weight 0", "1")),
      make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": DESIGN.answers },
        make("h3", {}, DESIGN.answers), outputs)));

  function rowsOf(task, index, names, read) {
    return names.flatMap((name, at) => {
      if (name === "CLS") return [];
      const wanted = task.targets[index][at];
      const { output } = read[at];
      const { error, clearance } = judge(task, output, wanted);
      const isRight = clearance > 0 && error <= (state.problem.tolerance ?? Infinity);
      const off = `${wordNumber(Number(error.toPrecision(3)))} ${isRight ? "✓" : "✗"}`;
      return [makeRow(name, [wordOutput(wanted), wordOutput(output), off], isRight ? "" : "wrong")];
    });
  }

  return {
    root,
    show(index, colors) {
      const { problem: { task }, head, found } = state;
      if (document.activeElement !== typed) typed.value = task.texts[index];
      typed.style.setProperty("--typed", task.longest);
      toWorst.textContent = found.failures ? DESIGN.toFailure : DESIGN.toWorst;
      toWorst.disabled = state.input === null;
      const read = readInput(task, head, index);
      const names = nameTokens(task, index);
      map.show({
        rows: names.length, columns: names.length, values: Float32Array.from(read.flatMap(({ weights }) => weights)),
        rowNames: names, columnNames: names, scale: WEIGHTS, colors, label: DESIGN.mapLabel(task.texts[index]),
        word: wordBriefly, say: (i, j) => DESIGN.cell(names[i], names[j], wordTrimmed(read[i].weights[j], 4)),
      }, DESIGN.map);
      outputs.replaceChildren(make("caption", { class: "unseen" }, DESIGN.outputs(task.texts[index])),
        makeHeadings(DESIGN.columns), make("tbody", {}, ...rowsOf(task, index, names, read)));
    },
  };
}

// The tokens of an input with their places: A1 B2, or CLS A1.
export function nameTokens(task, index) {
  return task.inputs[index].map((id, at) => namePair(task, id, at));
}

export function namePair(task, token, place) {
  return token < task.letters && place >= 0 ? `${task.names[token]}${place + !task.hasCls}` : task.names[token];
}

// What the rows and the columns of a matrix are.
export function nameAxes(task, head, part) {
  const count = (row, word) => row.map((_, i) => word(i + 1));
  if (part === "pos") {
    const rowNames = head.pos.map((_, i) => (task.hasCls && i === 0 ? "CLS" : DESIGN.place(i + !task.hasCls)));
    return { rowNames, columnNames: count(head.pos[0], String), note: DESIGN.notes.pos };
  }
  const answers = task.outputDim === 1 ? [DESIGN.sign] : task.names;
  return {
    rowNames: [...task.names, ...count(head.pos?.[0] ?? [], DESIGN.feature)], note: DESIGN.notes[part],
    columnNames: part === "Vm" ? answers : count(head[part][0], String),
  };
}

export function makeHeadings(words) {
  const cells = words.map((each) => (each ? make("th", { scope: "col" }, each) : make("td")));
  return make("thead", {}, make("tr", {}, ...cells));
}

export function makeRow(name, words, kind = null) {
  return make("tr", { class: kind }, make("th", { scope: "row" }, name), ...words.map((each) => make("td", {}, each)));
}
