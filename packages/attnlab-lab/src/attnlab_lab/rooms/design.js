// Design: the weights of one head are set by hand, and every input is checked at each change.

import { make, makeButton, wordNumber } from "attnlab/draw/report/elements.js";
import { checkHead, readInput, VECTOR_RULES } from "../engine/vectors.js";
import { fillOptions, makeChoice } from "../parts/controls.js";
import { makeField } from "../parts/field.js";
import { makeGrid } from "../parts/grid.js";
import { CRITERIA, makeProblem, MATRICES, MOST_GAIN, STARTS } from "../parts/head_state.js";
import { readDesign, scoreOf, withNumber, wordHeadPython, writeDesign } from "../parts/head_state.js";
import { makeKeys } from "../parts/keys.js";
import { makeOneInput, nameAxes } from "../parts/one_input.js";
import { slowly } from "../parts/slowly.js";
import { makeTwin } from "../parts/twin.js";
import { PUZZLES } from "../puzzles.js";
import { DESIGN, wordOutput } from "../words_design.js";

const MOST_PAST = 200;
const FIRST_DESIGN = "identity~half"; // the design that works is the answer to an exercise of the course

export function makeDesign({ lab }, page) {
  const state = { problem: null, head: null, input: null, seed: 1, found: null, past: [], future: [], stroke: null };
  const solved = new Set();
  let drawn = null; // the colors of the last picture
  const undo = () => step("past", "future");
  const redo = () => step("future", "past");
  const sayLater = slowly(() => {
    if (!root.isConnected) return;
    page.keepLink();
    page.say(wordVerdict(), true);
  });

  // What is chosen: a task or a puzzle, what to begin with, what counts as right.
  const rules = makePicker(DESIGN.tasks, VECTOR_RULES, (name) => begin(name, "half"));
  const puzzles = makePicker(DESIGN.puzzles, PUZZLES.map(({ name }) => name), (name) => begin(name, "worked"));
  const starts = makePicker(DESIGN.starts, STARTS, (start) => begin(state.problem.name, start));
  const criterion = make("select", { id: "criterion" });
  criterion.addEventListener("change", () => {
    const { name, start } = state.problem;
    state.problem = makeProblem(name, start, criterion.value);
    update();
  });
  const asked = make("div", { class: "picker" },
    make("label", { class: "label", for: "criterion" }, DESIGN.criterion), criterion);
  const law = make("p", { class: "law" });
  const aim = make("p", { class: "aim" });

  // The weights.
  const message = make("p", { class: "message refused", role: "status" });
  const refuse = (words) => (message.textContent = words);
  const set = (part) => (i, j, value, stroke) => change(withNumber(state.head, part, i, j, value), stroke);
  let grids = {};
  const gridPlace = make("div", { class: "grids" });
  const gain = makeGain({ change: set("gain"), settle, refuse });
  const back = makeButton(DESIGN.undo, undo, { "aria-keyshortcuts": "z" });
  const forth = makeButton(DESIGN.redo, redo, { "aria-keyshortcuts": "Shift+Z" });

  // What comes of them.
  const number = make("strong", { class: "big" });
  const verdict = make("span", {});
  const field = makeField((i) => pin(state.problem.task.texts[i]));
  const margin = make("output", { class: "margin-value" });
  const marginPart = make("div", { class: "margin-part", "data-part": "margin" },
    make("p", { class: "margin-line" }, make("span", { class: "label" }, DESIGN.margin), margin),
    make("p", { class: "note" }, DESIGN.marginNote));
  const oneInput = makeOneInput(state, { pin, refuse });
  const twin = makeTwin(page.call, state, update);
  const python = make("code", {});

  const root = make("div", { class: "room design" },
    make("div", { class: "told-line" }, make("p", { class: "score" }, number, " ", verdict), page.status),
    make("div", { class: "choosing", "data-part": "input" }, rules.root, puzzles.root, starts.root, asked, law, aim),
    make("div", { class: "columns" },
      make("div", { class: "looking" },
        make("section", { class: "head-part", "aria-labelledby": "weights-title" },
          make("div", { class: "head-bar" },
            make("h2", { id: "weights-title" }, DESIGN.weights), make("div", { class: "bar" }, back, forth)),
          make("p", { class: "note" }, DESIGN.weightsNote), gridPlace, gain.root, message),
        oneInput.root),
      make("div", { class: "learning" }, field.root, marginPart)),
    make("div", { "data-part": "loss" }, twin.root),
    make("details", { class: "code-part", "data-part": "code" }, make("summary", {}, DESIGN.code),
      make("p", { class: "note" }, DESIGN.codeNote), make("pre", { tabindex: 0, "aria-label": DESIGN.code }, python)),
    makeKeys(DESIGN.keys));

  function begin(name, start) {
    const problem = makeProblem(name, start, state.problem?.criterion);
    Object.assign(state, { problem, head: problem.begun, input: null, past: [], future: [], stroke: null });
    update();
  }

  // The changes of one stroke are taken back together.
  function change(head, stroke) {
    if (stroke !== state.stroke) state.past = [...state.past, state.head].slice(-MOST_PAST);
    Object.assign(state, { head, stroke, future: [] });
    refuse("");
    update();
  }

  function settle() {
    state.stroke = null;
    draw();
  }

  // Goes back from the past to the future, or the other way.
  function step(from, to) {
    if (!state[from].length) return;
    state[to].push(state.head);
    Object.assign(state, { head: state[from].pop(), stroke: null });
    update();
  }

  function pin(input) {
    state.input = input;
    update();
  }

  function update() {
    const { problem, head } = state;
    state.found = checkHead(problem.task, head, problem.tolerance);
    if (problem.puzzle && !state.found.failures) solved.add(problem.name);
    draw();
    sayLater();
  }

  // The input that is chosen; otherwise the first that fails, or the worst.
  function shownIndex() {
    const { problem, input, found } = state;
    return input === null ? (found.first?.index ?? found.worst) : problem.task.texts.indexOf(input);
  }

  function wordVerdict() {
    const { found, problem: { puzzle } } = state;
    const sentences = [found.failures ? wordFailure() : DESIGN.holds(found.right.length)];
    if (puzzle) {
      const score = DESIGN.puzzleScore[puzzle.score](scoreOf(state.problem, state.head));
      sentences.push((found.failures ? DESIGN.unsolved : DESIGN.solved)(score, puzzle.ours));
    } else if (!found.failures) sentences.push(DESIGN.noFailure(state.problem.task.texts[found.worst], found.error));
    return sentences.join(" ");
  }

  function wordFailure() {
    const { task } = state.problem;
    const { index, place } = state.found.first;
    const token = task.names[task.inputs[index][place]];
    const wanted = wordOutput(task.targets[index][place]);
    const got = wordOutput(readInput(task, state.head, index)[place].output);
    return DESIGN.counterexample(task.texts[index], token, place + !task.hasCls, wanted, got);
  }

  function draw() {
    const { problem, head, found } = state;
    const { task, puzzle } = problem;
    const all = found.right.length;
    number.textContent = `${wordNumber(all - found.failures)} of ${wordNumber(all)}`;
    verdict.textContent = wordVerdict();
    root.classList.toggle("all", found.failures === 0);
    rules.show(problem.name, (name) => DESIGN.rules[name]);
    puzzles.show(problem.name, (name, i) => DESIGN.puzzle(PUZZLES[i], i, solved.has(name)));
    starts.show(problem.start, (name) => DESIGN.startNames[name]);
    starts.root.hidden = puzzle !== null;
    const criteria = DESIGN.criteria(task.rule);
    const options = CRITERIA.map((value) => [value, criteria[value]]);
    fillOptions(criterion, options, String(problem.tolerance ?? "nearest"));
    criterion.disabled = puzzle !== null;
    law.textContent = DESIGN.law(task.rule);
    aim.textContent = puzzle?.aim ?? "";
    drawWeights();
    back.disabled = !state.past.length;
    forth.disabled = !state.future.length;
    field.show(task, found, shownIndex());
    margin.textContent = wordNumber(Number(found.margin.toPrecision(3)));
    marginPart.classList.toggle("below", found.margin < 0);
    oneInput.show(shownIndex(), lab.colors);
    twin.show(lab.colors, shownIndex());
    python.textContent = wordHeadPython(problem, head);
  }

  function drawWeights() {
    const { problem, head } = state;
    if (grids.problem !== problem.name) {
      grids = { problem: problem.name };
      const own = MATRICES.filter((part) => head[part]);
      for (const part of own) {
        const names = nameAxes(problem.task, head, part);
        grids[part] = makeGrid({ name: part, ...names }, { change: set(part), settle, refuse, undo, redo });
      }
      gridPlace.replaceChildren(...own.map((part) => grids[part].root));
    }
    for (const part of MATRICES) grids[part]?.show(head[part], problem.isOpen(part));
    gain.show(head.gain, problem.isOpen("gain"), problem.puzzle ? "" : DESIGN.gainComputed(problem.needed));
  }

  // Opens what the link says, unless that is what is shown.
  function follow({ head }) {
    if (state.problem && head === writeDesign(state.problem, state)) return;
    try {
      Object.assign(state, readDesign(head || FIRST_DESIGN), { past: [], future: [], stroke: null });
    } catch (error) {
      page.notice(error.message);
      Object.assign(state, readDesign(FIRST_DESIGN));
    }
    update();
  }

  // The page shows its room often; the weights change only here.
  function show() {
    if (drawn === lab.colors) return;
    drawn = lab.colors;
    draw();
  }

  follow(page.link.own);
  const link = () => ({ head: writeDesign(state.problem, state) });
  return { root, heading: DESIGN.heading, show, follow, link, undo, redo };
}

