// Anatomy: attention taken apart in six experiments, each computed anew at every move of a control.

import { clamp, make, makeButton, wordNumber, wordTrimmed } from "attnlab/draw/report/elements.js";
import { makeMaskedNote, makeRamp, makeScale } from "attnlab/draw/map/shades.js";
import { ANATOMY, wordBytes, wordCount, wordHundredths } from "../words_anatomy.js";
import { WORDS } from "../words.js";
import { ANATOMY_SETTINGS, readAnatomy, SENTENCE, writeAnatomy } from "../parts/anatomy_state.js";
import { makeChoice, makeCodes } from "../parts/controls.js";
import { makeBars, makeSigned, wordShare } from "../parts/bars.js";
import { makeCurves } from "../parts/curves.js";
import { WEIGHTS } from "../parts/maps.js";
import { makeTableMap, onKeys } from "../parts/table_map.js";

const IDS = { the: 0, cat: 1, sat: 2, on: 3, mat: 4 };
const ORDERS = {
  swapped: ["the", "mat", "sat", "on", "the", "cat"],
  backwards: [...SENTENCE].reverse(),
  mixed: ["on", "the", "cat", "the", "mat", "sat"],
};
const OUTPUTS = makeScale(-2.5, 2.5);
const WAVES = makeScale(-1, 1);

const MAKERS = {
  scaling: makeScaling, masks: makeMasks, hiding: makeHiding, order: makeOrder, norms: makeNorms, costs: makeCosts,
};

export function makeAnatomy(session, page) {
  const state = readAnatomy("");
  const set = (changes) => {
    Object.assign(state, changes);
    page.keepLater();
  };
  const parts = Object.entries(MAKERS).map(([name, maker]) => makeExperiment(name, maker, { state, set, session, page }));
  const root = make("div", { class: "room anatomy" }, page.status, ...parts.map((part) => part.root));
  let colors = null;

  function follow({ anatomy = "" }) {
    if (anatomy === writeAnatomy(state)) return;
    try {
      Object.assign(state, readAnatomy(anatomy));
    } catch (error) {
      page.notice(error.message);
    }
    colors = null;
  }

  follow(page.link.own);
  return {
    root, follow,
    heading: { title: ANATOMY.title, subtitle: ANATOMY.subtitle },
    link: () => ({ anatomy: writeAnatomy(state) }),
    // Only a new link or other colors change what is shown; controls look after themselves.
    show() {
      if (colors === session.lab.colors) return;
      colors = session.lab.colors;
      for (const part of parts) part.look();
    },
  };
}

// A maker gets { state, set, colors, words, slider, choice } and returns { controls, pictures,
// ask: () => [method, settings], show(told) }, whose show returns the sentence and the Python lines.
function makeExperiment(name, maker, { state, set, session, page }) {
  const words = ANATOMY[name];
  const change = (changes) => {
    set(changes);
    look();
  };
  const given = {
    state, set: change, colors: () => session.lab.colors, words,
    slider: (setting, word) => makeSlider(state, change, setting, words[setting], word),
    choice: (setting, told = words[setting]) => makeSetChoice(state, change, setting, told),
  };
  const { controls, pictures, ask, show } = maker(given);
  const said = make("p", { class: "said", "aria-live": "polite" });
  const code = makeCodes(WORDS.codeTitle);
  code.note.textContent = ANATOMY.codeNote;
  code.command.textContent = ANATOMY.command(ANATOMY.parts[name]);
  const title = `${name}-title`;
  const root = make("section", { class: `experiment ${name}`, "data-part": name, "aria-labelledby": title },
    make("h2", { id: title }, words.title), make("p", { class: "lead" }, words.lead),
    make("div", { class: "set" }, ...controls.map((control) => control.root)), said,
    make("div", { class: "pictures" }, ...pictures), code.root);
  let [isAsking, isStale] = [false, false];

  // What changes while an answer is on its way is asked right after it: nothing piles up.
  async function look() {
    for (const control of controls) control.show?.();
    isStale = true;
    if (isAsking) return;
    isAsking = true;
    try {
      while (isStale) {
        isStale = false;
        const told = await page.call("anatomy", ...ask());
        const words = show(told);
        if (said.textContent !== words.said) said.textContent = words.said;
        code.python.textContent = words.python;
      }
    } catch (error) {
      page.notice(WORDS.failed(error.message));
    } finally {
      isAsking = false;
    }
  }
  return { root, look };
}

