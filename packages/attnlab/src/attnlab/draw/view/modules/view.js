// The view: choose a head, read its map, follow one query. `mount(element, contents)` builds it anywhere, of what
// attnlab.draw.view.maps made. It returns
//   { head(),         { group, layer, head, name, map }, as they are shown
//     open(contents), shows others, usually of the same heads
//     redraw(),
//     use(tools) }    gives the map the tools { root, press, key, markOf, show() } of tools.js

import { count, make, makeButton, wordBriefly, wordNumber } from "../../report/elements.js";
import { axisName } from "../../map/layout.js";
import { mountMap, sayWeight } from "../../map/map.js";
import { followColors, makeMaskedNote, makeRamp, makeScale } from "../../map/shades.js";
import { unpack } from "../../map/wire.js";
import { facesOf, fadeWhereMore, makeOverview } from "./overview.js";
import { makeRow, wordError, wordReading } from "./row.js";

const FINEST = 254; // levels of a code
const MOST_PLAIN = 40; // names of an axis that fit
const NO_TOOLS = { press() {}, key: () => false, markOf: null, show() {} };
const SCALES = { full: "Linear, 0 to 1", root: "Square root, 0 to 1", own: "Linear, to the largest here" };

export async function mount(element, contents) {
  if (typeof DecompressionStream === "undefined") throw new Error("This view needs a browser of 2023 or later.");
  const opensWithDifference = contents.variants === 2 && contents.change > 1e-6; // a map of zeros shows nothing
  const state = { group: 0, layer: 0, head: 0, row: 0, variant: opensWithDifference ? 2 : 0, kind: 0, scale: "full", fact: "picture", maps: null, map: null };
  const app = { element, contents, state, colors: null, thumbs: [], cache: new Map(), tools: NO_TOOLS };
  build(app);
  followColors(element, (colors) => {
    app.colors = colors;
    if (!app.heatmap) return;
    showOverview(app);
    app.heatmap.show({ colors });
    showRow(app, app.state.row);
  });
  await openGroup(app, ...openingOf(contents));
  element.dataset.ready = "true";
  return {
    head: () => ({ group: app.group, layer: app.group.layers[state.layer], head: state.head, name: nameOf(app), map: app.map }),
    open: (others) => openOthers(app, others),
    redraw: () => app.heatmap.redraw(),
    use(tools) {
      app.tools = tools;
      app.mapPlace.before(tools.root);
      return showHead(app);
    },
  };
}

// The head that the page was asked for, or the first one.
function openingOf({ groups, opens }) {
  for (const [index, { layers }] of groups.entries()) {
    const layer = layers.findIndex(({ site }) => site === opens?.site);
    if (layer >= 0) return [index, { layer, head: opens.head }];
  }
  return [0];
}

// What was shown stays, as far as there is such: the head, the row, and which of two recordings.
async function openOthers(app, contents) {
  const { state, choosers } = app;
  state.group = Math.min(state.group, contents.groups.length - 1);
  const { layers } = contents.groups[state.group];
  state.layer = Math.min(state.layer, layers.length - 1);
  state.head = Math.min(state.head, layers[state.layer].heads.length - 1);
  const thumbs = [];
  thumbs[state.group] = await readThumbs(contents.groups[state.group]);
  if (contents.variants !== app.contents.variants) state.variant = contents.variants - 1;
  Object.assign(app, { contents, thumbs });
  app.cache.clear();
  choosers.variant.offer(variantsOf(contents), state.variant);
  choosers.variant.root.hidden = contents.variants === 1;
  choosers.group.offer(groupsOf(contents), state.group);
  choosers.group.root.hidden = contents.groups.length === 1;
  const { layer, head, row } = state;
  await openGroup(app, state.group, { layer, head, row });
}

function variantsOf({ variants, names: [first, second] }) {
  return variants === 2 ? [[2, `${second} − ${first}`], [0, first], [1, second]] : [[0, ""]];
}

