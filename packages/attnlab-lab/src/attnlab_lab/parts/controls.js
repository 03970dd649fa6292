// Small controls of which many parts are made.

import { make, makeButton } from "attnlab/draw/report/elements.js";
import { WORDS } from "../words.js";

export const AS_TYPED = { autocomplete: "off", spellcheck: "false" }; // what is typed is no prose

export function makeTyped(id, more = {}) {
  return make("input", { type: "text", id, ...AS_TYPED, ...more });
}

// A field under its label, with what stands below it.
export function makeSetting(words, field, ...below) {
  const label = make("label", { for: field.id }, words);
  return make("div", { class: "setting" }, label, field, ...below);
}

// `options` are pairs of a value and its words.
export function fillOptions(select, options, value) {
  select.replaceChildren(...options.map(([each, words]) => make("option", { value: each }, words)));
  select.value = value;
}

export function makeSelect(name, words, take) {
  const select = make("select", { id: `choice-${name}` });
  select.addEventListener("change", () => take({ [name]: select.value }));
  const fill = (options, value) => fillOptions(select, options, value);
  return { root: makeSetting(words, select), fill };
}

// Buttons of which one is pressed.
export function makeChoice({ label, names, titles = {} }, known, choose) {
  const buttons = known.map((name) =>
    makeButton(names[name] ?? "", () => choose(name), { title: titles[name] ?? null }));
  const look = { class: "bar choice-bar", role: "group", "aria-label": label };
  // word(name, i): what is written on a button now
  const show = (chosen, word = (name) => names[name]) => buttons.forEach((button, i) => {
    button.setAttribute("aria-pressed", known[i] === chosen);
    button.textContent = word(known[i], i);
  });
  return { root: make("div", look, ...buttons), choose, show };
}

// What went wrong, which is seen while there is something.
export function makeNotice() {
  const root = make("p", { class: "notice", role: "alert", hidden: true });
  return {
    root,
    tell(words) {
      root.textContent = words && `${words[0].toUpperCase()}${words.slice(1)}`;
      root.hidden = words === "";
    },
  };
}

export function makeFact([title, value]) {
  return make("div", {}, make("dt", {}, title), make("dd", {}, value));
}

// Python lines and the command that do the same, folded away.
export function makeCodes(title, look = {}) {
  const [python, command] = [make("code", {}), make("code", {})];
  const note = make("p", { class: "note" });
  const block = (name, code) =>
    make("div", {}, make("h3", {}, name), make("pre", { tabindex: 0, "aria-label": name }, code));
  const root = make("details", { class: "code-part", ...look }, make("summary", {}, title),
    note, block(WORDS.python, python), block(WORDS.shell, command));
  return { root, note, python, command };
}
