// What was done, in words, each thing removable; undo, redo, reset.

import { make, makeButton } from "attnlab/draw/report/elements.js";
import { WORDS } from "../words.js";
import { wordEdit } from "./edits.js";

// tokensOf(edit): the tokens at the positions of its query and its key, where they are known
export function makeEditsList({ lab, undo, redo, reset, change, tokensOf = () => lab.now?.ask.steps.at(-1).tokens ?? [] }) {
  const buttons = {
    undo: makeButton(WORDS.undo, undo, { "aria-keyshortcuts": "z" }),
    redo: makeButton(WORDS.redo, redo, { "aria-keyshortcuts": "Shift+Z" }),
    reset: makeButton(WORDS.resetButton, reset),
  };
  const list = make("ul", { class: "edits", "aria-label": WORDS.editsTitle });
  const root = make("div", { class: "edits-part", "data-part": "edits" },
    make("div", { class: "edits-head" }, make("h2", {}, WORDS.editsTitle),
      make("div", { class: "bar" }, ...Object.values(buttons))),
    list);
  let shown = []; // the edits, and their words
  return {
    root,
    show() {
      // Not `disabled`, which would take the focus away from who just pressed it.
      buttons.undo.setAttribute("aria-disabled", !lab.past.length);
      buttons.redo.setAttribute("aria-disabled", !lab.future.length);
      buttons.reset.setAttribute("aria-disabled", !lab.edits.length);
      const told = lab.edits.map((edit) => wordEdit(edit, tokensOf(edit)));
      if (shown[0] === lab.edits && shown[1] === String(told)) return;
      shown = [lab.edits, String(told)];
      list.replaceChildren(...lab.edits.map((edit, i) => {
        const words = told[i];
        const take = () => {
          buttons.undo.focus(); // this button goes
          change(lab.edits.filter((each) => each !== edit), edit, false);
        };
        const remove = makeButton("×", take,
          { class: "remove", "aria-label": WORDS.remove(words), title: WORDS.remove(words) });
        return make("li", {}, words, remove);
      }));
      if (!lab.edits.length) list.append(make("li", { class: "note" }, WORDS.noEdits));
    },
  };
}