function groupsOf({ groups }) {
  return groups.map(({ name }, i) => [i, name]);
}

function build(app) {
  const { element, contents, state } = app;
  app.title = make("h2", {});
  app.site = make("code", {});
  app.facts = make("dl", { class: "facts" });
  app.legend = make("div", { class: "legend-line" });
  app.mapPlace = make("div");
  app.row = makeRow();
  app.overview = makeOverview((layer, head) => pick(app, layer, head));
  app.rowTitle = make("h3", {});
  app.rowNumber = make("input", { type: "number", min: 0, value: 0, id: "row-number" });
  app.rowNumber.addEventListener("input", () => {
    const row = Number(app.rowNumber.value);
    if (app.rowNumber.value === "" || !Number.isInteger(row) || row < 0 || row >= app.map.rows) return;
    showRow(app, row);
  });
  app.choosers = makeChoosers(app);
  const { choosers } = app;
  const shown = [choosers.group, choosers.layer, choosers.head, choosers.variant, choosers.kind, choosers.scale];
  const scroller = make("div", { class: "overview-scroll" }, app.overview.root);
  const more = make("span", { hidden: "" }, " Scroll for more.");
  fadeWhereMore(scroller, more);
  const overview = make("section", { class: "overview-part", "aria-labelledby": "heads-title" },
    make("div", { class: "part-head" }, make("h2", { id: "heads-title" }, "Heads"), choosers.fact.root),
    make("p", { class: "note" }, "Rows: layers. Columns: heads. Choose one, or move with the arrow keys.", more),
    scroller, app.overviewNote = make("p", { class: "note" }));
  const map = make("section", { class: "map-part", "aria-label": "The head that is shown" },
    make("div", { class: "part-head" }, make("div", {}, app.title, app.site), make("div", { class: "bar", role: "group", "aria-label": "Zoom" }, ...makeZoomButtons(app))),
    app.facts, app.mapPlace, app.row.profile, app.legend,
    make("p", { class: "note" }, "On the map: arrow keys, Home, End, Page Up and Page Down read cells; + and − zoom, 0 shows all. Drag to move; the wheel zooms with Ctrl or after a click."),
    make("div", { class: "row-part" },
      make("div", { class: "part-head" }, app.rowTitle, make("div", { class: "bar" }, make("label", { for: "row-number", class: "note" }, isPooled(contents.groups[0]) ? "Row" : "Query"), app.rowNumber)),
      app.row.root));
  element.replaceChildren(make("div", { class: "bar choosers" }, ...shown.map((each) => each.root)),
    make("div", { class: "parts" }, overview, map), makePrecision(contents));
  element.classList.add("attention-view");
}

function makeZoomButtons(app) {
  const zooms = [["−", 1 / 1.5, "Zoom out"], ["+", 1.5, "Zoom in"], ["Fit", 0, "Fit the whole map"]];
  return zooms.map(([sign, factor, name]) => makeButton(sign, () => app.heatmap.zoomBy(factor), { "aria-label": name }));
}

