// Programs to begin with, as text; the same as those of attnlab.programs.library.

const BEFORE = 'before = select(indices, indices, "<")';
const SO_FAR = 'so_far = select(indices, indices, "<=")';

// Of each: its alphabet, an example, the longest input, its lines.
export const PROGRAMS = {
  sort: ["abc", "cab", 6, [
    'smaller = select(tokens, tokens, "<")',
    'equal_and_before = select(tokens, tokens, "==") & select(indices, indices, "<")',
    "place = selector_width(smaller | equal_and_before)",
    'output = aggregate(select(place, indices, "=="), tokens)',
  ]],
  reverse: ["abcd", "abac", 6, [
    "length = selector_width(everything)",
    'opposite = select(indices, length - 1 - indices, "==")',
    "output = aggregate(opposite, tokens)",
  ]],
  hist: ["abc", "abac", 6, [
    'same = select(tokens, tokens, "==")',
    "output = selector_width(same)",
  ]],
  "dyck-1": ["()", "(())(", 8, [
    SO_FAR,
    'step = where(tokens == "(", 1, where(tokens == ")", -1, 0))',
    "balance = aggregate(so_far, step)",
    "was_below = aggregate(so_far, balance < 0) > 0",
    'output = where(was_below, "F", where(balance == 0, "T", "P"))',
  ]],
  induction: ["abc", "abcab", 6, [
    'same = select(tokens, tokens, "==")',
    BEFORE,
    "last = aggregate(best(same & before, indices), indices, default=-9)",
    'output = aggregate(select(indices, last + 1, "=="), tokens, default=".")',
  ]],
  "majority so far": ["ab", "aabbb", 8, [
    SO_FAR,
    'share = aggregate(so_far, tokens == "a")',
    "output = share > 0.5",
  ]],
};

// A program as the room's choices, which are texts.
export function choicesOfProgram(name) {
  const [alphabet, example, longest, lines] = PROGRAMS[name];
  return { program: lines.join("\n"), alphabet, example, longest: String(longest) };
}
