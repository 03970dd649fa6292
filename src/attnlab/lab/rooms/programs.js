// Programs: lines that say what attention should do, each on an example; then the model of them, proved.

import { make, makeButton } from "../../draw/report/elements.js";
import { PROGRAM_WORDS } from "../words_programs.js";
import { choicesOf } from "../parts/link.js";
import { makeProgramHeads } from "../parts/program_heads.js";
import { makeProgramLines } from "../parts/program_lines.js";
import { choicesOfProgram, PROGRAMS } from "../parts/program_texts.js";
import { typed } from "../parts/runs_folder.js";
import { makeSelect } from "../parts/seed_choices.js";
import { askServer } from "../parts/server.js";
import { slowly } from "../parts/slowly.js";
import { WORDS } from "../words.js";

const LONGEST_INPUT = 10; // tokens of an input
const MOST_IN_LINK = 1700; // characters of the text, as a link writes it
const PROGRAM_PAGE = `programs ${Math.random()}`; // the server drops what this page asked before
const AT_FIRST = choicesOfProgram("sort");

export function makePrograms({ lab }, page) {
  const state = choicesOf(AT_FIRST, (key, usual) => page.link.own[key] ?? usual);
  const asked = { steps: 0, prove: 0 }; // how often; older answers are dropped
  const waiting = { steps: false, prove: false };

  const plain = { spellcheck: "false", autocomplete: "off", autocapitalize: "off" };
  const text = make("textarea", { id: "program-text", rows: 8, "aria-describedby": "program-hint program-said", ...plain });
  const alphabet = make("input", { type: "text", id: "program-alphabet", ...plain });
  const example = make("input", { type: "text", id: "program-example", ...plain });
  const fields = { program: text, alphabet, example };
  const start = makeSelect("program", PROGRAM_WORDS.start, ({ program: name }) => name && take(choicesOfProgram(name)));
  const longest = makeSelect("longest", PROGRAM_WORDS.longest, take);
  const said = make("p", { class: "message", id: "program-said", role: "status" });
  const notice = make("p", { class: "notice", role: "alert", hidden: true });
  const tooLong = make("p", { class: "message refused", role: "status", hidden: true }, PROGRAM_WORDS.tooLong(MOST_IN_LINK));
  const lines = makeProgramLines();
  const values = make("section", { class: "values-part", hidden: true }, ...lines.nodes);
  const heads = makeProgramHeads();
  const button = makeButton(PROGRAM_WORDS.prove, prove, { class: "primary", "aria-keyshortcuts": "Control+Enter" });
  const code = makeProgramCode();
  const root = make("div", { class: "room programs-room" }, make("div", { class: "told-line" }, page.status, notice),
    make("div", { class: "program-columns" },
      make("section", { class: "program-part" }, start.root, makeLabeled(PROGRAM_WORDS.program, text), said, tooLong,
        make("p", { class: "note", id: "program-hint" }, PROGRAM_WORDS.hint),
        make("div", { class: "fields" }, makeLabeled(PROGRAM_WORDS.alphabet, alphabet), makeLabeled(PROGRAM_WORDS.example, example), longest.root),
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
    drop();
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
  async function answer(what, more = {}) {
    const mine = (asked[what] += 1);
    const { program, alphabet: letters, example: input } = state;
    wait(what, true);
    const found = await askServer(`/api/programs/${what}`, { text: program, alphabet: letters, example: input, page: PROGRAM_PAGE, ...more })
      .catch(({ message }) => ({ refusal: message }));
    if (mine !== asked[what]) return null;
    wait(what, false);
    notice.textContent = found.refusal ?? "";
    notice.hidden = !found.refusal;
    return found;
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

  function wait(what, isBusy) {
    waiting[what] = isBusy;
    document.body.dataset.busy = waiting.steps || waiting.prove;
  }

  // What is on its way is too late.
  function drop() {
    for (const what of Object.keys(asked)) {
      asked[what] += 1;
      wait(what, false);
    }
  }

  function isTooLong() {
    return encodeURIComponent(state.program).length > MOST_IN_LINK;
  }

  ask();
  return {
    root, heading: { title: PROGRAM_WORDS.title, subtitle: PROGRAM_WORDS.subtitle },
    show: () => heads.redraw(lab.colors),
    follow(own) {
      const now = choicesOf(AT_FIRST, (key, usual) => own[key] ?? usual);
      if (JSON.stringify(now) !== JSON.stringify(state)) take(now);
    },
    link: () => choicesOf(AT_FIRST, (key, usual) => {
      const isLeftOut = state[key] === usual || (key === "program" && isTooLong());
      return isLeftOut ? null : state[key];
    }),
    leave: drop,
  };
}

function makeLabeled(label, field) {
  return make("div", { class: "setting" }, make("label", { for: field.id }, label), field);
}

// The Python lines and the command that do the same.
function makeProgramCode() {
  const [python, command] = [make("code", {}), make("code", {})];
  const block = (title, each) => make("div", {}, make("h3", {}, title), make("pre", { tabindex: 0, "aria-label": title }, each));
  const root = make("details", { class: "code-part", hidden: true }, make("summary", {}, PROGRAM_WORDS.code),
    block(WORDS.python, python), block(WORDS.shell, command));
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