function makeScaling({ state, colors, words, slider }) {
  const width = () => Number(state.width);
  const both = ["scaled", "plain"].map((name) => ({ name, map: makeTableMap(words[name]), bars: makeBars() }));
  return {
    controls: [slider("width", wordNumber)],
    pictures: both.map(({ map, bars }) => make("div", { class: "pair" }, map.root, bars.root)),
    ask: () => ["scaling", { width: width() }],
    show(told) {
      const names = Array.from({ length: 10 }, (_, i) => String(i + 1));
      for (const { name, map, bars } of both) {
        const { weights, ...figures } = told[name];
        map.show(weights, {
          names: [names, names], scale: WEIGHTS, colors: colors(), label: words.label(words[name], width()),
        });
        bars.show(Object.entries(words.figures).map(([key, title]) => [title, figures[key], wordNumber(figures[key])]));
      }
      return { said: words.said(told, width()), python: words.python(width()) };
    },
  };
}

const MASKS = {
  none: () => true, causal: (query, key) => key <= query, reversed: (query, key) => key >= query,
  window: (query, key, { window }) => key <= query && key > query - Number(window),
  own: (query, key, { own }) => own[query * SENTENCE.length + key] === "1",
};

function makeMasks({ state, set, colors, words, slider }) {
  const size = SENTENCE.length;
  const cells = Array.from({ length: size ** 2 }, (_, k) => [Math.floor(k / size), k % size]);
  const openOf = (name) => cells.map(([query, key]) => Number(MASKS[name](query, key, state)));
  const reading = make("p", { class: "map-reading" }, words.hint);
  let [stroke, read] = [null, () => {}];
  // The first square of a stroke says what it does: closes what is open, or opens what is closed.
  const paint = (cell) => {
    if (!cell) return (stroke = null);
    const k = cell[0] * size + cell[1];
    const own = [...state.own];
    stroke ??= own[k] === "1" ? "0" : "1";
    own[k] = stroke;
    return set({ own: own.join("") });
  };
  const maps = Object.entries(words.names).map(([name, title]) => {
    const isOwn = name === "own";
    const paintOne = (cell) => {
      paint(cell);
      paint(null);
    };
    const key = onKeys(isOwn ? [" ", "Enter", "x"] : [], paintOne);
    const map = makeTableMap(title, { read: (cell) => read(cell, map), brush: paint, key });
    return Object.assign(map, { name, isOwn });
  });
  return {
    controls: [slider("window", wordNumber)],
    pictures: [makeMaps(maps), reading, makeMaskLegend(words)],
    ask: () => ["masking", { masks: maps.map(({ name }) => openOf(name)) }],
    show({ scores, weights }) {
      const leaks = {};
      const opens = maps.map(({ name }) => openOf(name));
      const wordAt = (i, [query, key]) => {
        const k = query * size + key;
        return opens[i][k] ? wordTrimmed(weights[i][k], 4) : words.masked;
      };
      const say = (cell, wordOf) => `${words.cell(SENTENCE[cell[0]], SENTENCE[cell[1]], wordOf)}.`;
      read = (cell, own) => {
        maps.forEach((map) => map !== own && map.point(cell));
        const all = () => maps.map(({ name }, i) => `${words.brief[name]} ${wordAt(i, cell)}`).join(" · ");
        reading.textContent = cell ? say(cell, all()) : words.hint;
      };
      maps.forEach((map, i) => {
        const isLater = (query, key) => key > query && opens[i][query * size + key] === 1;
        const later = cells.filter((cell) => isLater(...cell));
        const weightAt = ([query, key]) => weights[i][query * size + key];
        const worst = later.reduce((most, cell) => (most && weightAt(most) >= weightAt(cell) ? most : cell), null);
        leaks[map.name] = { number: later.length };
        if (worst) {
          const [from, to] = worst.map((place) => SENTENCE[place]);
          Object.assign(leaks[map.name], { from, to, weight: weightAt(worst) });
        }
        map.show(weights[i].map((weight, k) => (opens[i][k] ? weight : NaN)), {
          names: [SENTENCE, SENTENCE], scale: WEIGHTS, colors: colors(), label: words.label(words.names[map.name]),
          ...(map.isOwn && { keys: words.paintKeys, paints: true }),
          say: (...cell) => say(cell, wordAt(i, cell)),
          markOf: (query, key) => (isLater(query, key) ? "more" : ""),
        });
      });
      const dead = SENTENCE.find((_, query) => !openOf("own").slice(query * size, (query + 1) * size).includes(1));
      return { said: words.said(leaks, leaks.own, dead), python: words.python(scores, state.window, openOf("own")) };
    },
  };
}

