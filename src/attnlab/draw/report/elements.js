// Making elements and wording values. Text reaches the page as text nodes and attributes only, so a token
// such as "<script>" is shown, never parsed.

const SVG = "http://www.w3.org/2000/svg";

function make(name, attributes = {}, ...children) {
  return furnish(document.createElement(name), attributes, children);
}

function makeSvg(name, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, name), attributes, children);
}

function furnish(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children);
  return node;
}

function makeButton(label, whenPressed, attributes = {}) {
  const button = make("button", { type: "button", ...attributes }, label);
  button.addEventListener("click", whenPressed);
  return button;
}

// The content security policy forbids style attributes; properties set through the object model are fine.
function setVariable(node, name, value) {
  node.style.setProperty(name, String(value));
  return node;
}

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

function wordNumber(value, digits = 4) {
  if (!isNumber(value)) return "n/a";
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toLocaleString("en-GB");
  const size = Math.abs(value);
  if (size < 1e-3 || size >= 1e9) return value.toExponential(digits - 1).replace("-", "−");
  if (size >= 1e4) return Math.round(value).toLocaleString("en-GB");
  return value.toPrecision(digits).replace("-", "−");
}

// As many digits as it needs, at most `digits`: 0.5 stays 0.5.
function wordTrimmed(value, digits = 7) {
  return isNumber(value) ? String(Number(value.toPrecision(digits))).replace("-", "−") : "no value";
}

// Three decimals, but never a rounded 0 or 1 where the value is neither.
function wordProbability(value) {
  if (!isNumber(value)) return "n/a";
  const text = value.toFixed(3);
  if (value < 1 && text === "1.000") return ">0.999";
  if (value > 0 && text === "0.000") return "<0.001";
  return text;
}

// Fits a small cell: "0", ".07", ".93", "1".
function wordBriefly(value) {
  if (!isNumber(value)) return "n/a";
  const text = value.toFixed(2);
  if (text === "0.00" || text === "-0.00") return "0";
  return text === "1.00" ? "1" : text.replace("0.", ".");
}

function wordTokens(tokens) {
  if (tokens.length === 0) return "(empty)";
  return tokens.join(tokens.every((token) => [...token].length === 1) ? "" : " ");
}

// White space is a token like any other and has to be seen.
function wordToken(token) {
  return token === "" ? "∅" : token.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥");
}

// Names of rows, columns and groups are words: blanks inside them are no tokens.
function wordLabel(label) {
  return label.trim() === "" ? wordToken(label) : label.replaceAll("\n", "⏎").replaceAll("\t", "⇥");
}

function quote(token) {
  return `‘${wordToken(token)}’`;
}

function longest(tokens) {
  return tokens.reduce((most, token) => Math.max(most, [...wordToken(token)].length), 0);
}

function count(number, noun) {
  return `${number.toLocaleString("en-GB")} ${noun}${number === 1 ? "" : "s"}`;
}

// "layers.0.attention.weights", head 1 -> "Layer 0, head 1"; "decoder.layers.0.cross_attention.weights", head 1 ->
// "Decoder layer 0 cross, head 1"; other sites keep their own name.
function wordHead(entry) {
  const found = /^(?:(encoder|decoder)\.)?layers\.(\d+)\.(?:(\w+?)_)?attention\.weights$/.exec(entry.site);
  if (!found) return { long: `${entry.site}, head ${entry.head}`, brief: `${entry.site} H${entry.head}` };
  const [, stack, layer, kind] = found;
  const place = stack ? `${stack[0].toUpperCase()}${stack.slice(1)} layer` : "Layer";
  return {
    long: `${place} ${layer}${kind ? ` ${kind}` : ""}, head ${entry.head}`,
    // Steps are those of the decoder, so only the encoder's heads need to say whose they are.
    brief: `${stack === "encoder" ? "enc " : ""}L${layer}${kind ? ` ${kind}` : ""} H${entry.head}`,
  };
}

// Calls `fit(width)` now and whenever the node's width changes.
function onWidth(node, fit) {
  let last = -1;
  new ResizeObserver((entries) => {
    const width = Math.round(entries[entries.length - 1].contentRect.width);
    if (width === last || width === 0) return;
    last = width;
    fit(width);
  }).observe(node);
}
