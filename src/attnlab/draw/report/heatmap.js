// The attention map of one head: queries are rows, keys are columns, equal steps of shade are equal steps of
// weight. Keys beyond the end of a row are masked, which is not the same as a weight of zero.

function makeHeatmap(entry, tokens) {
  const keys = entry.key_tokens ?? tokens;
  const numKeys = entry.key_tokens ? keys.length : entry.rows.reduce((most, row) => Math.max(most, row.length), 0);
  const name = wordHead(entry);
  const axes = make("p", { class: "axes" });
  const grid = make("div", { class: "grid", role: "grid", "aria-label": `Attention weights of ${name.long}` });
  setVariable(grid, "--count", numKeys);
  setVariable(grid, "--label", `${clamp(longest(tokens) * 0.5 + 1.1, 1.6, 4.5)}rem`);
  grid.append(makeKeyRow("query", keys.slice(0, numKeys).map((key, i) => [key, `key ${i}: ${quote(key)}`])));
  const rows = entry.rows.map((weights, i) => makeQueryRow(weights, i, tokens, keys, numKeys));
  grid.append(...rows);

  const root = make("figure", { class: "map" });
  const title = make("h4", {}, ...breakable(name.long), make("code", {}, ...breakable(entry.site)));
  root.append(make("div", { class: "map-head" }, title, makeEnlargeButton(root, name.long)), make("div", { class: "grid-scroll" }, grid), axes);

  const rest = () => {
    axes.classList.remove("reading");
    axes.textContent = "Rows: queries. Columns: keys.";
  };
  rest();
  listenToGrid(grid, axes, rest);
  onWidth(grid, (width) => fitGrid(grid, width, numKeys, longest(keys)));
  return {
    root,
    showPosition: (position) => rows.forEach((row, i) => {
      row.classList.toggle("current", i === position);
      row.classList.toggle("ahead", i > position);
      if (i === position) makeReachable(grid, row.children[1]);
    }),
  };
}

function makeQueryRow(weights, i, tokens, keys, numKeys) {
  const row = make("div", { class: "row", role: "row" },
    makeRowName(wordToken(tokens[i]), `query ${i}: ${quote(tokens[i])}`));
  const from = `${quote(tokens[i])} at ${i}`;
  weights.forEach((weight, j) => row.append(makeWeight(weight, `${from} → ${quote(keys[j])} at ${j}: `)));
  if (weights.length < numKeys) {
    const words = `${from} cannot attend to ${keys.slice(weights.length, numKeys).map(quote).join(" ")}: masked`;
    const area = make("span", { class: "masked-area", role: "gridcell", title: words });
    area.style.gridColumn = `${weights.length + 2} / -1`;
    row.append(area);
  }
  return row;
}

function makeWeight(weight, place) {
  const words = `${place}${isNumber(weight) ? weight.toFixed(4) : "n/a"}`;
  return makeCell(weight, 0, 1, "missing", { title: words, "data-brief": wordBriefly(weight) });
}

function makeScale() {
  const scale = makeRamp(0, 1, "0", "1");
  scale.append(make("span", { class: "masked", "aria-hidden": true }), "masked: not allowed");
  return scale;
}