// The gain as a number and, by its logarithm, as a slider.
function makeGain({ change, settle, refuse }) {
  const typed = make("input", { type: "text", id: "gain", class: "gain", autocomplete: "off" });
  const slider = make("input", { type: "range", min: -1, max: 2.5, step: 0.001, "aria-label": DESIGN.gain });
  const note = make("span", { class: "note" });
  const hear = (node, read) => {
    node.addEventListener("input", () => {
      const value = read();
      if (value >= 0 && value <= MOST_GAIN) change(0, 0, value, node);
      else refuse(DESIGN.badGain(node.value, MOST_GAIN));
    });
    node.addEventListener("change", settle);
  };
  hear(typed, () => (typed.value.trim() ? Number(typed.value) : NaN));
  hear(slider, () => Number((10 ** slider.value).toPrecision(4)));
  return {
    root: make("div", { class: "gain-line", title: DESIGN.gainNote },
      make("label", { for: "gain" }, DESIGN.gain), typed, slider, note),
    show(value, isOpen, words) {
      if (document.activeElement !== slider) slider.value = Math.log10(Math.max(value, 0.1));
      if (document.activeElement !== typed || Number(typed.value) !== value) typed.value = value;
      typed.readOnly = !isOpen;
      slider.disabled = !isOpen;
      note.textContent = words;
    },
  };
}

// Buttons of which one is pressed, or none.
function makePicker(label, known, choose) {
  const choice = makeChoice({ label, names: {} }, known, choose);
  return { ...choice, root: make("div", { class: "picker" }, make("span", { class: "label" }, label), choice.root) };
}
