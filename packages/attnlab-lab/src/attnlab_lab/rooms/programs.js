// Programs: lines that say what attention should do, each on an example; then the model of them, proved.

import { make, makeButton } from "attnlab/draw/report/elements.js";
import { PROGRAM_WORDS } from "../words_programs.js";
import {
  makeCodes, makeNotice, makeSelect, makeSetting, makeTyped, AS_TYPED,
} from "../parts/controls.js";
import { readChoices, writeChoices } from "../parts/link.js";
import { makeProgramHeads } from "../parts/program_heads.js";
import { makeProgramLines } from "../parts/program_lines.js";
import { choicesOfProgram, PROGRAMS } from "../parts/program_texts.js";
import { typed } from "../parts/runs_folder.js";
import { makeAsker } from "../parts/server.js";
import { slowly } from "../parts/slowly.js";

const LONGEST_INPUT = 10; // tokens of an input
const MOST_IN_LINK = 1700; // characters of the text, as a link writes it
const PROGRAM_PAGE = `programs ${Math.random()}`; // the server drops what this page asked before
const AT_FIRST = choicesOfProgram("sort");

export function makePrograms({ lab }, page) {
  const state = readChoices(AT_FIRST, page.link.own);

  const plain = { ...AS_TYPED, autocapitalize: "off" };
  const described = { "aria-describedby": "program-hint program-said" };
  const text = make("textarea", { id: "program-text", rows: 8, ...described, ...plain });
  const alphabet = makeTyped("program-alphabet", plain);
  const example = makeTyped("program-example", plain);
  const fields = { program: text, alphabet, example };
  const start = makeSelect("program", PROGRAM_WORDS.start, ({ program: name }) => name && take(choicesOfProgram(name)));
  const longest = makeSelect("longest", PROGRAM_WORDS.longest, take);
  const said = make("p", { class: "message", id: "program-said", role: "status" });
  const notice = makeNotice();
  const server = makeAsker(notice);
  const tooLong = make("p", { class: "message refused", role: "status", hidden: true }, PROGRAM_WORDS.tooLong(MOST_IN_LINK));
  const lines = makeProgramLines();
  const values = make("section", { class: "values-part", hidden: true }, ...lines.nodes);
  const heads = makeProgramHeads();
  const button = makeButton(PROGRAM_WORDS.prove, prove, { class: "primary", "aria-keyshortcuts": "Control+Enter" });
  const code = makeProgramCode();
  const root = make("div", { class: "room programs-room" }, make("div", { class: "told-line" }, page.status, notice.root),
    make("div", { class: "program-columns" },
      make("section", { class: "program-part" }, start.root, makeSetting(PROGRAM_WORDS.program, text), said, tooLong,
        make("p", { class: "note", id: "program-hint" }, PROGRAM_WORDS.hint),
        make("div", { class: "fields" }, makeSetting(PROGRAM_WORDS.alphabet, alphabet),
          makeSetting(PROGRAM_WORDS.example, example), longest.root),
        make("div", { class: "bar" }, button)),
      values),
    heads.root, code.root);

  const askSlowly = slowly(ask);
  for (const [name, field] of Object.entries(fields)) {
    field.addEventListener("input", () => {
      forget({ [name]: field.value });
      askSlowly();
    });
  }
  text.addEventListener("keydown", (event) => {
    event.stopPropagation(); // no key of the room
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) prove();
  });

  // What is changed has no values and no proof yet.
  function forget(changes) {
    Object.assign(state, changes);
    server.drop();
    page.say("");
    heads.clear();
    code.show(null);
    values.classList.add("old");
    tooLong.hidden = !isTooLong();
    page.keepLater();
  }

  function take(changes) {
    forget(changes);
    fill();
    ask();
  }

  function fill() {
    for (const [name, field] of Object.entries(fields)) if (field.value !== state[name]) field.value = state[name];
    longest.fill(Array.from({ length: LONGEST_INPUT }, (_, i) => [String(i + 1), i + 1]), state.longest);
    const known = Object.keys(PROGRAMS).find((name) => choicesOfProgram(name).program === state.program) ?? "";
    start.fill([...(known ? [] : [["", PROGRAM_WORDS.own]]), ...Object.keys(PROGRAMS).map((name) => [name, PROGRAM_WORDS.names[name] ?? name])], known);
  }

  // The answer to what is asked now, or null if something was asked or changed meanwhile.
  function answer(what, more = {}) {
    const { program, alphabet: letters, example: input } = state;
    const asked = { text: program, alphabet: letters, example: input, page: PROGRAM_PAGE, ...more };
    return server.ask(what, `/api/programs/${what}`, asked);
  }

  async function ask() {
    fill();
    const told = await answer("steps");
    if (!told) return;
    values.hidden = Boolean(told.refusal);
    if (told.refusal) return;
    values.classList.remove("old");
    lines.show(told);
    const wrong = told.lines.find(({ error }) => error);
    text.setAttribute("aria-invalid", Boolean(wrong));
    said.classList.toggle("refused", Boolean(wrong));
    said.textContent = wrong ? PROGRAM_WORDS.said(wrong) : PROGRAM_WORDS.fine(told.lines.length);
    code.show(wrong ? null : state, told.lines.at(-1)?.name);
  }

  async function prove() {
    heads.clear();
    page.say(PROGRAM_WORDS.proving);
    const told = await answer("prove", { longest: Number(state.longest) });
    if (!told) return;
    const refusal = told.refused ? PROGRAM_WORDS.refused(told.number, told.refused) : "";
    page.say(refusal || (told.verdict ?? ""));
    if (!told.verdict) return;
    heads.show(told, lab.colors);
  }

  function isTooLong() {
    return encodeURIComponent(state.program).length > MOST_IN_LINK;
  }

  ask();
  return {
    root, heading: { title: PROGRAM_WORDS.title, subtitle: PROGRAM_WORDS.subtitle },
    show: () => heads.redraw(lab.colors),
    follow(own) {
      const now = readChoices(AT_FIRST, own);
      if (JSON.stringify(now) !== JSON.stringify(state)) take(now);
    },
    link: () => writeChoices(AT_FIRST, state, (key) => key === "program" && isTooLong()),
    leave: server.drop,
  };
}

// The Python lines and the command that do the same.
function makeProgramCode() {
  const { root, note, python, command } = makeCodes(PROGRAM_WORDS.code, { hidden: true });
  note.remove();
  return {
    root,
    show(state, output) {
      root.hidden = !state;
      if (!state) return;
      const { program, alphabet, example, longest } = state;
      python.textContent = wordProgram(program, output, JSON.stringify(alphabet), longest);
      command.textContent = `attnlab compile program.py --length ${longest} --example ${typed(example)}`;
    },
  };
}

function wordProgram(program, output, alphabet, longest) {
  const words = ["aggregate", "best", "everything", "indices", "select", "selector_width", "tokens", "total", "where"];
  const used = words.filter((word) => new RegExp(`\\b${word}\\b`).test(program));
  return [
    `from attnlab.programs import ${["Program", "compile_program", "prove_program", ...used].join(", ")}`, "",
    program, "", `program = Program(${output}, ${alphabet})`,
    `print(prove_program(compile_program(program, ${longest}), program))`,
  ].join("\n");
}
