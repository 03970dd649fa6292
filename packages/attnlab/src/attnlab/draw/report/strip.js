// The tokens so far and the current query's weights on them: arcs for one chosen head, a row of bars for every
// head, all in the same columns.

import { clamp, isNumber, longest, make, makeButton, makeSvg, onWidth, quote, setVariable, wordBriefly, wordLabel, wordProbability, wordToken } from "./elements.js";

// What a query looks at, without the keys that are masked.
export function allowedWeights({ lengths, weights }, row) {
  const start = row * Math.max(0, ...lengths);
  return weights.subarray(start, start + (lengths[row] ?? 0));
}

export function makeStrip(trace, chooseHead) {
  const { tokens } = trace;
  const strip = make("div", { class: "strip", role: "group", "aria-label": "Tokens so far, and the attention weights of each head" });
  const names = trace.attention.map(({ name }) => name);
  const longestName = longest(names);
  setVariable(strip, "--label", `${clamp(longestName * 0.42 + 1.2, 3.8, 7)}rem`);
  setVariable(strip, "--count", tokens.length);
  setVariable(strip, "--tall", trace.attention.length > 6 ? "1.5rem" : "2.75rem");

  const roles = make("div", { class: "strip-row" });
  const arcs = makeSvg("svg", { class: "arcs", viewBox: `0 0 ${tokens.length} 1`, preserveAspectRatio: "none", "aria-hidden": true });
  const arcsName = make("span", { class: "arcs-name" });
  const chips = tokens.map(() => make("span", { class: "token" }));
  strip.append(roles, make("div", { class: "strip-row" }, arcsName, arcs), make("div", { class: "strip-row" }, make("span"), ...chips));

  let keysAbove = tokens;
  const bars = trace.attention.map((entry, i) => {
    const keys = entry.key_tokens ?? tokens;
    // The keys of cross-attention are not the tokens of the strip: its columns get their own names.
    if (String(keys) !== String(keysAbove)) strip.append(makeKeyNames(keys));
    keysAbove = keys;
    const row = makeBarRow(entry, keys, names[i], () => chooseHead(i));
    strip.append(row.root);
    return row;
  });
  onWidth(strip, (width) => fitStrip(strip, width, trace));

  return {
    root: strip,
    show(step, head) {
      roles.replaceChildren(make("span"), ...makeRoles(trace, step));
      chips.forEach((chip, i) => showToken(chip, tokens[i], i, step));
      bars.forEach((row, i) => row.show(step, i === head));
      showArcs(arcs, trace.attention[head], step);
      arcsName.textContent = names[head] && !trace.attention[head].key_tokens ? `arcs of ${names[head]}` : "";
    },
  };
}

function makeKeyNames(keys) {
  const row = make("div", { class: "strip-row" }, make("span", { class: "arcs-name" }, "keys"),
    ...keys.map((key, i) => make("span", { class: longest([key]) > 1 ? "key long" : "key", title: `key ${i}: ${quote(key)}` }, wordLabel(key))));
  return setVariable(row, "--count", keys.length);
}

const ROLE_TITLES = { "sep.": "separator", chosen: "chosen by the model" };

// The first tokens are the input if they spell it; those up to the first chosen token are separators; the rest was
// chosen by the model.
function makeRoles(trace, step) {
  const { tokens, input, steps } = trace;
  const firstChosen = steps.length ? steps[0].position + 1 : tokens.length;
  const startsWithInput = input.every((token, i) => tokens[i] === token) && input.length <= firstChosen;
  const numInput = startsWithInput ? input.length : 0;
  const between = firstChosen - numInput;
  const groups = [
    ["input", numInput],
    [startsWithInput ? (between > 3 ? "separator" : "sep.") : "start", between],
    ["chosen", tokens.length - firstChosen],
  ];
  let column = 2;
  return groups.filter(([, size]) => size > 0).map(([name, size]) => {
    const role = make("span", { class: size === 1 ? "role single" : "role", title: ROLE_TITLES[name] ?? name }, name);
    role.style.gridColumn = `${column} / span ${size}`;
    column += size;
    return role;
  });
}

function showToken(chip, token, i, step) {
  const next = step ? step.position + 1 : Infinity;
  const state = i === next - 1 ? "query" : i === next ? "next" : i > next ? "later" : "";
  const role = { query: "the query", next: "being chosen", later: "not chosen yet", "": "known" }[state];
  chip.className = `token ${state}${longest([token]) > 1 ? " long" : ""}`;
  chip.textContent = state === "later" ? "" : wordToken(token);
  chip.title = state === "later" ? `position ${i}: ${role}` : `position ${i}: ${quote(token)}, ${role}`;
}

function makeBarRow(entry, keys, name, whenChosen) {
  const button = makeButton(name, whenChosen, { class: "head-name", title: `Draw Head ${name} as arcs`, "aria-pressed": false });
  const columns = keys.map(() => {
    const bar = make("i");
    const value = make("b");
    return { root: make("span", { class: "column" }, value, bar), bar, value };
  });
  const root = make("div", { class: "strip-row bars" }, button, ...columns.map((column) => column.root));
  setVariable(root, "--count", keys.length);
  return {
    root,
    show(step, isChosen) {
      button.setAttribute("aria-pressed", isChosen);
      const weights = step ? allowedWeights(entry, step.position) : [];
      columns.forEach((column, j) => {
        const isMasked = j >= weights.length;
        column.root.classList.toggle("masked", isMasked);
        column.root.title = `Head ${name} → ${quote(isMasked && !entry.key_tokens ? "" : keys[j])} at ${j}: ${isMasked ? "masked" : wordProbability(weights[j])}`;
        column.value.textContent = isMasked ? "" : wordBriefly(weights[j]);
        setVariable(column.bar, "--w", isNumber(weights[j]) ? clamp(weights[j], 0, 1) : 0);
      });
    },
  };
}

// Thickness and opacity follow the weight, heights the distance.
function showArcs(arcs, entry, step) {
  arcs.replaceChildren();
  const weights = step && entry && !entry.key_tokens ? allowedWeights(entry, step.position) : [];
  const from = step ? step.position + 0.5 : 0;
  weights.forEach((weight, j) => {
    if (!isNumber(weight) || weight < 0.01) return;
    const distance = from - (j + 0.5);
    const rise = 0.3 + 1.5 * (Math.abs(distance) / Math.max(weights.length - 1, 1));
    const d = distance === 0
      ? `M${from - 0.22} 1C${from - 0.4} 0.5 ${from + 0.4} 0.5 ${from + 0.22} 1`
      : `M${from} 1Q${from - distance / 2} ${1 - rise} ${j + 0.5} 1`;
    arcs.append(makeSvg("path", { d, "stroke-width": (0.75 + 6 * clamp(weight, 0, 1)).toFixed(2), "stroke-opacity": (0.15 + 0.7 * clamp(weight, 0, 1)).toFixed(2) }));
  });
}

function fitStrip(strip, width, { tokens, attention }) {
  const label = strip.querySelector(".arcs-name").offsetWidth;
  const column = Math.min(57, (width - label) / tokens.length);
  // Only a region that scrolls is a tab stop.
  if (strip.scrollWidth > strip.clientWidth) strip.tabIndex = 0;
  else strip.removeAttribute("tabindex");
  strip.classList.toggle("with-values", column >= 24 && attention.length <= 6);
  strip.classList.toggle("narrow", column < 30);
  strip.classList.toggle("tight", column < 20);
  strip.classList.toggle("upright", longest(tokens) * 9 > column - 4 && longest(tokens) > 1);
}
