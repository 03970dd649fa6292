// Course: a statement, a student's program, and what a check of it says.

import { make, makeButton, setVariable, wordNumber } from "attnlab/draw/report/elements.js";
import { COURSE_WORDS } from "../words_course.js";
import { CODE_INDENT, makeCodeField } from "../parts/code_field.js";
import { fillOptions, makeNotice, makeSetting, makeTyped } from "../parts/controls.js";
import { dropDraft, findDraft, keepDraft } from "../parts/drafts.js";
import { makeExercises } from "../parts/exercises.js";
import { readChoices, writeChoices } from "../parts/link.js";
import { offer } from "../parts/model.js";
import { askServer, makeAsker } from "../parts/server.js";

const NO_EXERCISE = { exercise: null }; // then the first that is not solved
const COURSE_PAGE = `course ${Math.random()}`; // the server drops what this page asked before
const TEXT_TAGS = new Set(["p", "h2", "h3", "h4", "ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "strong", "em", "code", "pre", "hr", "a", "blockquote"]);

export function makeCourse(_session, page) {
  const begun = { course: null, shown: null, saved: "", files: [], drafts: {} };
  const state = { ...readChoices(NO_EXERCISE, page.link.own), ...begun };

  const exercises = makeExercises(linkTo, makeButton(COURSE_WORDS.handIn, () => student.focus()));
  const facts = make("p", { class: "note" });
  const statement = make("div", { class: "statement" });
  const answer = makeCodeField(COURSE_WORDS.answer, { changed, check: ask });
  const check = makeButton(COURSE_WORDS.check, ask, { class: "primary", "aria-keyshortcuts": "Control+Enter" });
  const stop = makeButton("", end, { hidden: true });
  const hint = makeButton("", nextHint);
  const hints = make("ol", { class: "hints" });
  const ofMistake = make("div", { class: "mistake-hint" });
  const ours = make("details", { class: "ours" });
  const student = makeTyped("student", { autocomplete: "name" });
  const handed = make("div", { class: "note", "aria-live": "polite" });
  const handIn = make("section", { class: "hand-in", hidden: true, "aria-labelledby": "hand-in-title" },
    make("h2", { id: "hand-in-title" }, COURSE_WORDS.handIn), make("p", { class: "note" }, ...wordsWithCode(COURSE_WORDS.handInNote)),
    makeSetting(COURSE_WORDS.student, student), make("div", { class: "bar" }, makeButton(COURSE_WORDS.write, submit)), handed);
  const notice = makeNotice();
  const server = makeAsker(notice);
  const file = make("p", { class: "note" });
  const feedback = make("section", { class: "feedback", "aria-live": "polite" });
  const loading = make("p", { class: "note" }, COURSE_WORDS.loading);
  const exercise = make("div", { class: "course-columns", hidden: true },
    make("section", {}, facts, statement),
    make("section", { class: "answer-part" }, answer.root,
      make("div", { class: "bar" }, check, stop, hint), hints, ofMistake, feedback, ours, file));
  const root = make("div", { class: "room course-room" },
    make("div", { class: "told-line" }, page.status, notice.root), loading, exercises.root, exercise, handIn);

  window.addEventListener("pagehide", end);

  function changed() {
    const { shown: { name }, files, drafts } = state; // until another exercise is shown, what is typed is of this one
    drafts[name] = answer.code;
    keepDraft(name, files, answer.code);
    feedback.classList.toggle("old", answer.code !== state.saved);
  }

  function take(name) {
    end();
    state.exercise = name;
    page.keepLink();
    open();
    exercises.fold();
  }

  function linkTo(name) {
    const link = new URLSearchParams(page.linkNow().slice(1));
    link.set("exercise", name);
    return `#${link}`;
  }

  async function tell(what, path, body) {
    const told = await server.ask(what, path, body);
    return told?.refusal ? null : told;
  }

  async function open() {
    state.course ??= await tell("open", "/api/course");
    if (!state.course) {
      loading.hidden = true;
      return;
    }
    const all = allExercises();
    state.exercise ??= (all.find((each) => each.state !== "solved") ?? all[0]).name;
    page.keepLink();
    listExercises();
    const shown = await tell("open", "/api/course/open", { exercise: state.exercise, page: COURSE_PAGE });
    loading.hidden = true;
    if (!shown) return;
    exercise.hidden = handIn.hidden = false;
    Object.assign(state, { shown, saved: shown.code, files: [shown.code], hasMistake: shown.has_mistake });
    answer.code = state.drafts[state.exercise] ?? findDraft(state.exercise, shown.code) ?? shown.code;
    facts.textContent = COURSE_WORDS.facts(shown);
    statement.replaceChildren(...shown.statement.map(buildText), ...pictureOfExercise(shown));
    file.textContent = COURSE_WORDS.file(shown.file);
    feedback.replaceChildren();
    showHints({ ...shown, mistake: [] });
    offerSolution(shown.state);
  }

  function allExercises() {
    return state.course.chapters.flatMap(({ exercises }) => exercises);
  }

  function listExercises() {
    exercises.show(state.course.chapters, state.exercise);
  }

  async function ask() {
    const { exercise: name } = state;
    const { code } = answer;
    if (!stop.hidden) return; // one check at a time
    state.files = [state.saved, code];
    page.say(COURSE_WORDS.checking);
    const forget = countSeconds();
    const told = await tell("check", "/api/course/check", { exercise: name, code, page: COURSE_PAGE });
    if (document.activeElement === stop) check.focus(); // this button goes
    forget();
    page.say("");
    if (told) dropDraft(name, code);
    if (!told || name !== state.exercise) return;
    state.saved = code;
    feedback.classList.toggle("old", answer.code !== code);
    answer.mark(lineNamed(told));
    allExercises().find((each) => each.name === name).state = told.state;
    listExercises();
    Object.assign(state, { hasMistake: told.has_hint });
    showHints({ hint: state.seen, all_hints: state.all, mistake: [] });
    offerSolution(told.state);
    const [verdict, ...rest] = verdictOfAnswer(told, state.shown);
    const isDone = !told.broken && !told.is_blank && !told.stopped && (told.passed || state.shown.rubric.length > 0);
    const first = make("div", { class: "bar" }, verdict, ...(isDone ? [wayOn()] : []));
    feedback.replaceChildren(first, ...rest);
    first.scrollIntoView({ block: "nearest" });
  }

  // The button that stops says for how long the answer runs.
  function countSeconds() {
    const begun = performance.now();
    const show = () => (stop.textContent = COURSE_WORDS.stop(Math.floor((performance.now() - begun) / 1000)));
    const timer = setInterval(show, 1000);
    show();
    stop.hidden = false;
    check.setAttribute("aria-disabled", true);
    return () => {
      clearInterval(timer);
      stop.hidden = true;
      check.removeAttribute("aria-disabled");
    };
  }

  function end() {
    if (!stop.hidden) askServer("/api/course/stop", { page: COURSE_PAGE }, undefined, true).catch(() => {}); // the check says why
  }

  // To the next exercise that is not solved; after the last one, the first of these.
  function wayOn() {
    const all = allExercises();
    const at = all.findIndex(({ name }) => name === state.exercise);
    const next = [...all.slice(at + 1), ...all.slice(0, at)].find((each) => each.state !== "solved");
    if (!next) return make("p", {}, COURSE_WORDS.allSolved);
    return make("a", { class: "button primary", href: linkTo(next.name) }, COURSE_WORDS.next(next));
  }

  async function nextHint() {
    const told = await tell("open", "/api/course/hint", { exercise: state.exercise, page: COURSE_PAGE });
    if (!told) return;
    state.hasMistake = false; // its hint was that of the mistake, or there is none
    showHints(told);
  }

  // The hint on a mistake stays until the next check; a general hint that it repeats is left out of the list meanwhile.
  function showHints({ hint: seen, all_hints: all, mistake = state.ofMistake }) {
    Object.assign(state, { seen, all, ofMistake: mistake });
    const items = seen.map((words, i) => [words, make("li", { value: i + 1 }, ...wordsWithCode(words))]);
    hints.replaceChildren(...items.filter(([words]) => !mistake.some((line) => line.endsWith(words))).map(([, item]) => item));
    // What is indented is a line of the answer, which the editor marks where it stands as it is.
    const isCode = (line) => line.startsWith(CODE_INDENT);
    ofMistake.replaceChildren(...mistake.map((line) => (isCode(line) ? programText(line.trim()) : make("p", {}, ...wordsWithCode(line)))));
    const lines = answer.code.split("\n").map((line) => line.trim());
    const at = mistake.filter(isCode).map((line) => lines.indexOf(line.trim())).find((line) => line >= 0);
    if (at !== undefined) answer.mark(at + 1);
    labelHint();
  }

  function labelHint() {
    hint.textContent = state.hasMistake ? COURSE_WORDS.mistakeHint : COURSE_WORDS.hint(state.seen.length, state.all);
    hint.disabled = state.seen.length === state.all && !state.hasMistake;
  }

  // Ours is to compare with once an answer passes; before that, to see it is to give up, which the log says.
  function offerSolution(progress) {
    const isSolved = progress === "solved";
    const show = makeButton(COURSE_WORDS.show, async () => {
      const told = await tell("open", "/api/course/solution", { exercise: state.exercise, page: COURSE_PAGE });
      if (told) ours.replaceChildren(ours.firstChild, programText(told.solution));
    });
    ours.hidden = state.shown.rubric.length > 0;
    ours.open = false;
    ours.replaceChildren(make("summary", {}, isSolved ? COURSE_WORDS.compare : COURSE_WORDS.giveUp),
      ...(isSolved ? [] : [make("p", { class: "note" }, COURSE_WORDS.isNoted)]), make("div", { class: "bar" }, show));
  }

  async function submit() {
    const told = await tell("submit", "/api/course/submit", { student: student.value, page: COURSE_PAGE });
    if (told) offer(new File([Uint8Array.from(atob(told.zip), (letter) => letter.charCodeAt(0))], told.file));
    handed.replaceChildren(...(told ? [make("p", {}, COURSE_WORDS.handed(told)), make("ul", {}, ...told.notes.map((line) => make("li", {}, ...wordsWithCode(line))))] : []));
  }

  open();
  return {
    root, heading: { title: COURSE_WORDS.title, subtitle: COURSE_WORDS.subtitle },
    show() {},
    follow(own) {
      const { exercise: name } = readChoices(NO_EXERCISE, own);
      if (name && name !== state.exercise) take(name);
    },
    leave: end,
    link: () => writeChoices(NO_EXERCISE, state),
  };
}

// The line that an error names; null where none does.
function lineNamed({ broken, failures }) {
  const [, line] = /\(line (\d+)\)$/.exec(broken ?? failures?.[0]?.words ?? "") ?? [];
  return line ? Number(line) : null;
}

// What a check said: the criteria, the smallest case that fails, the mistake.
function verdictOfAnswer(told, { rubric }) {
  if (told.stopped) return [make("p", { class: "verdict refused" }, COURSE_WORDS.stopped(told.stopped))];
  if (told.is_blank) return [make("p", { class: "verdict" }, COURSE_WORDS.unwritten)];
  if (told.broken) return [make("p", { class: "verdict refused", role: "alert" }, COURSE_WORDS.broken(told.broken))];
  if (rubric.length) return [make("p", { class: "verdict" }, COURSE_WORDS.text), make("ul", {}, ...rubric.map((each) => make("li", {}, each)))];
  return [
    make("p", { class: told.passed ? "verdict held" : "verdict" }, COURSE_WORDS.passes(told)),
    ...(told.banned ? [make("p", { class: "banned" }, COURSE_WORDS.banned(told.banned))] : []),
    ...(told.mistake ? [knownMistake(told.mistake)] : []),
    make("ul", { class: "criteria" }, ...told.checks.map(criterionOf)),
    ...told.failures.map(failedCase),
  ];
}

function knownMistake(words) {
  return make("div", { class: "known-mistake" }, make("h3", {}, COURSE_WORDS.mistake), make("p", {}, ...wordsWithCode(words)));
}

function criterionOf({ name, words, passed, open }) {
  const [look, sign, word] = passed ? ["held", "✓", COURSE_WORDS.passed] : open ? ["", "–", COURSE_WORDS.open] : ["refused", "✗", COURSE_WORDS.failed];
  const mark = make("span", { class: `mark ${look}` }, sign);
  const spoken = make("span", { class: "unseen" }, word);
  return make("li", {}, mark, spoken, " ", make("strong", {}, name), " ", ...wordsWithCode(words));
}

function failedCase({ check, lines, tables }) {
  const title = COURSE_WORDS.smallest(check);
  return make("div", { class: "failed-case" }, make("h3", {}, title),
    make("pre", { tabindex: 0, "aria-label": title }, make("code", {}, lines.join("\n"))),
    ...(tables.length ? comparedTables(tables, check) : []));
}

// Where two answers differ most; of several tables, with the axes before rows and columns, another can be chosen.
function comparedTables(arrays, check) {
  const all = arrays.flatMap(({ name, leading, ...tables }) => tables.difference.map((rows, i) => ({
    words: [name, ...placeAlong(leading, i)], far: Math.max(...rows.flat().map(Math.abs)),
    sides: ["expected", "yours", "difference"].map((side) => [COURSE_WORDS[side], tables[side][i]]),
  })));
  const place = make("div", { class: "beside", tabindex: 0, role: "group", "aria-label": COURSE_WORDS.compared(check) });
  const show = ({ sides }) => place.replaceChildren(...besides(sides));
  const worst = all.reduce((most, each) => (each.far > most.far ? each : most));
  show(worst);
  if (all.length === 1) return [place];
  const choose = make("select", { id: `compared-table-${check.replaceAll(" ", "-")}` });
  const options = all.map(({ words, far }, i) => [String(i), COURSE_WORDS.table(words, far)]);
  fillOptions(choose, options, String(all.indexOf(worst)));
  choose.addEventListener("change", () => show(all[choose.value]));
  return [makeSetting(COURSE_WORDS.whichTable, choose), place];
}

// The indices of a table along the leading axes, the last of which moves fastest.
function placeAlong(leading, number) {
  return leading.reduceRight(([rest, found], size) => [Math.floor(rest / size), [rest % size, ...found]], [number, []])[1];
}

function programText(text) {
  return make("pre", { tabindex: 0 }, make("code", {}, text));
}

// Expected, yours and the difference, as tables whose shades are of one scale.
function besides(sides) {
  const most = Math.max(1e-12, ...sides.flatMap(([, rows]) => rows.flat().map(Math.abs)));
  return sides.map(([title, rows]) => shadedTable(title, rows, most));
}

function shadedTable(title, rows, most) {
  const cell = (value, i, j) => {
    const words = wordNumber(Number(value.toPrecision(3)));
    const made = make("td", { class: value < 0 ? "below" : "above", title: COURSE_WORDS.cell(title, i, j, words) }, words);
    return setVariable(made, "--share", Math.abs(value) / most);
  };
  return make("table", { class: "shaded" }, make("caption", {}, title),
    make("tbody", {}, ...rows.map((row, i) => make("tr", {}, ...row.map((value, j) => cell(value, i, j))))));
}

function pictureOfExercise({ picture: svg, title }) {
  if (!svg) return [];
  return [make("img", { class: "course-picture", src: `data:image/svg+xml,${encodeURIComponent(svg)}`, alt: COURSE_WORDS.picture(title) })];
}

// A text as nested lists: a tag, then what it holds. Tags that are not known are left out, their texts kept.
function buildText(node) {
  if (typeof node === "string") return node;
  const [tag, ...inner] = node;
  const children = inner.map(buildText);
  if (!TEXT_TAGS.has(tag)) return make("span", {}, ...children);
  const made = make(tag === "th" && children.length === 0 ? "td" : tag, {}, ...children);
  return tag === "table" ? make("div", { class: "scroll", tabindex: 0 }, made) : made;
}

// Words as nodes: what is between backticks as code, the rest as text.
function wordsWithCode(words) {
  return words.split(/`([^`]+)`/).map((part, i) => (i % 2 === 1 ? make("code", {}, part) : part));
}
