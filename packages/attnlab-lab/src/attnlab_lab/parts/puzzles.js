// The puzzles of the Bench: what shall be reached, and how far one is.

import { make, makeButton } from "attnlab/draw/report/elements.js";
import { BENCH_PUZZLES } from "../bench_puzzles.js";
import { countRight, WORDS } from "../words.js";
import { readEdits, writeEdits } from "./edits.js";
import { firstInput, readLink, shapeOf } from "./link.js";

export function makePuzzles(session, page) {
  const { lab } = session;
  const solved = new Set();
  let shown = null;

  const buttons = BENCH_PUZZLES.map((puzzle) => makeButton("", () => begin(puzzle)));
  const aim = make("p", { class: "aim" });
  const verdict = make("p", { role: "status" });
  const goOn = makeButton(WORDS.goOn, () => session.train());
  const told = make("div", { class: "puzzle-told", hidden: true }, aim, verdict, goOn);
  const root = make("section", { class: "puzzle-part", "data-part": "puzzles", "aria-labelledby": "puzzles-title" },
    make("h2", { id: "puzzles-title" }, WORDS.puzzles), make("div", { class: "bar" }, ...buttons), told);

  function begin(puzzle) {
    shown = puzzle;
    const settings = settingsOf(puzzle);
    const input = firstInput(settings);
    const edits = beginningOf(puzzle);
    if (isOf(lab, puzzle) && lab.isDone) session.setEdits(edits);
    else session.start(settings, { input, edits });
  }

  // Opens the puzzle that a link names.
  function follow({ puzzle: name }) {
    shown = BENCH_PUZZLES.find((each) => each.name === name) ?? null;
    if (name && !shown) page.notice(WORDS.noPuzzle(name, BENCH_PUZZLES.map((each) => each.name)));
    else if (shown && !isOf(lab, shown)) begin(shown);
  }

  follow(page.link.own);
  return {
    root, follow,
    link: () => ({ puzzle: shown?.name }),
    show() {
      if (shown && !isOf(lab, shown)) shown = null; // another model was chosen
      const isKnown = shown && lab.now && lab.isDone;
      const isHalf = lab.now !== null && !lab.isDone && !lab.isRunning;
      const state = isKnown ? judgePuzzle(lab, shown) : null;
      if (state?.isSolved) solved.add(shown.name);
      told.hidden = shown === null;
      told.classList.toggle("all", Boolean(state?.isSolved));
      aim.textContent = shown?.aim ?? "";
      verdict.textContent = state?.words ?? (isHalf ? WORDS.halfTrained(lab) : "");
      goOn.hidden = !isHalf;
      BENCH_PUZZLES.forEach(({ name, title }, i) => {
        buttons[i].setAttribute("aria-pressed", name === shown?.name);
        buttons[i].textContent = `${i + 1} ${title}${solved.has(name) ? " ✓" : ""}`;
      });
    },
  };
}

function settingsOf({ settings: { task, seed } }) {
  return { ...readLink("").settings, task, seed };
}

function beginningOf(puzzle) {
  return readEdits(puzzle.begin ?? "", shapeOf(settingsOf(puzzle)));
}

function isOf({ settings }, puzzle) {
  return JSON.stringify(settings) === JSON.stringify(settingsOf(puzzle));
}

function judgePuzzle({ edits, now }, puzzle) {
  const beginning = writeEdits(beginningOf(puzzle));
  const own = edits.filter((edit) => writeEdits([edit]) !== beginning);
  if (beginning && own.length === edits.length) return { isSolved: false, words: WORDS.beginningIsGone };
  if (own.some(({ kind }) => kind !== puzzle.kind)) return { isSolved: false, words: WORDS.onlyKind[puzzle.kind] };
  const figures = { right: countRight(now), edits: own.length };
  const isSolved = ["right", "edits"].every((name) => {
    const [least, most] = puzzle[name];
    return figures[name] >= least && figures[name] <= most;
  });
  const word = isSolved ? WORDS.puzzleSolved : WORDS.puzzleSoFar;
  return { isSolved, words: word(figures, WORDS.puzzleScore[puzzle.score](puzzle.ours)) };
}