function makeChoosers(app) {
  const { contents, state } = app;
  const chooser = (label, entries, value, choose) => {
    const id = `choose-${label.toLowerCase().replaceAll(" ", "-")}`;
    const select = make("select", { id });
    const offer = (pairs, chosen) => {
      select.replaceChildren(...pairs.map(([key, name]) => make("option", { value: key }, name)));
      select.value = String(chosen);
    };
    offer(entries, value);
    select.addEventListener("change", () => choose(select.value));
    const root = make("div", { class: "choice" }, make("label", { class: "note", for: id }, label), select);
    root.hidden = entries.length === 1;
    return { root, select, offer };
  };
  const facts = Object.entries(contents.fact_words).map(([key, [name]]) => [key, name]);
  return {
    group: chooser("Attention", groupsOf(contents), 0, (value) => openGroup(app, Number(value))),
    layer: chooser("Layer", [], 0, (value) => pick(app, Number(value), state.head)),
    head: chooser("Head", [], 0, (value) => pick(app, state.layer, Number(value))),
    variant: chooser("Show", variantsOf(contents), state.variant, (value) => {
      state.variant = Number(value);
      showOverview(app);
      showHead(app);
    }),
    kind: chooser("Squares", contents.maps.map((name, i) => [i, name === "mean" ? "mean of each" : name === "largest" ? "largest of each" : ""]), 0, (value) => {
      state.kind = Number(value);
      showHead(app);
    }),
    scale: chooser("Shade", Object.entries(SCALES), state.scale, (value) => {
      state.scale = value;
      app.scale = scaleOf(app);
      app.heatmap.show({ scale: app.scale });
      showOverview(app);
      showLegend(app);
    }),
    fact: chooser("Shown as", [["picture", "Maps"], ...facts], "picture", (value) => {
      state.fact = value;
      showOverview(app);
    }),
  };
}

async function openGroup(app, index, place = {}) {
  const { state, contents, choosers } = app;
  const group = contents.groups[index];
  const last = group.rows - 1; // the last query has most keys
  Object.assign(state, { group: index, layer: 0, head: 0, row: last }, place);
  state.row = Math.min(state.row, last);
  app.group = group;
  choosers.group.select.value = String(index);
  app.thumbs[index] ??= await readThumbs(group);
  choosers.layer.offer(group.layers.map((layer, i) => [i, layer.layer || "·"]), state.layer);
  const facts = Object.keys(contents.fact_words).filter((fact) => fact in group.layers[0].heads[0].facts[0]);
  choosers.fact.offer([["picture", "Maps"], ...facts.map((fact) => [fact, contents.fact_words[fact][0]])], facts.includes(state.fact) ? state.fact : "picture");
  state.fact = choosers.fact.select.value;
  const [rowNames, columnNames] = [group.query_tokens, group.key_tokens].map((tokens, axis) => squareNames(tokens, group.cells[axis]));
  Object.assign(app, { rowNames, columnNames });
  app.rowNumber.max = group.rows - 1;
  showOverview(app);
  await showHead(app);
}

// A square of several tokens has its places and its first token as a name.
function squareNames(tokens, side) {
  if (side === 1) return tokens.map(axisName);
  return Array.from({ length: Math.ceil(tokens.length / side) }, (_, i) => `${i * side} ${axisName(tokens[i * side])}`);
}

// If not all names fit, those shown include their places.
function withPlaces(names, group) {
  return names.length <= MOST_PLAIN || isPooled(group) ? names : names.map((name, i) => `${i} ${name}`);
}

function showOverview(app) {
  const { state, group, contents, thumbs, colors } = app;
  const face = facesOf(group, state, thumbs[state.group], colors, contents.fact_words);
  app.overview.show(group, face, [state.layer, state.head]);
  const [down, across] = group.cells.map((cell) => cell * group.thumb);
  const small = down * across > 1 ? `Each pixel: the ${state.variant === 2 ? "greatest change" : "largest"} of ${down} × ${across} weights. ` : "";
  const [name, meaning] = contents.fact_words[state.fact] ?? [];
  app.overviewNote.textContent = state.fact === "picture" ? `${small}Shade: ${state.scale === "root" ? "square root" : "linear"}, ${state.variant === 2 ? "−1" : "0"} to 1.`
    : `${name} (${meaning}), mean over the queries, exact; the strongest shade is the ${state.variant === 2 ? "greatest change" : "largest"} of all.`;
}

async function pick(app, layer, head) {
  const { state, group } = app;
  state.layer = layer;
  state.head = Math.min(head, group.layers[layer].heads.length - 1);
  app.overview.mark(state.layer, state.head);
  await showHead(app);
}

