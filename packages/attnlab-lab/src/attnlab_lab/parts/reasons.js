// Why this cell: the terms of one score as bars, for the square that was asked for.

import { make, wordNumber, wordTrimmed } from "attnlab/draw/report/elements.js";
import { WHY_WORDS } from "../words_models.js";
import { makeSigned } from "./bars.js";
import { makeAsker } from "./server.js";

const WHY_PAGE = `why ${Math.random()}`; // the server drops what this page asked before

export function makeReasons() {
  const refusal = make("p", { class: "message refused", role: "alert" });
  const server = makeAsker({ tell: (words) => (refusal.textContent = words) });
  const title = make("h2", { id: "why-title" });
  const said = make("p", { class: "said", "aria-live": "polite" });
  const terms = make("ul", { class: "bars" });
  const rest = make("p", { class: "note" });
  const root = make("section", { class: "why-part", "aria-labelledby": "why-title", hidden: true },
    title, refusal, said, terms, rest);
  let of = null; // the model, the text and the head that were asked about

  return {
    root,
    // The score of a square of the head that is shown, as the model computes it without edits.
    async ask({ model, text, head, shown: { at, queries, keys } }, [row, column]) {
      of = { model, text, head };
      const cell = { query: at[0] + row, key: at[1] + column };
      const told = await server.ask("why", "/api/models/why", { ...of, ...cell, page: WHY_PAGE });
      if (!told) return;
      root.hidden = false;
      title.textContent = WHY_WORDS.title(head, [cell.query, queries[row]], [cell.key, keys[column]]);
      for (const part of [said, terms, rest]) part.hidden = Boolean(told.refusal);
      if (told.refusal) return;
      said.textContent = WHY_WORDS.said(wordTrimmed(told.score, 4), wordTrimmed(told.weight, 4));
      const longest = Math.max(...told.terms.map(([, , term]) => Math.abs(term)));
      terms.replaceChildren(...told.terms.map(([query, key, term]) =>
        make("li", {}, make("span", {}, WHY_WORDS.term(query, key)), makeSigned(term, longest || 1, wordTrimmed(term, 3)))));
      rest.textContent = WHY_WORDS.rest(told, wordNumber);
    },
    // What is shown is of one head of one text.
    show({ model, text, head }) {
      if (!of || (of.model === model && of.text === text && of.head === head)) return;
      server.drop();
      [of, root.hidden] = [null, true];
    },
  };
}
