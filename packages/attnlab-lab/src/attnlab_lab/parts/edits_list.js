// What was done, in words, each thing removable; undo, redo, reset.

import { make, makeButton } from "attnlab/draw/report/elements.js";
import { placeNames, WORDS } from "../words.js";
import { wordEdit } from "./edits.js";

// places(edit): what its query and its key are called, by their numbers
export function makeEditsList({ lab, undo, redo, reset, change, places = () => placeNames(lab.settings.length) }) {
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
  let shown = null;
  return {
    root,
    show() {
      // Not `disabled`, which would take the focus away from who just pressed it.
      buttons.undo.setAttribute("aria-disabled", !lab.past.length);
      buttons.redo.setAttribute("aria-disabled", !lab.future.length);
      buttons.reset.setAttribute("aria-disabled", !lab.edits.length);
      if (shown === lab.edits) return;
      shown = lab.edits;
      list.replaceChildren(...lab.edits.map((edit) => {
        const words = wordEdit(edit, places(edit));
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