async function showHead(app) {
  const { state, group, contents, choosers } = app;
  const ticket = (app.ticket = {});
  const layer = group.layers[state.layer];
  const maps = await Promise.all(contents.maps.map((_, kind) => mapOf(app, kind)));
  if (app.ticket !== ticket) return; // another head was chosen while this one was loading
  choosers.layer.select.value = String(state.layer);
  choosers.head.offer(layer.heads.map((_, head) => [head, head]), state.head);
  choosers.head.root.hidden = layer.heads.length === 1;
  app.maps = maps;
  app.map = maps[Math.min(state.kind, maps.length - 1)];
  app.title.textContent = nameOf(app);
  app.site.textContent = layer.site;
  showFacts(app);
  app.scale = scaleOf(app);
  const { rows, columns, values } = app.map;
  const [rowNames, columnNames] = [app.rowNames, app.columnNames].map((names) => withPlaces(names, group));
  const source = {
    rows, columns, values, rowNames, columnNames, scale: app.scale, colors: app.colors, row: state.row,
    label: `Attention weights of ${nameOf(app)}: queries by keys`, markOf: app.tools.markOf,
    say: (i, j) => sayCell(app, i, j),
    word: (value) => wordBriefly(value).replace("<.01", app.map.isDifference ? "~0" : "<.01"),
  };
  if (app.heatmap) app.heatmap.show(source);
  else {
    app.heatmap = mountMap(app.mapPlace, source, {
      pin: (row) => showRow(app, row), moved: (place) => app.row.move(place),
      tapReads: true, press: (cell) => app.tools.press(cell), key: (event, cell) => app.tools.key(event, cell),
    });
  }
  app.tools.show();
  showLegend(app);
  showRow(app, Math.min(state.row, rows - 1));
}

// How shades are spread: over weights of 0 to 1, or up to the largest that this map has.
function scaleOf({ state, map }) {
  const most = map.values.reduce((high, value) => Math.max(high, Math.abs(value) || 0), 0) || 1;
  const top = state.scale === "own" ? most : 1;
  const scale = makeScale(map.isDifference ? -top : 0, top, state.scale === "root");
  return { ...scale, goesBeyond: state.scale !== "own" && most > 1.0005 };
}

// Maps are cached while there is room, so that each is decoded once.
async function mapOf(app, kind) {
  const { group, layer, head, variant } = app.state;
  const read = (each) => {
    const key = [each, group, layer, head, kind].join();
    if (!app.cache.has(key)) app.cache.set(key, unpack(app.contents.groups[group].layers[layer].heads[head].maps[each][kind]));
    while (app.cache.size > 24) app.cache.delete(app.cache.keys().next().value);
    return app.cache.get(key);
  };
  return variant === 2 ? subtract(await read(0), await read(1)) : read(variant);
}

// The second minus the first; a masked cell counts as zero weight.
function subtract(first, second) {
  const { rows, columns } = first;
  const values = second.values.map((value, k) => {
    if (Number.isNaN(value) && Number.isNaN(first.values[k])) return NaN;
    return (value || 0) - (first.values[k] || 0);
  });
  return { rows, columns, values, isDifference: true, error: (i, j) => (first.error(i, j) || 0) + (second.error(i, j) || 0) };
}

// By layer and head: the thumbnail of each variant, and of the difference where two are compared.
function readThumbs({ layers }) {
  return Promise.all(layers.map(({ heads }) => Promise.all(heads.map(({ thumbs }) => Promise.all(thumbs.map(unpack))))));
}

// As the command line takes it: the part behind the word is for --head and --zero-head.
function nameOf({ group, state }) {
  return `Head ${group.layers[state.layer].name}.${state.head}`;
}