function makeHiding({ state, set, words, slider, choice }) {
  const usual = makeBars("");
  const ours = makeBars(words.ours);
  const isAll = () => state.all === "1";
  const openOf = () => Array.from({ length: 8 }, (_, i) => Number(i < 4 && !isAll()));
  const all = makeButton(words.all, () => set({ all: isAll() ? "0" : "1" }));
  return {
    controls: [
      slider("size", words.wordSize),
      choice("value", { label: words.value, names: words.values }),
      { root: make("div", { class: "bar" }, all), show: () => all.setAttribute("aria-pressed", isAll()) },
    ],
    pictures: [usual.root, ours.root],
    ask() {
      const value = state.value === "-inf" ? -Infinity : Number(state.value);
      return ["maskValue", { value, size: Number(state.size), open: openOf() }];
    },
    show(told) {
      const [open, value] = [openOf(), words.values[state.value]];
      const rows = (weights) => Array.from(weights, (weight, i) =>
        [words.key(i, open[i]), weight, wordShare(weight), open[i] ? "" : "hidden-key"]);
      usual.show(rows(told.usual), words.usual(value));
      ours.show(rows(told.ours));
      const leak = told.usual.slice(4).reduce((sum, weight) => sum + weight, 0);
      return {
        said: words.said(leak, value, words.wordSize(Number(state.size)), isAll()),
        python: words.python(told.noise, open, state.value, state.size),
      };
    },
  };
}

function makeOrder({ state, colors, words, choice }) {
  const outputs = [makeTableMap(SENTENCE.join(" ")), makeTableMap("")];
  const table = makeTableMap(words.table);
  const other = () => ORDERS[state.order];
  const idsOf = (sentence) => sentence.map((word) => IDS[word]);
  const numbered = (length) => Array.from({ length }, (_, i) => String(i));
  return {
    controls: [choice("kind"), choice("order")],
    pictures: [makeMaps(outputs), table.root],
    ask: () => ["ordering", { positions: state.kind, first: idsOf(SENTENCE), second: idsOf(other()) }],
    show(told) {
      [told.first, told.second].forEach((rows, i) => {
        const sentence = i ? other().join(" ") : SENTENCE.join(" ");
        const say = (row, column) => `${words.cell(SENTENCE[row], column, wordTrimmed(rows[row][column], 4))}.`;
        outputs[i].show(rows.flatMap((row) => [...row]), {
          names: [SENTENCE, numbered(8)], titles: [words.word, words.output], scale: OUTPUTS, colors: colors(),
          label: words.label(sentence), say,
        }, sentence);
      });
      table.show(told.table.data, {
        names: [numbered(32), numbered(32)], titles: [words.position, words.channel], scale: WAVES, colors: colors(),
        label: words.tableLabel,
        say: (row, column) => `${words.tableCell(row, column, wordTrimmed(told.table.data[row * 32 + column], 4))}.`,
      });
      return {
        said: words.said(state.kind, told.changes, SENTENCE),
        python: words.python(state.kind, idsOf(SENTENCE), idsOf(other()), told.places),
      };
    },
  };
}

