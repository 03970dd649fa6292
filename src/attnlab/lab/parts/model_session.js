// A model behind the server: opened, asked about a text, edited. It knows no element of the page.

import { MODEL_WORDS } from "../words_models.js";
import { WORDS } from "../words.js";
import { findEdit, headOf } from "./edits.js";
import { askServer, unpack } from "./server.js";

const CHANGE_FORM = /^(?:z(.+\.\d+)|c(.+?\.\d+)\.(\d+)\.(\d+))$/;
const PAGE = String(Math.random()); // the server drops what this page asked before

// hear(refusal): something else is to be shown, or the server's sentence; say(words) tells what was done.
export function makeModelSession({ hear, say, busy }) {
  const lab = {
    model: null, facts: null, text: "", head: null, edits: [], past: [], future: [],
    told: null, shown: null, // all heads and the answer; one head
  };
  let latest = null; // what was asked last; older answers are dropped

  // "" if it is done, the server's sentence if it refused, and null if something newer was asked meanwhile.
  async function during(deed) {
    const mine = {};
    latest = mine;
    busy(true);
    const { refusal = "", ...found } = await deed().catch((error) => ({ refusal: error.message }));
    if (latest !== mine) return null;
    busy(false);
    Object.assign(lab, found);
    hear(refusal);
    return refusal;
  }

  async function open(model, { text, look: head = null, changes = "" } = {}) {
    say(MODEL_WORDS.opening(model));
    const refused = await during(async () => {
      const edits = changes.split(",").filter(Boolean).map(readChange);
      const facts = await askServer("/api/models/open", { model });
      return { model, facts, text: text ?? facts.first, head, edits, past: [], future: [], told: null, shown: null };
    });
    if (refused) say("");
    if (refused !== "") return;
    const unread = await look();
    if (unread !== null) say(MODEL_WORDS.opened(model));
    if (!unread) return;
    Object.assign(lab, { text: lab.facts.first, edits: [] }); // a link may ask for what does not fit
    if (await look() === "") hear(unread);
  }

  // Asks for all heads and the answer, unless they are known, then for the one head.
  function look() {
    const { model, text, edits } = lab;
    const changes = edits.map(({ layer, head, query, key }) => ({ head: `${layer}.${head}`, query, key }));
    const asked = { model, text, edits: changes, page: PAGE };
    const key = JSON.stringify(asked);
    return during(async () => {
      const told = lab.told?.key === key ? lab.told : { key, ...await askServer("/api/models/ask", asked) };
      const head = told.heads.some(({ name }) => name === lab.head) ? lab.head : told.heads[0].name;
      const shown = await askServer("/api/models/head", { ...asked, head });
      for (const each of [shown.before, shown.after]) {
        for (const part of ["weights", "scores", "mask"]) each[part] = unpack(each[part]);
      }
      return { told, head, shown };
    });
  }

  function choose(head) {
    lab.head = head;
    return look();
  }

  function chooseNext(by) {
    const names = lab.told.heads.map(({ name }) => name);
    const next = names[names.indexOf(lab.head) + by];
    if (next) choose(next);
  }

  // A cut edge is one of its text: only heads stay knocked out in another.
  async function setText(text) {
    const kept = { text: lab.text, edits: lab.edits };
    const edits = lab.edits.filter(({ kind }) => kind === "zero");
    const dropped = lab.edits.length - edits.length;
    Object.assign(lab, { text, edits });
    const refusal = await look();
    if (refusal === null) return;
    Object.assign(lab, refusal ? kept : { past: [], future: [] });
    say(dropped && !refusal ? MODEL_WORDS.cutsDropped(dropped) : "");
  }

  // Takes other edits; if the server refuses them, those before stay.
  async function take(edits, isAdded, { past = [...lab.past, lab.edits], future = [] } = {}) {
    const kept = { edits: lab.edits, past: lab.past, future: lab.future };
    Object.assign(lab, { edits, past, future });
    const refusal = await look();
    if (refusal) Object.assign(lab, kept);
    else if (refusal === "") say(MODEL_WORDS.taken(lab, isAdded));
  }

  function toggle(edit) {
    const old = findEdit(lab.edits, edit);
    if (old) return take(lab.edits.filter((each) => each !== old), false);
    return take([...lab.edits, edit], true);
  }

  function cut([query, key]) {
    const edit = { kind: "cut", ...headOf(lab.head), query, key };
    const { mask, columns } = lab.shown.after;
    if (mask[query * columns + key] || findEdit(lab.edits, edit)) toggle(edit);
    else say(WORDS.nothingToCut);
  }

  function undo() {
    if (!lab.past.length) return say(WORDS.nothingToUndo);
    const past = [...lab.past];
    return take(past.pop(), false, { past, future: [lab.edits, ...lab.future] });
  }

  function redo() {
    if (!lab.future.length) return say(WORDS.nothingToRedo);
    const [edits, ...future] = lab.future;
    return take(edits, true, { future });
  }

  const deeds = {
    open, choose, chooseNext, setText, cut, undo, redo,
    knockOut: () => toggle({ kind: "zero", ...headOf(lab.head) }),
    change: (edits, _, isAdded) => take(edits, isAdded),
    reset: () => lab.edits.length && take([], false),
    leave: () => (latest = null),
  };
  return { lab, deeds };
}

function readChange(word) {
  const [, whole, head, query, key] = CHANGE_FORM.exec(word) ?? [];
  if (whole) return { kind: "zero", ...headOf(whole) };
  if (head) return { kind: "cut", ...headOf(head), query: Number(query), key: Number(key) };
  throw new Error(MODEL_WORDS.badChange(word));
}
