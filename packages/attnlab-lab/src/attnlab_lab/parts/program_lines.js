// Each line of a program on an example: a value at every position, or the keys that a query selects, as dots.

import { make } from "attnlab/draw/report/elements.js";
import { PROGRAM_WORDS } from "../words_programs.js";
import { makeHeadings } from "./one_input.js";

export function makeProgramLines() {
  const caption = make("caption", {});
  const table = make("table", { class: "line-values" });
  const dots = make("p", { class: "note" }, PROGRAM_WORDS.dots);
  return {
    nodes: [make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": PROGRAM_WORDS.lines }, table), dots],
    show({ tokens, lines }) {
      caption.textContent = PROGRAM_WORDS.table(tokens);
      table.replaceChildren(caption, makeHeadings([PROGRAM_WORDS.lines, ...tokens]),
        make("tbody", {}, ...lines.map((line) => makeValuesRow(line, tokens))));
      dots.hidden = !lines.some(({ selected }) => selected);
    },
  };
}

function makeValuesRow({ number, name, values, selected, error }, tokens) {
  const row = make("tr", {}, make("th", { scope: "row" }, make("span", { class: "note" }, `${number} `), name));
  if (error) row.append(make("td", { colspan: tokens.length, class: "line-error" }, error));
  else if (values) row.append(...values.map((value) => make("td", {}, value)));
  else row.append(...selected.map((isSelected) => makeKeyDots(isSelected, tokens)));
  return row;
}

// The keys of one query.
function makeKeyDots(isSelected, tokens) {
  const keys = isSelected.flatMap((is, key) => (is ? [key] : []));
  const words = PROGRAM_WORDS.keys(keys, tokens);
  const column = make("span", { class: "key-dots", "aria-hidden": true },
    ...isSelected.map((is) => make("i", { class: is ? "selected" : null })));
  return make("td", { title: words }, column, make("span", { class: "unseen" }, words));
}