function makeNorms({ state, set, words }) {
  const tenths = () => state.numbers.split("_").map(Number);
  const put = (numbers) => set({ numbers: numbers.map((each) => clamp(each, -100, 100)).join("_") });
  const makeDeed = (label, deed) => makeButton(label, () => put(tenths().map(deed)));
  const add = makeDeed(words.add, (each) => each + 10);
  const double = makeDeed(words.double, (each) => each * 2);
  const inputs = tenths().map((_, i) => {
    const input = make("input", { type: "range", min: -100, max: 100, "aria-label": words.number(i) });
    input.addEventListener("input", () => put(tenths().with(i, Number(input.value))));
    return input;
  });
  const rowOf = (...first) => make("tr", {}, make("td", {}, ...first), make("td", {}), make("td", {}));
  const heads = Object.values(words.columns).map((title) => make("th", { scope: "col" }, title));
  const body = inputs.map((input) => rowOf(input, make("output", {})));
  const foot = Object.entries(words.sums).map(([name, title]) => [name, title, rowOf()]);
  return {
    controls: [{
      root: make("div", { class: "bar" }, add, double, makeDeed(words.negate, (each) => 0 - each)),
      // What would leave the range would not be the sum, or the double, any more.
      show() {
        add.disabled = Math.max(...tenths()) > 90;
        double.disabled = Math.max(...tenths().map(Math.abs)) > 50;
        tenths().forEach((value, i) => {
          if (Number(inputs[i].value) !== value) inputs[i].value = value;
          inputs[i].nextSibling.textContent = wordTrimmed(value / 10);
          inputs[i].setAttribute("aria-valuetext", wordTrimmed(value / 10));
        });
      },
    }],
    pictures: [make("table", { class: "norm-table" }, make("thead", {}, make("tr", {}, ...heads)),
      make("tbody", {}, ...body), make("tfoot", {}, ...foot.map(([, , row]) => row)))],
    ask: () => ["norming", { numbers: tenths().map((each) => each / 10) }],
    show(told) {
      body.forEach((row, i) => {
        row.children[1].replaceChildren(makeSigned(told.layer.values[i]));
        row.children[2].replaceChildren(makeSigned(told.rms.values[i]));
      });
      for (const [sum, title, row] of foot) {
        ["none", "layer", "rms"].forEach((name, i) => {
          row.children[i].textContent = `${title} ${wordHundredths(told[name][sum])}`;
        });
      }
      return { said: words.said(told), python: words.python(tenths().map((each) => each / 10)) };
    },
  };
}

function makeCosts({ state, words, slider }) {
  const lengths = ANATOMY_SETTINGS.length.known.map(Number);
  const makeChart = (name, wordOf) =>
    makeCurves({ ...words[name], wordOf, wordLength: words.wordLength, say: words.chart });
  const charts = { counts: makeChart("counts", wordCount), bytes: makeChart("bytes", wordBytes) };
  return {
    controls: [slider("length", words.wordLength), slider("model", wordNumber)],
    pictures: Object.values(charts).map(({ root }) => root),
    ask: () => ["costs", { width: Number(state.model), lengths }],
    show(told) {
      const at = ANATOMY_SETTINGS.length.known.indexOf(state.length);
      for (const [name, chart] of Object.entries(charts)) chart.show(told[name], lengths, at);
      const python = words.python(Number(state.model), told.heads, told.hidden, lengths[at]);
      return { said: words.said(told, at, lengths[at]), python };
    },
  };
}

function makeSetChoice(state, set, name, told) {
  const choice = makeChoice(told, ANATOMY_SETTINGS[name].known, (value) => set({ [name]: value }));
  const root = make("div", { class: "switch" }, told.label, choice.root);
  return { root, show: () => choice.show(state[name]) };
}

function makeSlider(state, set, name, label, word) {
  const { known } = ANATOMY_SETTINGS[name];
  const output = make("output", { for: `set-${name}` });
  const input = make("input", { type: "range", id: `set-${name}`, min: 0, max: known.length - 1 });
  input.addEventListener("input", () => set({ [name]: known[input.value] }));
  return {
    root: make("div", { class: "slider" }, make("label", { for: `set-${name}` }, label), output, input),
    show() {
      input.value = known.indexOf(state[name]);
      output.textContent = word(Number(state[name]));
      input.setAttribute("aria-valuetext", output.textContent);
    },
  };
}

function makeMaps(maps) {
  return make("div", { class: "maps" }, ...maps.map(({ root }) => root));
}

function makeMaskLegend(words) {
  const legend = makeRamp(WEIGHTS, "weight 0", "1");
  const swatch = make("span", { class: "corner-swatch", "aria-hidden": true });
  legend.append(makeMaskedNote(words.masked), make("span", { class: "masked-note" }, swatch, words.later));
  return legend;
}
