// All sentences of the room Course.

import { count } from "attnlab/draw/report/elements.js";

export const COURSE_WORDS = {
  title: "Course",
  subtitle: "Write attention yourself. A check shows the smallest case that fails, and names the mistake.",
  exercise: "Exercise",
  loading: "Loading the exercises …",
  option: ({ name, title, state }) => `${{ new: "○", begun: "◐", solved: "●" }[state]} ${title} (${name})`,
  solved: (solved, all) => `${solved} of ${all} solved`,
  next: ({ title }) => `Next: ${title}`,
  allSolved: "Every exercise is solved.",
  facts: ({ level, minutes, points, kind }) =>
    `Level ${level} of 5, about ${minutes} minutes, ${count(points, "point")}${kind === "predict" ? ". Say it before you run it" : ""}`,
  picture: (title) => `A picture of the answer: ${title}`,
  answer: {
    label: "Your answer",
    hint: "Tab indents; Escape, then Tab leaves the field. Ctrl and Enter checks.",
    plain: "The editor with colors could not be loaded; this field does the same without.",
  },
  file: (file) => `Saved with each check in ${file}, which attnlab course check reads too.`,
  check: "Check",
  hint: (seen, all) => (seen ? `Next hint (${seen} of ${all} seen)` : "A hint"),
  checking: "Your answer runs …",
  unwritten: "Nothing is written yet.",
  broken: (words) => `Your answer cannot be checked: ${words}.`,
  passes: (passed, all, waiting) => `${passed} of ${count(all, "check")} ${all === 1 ? "passes" : "pass"}${COURSE_WORDS.waiting(waiting)}`,
  text: "There is a text. A person reads it, for these points:",
  waiting: (waiting) => (waiting ? `; ${count(waiting, "check")} not run yet.` : "."),
  passed: "passed",
  failed: "failed",
  smallest: "The smallest case that fails",
  printed: "it printed:",
  expected: "Expected",
  yours: "Yours",
  difference: "Difference",
  cell: (title, i, j, value) => `${title}, row ${i + 1}, column ${j + 1}: ${value}`,
  mistake: "This is a known mistake",
};
