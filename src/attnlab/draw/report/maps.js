// Maps of any numbers, side by side, for one choice at a time. One color gets stronger from `low` to `high`; where
// `low` is below zero, two colors get stronger away from zero. A cell without a number stays blank.

function mountMaps(stage, section) {
  const { choices } = section;
  const note = make("p", { class: "choice-note", role: choices.length > 1 ? "status" : null });
  const place = make("div", { class: "maps" });
  const show = (index) => showChoice(choices[index], note, place);
  if (choices.length > 1) {
    const words = choices.map((choice) => choice.label);
    const refuse = (typed) => `“${typed}” is not among the ${count(words.length, "choice")} here, for example ${listSome(words)}.`;
    const chooser = makeChooser(words, { label: "Show", noun: "choice", refuse }, show);
    stage.append(chooser.root, note, place);
    chooser.choose(0);
    return;
  }
  stage.append(note, place);
  show(0);
}

function showChoice(choice, note, place) {
  note.textContent = choice.note;
  note.hidden = choice.note === "";
  const widths = choice.maps.map(widthOfMap);
  setVariable(place, "--map-width", `${clamp(Math.max(...widths), 220, 1000)}px`);
  // Maps with equal numbers of rows are aligned, whatever the heights of their titles.
  place.classList.toggle("even", new Set(choice.maps.map((map) => map.rows.length)).size === 1);
  place.replaceChildren(...choice.maps.map((map, i) => makeMap(map, widths[i])));
}

// In pixels; few cells are large, so that their numbers are legible.
function widthOfMap(map) {
  const columns = map.column_labels.length;
  const cell = columns > 32 ? 12 : columns > 16 ? 18 : isTall(map) ? 24 : columns > 9 ? 34 : 46;
  return columns * cell + 16 * remOfNames(map.row_labels);
}

// All heads of a deep model: maps as tall as a screen, to compare side by side.
function isTall(map) {
  return map.row_labels.length > 16;
}

function remOfNames(names) {
  return clamp(longest(names) * 0.46 + 0.8, 1.6, 9);
}

function makeMap(map, width) {
  const numColumns = map.column_labels.length;
  const grid = make("div", { class: "grid", role: "grid", "aria-label": `${map.title}: ${map.row_title} by ${map.column_title}` });
  setVariable(grid, "--count", numColumns);
  setVariable(grid, "--label", `${remOfNames(map.row_labels)}rem`);
  grid.append(makeKeyRow(map.row_title, map.column_labels.map((label) => [label, `${map.column_title} ‘${wordLabel(label)}’`])));
  const word = wordCells(map);
  grid.append(...map.rows.map((row, i) => makeMapRow(row, map, i, word)));
  makeReachable(grid, grid.children[1].children[1]);

  const axes = make("p", { class: "axes" });
  const root = setVariable(make("figure", { class: "map any" }), "--grid-width", `${width}px`);
  const head = make("div", { class: "map-head" }, make("h3", {}, map.title));
  if (numColumns > 9 || isTall(map)) head.append(makeEnlargeButton(root, map.title));
  const rest = () => {
    axes.classList.remove("reading");
    axes.textContent = [["Rows", map.row_title], ["Columns", map.column_title]].filter(([, title]) => title).map(([kind, title]) => `${kind}: ${title}.`).join(" ");
  };
  rest();
  listenToGrid(grid, axes, rest);
  onWidth(grid, (room) => fitGrid(grid, room, numColumns, longest(map.column_labels)));
  root.append(head, make("div", { class: "grid-scroll" }, grid), makeMapScale(map), axes);
  return root;
}

function makeMapRow(values, map, i, word) {
  const name = map.row_labels[i];
  const row = make("div", { class: "row", role: "row" }, makeRowName(wordLabel(name), `${map.row_title} ‘${wordLabel(name)}’`));
  values.forEach((value, j) => row.append(makeCell(value, map.low, map.high, map.masked ? "masked-area" : "blank", {
    title: `‘${wordLabel(name)}’, ‘${wordLabel(map.column_labels[j])}’: ${isNumber(value) ? wordTrimmed(value) : map.masked ?? "no value"}`,
    "data-brief": isNumber(value) ? word(value) : "",
  })));
  return row;
}

function makeMapScale(map) {
  const scale = makeRamp(map.low, map.high, wordTrimmed(map.low), make("span", { class: "end" }, wordTrimmed(map.high)));
  const values = map.rows.flat();
  const notes = [];
  if (values.some((value) => isNumber(value) && (value < map.low || value > map.high))) notes.push("beyond the ends: as at the ends");
  const hasBlanks = values.some((value) => !isNumber(value));
  if (hasBlanks && map.masked) scale.append(make("span", { class: "masked", "aria-hidden": true }), map.masked);
  else if (hasBlanks) notes.push("blank: no value");
  if (notes.length) scale.append(make("span", {}, `· ${notes.join("; ")}`));
  return scale;
}

// As many digits as a small cell can hold: whole numbers in full, fractions with two decimals.
function wordCells(map) {
  const values = map.rows.flat().filter(isNumber);
  const most = values.reduce((high, value) => Math.max(high, Math.abs(value)), 0);
  const decimals = values.every(Number.isInteger) || most >= 100 ? 0 : most >= 10 ? 1 : 2;
  return (value) => {
    const text = value.toFixed(decimals);
    if (Number(text) === 0) return "0";
    return text.replace(/^(-?)0\./, "$1.").replace(/^(-?1)\.00$/, "$1").replace("-", "−");
  };
}