function showFacts({ facts, group, state, contents }) {
  const all = group.layers[state.layer].heads[state.head].facts;
  facts.replaceChildren(...Object.keys(all[0]).map((fact) => {
    const [name, meaning] = contents.fact_words[fact];
    const words = all.map((each) => wordNumber(each[fact]));
    const value = state.variant === 2 ? words.join(" → ") : words[state.variant];
    return make("div", { title: `${meaning}; mean over the queries, exact` }, make("dt", {}, name), make("dd", {}, value));
  }));
}

function showLegend(app) {
  const { legend, scale, state, map } = app;
  const top = wordNumber(scale.high);
  const ramp = makeRamp(scale, state.variant === 2 ? `−${top}` : "0", top);
  if (scale.goesBeyond) ramp.append(make("span", {}, "beyond 1: as 1"));
  if (map.values.some(Number.isNaN)) ramp.append(makeMaskedNote("masked: not allowed"));
  legend.replaceChildren(ramp);
}

function showRow(app, row) {
  const { state, group, map, rowNames, columnNames, rowTitle, rowNumber } = app;
  state.row = row;
  app.heatmap.follow(row);
  const title = isPooled(group) ? `Queries ${span(group, row, "query_tokens")}` : `Query ${row} ‘${rowNames[row]}’`;
  rowTitle.textContent = state.variant === 2 ? `${title}: what changed most` : `${title} ${isPooled(group) ? "look" : "looks"} at`;
  if (document.activeElement !== rowNumber) rowNumber.value = String(row);
  app.row.show({
    map, row, title, names: columnNames, colors: app.colors, isDifference: state.variant === 2, isSquares: isPooled(group),
    numbers: (j) => (isPooled(group) ? span(group, j, "key_tokens") : String(j)),
  });
}

function span(group, index, kind) {
  const side = group.cells[kind === "query_tokens" ? 0 : 1];
  const [first, last] = [index * side, Math.min((index + 1) * side, group[kind].length) - 1];
  return first === last ? String(first) : `${first}–${last}`;
}

function isPooled({ cells }) {
  return cells[0] * cells[1] > 1;
}

function sayCell({ map, maps, contents, group, rowNames, columnNames, state }, i, j) {
  const [from, to] = isPooled(group)
    ? [`Queries ${span(group, i, "query_tokens")}`, `keys ${span(group, j, "key_tokens")}`]
    : [`Query ${i} ‘${rowNames[i]}’`, `key ${j} ‘${columnNames[j]}’`];
  const value = map.values[i * map.columns + j];
  if (Number.isNaN(value)) return sayWeight(from, to, null);
  const exact = (each) => wordReading(each.values[i * map.columns + j], each.error(i, j), state.variant === 2).join(" ± ");
  const words = maps.length > 1 ? maps.map((each, kind) => `${contents.maps[kind]} ${exact(each)}`).join(", ") : exact(map);
  return sayWeight(from, to, words);
}

function makePrecision(contents) {
  const { levels } = contents;
  const pooled = contents.groups.filter(isPooled);
  const heads = contents.groups.reduce((sum, group) => sum + group.layers.reduce((all, layer) => all + layer.heads.length, 0), 0);
  const words = [`${count(heads, "head")}. Each weight is kept in 8 bits, as one of ${levels + 1} steps of its square root relative to the largest of its row, M: a weight w read here is off by at most √(w·M) / ${levels} + M / ${4 * levels ** 2}, that is by less than ${wordError((levels - 0.25) / levels ** 2)}·M; the largest of a row is exact. Each reading says its own bound.`];
  if (levels < FINEST) words.push(`Steps were made coarser, ${levels + 1} instead of ${FINEST + 1}, to keep this page within its size.`);
  const cells = [...new Set(pooled.map((group) => group.cells.join(" × ")))].join(" or ");
  if (pooled.length > 0) words.push(`The maps are pooled to keep this page within its size: a cell is the mean, or the largest, of ${cells} weights; masked ones count as zero. Facts of heads are computed from all weights.`);
  return make("footer", {}, ...words.map((text) => make("p", {}, text)), make("p", {}, "One file, no network."));
}
