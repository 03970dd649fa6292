// The seeds of a population: the heads of each as a small picture; one is chosen, here or in Python.

import { count, make, wordNumber } from "../../report/elements.js";
import { followColors, makeMaskedNote, makeRamp, makeScale } from "../../map/shades.js";
import { unpackAll } from "../../map/wire.js";
import { makeSeedGrid } from "./seed_grid.js";

export function makeSeeds(place, { members, number, attentions }, change) {
  const grid = makeSeedGrid((seed) => change({ seed }));
  const said = make("p", { class: "said", role: "status" });
  const select = make("select", { id: "seeds-attention" }, ...attentions.map(({ name }, i) => make("option", { value: i }, name)));
  const choice = make("div", { class: "choice" }, make("label", { class: "note", for: select.id }, "Attention"), select);
  choice.hidden = attentions.length < 2;
  const legend = makeRamp(makeScale(0, 1), "0", "1");
  legend.append(makeMaskedNote("masked: not allowed"));
  let [read, colors, chosen] = [[], null, ""];
  const draw = () => {
    grid.build(members, read[Number(select.value)], colors);
    grid.list(members);
    grid.mark(chosen);
  };
  select.addEventListener("change", draw);
  followColors(place, (found) => {
    colors = found;
    draw();
  });
  unpackAll(attentions).then((found) => {
    read = found;
    draw();
  });
  const cut = make("p", { class: "note" }, `These are the first ${wordNumber(members.length)} of ${count(number, "seed")}.`);
  cut.hidden = members.length === number;
  place.append(choice, grid.root, cut, legend, said);
  return {
    take({ seed }) {
      chosen = seed;
      grid.mark(seed);
      grid.scrollTo(seed);
      said.textContent = sayChosen(members, number, seed);
    },
  };
}

function sayChosen(members, number, seed) {
  const found = members.find(({ name }) => name === seed);
  if (!found && members.length < number) return `Seed ${seed} is not among those shown here.`;
  if (!found) return `This population has no seed ${seed}.`;
  const { solvedAt, fault, kind, rank } = found;
  if (fault) return `Seed ${seed} diverged: it was no longer finite ${fault}.`;
  const outcome = solvedAt === null ? "does not solve the problem" : `solves the problem, first at step ${wordNumber(solvedAt)}`;
  const ranked = members.filter((member) => member.rank).length;
  const ends = { 1: "are the most typical", [ranked]: "are the oddest" };
  const words = ends[rank] ? `${ends[rank]} of ${count(ranked, "seed")}` : `rank ${rank} of ${ranked} by how typical they are`;
  const place = rank && ranked > 1 ? ` Its heads, ${kind}, ${words}.` : "";
  return `Seed ${seed} ${outcome}.${place}`;
}
