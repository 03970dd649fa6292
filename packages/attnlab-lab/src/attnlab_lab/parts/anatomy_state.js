// What is set in the anatomy room, in the form of a link: `width.128,kind.rotary`. What is as at first is not written.

import { WORDS } from "../words.js";

export const SENTENCE = ["the", "cat", "sat", "on", "the", "mat"];

// Of each setting: what it is at first, and what it may be, as a list or a form.
export const ANATOMY_SETTINGS = {
  width: { usual: "64", known: listOf(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) },
  window: { usual: "2", known: listOf(1, 2, 3, 4, 5, 6) },
  own: { usual: "110000110000111000111100111110111111", form: /^[01]{36}$/ }, // causal, but for one square
  value: { usual: "-100", known: ["-100", "-1e4", "-1e9", "-inf"] },
  size: {
    usual: "100", known: listOf(0, 10, 30, 60, 80, 90, 95, 100, 105, 110, 150, 300, 1e3, 3e3, 9e3, 1e4, 1.1e4, 3e4, 1e5,
      1e6, 1e7, 1e8, 9e8, 1e9, 1100000000, 1e10),
  },
  all: { usual: "0", known: ["0", "1"] },
  kind: { usual: "none", known: ["none", "sinusoidal", "learned", "rotary"] },
  order: { usual: "swapped", known: ["swapped", "backwards", "mixed"] },
  numbers: { usual: "10_20_30_-40_0_5_20_10", form: /^-?(100|\d{1,2})(_-?(100|\d{1,2})){7}$/ }, // in tenths
  length: { usual: "4096", known: Array.from({ length: 13 }, (_, i) => String(32 * 2 ** i)) },
  model: { usual: "512", known: listOf(128, 256, 512, 1024, 2048, 4096) },
};

function listOf(...values) {
  return values.map(String);
}

export function readAnatomy(text) {
  const state = Object.fromEntries(Object.entries(ANATOMY_SETTINGS).map(([name, { usual }]) => [name, usual]));
  for (const pair of text.split(",").filter(Boolean)) {
    const [name, ...rest] = pair.split(".");
    const value = rest.join(".");
    const setting = Object.hasOwn(ANATOMY_SETTINGS, name) ? ANATOMY_SETTINGS[name] : null;
    if (!setting) throw new Error(WORDS.badChoice("anatomy", name, Object.keys(ANATOMY_SETTINGS)));
    const { known, form } = setting;
    if (known ? !known.includes(value) : !form.test(value)) {
      throw new Error(WORDS.badChoice(name, value, known ?? [setting.usual, "…"]));
    }
    state[name] = value;
  }
  return state;
}

export function writeAnatomy(state) {
  const changed = Object.entries(state).filter(([name, value]) => value !== ANATOMY_SETTINGS[name].usual);
  return changed.map(([name, value]) => `${name}.${value}`).join(",");
}
