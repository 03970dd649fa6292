// What was made of a program: the proof, and every head beside what its line selects, drawn by the one attention map.

import { axisName } from "attnlab/draw/map/layout.js";
import { makeRamp } from "attnlab/draw/map/shades.js";
import { isNumber, make, wordBriefly, wordTrimmed } from "attnlab/draw/report/elements.js";
import { PROGRAM_WORDS } from "../words_programs.js";
import { makeFact } from "./controls.js";
import { makeHeadMap, sourceOf, WEIGHTS } from "./maps.js";
import { makeTableMap } from "./table_map.js";

export function makeProgramHeads() {
  const root = make("div", { class: "proof-part" });
  let drawn = [];
  return {
    root,
    redraw: (colors) => drawn.forEach((draw) => draw(colors)),
    clear() {
      drawn = [];
      root.replaceChildren();
    },
    show(told, colors) {
      drawn = [];
      const { proof, verdict, lines, hasBos } = told;
      const facts = PROGRAM_WORDS.facts(told).map(makeFact);
      const legend = makeRamp(WEIGHTS, "weight 0", "1");
      const bos = hasBos ? [PROGRAM_WORDS.bosNote] : [];
      const notes = lines.length ? [PROGRAM_WORDS.sides, ...bos] : [PROGRAM_WORDS.noHeads];
      legend.hidden = lines.length === 0;
      root.replaceChildren(make("h2", { class: proof.is_sure ? "verdict passed" : "verdict failed" }, verdict),
        make("dl", { class: "facts" }, ...facts), ...lines.map((line) => makeLineHeads(line, told, drawn)), legend, make("p", { class: "note" }, notes.join(" ")));
      drawn.forEach((draw) => draw(colors)); // which needs their places in the page
    },
  };
}

function makeLineHeads({ number, source, selectors, heads }, told, drawn) {
  const maps = selectors.map((selector, i) => {
    const map = makeTableMap("");
    const title = selectors.length > 1 ? PROGRAM_WORDS.designedNth(i) : PROGRAM_WORDS.designed;
    drawn.push((colors) => map.show(...selectorSource(selector, told, colors), title));
    return map.root;
  });
  for (const head of heads) {
    const map = makeHeadMap({}, PROGRAM_WORDS.mapKeys);
    const source = headSource(head, told);
    drawn.push((colors) => map.show({ ...source, colors }, head.name));
    maps.push(map.root);
  }
  const isSplit = selectors.length === 1 && heads.length > 1;
  return make("section", { class: "line-heads" }, make("h3", {}, PROGRAM_WORDS.line(number), " ", make("code", {}, source)),
    make("div", { class: "maps" }, ...maps), ...(isSplit ? [make("p", { class: "note" }, PROGRAM_WORDS.split)] : []));
}

function placesOf({ tokens, hasBos }) {
  const places = tokens.map((token, i) => PROGRAM_WORDS.position(i, token));
  return { queries: places, keys: hasBos ? ["BOS", ...places] : places, first: Number(hasBos) };
}

// What is selected, with a blank column where the model has BOS.
function selectorSource({ words, selected }, told, colors) {
  const { queries, keys, first } = placesOf(told);
  const numbers = selected.flatMap((row) => [...Array(first).fill(NaN), ...row.map(Number)]);
  const columns = keys.map((_, j) => (j < first ? "BOS" : axisName(told.tokens[j - first])));
  const say = (i, j) => (j < first ? PROGRAM_WORDS.noBos(queries[i]) : PROGRAM_WORDS.selected(queries[i], keys[j], selected[i][j - first]));
  return [numbers, {
    names: [told.tokens.map(axisName), columns], scale: WEIGHTS, colors, say, word: (value) => (isNumber(value) ? wordBriefly(value) : ""), isMasked: () => false,
    label: PROGRAM_WORDS.selectorLabel(words), keys: PROGRAM_WORDS.mapKeys,
  }];
}

// What a head looks at, without the row of BOS.
function headSource({ name, columns, ...whole }, told) {
  const { queries, keys, first } = placesOf(told);
  const [weights, scores] = [whole.weights, whole.scores].map((values) => values.subarray(first * columns));
  const head = { name, weights, scores, rows: queries.length, columns };
  const names = { tokens: told.tokens, keys: [...(first ? ["BOS"] : []), ...told.tokens] };
  const say = (i, j) => PROGRAM_WORDS.weight(queries[i], j < first ? "BOS" : `key ${keys[j]}`, wordTrimmed(weights[i * columns + j], 4));
  return { ...sourceOf({ edits: [] }, names, head), say };
}
