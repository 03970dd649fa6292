// The whole attention map of one head: queries are rows, keys are columns, equal steps of shade are equal
// steps of weight. Keys beyond the end of a row are masked, which is not the same as a weight of zero.

const STRONG = 0.575; // text turns over here, see .shade in the style

function makeHeatmap(entry, tokens) {
  const keys = entry.key_tokens ?? tokens;
  const numKeys = entry.key_tokens ? keys.length : entry.rows.reduce((most, row) => Math.max(most, row.length), 0);
  const name = wordHead(entry);
  const axes = make("p", { class: "axes" });
  const grid = make("div", { class: "grid", role: "grid", "aria-label": `Attention weights of ${name.long}` });
  setVariable(grid, "--count", numKeys);
  setVariable(grid, "--label", `${clamp(longest(tokens) * 0.5 + 1.1, 1.6, 4.5)}rem`);
  grid.append(makeKeyRow(keys.slice(0, numKeys)));
  const rows = entry.rows.map((weights, i) => makeQueryRow(weights, i, tokens, keys, numKeys));
  grid.append(...rows);

  const root = make("figure", { class: "map" });
  const enlarge = makeButton("Enlarge", () => {
    const isWide = root.classList.toggle("wide");
    enlarge.setAttribute("aria-pressed", isWide);
    enlarge.textContent = isWide ? "Shrink" : "Enlarge";
    enlarge.setAttribute("aria-label", `${enlarge.textContent} ${name.long}`);
  }, { "aria-pressed": false, "aria-label": `Enlarge ${name.long}` });
  const title = make("h4", {}, name.long, make("code", {}, entry.site));
  root.append(make("div", { class: "map-head" }, title, enlarge), make("div", { class: "grid-scroll" }, grid), axes);

  const rest = () => {
    axes.classList.remove("reading");
    axes.textContent = "Rows: the query that looks. Columns: the key it looks at.";
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

function makeKeyRow(keys) {
  return make("div", { class: "row keys", role: "row" }, make("span", { role: "columnheader", "aria-label": "query" }),
    ...keys.map((key, i) => makeKey(key, i, "columnheader")));
}

function makeKey(key, i, role = null) {
  const name = longest([key]) > 1 ? "key long" : "key";
  return make("span", { class: name, role, title: `key ${i}: ${quote(key)}` }, wordToken(key));
}

function makeQueryRow(weights, i, tokens, keys, numKeys) {
  const row = make("div", { class: "row", role: "row" },
    make("span", { class: "query-name", role: "rowheader", title: `query ${i}: ${quote(tokens[i])}` }, wordToken(tokens[i])));
  const from = `${quote(tokens[i])} at ${i}`;
  weights.forEach((weight, j) => row.append(makeWeight(weight, `${from} → ${quote(keys[j])} at ${j}: `)));
  if (weights.length < numKeys) {
    const words = `${from} cannot look at ${keys.slice(weights.length, numKeys).map(quote).join(" ")}: masked`;
    const area = make("span", { class: "masked-area", role: "gridcell", title: words });
    area.style.gridColumn = `${weights.length + 2} / -1`;
    row.append(area);
  }
  return row;
}

function makeWeight(weight, place) {
  const words = `${place}${isNumber(weight) ? weight.toFixed(4) : "n/a"}`;
  const shade = isNumber(weight) ? clamp(weight, 0, 1) : null;
  const look = shade === null ? "missing" : shade < STRONG ? "shade" : "shade strong";
  const cell = make("span", { class: `weight ${look}`, role: "gridcell", title: words, "data-brief": wordBriefly(weight) });
  return shade === null ? cell : setVariable(cell, "--w", shade);
}

// The grid is one stop of the tab key; arrow keys move inside it.
function makeReachable(grid, cell) {
  grid.querySelector("[tabindex]")?.removeAttribute("tabindex");
  cell?.setAttribute("tabindex", 0);
}

function listenToGrid(grid, axes, rest) {
  const read = (event) => {
    const words = event.target.closest?.('[role="gridcell"]')?.title;
    if (!words) return;
    axes.textContent = words;
    axes.classList.add("reading");
  };
  grid.addEventListener("pointerover", read);
  grid.addEventListener("focusin", read);
  grid.addEventListener("pointerleave", rest);
  grid.addEventListener("focusout", rest);
  grid.addEventListener("keydown", (event) => {
    const cell = event.target.closest('[role="gridcell"]');
    const [down, right] = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key] ?? [];
    if (!cell || down === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const rows = [...grid.children].slice(1);
    const i = clamp(rows.indexOf(cell.parentNode) + down, 0, rows.length - 1);
    const j = clamp([...cell.parentNode.children].indexOf(cell) + right, 1, rows[i].children.length - 1);
    makeReachable(grid, rows[i].children[j]);
    rows[i].children[j].focus();
  });
}

// Values are printed where they can be read, and long key names turn upright where columns are narrow.
function fitGrid(grid, width, numKeys, letters) {
  const label = grid.querySelector(".query-name")?.offsetWidth ?? 0;
  const cell = (width - label) / numKeys;
  grid.classList.toggle("with-values", cell >= 25);
  grid.classList.toggle("upright", letters * 7.6 > cell && letters > 1);
}

function makeScale() {
  const ramp = make("span", { class: "ramp", "aria-hidden": true });
  for (let i = 0; i <= 20; i++) ramp.append(setVariable(make("i", { class: "shade" }), "--w", i / 20));
  return make("div", { class: "scale" }, "0", ramp, "1", make("span", { class: "masked", "aria-hidden": true }), "masked: may not be looked at");
}
