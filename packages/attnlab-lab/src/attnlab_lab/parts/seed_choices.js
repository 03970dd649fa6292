// What is shown of all seeds: on which input, of which attention, in which order, and with which heads.

import { make, makeButton } from "attnlab/draw/report/elements.js";
import { makeMaskedNote, makeRamp } from "attnlab/draw/map/shades.js";
import { pictureOfHeads } from "attnlab/draw/view/modules/seed_grid.js";
import { SEED_WORDS } from "../words_populations.js";
import { makeSelect, makeSetting, makeTyped } from "./controls.js";
import { firstInput } from "./link.js";
import { WEIGHTS } from "./maps.js";
import { groupsOf, kindsOf, mapAt } from "./population.js";
import { settingsOfRun } from "./server.js";
import { slowly } from "./slowly.js";

const TYPED_AFTER = 400; // milliseconds without a key

// `take(changes)` hears what is chosen.
export function makeSeedChoices(take) {
  const reads = makeTyped("reads", { "aria-describedby": "reads-note" });
  const message = make("p", { class: "message refused", role: "status" });
  const [note, listed] = [make("p", { class: "note" }), make("h2", {})];
  const order = makeSelect("order", SEED_WORDS.order, take);
  const attention = makeSelect("attention", SEED_WORDS.attention, take);
  const groups = make("ul", { class: "seed-groups", "aria-label": SEED_WORDS.groups });
  const kinds = make("div", { class: "bar", role: "group", "aria-labelledby": "kinds-title" });
  const legend = makeRamp(WEIGHTS, "weight 0", "1");
  legend.append(makeMaskedNote(SEED_WORDS.masked));
  const takeLater = slowly(() => take({ reads: reads.value.trim() }), TYPED_AFTER);
  reads.addEventListener("input", takeLater);

  function showGroups(shown, colors) {
    const items = groupsOf(shown).map(({ letter, heads, seeds }, i) => {
      const picture = pictureOfHeads([mapAt(shown.means, shown, i)], shown, colors);
      return make("li", {}, picture, make("span", {}, SEED_WORDS.group(letter, heads, seeds, shown.letters.length)));
    });
    groups.replaceChildren(...items);
  }

  function showKinds(members, only) {
    const unsolved = members.filter(({ solvedAt }) => solvedAt === null).length;
    const choices = [["", SEED_WORDS.all(members.length)]];
    for (const [kind, number] of kindsOf(members)) choices.push([kind, SEED_WORDS.kind(kind, number)]);
    if (unsolved) choices.push(["unsolved", SEED_WORDS.unsolved(unsolved)]);
    const focused = [...kinds.children].indexOf(document.activeElement);
    const buttons = choices.map(([kind, words]) =>
      makeButton(words, () => take({ only: kind }), { "aria-pressed": String(kind === only) }));
    kinds.replaceChildren(...buttons);
    buttons[focused]?.focus();
  }

  const hint = make("p", { class: "note", id: "reads-note" }, SEED_WORDS.readsHint);
  const readsField = makeSetting(SEED_WORDS.reads, reads, hint);
  return {
    nodes: [make("div", { class: "fields" }, readsField, attention.root, order.root), message, groups, note, listed,
      make("p", { class: "label", id: "kinds-title" }, SEED_WORDS.only), kinds, legend],
    refuse: (words) => (message.textContent = words),
    forget: takeLater.forget,
    show({ found, shown, state, number, colors }) {
      const { members, attentions, figures, experiment } = found;
      if (document.activeElement !== reads) reads.value = state.reads;
      reads.placeholder = experiment === "sorting" ? firstInput(settingsOfRun("", found)) : "";
      reads.setAttribute("aria-invalid", message.textContent !== "");
      attention.fill(attentions.map(({ name }, i) => [String(i), name]), state.attention);
      attention.root.hidden = attentions.length < 2;
      order.fill(SEED_WORDS.orders(Object.keys(figures)), state.order);
      listed.textContent = SEED_WORDS.listed(number, members.length);
      showKinds(members, state.only);
      note.textContent = shown ? `${SEED_WORDS.isRead(found.text)} ${shown.note}` : "";
      if (shown) showGroups(shown, colors);
    },
  };
}
