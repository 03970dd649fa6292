// Long tables show their first rows, and all of them on paper, without a script, or when asked.

import { make, makeButton } from "./elements.js";

const FIRST = 10; // as in page.css
const MOST = 15; // rows that are not worth folding

export function foldTables() {
  for (const box of document.querySelectorAll(".scroll")) {
    const total = box.querySelectorAll("tbody tr").length;
    if (total <= MOST) continue;
    const words = make("span");
    const button = makeButton("", () => fold(!box.classList.contains("folded")));
    const fold = (isFolded) => {
      const rows = total.toLocaleString("en-GB");
      box.classList.toggle("folded", isFolded);
      words.textContent = isFolded ? `${FIRST} of ${rows} rows; ` : `${rows} rows; `;
      button.textContent = isFolded ? "show all" : `show the first ${FIRST}`;
      button.setAttribute("aria-expanded", !isFolded);
    };
    box.after(make("p", { class: "note fold" }, words, button));
    fold(true);
  }
}
