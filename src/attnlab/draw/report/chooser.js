// Choosing an input: type it, pick it from the list, or walk through all of them.

let numChoosers = 0;

function makeChooser(traces, whenChosen) {
  const id = `choose-${(numChoosers += 1)}`;
  const words = traces.map((trace) => wordTokens(trace.input));
  const keys = traces.map((trace) => spell(trace.input.join("")));
  const loose = keys.map((key) => key.toLowerCase()); // CAB is cab, unless both are inputs
  let current = 0;

  const field = make("input", { type: "text", id, autocomplete: "off", autocapitalize: "off", spellcheck: "false", "aria-describedby": `${id}-message`, placeholder: words[0] });
  const select = make("select", { "aria-label": "All inputs" });
  const message = make("p", { class: "message", id: `${id}-message`, role: "status" });
  const previous = makeButton("‹ Previous", () => choose(current - 1), { "aria-label": "Previous input" });
  const next = makeButton("Next ›", () => choose(current + 1), { "aria-label": "Next input" });
  setVariable(field, "--letters", clamp(longest(words), 10, 28));
  const root = make("div", { class: "chooser" },
    make("div", { class: "bar" }, make("label", { for: id }, "Input"), field, select, previous, next), message);

  const offer = (indices) => select.replaceChildren(...indices.map((i) => make("option", { value: i }, words[i])));
  const everything = traces.map((_, i) => i);
  const say = (text, isRefused = false) => {
    message.textContent = text;
    message.classList.toggle("refused", isRefused);
    field.setAttribute("aria-invalid", isRefused);
  };
  const mark = (index) => {
    current = index;
    if (!select.querySelector(`option[value="${index}"]`)) offer(everything);
    select.value = String(index);
    previous.disabled = index === 0;
    next.disabled = index === traces.length - 1;
  };
  const choose = (index) => {
    if (index < 0 || index >= traces.length) return;
    offer(everything);
    mark(index);
    field.value = words[index];
    say(`${index + 1} of ${count(traces.length, "input")}.`);
    whenChosen(index);
  };

  field.addEventListener("focus", () => field.select());
  field.addEventListener("input", () => {
    const typed = spell(field.value);
    const exact = [words.indexOf(field.value.trim()), keys.indexOf(typed), loose.indexOf(typed.toLowerCase())].find((i) => i >= 0) ?? -1;
    if (typed !== "" && exact >= 0) {
      mark(exact);
      say(`${exact + 1} of ${count(traces.length, "input")}.`);
      whenChosen(exact);
      return;
    }
    const fitting = everything.filter((i) => keys[i].startsWith(typed));
    if (fitting.length === 0) {
      offer(everything);
      select.value = String(current);
      say(refuse(field.value.trim(), traces, words), true);
      return;
    }
    // The list shrinks to what fits; nothing is chosen until one of them is picked or typed in full.
    offer(fitting);
    select.selectedIndex = fitting.indexOf(current);
    say(typed === "" ? `${count(traces.length, "input")} to choose from.` : `${count(fitting.length, "input")} ${fitting.length === 1 ? "begins" : "begin"} so: ${listSome(fitting.map((i) => words[i]))}. Enter opens the first.`);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const fitting = everything.find((i) => keys[i].startsWith(spell(field.value)));
    if (fitting !== undefined) choose(keys.indexOf(spell(field.value)) >= 0 ? current : fitting);
  });
  select.addEventListener("change", () => choose(Number(select.value)));
  offer(everything);
  return { root, choose };
}

// Blanks and commas between tokens are a matter of taste.
function spell(text) {
  return text.replace(/[\s,]+/g, "");
}

function listSome(words) {
  return words.length <= 5 ? words.join(", ") : `${words.slice(0, 4).join(", ")}, …`;
}

// What can be chosen, in one sentence: how many, how long, made of which tokens.
function refuse(typed, traces, words) {
  if (traces.length === 1) return `“${typed}” is not recorded here; the only input is ${words[0]}.`;
  const lengths = traces.map((trace) => trace.input.length);
  const [least, most] = extent(lengths);
  const known = [...new Set(traces.flatMap((trace) => trace.input))].sort();
  const size = least === most ? count(least, "token") : `${least} to ${most} tokens`;
  const made = known.length <= 30 ? ` from ${known.map(wordToken).join(" ")}` : "";
  return `“${typed}” is not among the ${count(traces.length, "input")} recorded here; each has ${size}${made}, for example ${listSome(words)}.`;
}
