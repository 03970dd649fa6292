// Letters in, letters out, as attnlab.tasks.sequences has it: a row is `prompt SEP answer`, such as c a b SEP a b c.

import { EngineError, requireKnown, requireObject, requireWhole } from "./errors.js";

export const SEPARATOR = 0;
const ALPHABET = "abcdefghijklmnopqrstuvwxyz";
const MOST_PROMPTS = 40_000; // that are listed, judged and shown
const RULES = {
  sort: (prompt) => [...prompt].sort((one, other) => one - other),
  reverse: (prompt) => [...prompt].reverse(),
  copy: (prompt) => [...prompt],
};

export class SequenceTask {
  constructor(told) {
    for (const name of Object.keys(requireObject("task", told))) {
      requireKnown("setting of a task", name, ["task", "letters", "length"]);
    }
    const { task = "sort", letters = 3, length = 3 } = told;
    this.rule = requireKnown("task", task, Object.keys(RULES));
    this.letters = requireWhole("letters", letters, 1, ALPHABET.length);
    this.length = requireWhole("length", length, 1, 64);
    this.vocabulary = ["SEP", ...ALPHABET.slice(0, letters)];
    this.rowLength = 2 * length + 1;
    if (letters ** length > MOST_PROMPTS) {
      const number = `${letters}^${length}`;
      throw new EngineError(`${number} inputs are more than the ${MOST_PROMPTS} judged here; ask for fewer letters.`);
    }
    this.prompts = this.allPrompts();
    this.answers = this.prompts.map((prompt) => this.answer(prompt));
  }

  answer(prompt) {
    return RULES[this.rule](prompt);
  }

  /** List every prompt once, in alphabetical order. */
  allPrompts() {
    const letters = Array.from({ length: this.letters }, (_, i) => i + 1);
    let found = [[]];
    for (let place = 0; place < this.length; place++) {
      found = found.flatMap((start) => letters.map((letter) => [...start, letter]));
    }
    return found;
  }

  /** Read a prompt that a person typed; blanks, commas and case do not matter. */
  parse(text) {
    const letters = [...String(text).toLowerCase().replace(/[ ,+]/g, "")];
    const prompt = letters.map((letter) => this.vocabulary.indexOf(letter));
    if (prompt.length === this.length && prompt.every((id) => id > SEPARATOR)) return prompt;
    const wanted = `${this.length} letters from a to ${this.vocabulary.at(-1)}`;
    throw new EngineError(`expected ${wanted}; got ${JSON.stringify(text)}.`);
  }

  text(ids) {
    return Array.from(ids, (id) => this.vocabulary[id]).join("");
  }
}
