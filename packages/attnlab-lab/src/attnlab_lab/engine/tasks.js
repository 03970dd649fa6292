// Letters in, letters out, as attnlab.tasks.sequences has it: a row is `prompt SEP answer`, such as c a b SEP a b c.

import { EngineError, requireKnown, requireObject, requireWhole } from "./errors.js";

export const SEPARATOR = 0;
const ALPHABET = "abcdefghijklmnopqrstuvwxyz";
const MOST_PROMPTS = 40_000; // that are listed, judged and shown
const RULES = {
  sort: (prompt) => [...prompt].sort((one, other) => one - other),
  reverse: (prompt) => [...prompt].reverse(),
  copy: (prompt) => [...prompt],
  add: addDigits,
  induction: (prompt) => [prompt[prompt.lastIndexOf(prompt.at(-1), prompt.length - 2) + 1]],
};

export class SequenceTask {
  constructor(told) {
    for (const name of Object.keys(requireObject("task", told))) {
      requireKnown("setting of a task", name, ["task", "letters", "length"]);
    }
    const { task = "sort", letters = 3, length = 3 } = told;
    this.rule = requireKnown("task", task, Object.keys(RULES));
    this.letters = requireWhole("letters", letters, task === "add" ? 2 : 1, ALPHABET.length);
    this.length = requireWhole("length", length, task === "induction" ? 2 : 1, 64);
    this.vocabulary = ["SEP", ...ALPHABET.slice(0, letters)];
    this.promptLength = task === "add" ? 2 * length : length;
    this.answerLength = { add: length + 1, induction: 1 }[task] ?? length;
    this.rowLength = this.promptLength + 1 + this.answerLength;
    if (letters ** this.promptLength > MOST_PROMPTS) {
      const number = `${letters}^${this.promptLength}`;
      throw new EngineError(`${number} inputs are more than the ${MOST_PROMPTS} judged here; ask for fewer letters.`);
    }
    this.prompts = this.allPrompts();
    this.answers = this.prompts.map((prompt) => this.answer(prompt));
  }

  answer(prompt) {
    return RULES[this.rule](prompt, this.letters);
  }

  /** List every prompt once, in alphabetical order. */
  allPrompts() {
    const letters = Array.from({ length: this.letters }, (_, i) => i + 1);
    let found = [[]];
    for (let place = 0; place < this.promptLength; place++) {
      found = found.flatMap((start) => letters.map((letter) => [...start, letter]));
    }
    return found.filter((prompt) => this.isInDomain(prompt));
  }

  /** In induction the last letter must have stood there before. */
  isInDomain(prompt) {
    return this.rule !== "induction" || prompt.indexOf(prompt.at(-1)) < prompt.length - 1;
  }

  /** Read a prompt that a person typed; blanks, commas and case do not matter. */
  parse(text) {
    const letters = [...String(text).toLowerCase().replace(/[ ,+]/g, "")];
    const prompt = letters.map((letter) => this.vocabulary.indexOf(letter));
    const isWhole = prompt.length === this.promptLength && prompt.every((id) => id > SEPARATOR);
    if (isWhole && this.isInDomain(prompt)) return prompt;
    const last = this.rule === "induction" ? ", the last of which stood there before" : "";
    const wanted = `${this.promptLength} letters from a to ${this.vocabulary.at(-1)}${last}`;
    throw new EngineError(`expected ${wanted}; got ${JSON.stringify(text)}.`);
  }

  text(ids) {
    return Array.from(ids, (id) => this.vocabulary[id]).join("");
  }
}

function addDigits(prompt, base) {
  const length = prompt.length / 2;
  const digits = [];
  let carry = 0;
  for (let place = length - 1; place >= 0; place--) {
    const total = prompt[place] + prompt[length + place] - 2 + carry;
    digits.unshift((total % base) + 1);
    carry = Math.floor(total / base);
  }
  return [carry + 1, ...digits];
}
