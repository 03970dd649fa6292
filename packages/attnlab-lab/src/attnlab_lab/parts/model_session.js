// A model behind the server: opened, asked about a text, edited. It knows no element of the page.

import { MODEL_WORDS } from "../words_models.js";
import { WORDS } from "../words.js";
import { findEdit, headOf, isAllowed, readEdit } from "./edits.js";
import { askServer } from "./server.js";

const PART_FORM = /^\d{1,5}\.\d{1,5}$/; // the first query and key that are shown of a long text
const PAGE = String(Math.random()); // the server drops what this page asked before

const STATE = ["model", "text", "head", "at", "edits", "past", "future"];
const NO_MODEL = {
  model: null, facts: null, text: "", head: null, at: null, edits: [], past: [], future: [],
  told: null, shown: null, // all heads and the answer; one head
};

// hear(refusal): something else is to be shown, or the server's sentence; say(words) tells what was done;
// clock(seconds): for how long a model is being opened, null if none is.
export function makeModelSession({ hear, say, busy, clock }) {
  // What is shown; it changes with the server's answer alone.
  const lab = { ...NO_MODEL };
  let wanted = lab; // what was asked for last, of which the rest is made
  let latest = null; // what was asked last; older answers are dropped
  let opening = null; // while a model is opened: asks how far that is

  // "", the server's sentence if it refused, and null if something newer was asked meanwhile.
  async function during(deed, word = (refusal) => refusal) {
    const mine = {};
    latest = mine;
    busy(true);
    const { refusal = "", ...found } = await deed().catch(({ message }) => ({ refusal: word(message) }));
    if (latest !== mine) return null;
    busy(false);
    Object.assign(lab, found);
    wanted = lab;
    hear(refusal);
    return refusal;
  }

  async function open(model, { text, look: head = null, part, changes = "" } = {}) {
    followOpening(model);
    const refused = await during(async () => {
      const edits = changes.split(",").filter(Boolean).map(readChange);
      const facts = await askServer("/api/models/open", { model });
      const start = PART_FORM.test(part ?? "") ? part.split(".").map(Number) : null;
      return { ...NO_MODEL, model, facts, text: text ?? facts.first, head, at: start, edits };
    }, (refusal) => MODEL_WORDS.notOpened(refusal, lab.model));
    if (refused === null) return;
    leaveOpening();
    if (refused) {
      say("");
      return;
    }
    const unread = await look({});
    if (unread !== null) say(MODEL_WORDS.opened(model));
    if (!unread) return;
    if (await look({ text: lab.facts.first, edits: [] }) === "") hear(unread); // a link may ask for what does not fit
  }

  function followOpening(model) {
    leaveOpening();
    const begun = performance.now();
    let told = "";
    const mine = setInterval(async () => {
      clock(Math.round((performance.now() - begun) / 1000));
      const { said } = await askServer("/api/models/opening").catch(() => ({ said: told }));
      if (mine !== opening || said === told) return;
      told = said;
      say(MODEL_WORDS.opening(model, said));
    }, 1000);
    opening = mine;
    say(MODEL_WORDS.opening(model, ""));
  }

  function leaveOpening() {
    clearInterval(opening);
    opening = null;
    clock(null);
  }

  // Asks for all heads, the answer and the one head. Nothing while a model is opened.
  function look(changes) {
    if (opening !== null) return null;
    wanted = { ...wanted, ...changes };
    const mine = Object.fromEntries(STATE.map((name) => [name, wanted[name]]));
    const edits = mine.edits.map(({ layer, head, query, key }) => ({ head: `${layer}.${head}`, query, key }));
    const asked = { model: mine.model, text: mine.text, edits, head: mine.head ?? "", at: mine.at, page: PAGE };
    return during(async () => {
      const { shown, head, ...told } = await askServer("/api/models/ask", asked);
      return { ...mine, told, head, shown };
    });
  }

  function chooseNext(by) {
    const names = lab.told.heads.map(({ name }) => name);
    const next = names[names.indexOf(wanted.head) + by];
    if (next) look({ head: next });
  }

  // A cut edge is one of its text: only heads stay knocked out in another.
  async function setText(text) {
    const edits = wanted.edits.filter(({ kind }) => kind === "zero");
    const dropped = wanted.edits.length - edits.length;
    const refusal = await look({ text, at: null, edits, past: [], future: [] });
    if (refusal !== null) say(dropped && !refusal ? MODEL_WORDS.cutsDropped(dropped) : "");
  }

  async function take(edits, isAdded, { past = [...wanted.past, wanted.edits], future = [] } = {}) {
    const refusal = await look({ edits, past, future });
    if (refusal === "") say(MODEL_WORDS.taken(lab, isAdded));
  }

  function toggle(edit) {
    const old = findEdit(wanted.edits, edit);
    if (old) return take(wanted.edits.filter((each) => each !== old), false);
    return take([...wanted.edits, edit], true);
  }

  function cut([row, column]) {
    const { at: [first, start], after } = lab.shown;
    const edit = { kind: "cut", ...headOf(lab.head), query: first + row, key: start + column };
    if (isAllowed(after, row, column) || findEdit(wanted.edits, edit)) toggle(edit);
    else say(WORDS.nothingToCut);
  }

  function undo() {
    if (!wanted.past.length) return say(WORDS.nothingToUndo);
    const past = [...wanted.past];
    return take(past.pop(), false, { past, future: [wanted.edits, ...wanted.future] });
  }

  function redo() {
    if (!wanted.future.length) return say(WORDS.nothingToRedo);
    const [edits, ...future] = wanted.future;
    return take(edits, true, { future });
  }

  const deeds = {
    open, chooseNext, setText, cut, undo, redo,
    choose: (head) => look({ head }),
    goTo: (at) => look({ at }),
    knockOut: () => toggle({ kind: "zero", ...headOf(lab.head) }),
    change: (edits, _, isAdded) => take(edits, isAdded),
    reset: () => wanted.edits.length && take([], false),
    leave() {
      latest = null;
      leaveOpening();
    },
  };
  return { lab, deeds };
}

function readChange(word) {
  const edit = readEdit(word);
  if (["zero", "cut"].includes(edit?.kind)) return edit;
  throw new Error(MODEL_WORDS.badChange(word));
}
