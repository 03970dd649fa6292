// One seed among the others: its loss, its heads beside the means of their groups, and where it can be opened.

import { make, makeSvg, wordTrimmed } from "attnlab/draw/report/elements.js";
import { SEED_WORDS } from "../words_populations.js";
import { makeTyped } from "./controls.js";
import { makeLineChart, writeLine } from "./line_chart.js";
import { WEIGHTS } from "./maps.js";
import { groupOf, mapAt } from "./population.js";
import { linkToBench } from "./run_details.js";
import { folderOf, RUNS_FOLDER } from "./runs_folder.js";
import { makeTableMap } from "./table_map.js";

export function makeSeedDetails(choose) {
  const input = makeTyped("seed", { size: 8 });
  const message = make("p", { class: "message refused", role: "status" });
  const told = make("p", { class: "seed-told" });
  const chart = makeLosses();
  const heads = make("div", { class: "seed-heads" });
  const bench = make("a", { class: "button" }, SEED_WORDS.bench);
  const code = make("code", {});
  const known = make("div", { class: "seed-known" }, told, make("div", { class: "bar" }, bench), chart.root, heads,
    make("details", {}, make("summary", {}, SEED_WORDS.code),
      make("pre", { tabindex: 0, "aria-label": SEED_WORDS.code }, code)));
  let maps = [];
  input.addEventListener("input", () => input.value.trim() && choose(input.value.trim()));

  function showHeads(attention, { row }, colors) {
    const { letters, heads: number, queries, keys, headNames } = attention;
    if (maps.length !== 2 * number) {
      const hear = { read: (cell) => maps.forEach((map) => map.point(cell)) };
      maps = Array.from({ length: 2 * number }, () => makeTableMap("", hear));
      heads.replaceChildren(...maps.map((map) => map.root));
    }
    const source = (values) => ({
      names: [queries, keys], scale: WEIGHTS, colors,
      say(i, j) {
        const value = values[i * keys.length + j];
        const words = Number.isNaN(value) ? SEED_WORDS.masked : wordTrimmed(value, 4);
        return SEED_WORDS.cellSaid(queries[i], keys[j], words);
      },
    });
    letters[row].forEach((letter, head) => {
      const own = mapAt(attention.maps, attention, row * number + head);
      const mean = mapAt(attention.means, attention, groupOf(letter));
      const both = [[own, SEED_WORDS.head(headNames[head], letter)], [mean, SEED_WORDS.mean(letter)]];
      both.forEach(([values, label], k) => maps[2 * head + k].show(values, { ...source(values), label }, label));
    });
  }

  return {
    root: make("section", { class: "seed-part", "aria-labelledby": "seed-title" },
      make("h2", { id: "seed-title" }, SEED_WORDS.typical),
      make("div", { class: "bar" }, make("label", { for: "seed" }, SEED_WORDS.seed), input), message, known),
    show({ population, found, name, attention, colors }) {
      const { members, names } = found;
      const member = members.find((each) => each.name === name);
      if (document.activeElement !== input) input.value = name;
      input.setAttribute("aria-invalid", !member);
      message.textContent = member ? "" : SEED_WORDS.noSeed(name, names);
      known.hidden = !member;
      if (!member) return;
      told.textContent = sentences(found, member).join(" ");
      chart.show(found, member);
      heads.hidden = !attention || member.row === null;
      if (!heads.hidden) showHeads(attention, member, colors);
      const path = `${population}/${name}`;
      const link = member.fault ? null : linkToBench(path, found);
      bench.hidden = !link;
      if (link) bench.href = link;
      code.textContent = SEED_WORDS.python(`${RUNS_FOLDER}/${path}`, folderOf(path));
    },
  };
}

function sentences({ members, typical }, member) {
  const others = members.filter((each) => each !== member && each.loss !== null);
  const said = [SEED_WORDS.isSolved(member)];
  if (member.fault) return said;
  const higher = others.filter(({ loss }) => loss > member.loss).length;
  said.push(SEED_WORDS.ofLoss(member, higher, others.length), SEED_WORDS.ofFigures(member.figures));
  if (member.row === null) return said;
  const compared = members.filter(({ row }) => row !== null);
  const alike = compared.filter(({ kind }) => kind === member.kind).length;
  return [...said, SEED_WORDS.ofKind(member, alike, compared.length), SEED_WORDS.ofDistance(member, typical)];
}

// The losses of all seeds, with that of one before them.
function makeLosses() {
  const [all, own] = [makeSvg("path", { class: "series others" }), makeSvg("path", { class: "series" })];
  const { name: title, value, svg, box, nodes } = makeLineChart("", all, own);
  let drawn = null;
  return {
    root: make("div", {}, ...nodes),
    show({ steps, losses, members }, { index, name, loss }) {
      box.hidden = steps.length < 2;
      const lossAt = (member, k) => losses[member * steps.length + k];
      const last = steps.findLastIndex((_, k) => Number.isFinite(lossAt(index, k)));
      const most = losses.reduce((high, each) => (Number.isFinite(each) && each > high ? each : high), 0);
      const lineOf = (member) => {
        const pairs = steps.map((step, k) => [step, lossAt(member, k)]);
        return writeLine(pairs.filter(([, each]) => Number.isFinite(each)), steps.at(-1), most);
      };
      if (drawn !== losses) all.setAttribute("d", members.map((member) => lineOf(member.index)).join(""));
      drawn = losses;
      own.setAttribute("d", lineOf(index));
      title.textContent = SEED_WORDS.losses;
      value.textContent = last < 0 ? "" : SEED_WORDS.lastLoss(loss, steps[last]);
      svg.setAttribute("aria-label", SEED_WORDS.lossesLabel(name, members.length, value.textContent));
    },
  };
}
