// All sentences of the room Programs.

import { count, quote, wordNumber } from "attnlab/draw/report/elements.js";

export const PROGRAM_WORDS = {
  title: "Programs",
  subtitle: "Say line by line what attention should do. See each line on an example, then make it a model that is proved.",
  start: "Begin with",
  own: "your own",
  names: { "dyck-1": "dyck-1: balanced brackets", hist: "hist: how often", induction: "induction: what followed last time" },
  program: "Program, one assignment a line",
  hint: "Names: tokens, indices, everything, select, aggregate, selector_width, total, best, where. The last line is the output.",
  alphabet: "Alphabet",
  example: "Example",
  longest: "Longest input",

  table: (tokens) => `Each line on ${tokens.join(" ")}`,
  lines: "line",
  dots: "A column is a query: the dots from top to bottom are the keys, filled where they are selected.",
  keys: (keys, tokens) => (keys.length ? `keys ${keys.map((key) => `${key} ${quote(tokens[key])}`).join(", ")}` : "no key"),
  said: ({ number, name, error }) => `Line ${number}${name ? `, ${name}` : ""}: ${error}`,
  fine: (lines) => `${count(lines, "line")}, each with a value.`,

  prove: "Compile and prove",
  proving: "The model is made, and put to every input …",
  refused: (number, reason) => `Line ${number}: ${reason}`,
  facts: ({ model: { layers, heads, width, stream, hidden }, proof: { margin, sure, dtype, counterexample }, seconds }) => [
    ["Model", `${count(layers, "layer")} of ${count(heads, "head")} of width ${width}, stream ${stream}, hidden ${hidden}`],
    ["Margin", margin === null ? "none" : `${wordNumber(margin)}; left after rounding: ${sure === null ? "none" : wordNumber(sure)} (${dtype})`],
    ...(counterexample ? [["First failure", counterexample]] : []),
    ["Time", `${wordNumber(Math.max(seconds, 0.01))} s`],
  ],
  line: (number) => `Line ${number}`,
  designed: "Designed",
  designedNth: (i) => `Designed, selection ${i + 1}`,
  sides: "Designed is what the program selects; a head is where the model looks on this example.",
  split: "What one head cannot select, such as keys joined by |, takes several: together these look at what is selected.",
  bosNote: "BOS stands before every input, in the model alone: a head that counts, or finds nothing, looks at it.",
  position: (i, token) => `${i} ${quote(token)}`,
  selected: (query, key, isSelected) => `Query ${query} → key ${key}: ${isSelected ? "selected" : "not selected"}.`,
  noBos: (query) => `Query ${query}: BOS is not in the program.`,
  weight: (query, key, weight) => `Query ${query} → ${key}: weight ${weight}.`,
  selectorLabel: (words) => `What the program selects: ${words}`,
  mapKeys: "Arrow keys read squares, plus and minus zoom",
  noHeads: "This program needs no attention: it has no heads.",

  code: "The same in Python, and as a command",
  tooLong: (most) => `This program is too long for a link, which takes ${most.toLocaleString("en-GB")} characters of it: keep it in a file.`,
};
