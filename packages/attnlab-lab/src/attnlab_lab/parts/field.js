// Every input of a task as a small button, row after row by length: green where a head is right.

import { listenToArrows, make, makeButton } from "attnlab/draw/report/elements.js";
import { DESIGN } from "../words_design.js";

export function makeField(choose) {
  const root = make("div", { class: "field", role: "group", "aria-label": DESIGN.field });
  let [task, buttons, states, pressed] = [null, [], [], -1];
  root.addEventListener("click", (event) => {
    const i = buttons.indexOf(event.target);
    if (i >= 0) choose(i);
  });
  const across = ({ offsetTop }) => buttons.filter((button) => button.offsetTop === offsetTop).length;
  listenToArrows(root, () => buttons, across, choose);
  return {
    root,
    show(shown, { right }, chosen) {
      if (task !== shown) {
        task = shown;
        const look = { class: "square", tabindex: -1, "aria-pressed": "false" };
        buttons = task.texts.map((text) => makeButton("", null, { ...look, title: text }));
        [states, pressed] = [[], -1];
        root.replaceChildren(...buttons);
        root.classList.toggle("many", buttons.length > 200);
      }
      buttons.forEach((button, i) => {
        if (states[i] === right[i]) return;
        button.dataset.state = right[i] ? "right" : "wrong";
        button.setAttribute("aria-label", DESIGN.square(task.texts[i], right[i]));
      });
      states = right;
      if (chosen === pressed) return;
      if (buttons[pressed]) press(buttons[pressed], false);
      press(buttons[chosen], true);
      pressed = chosen;
    },
  };
}

// The pressed square is the one that Tab reaches.
function press(button, isPressed) {
  button.setAttribute("aria-pressed", isPressed);
  button.tabIndex = isPressed ? 0 : -1;
}
