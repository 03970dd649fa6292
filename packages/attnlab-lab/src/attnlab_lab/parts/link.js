// Everything that a link holds, in the hash, which reaches no server: `#v=1&room=play&seed=3&in=cab&edits=c0.1.3.0`.

import { WORDS } from "../words.js";
import { readEdits, writeEdits } from "./edits.js";
import { RUNS_FOLDER } from "./runs_folder.js";

const SERVED = ["runs", "populations", "sweeps", "models", "programs", "course"]; // rooms that need the server
const ROOMS = ["play", "bench", "design", "anatomy", ...(RUNS_FOLDER === null ? [] : SERVED)];
// The rooms as the head of the page lists them.
export const GROUPS = RUNS_FOLDER === null ? { learn: ROOMS }
  : { learn: ["play", "bench", "design", "anatomy", "course"], work: ["runs", "models", "programs"] };
// The rooms of one room's results, which stand behind it.
export const WITHIN = RUNS_FOLDER === null ? {} : { runs: ["runs", "populations", "sweeps"] };
const HIDEABLE = [
  "input", "maps", "model", "loss", "dots", "margin", "edits", "heads", "steps", "puzzles", "doors", "code", "keys",
  "scaling", "masks", "hiding", "order", "norms", "costs", // of Anatomy
];
const MOST = 2000; // characters
const VERSION = "1";

// Of each setting: the least, the most, and what it is if the link does not say.
export const NUMBERS = { seed: [1, 999999, 1], letters: [2, 4, 3], length: [2, 4, 3], heads: [1, 3, 2], layers: [1, 3, 1] };
export const TASKS = ["sort", "reverse", "copy"];
const FLAGS = ["present", "embed", "predict"];
// What rooms keep besides.
const OWN = {
  bench: ["puzzle"], design: ["head"], anatomy: ["anatomy"], runs: ["show", "with", "experiment"],
  populations: ["population", "member", "order", "only", "attention", "reads"],
  sweeps: ["sweep", "figure", "cell"],
  models: ["model", "text", "look", "part", "by", "changes"],
  programs: ["program", "alphabet", "example", "longest"],
  course: ["exercise"],
};
const KEYS = ["v", "room", "task", ...Object.keys(NUMBERS), "run", "file", "in", "edits", "at", "hide", ...FLAGS];

// The shape of the model that settings make, and what it can be asked.
export function shapeOf({ letters, length, heads, layers }) {
  const alphabet = "abcdefghijklmnopqrstuvwxyz".slice(0, letters);
  const isInput = (text) => text.length === length && [...text].every((letter) => alphabet.includes(letter));
  return { layers, heads, places: 2 * length, alphabet, isInput };
}

export function firstInput({ letters, length }) {
  return ["ab", "cab", "dcab"].find((word) => word.length === length && letters >= new Set(word).size)
    ?? "ba".repeat(length).slice(0, length);
}

export function readLink(hash) {
  const text = hash.replace(/^#/, "");
  if (text.length > MOST) throw new Error(WORDS.longLink(text.length, MOST));
  const pairs = [...new URLSearchParams(text)];
  const told = Object.fromEntries(pairs);
  if ((told.run || SERVED.includes(told.room)) && RUNS_FOLDER === null) throw new Error(WORDS.noServer);
  const room = oneOf("room", told.room ?? "play", ROOMS);
  const keys = [...KEYS, ...(OWN[room] ?? [])];
  const unknown = pairs.find(([key]) => !keys.includes(key));
  if (unknown) throw new Error(WORDS.badKey(unknown[0], keys));
  if (text && (told.v ?? VERSION) !== VERSION) throw new Error(WORDS.badVersion(told.v));
  const settings = { task: oneOf("task", told.task ?? "sort", TASKS) };
  for (const [name, range] of Object.entries(NUMBERS)) settings[name] = readNumber(name, told[name], range);
  if (told.run) settings.run = told.run;
  if (told.file) settings.file = true;
  const shape = shapeOf(settings);
  const input = told.in ?? firstInput(settings);
  if (!shape.isInput(input)) {
    throw new Error(WORDS.badLinkInput(WORDS.badInput(input, shape.alphabet, settings.length, firstInput(settings))));
  }
  const own = Object.fromEntries((OWN[room] ?? []).map((key) => [key, told[key]]));
  const hide = (told.hide ?? "").split(",").filter(Boolean).map((name) => oneOf("hide", name, HIDEABLE));
  return {
    room, own, settings, input, edits: readEdits(told.edits ?? "", shape),
    at: told.at === undefined ? null : readNumber("at", told.at, [0, 100000, 0]), hide,
    ...Object.fromEntries(FLAGS.map((flag) => [flag, told[flag] !== undefined && told[flag] !== "0"])),
  };
}

function oneOf(name, value, known) {
  if (!known.includes(value)) throw new Error(WORDS.badChoice(name, value, known));
  return value;
}

function readNumber(name, text, [least, most, usual]) {
  if (text === undefined) return usual;
  const value = Number(text);
  const fits = /^\d{1,6}$/.test(text) && value >= least && value <= most;
  if (!fits) throw new Error(WORDS.badNumber(name, text, least, most));
  return value;
}

function originOf({ run, file, seed }) {
  if (run) return [["run", run]];
  return file ? [["file", 1]] : [["seed", seed]];
}

// The choices of a room: what a link says of them, or else what they are usually.
export function readChoices(usual, own) {
  return Object.fromEntries(Object.entries(usual).map(([key, value]) => [key, own[key] ?? value]));
}

// What a link says of choices: those that are not as usual.
export function writeChoices(usual, state, isLeftOut = (_key) => false) {
  const valueOf = (key) => (state[key] === usual[key] || isLeftOut(key) ? null : state[key]);
  return Object.fromEntries(Object.keys(usual).map((key) => [key, valueOf(key)]));
}

// Without the edits, where they would not fit. Only what is not as it would be anyway is written, besides version, room, seed and input.
export function writeLink(link) {
  const whole = writeWhole(link);
  return whole.length <= MOST ? whole : writeWhole({ ...link, edits: [], at: null });
}

function writeWhole({ room, settings, input, edits, at, hide, own, ...flags }) {
  const pairs = [["v", VERSION], ["room", room], ...originOf(settings), ["in", input]];
  if (settings.task !== "sort") pairs.push(["task", settings.task]);
  for (const [name, [, , usual]] of Object.entries(NUMBERS)) {
    if (name !== "seed" && settings[name] !== usual) pairs.push([name, settings[name]]);
  }
  if (edits.length) pairs.push(["edits", writeEdits(edits)]);
  if (at !== null) pairs.push(["at", at]);
  if (hide.length) pairs.push(["hide", hide.join(",")]);
  for (const key of OWN[room] ?? []) if (own[key]) pairs.push([key, own[key]]);
  for (const flag of FLAGS) if (flags[flag]) pairs.push([flag, 1]);
  return `#${pairs.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&").replaceAll("%2C", ",")}`;
}
