// Helpers for elements and number formats. Text reaches the page as text nodes and attributes only, so a token
// such as "<script>" is shown, never parsed.

export const SVG = "http://www.w3.org/2000/svg";

// Whether the page is touched: nothing on it can be pointed at.
export function isTouched() {
  return matchMedia("(hover: none)").matches;
}

export function make(name, attributes = {}, ...children) {
  return furnish(document.createElement(name), attributes, children);
}

export function makeSvg(name, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, name), attributes, children);
}

export function furnish(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children);
  return node;
}

export function makeButton(label, whenPressed, attributes = {}) {
  const button = make("button", { type: "button", ...attributes }, label);
  button.addEventListener("click", whenPressed);
  return button;
}

// The content security policy forbids style attributes; properties set through the object model are fine.
export function setVariable(node, name, value) {
  node.style.setProperty(name, String(value));
  return node;
}

export function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

export function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

// Three significant digits; whole numbers in full, a number below 1 never rounded up to 1. attnlab.draw.numbers
// follows the same rules in figures.
export function wordNumber(value) {
  if (!isNumber(value)) return "n/a";
  const minus = (text) => text.replaceAll("-", "−");
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return minus((value + 0).toLocaleString("en-GB")); // + 0: no minus zero
  const size = Math.abs(value);
  const nudged = value * (1 + 1e-12); // decimal ties round up: 0.1215 is 0.122
  if (size < 1e-4 || size >= 1e9) return minus(nudged.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e"));
  if (size >= 999.5) return minus(Math.round(nudged).toLocaleString("en-GB"));
  const text = nudged.toPrecision(3);
  if (size > 1 || Math.abs(Number(text)) < 1) return minus(text);
  const finer = [4, 5].map((digits) => nudged.toPrecision(digits)).find((each) => Math.abs(Number(each)) < 1);
  return minus(finer ?? (value < 0 ? "-0.999+" : "0.999+"));
}

// "0.514 (0.508 to 0.520)"; an unknown or invisibly narrow interval is left out.
export function wordWithInterval(value, low, high) {
  const words = [value, low, high].map(wordNumber);
  // Three digits cannot show a width below a hundred-thousandth.
  const hasWidth = [value, low, high].every(isNumber) && words[1] !== words[2] && high - low > 1e-5 * Math.abs(high);
  return hasWidth ? `${words[0]} (${words[1]} to ${words[2]})` : words[0];
}

// A place on an axis in full precision: "1,024", "-19.875", "1e10".
export function wordPlace(value) {
  const size = Math.abs(value);
  if (size >= 1e9 || (size > 0 && size < 1e-4)) return wordNumber(value);
  return Number(value.toPrecision(6)).toLocaleString("en-GB", { maximumFractionDigits: 10 }).replace("-", "−");
}

// Names in code may only break after dots and underscores.
export function breakable(name) {
  return name.split(/(?<=[._])/).flatMap((part, i) => (i === 0 ? [part] : [make("wbr"), part]));
}

// As many digits as needed, at most `digits`: 0.5 stays 0.5.
export function wordTrimmed(value, digits = 7) {
  return isNumber(value) ? String(Number(value.toPrecision(digits))).replace("-", "−") : "no value";
}

// Three decimals, but 0 and 1 only for exactly these values.
export function wordProbability(value) {
  if (!isNumber(value)) return "n/a";
  const text = value.toFixed(3);
  if (value < 1 && text === "1.000") return ">0.999";
  if (value > 0 && text === "0.000") return "<0.001";
  return text;
}

// Fits a small cell: "0", ".07", ".93", "1"; only an exact zero is written as 0.
export function wordBriefly(value) {
  if (!isNumber(value)) return "n/a";
  const text = value.toFixed(2);
  if (Number(text) === 0) return value === 0 ? "0" : "<.01";
  return text === "1.00" ? "1" : text.replace("0.", ".").replace("-", "−");
}

export function wordTokens(tokens) {
  if (tokens.length === 0) return "(empty)";
  return tokens.join(tokens.every((token) => [...token].length === 1) ? "" : " ");
}

// White space is a token like any other and must be visible.
export function wordToken(token) {
  return token === "" ? "∅" : token.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥");
}

// Names of rows, columns and groups: blanks inside them are no tokens.
export function wordLabel(label) {
  return label.trim() === "" ? wordToken(label) : label.replaceAll("\n", "⏎").replaceAll("\t", "⇥");
}

export function quote(token) {
  return `‘${wordToken(token)}’`;
}

export function longest(tokens) {
  return tokens.reduce((most, token) => Math.max(most, [...wordToken(token)].length), 0);
}

export function count(number, noun) {
  return `${number.toLocaleString("en-GB")} ${noun}${number === 1 ? "" : "s"}`;
}

// Arrow keys among buttons that stand in lines: `choose(i)` hears of the one that gets the focus.
export function listenToArrows(list, buttonsOf, across, choose) {
  list.addEventListener("keydown", (event) => {
    const buttons = buttonsOf();
    const i = buttons.indexOf(event.target);
    if (i < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const line = across(event.target);
    const moves = { ArrowLeft: i - 1, ArrowRight: i + 1, ArrowUp: i - line, ArrowDown: i + line };
    const to = { ...moves, Home: 0, End: buttons.length - 1 }[event.key];
    if (!buttons[to]) return;
    event.preventDefault();
    choose(to);
    buttonsOf()[to].focus();
  });
}

// A share as a line of a list: its word, a bar of 0 to 1, its number, and a tag.
export function makeShare(word, share, number, tag = "", look = {}) {
  const bar = setVariable(make("i"), "--w", isNumber(share) ? clamp(share, 0, 1) : 0);
  return make("li", look, make("span", { class: "word", title: word }, word), make("span", { class: "track" }, bar),
    make("span", { class: "number" }, number), make("span", { class: "tag" }, tag));
}

// Calls `fit(width)` now and whenever the node's width changes.
export function onWidth(node, fit) {
  let last = -1;
  new ResizeObserver((entries) => {
    const width = Math.round(entries[entries.length - 1].contentRect.width);
    if (width === last || width === 0) return;
    last = width;
    fit(width);
  }).observe(node);
}
