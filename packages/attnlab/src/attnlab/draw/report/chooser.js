// Choose one of many: type it, pick it from the list, or step through all of them. Where something answers, any other
// text can be asked, too.

import { clamp, count, longest, make, makeButton, setVariable } from "./elements.js";

const FREE_LETTERS = 40; // of a field for any text
const ENTER_ASKS = "Enter asks the model.";

let numChoosers = 0;

// `words` are the choices; `noun` names one of them; `refuse(typed)` says why a typed text is not a choice.
export function makeChooser(words, { label, noun, refuse = () => "" }, whenChosen) {
  const id = `choose-${(numChoosers += 1)}`;
  const keys = words.map(spell);
  const loose = keys.map((key) => key.toLowerCase()); // CAB is cab, unless both are inputs
  let current = 0;
  let ask = null;

  const field = make("input", { type: "text", id, autocomplete: "off", autocapitalize: "off", spellcheck: "false", "aria-describedby": `${id}-message`, placeholder: words[0] ?? null });
  const select = make("select", { "aria-label": `All ${noun}s` });
  const message = make("p", { class: "message", id: `${id}-message`, role: "status" });
  const previous = makeButton("‹", () => choose(current - 1), { "aria-label": `Previous ${noun}` });
  const next = makeButton("›", () => choose(current + 1), { "aria-label": `Next ${noun}` });
  setVariable(field, "--letters", words.length ? clamp(longest(words), 10, 28) : FREE_LETTERS);
  const asking = makeButton("Ask", () => send(), { hidden: true });
  const bar = make("div", { class: "bar" }, make("label", { for: id }, label), field, asking, select, previous, next);
  const root = make("div", { class: "chooser" }, bar, message);
  for (const control of [select, previous, next]) control.hidden = words.length === 0;

  const offer = (indices) => select.replaceChildren(...indices.map((i) => make("option", { value: i }, words[i])));
  const everything = words.map((_, i) => i);
  // Choices that begin with the typed text; if none does, those that contain it.
  const fit = (typed) => {
    const beginning = everything.filter((i) => keys[i].startsWith(typed));
    return beginning.length ? beginning : everything.filter((i) => loose[i].includes(typed.toLowerCase()));
  };
  const say = (text, isRefused = false) => {
    message.textContent = text;
    message.classList.toggle("refused", isRefused);
    field.setAttribute("aria-invalid", isRefused);
  };
  const sayPlace = (index) => say(`${noun[0].toUpperCase()}${noun.slice(1)} ${index + 1} of ${words.length.toLocaleString("en-GB")}.`);
  const mark = (index) => {
    current = index;
    if (!select.querySelector(`option[value="${index}"]`)) offer(everything);
    select.value = String(index);
    previous.disabled = index === 0;
    next.disabled = index === words.length - 1;
  };
  const choose = (index) => {
    if (index < 0 || index >= words.length) return;
    offer(everything);
    mark(index);
    field.value = words[index];
    sayPlace(index);
    whenChosen(index);
  };

  field.addEventListener("focus", () => field.select());
  field.addEventListener("input", () => {
    const typed = spell(field.value);
    const exact = [words.indexOf(field.value.trim()), keys.indexOf(typed), loose.indexOf(typed.toLowerCase())].find((i) => i >= 0) ?? -1;
    if (typed !== "" && exact >= 0) {
      mark(exact);
      sayPlace(exact);
      return whenChosen(exact);
    }
    const fitting = fit(typed);
    if (fitting.length === 0) {
      offer(everything);
      select.value = String(current);
      return ask ? say(ENTER_ASKS) : say(refuse(field.value.trim()), true);
    }
    // The list is filtered; nothing is chosen until a choice is picked or typed in full.
    offer(fitting);
    select.selectedIndex = fitting.indexOf(current);
    if (typed === "") return say(`${count(words.length, noun)} to choose from.`);
    const verb = keys[fitting[0]].startsWith(typed) ? "begin" : "read";
    const ending = `${fitting.length === 1 ? "s" : ""} so${verb === "read" ? " inside" : ""}`;
    const enter = ask ? ENTER_ASKS : "Enter opens the first.";
    return say(`${count(fitting.length, noun)} ${verb}${ending}: ${listSome(fitting.map((i) => words[i]))}. ${enter}`);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    if (ask) return send();
    const [fitting] = fit(spell(field.value));
    if (fitting !== undefined) choose(keys.indexOf(spell(field.value)) >= 0 ? current : fitting);
  });
  select.addEventListener("change", () => choose(Number(select.value)));
  offer(everything);
  const send = () => {
    const typed = field.value.trim();
    const index = [words.indexOf(typed), keys.indexOf(spell(typed))].find((i) => i >= 0) ?? -1;
    if (index >= 0) choose(index);
    else if (typed) ask(typed);
  };
  return {
    root, choose, say,
    // From now on `hear(typed)` takes a text that is not a choice.
    askBy(hear) {
      ask = hear;
      asking.hidden = false;
    },
    // Shows a text that was asked, here or elsewhere; returns whether it is a choice, which is then chosen.
    show(typed) {
      const index = words.indexOf(typed);
      if (index >= 0 && index !== current) choose(index);
      else if (index >= 0) sayPlace(index);
      if (index >= 0) return true;
      [field.value, current, select.selectedIndex] = [typed, -1, -1];
      [previous.disabled, next.disabled] = [true, words.length === 0];
      return false;
    },
  };
}

// Blanks and commas between tokens are ignored.
function spell(text) {
  return text.replace(/[\s,]+/g, "");
}

export function listSome(words) {
  return words.length <= 5 ? words.join(", ") : `${words.slice(0, 4).join(", ")}, …`;
}
