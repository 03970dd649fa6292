// Two curves over the length of a text, both axes logarithmic, with a mark at one length.

import { make, makeSvg, onWidth, wordNumber } from "attnlab/draw/report/elements.js";

const [TALL, SIDE, BOTTOM] = [220, 8, 24];

// `names` of the curves; `wordOf` writes a value, `wordLength` a length; `say` tells what the chart shows.
export function makeCurves({ title, names, wordOf, wordLength, say }) {
  const svg = makeSvg("svg", { class: "chart curves", role: "img" });
  const outputs = Object.fromEntries(Object.keys(names).map((name) => [name, make("output", {})]));
  const entries = Object.entries(names).map(([name, label], i) => {
    const swatch = make("span", { class: `swatch hue-${i}`, "aria-hidden": true });
    return make("li", {}, swatch, make("span", {}, label), outputs[name]);
  });
  const legend = make("ul", { class: "legend" }, ...entries);
  const root = make("div", { class: "curves-part" }, make("h3", {}, title), legend, svg);
  let [drawn, width] = [null, 0];
  const draw = () => {
    if (!drawn || !width) return;
    const [found, lengths, at] = drawn;
    const all = Object.values(found).flat().map(Math.log2);
    const [low, high] = [Math.min(...all), Math.max(...all)];
    const x = (i) => SIDE + (i / (lengths.length - 1)) * (width - 2 * SIDE);
    const y = (value) => TALL - BOTTOM - 6 - ((Math.log2(value) - low) / (high - low)) * (TALL - BOTTOM - 12);
    svg.setAttribute("viewBox", `0 0 ${width} ${TALL}`);
    svg.replaceChildren(makeSvg("line", { class: "axis", x1: 0, x2: width, y1: TALL - BOTTOM, y2: TALL - BOTTOM }),
      makeSvg("line", { class: "hair", x1: x(at), x2: x(at), y1: 0, y2: TALL - BOTTOM }));
    lengths.forEach((length, i) => {
      const anchor = { 0: "start", [lengths.length - 1]: "end" }[i] ?? "middle";
      const word = i === 0 ? wordLength(length) : wordNumber(length);
      if (i % 4 === 0) svg.append(makeSvg("text", { x: x(i), y: TALL - 6, "text-anchor": anchor }, word));
    });
    Object.values(found).forEach((values, k) => {
      const corners = values.map((value, i) => `${x(i).toFixed(1)} ${y(value).toFixed(1)}`);
      const line = { class: "series", d: `M${corners.join("L")}`, "stroke-dasharray": k ? "7 4" : null };
      svg.append(makeSvg("g", { class: `hue-${k}` }, makeSvg("path", line),
        makeSvg("circle", { class: "dot", cx: x(at), cy: y(values[at]), r: 5 })));
    });
  };
  onWidth(svg, (found) => {
    width = found;
    draw();
  });
  return {
    root,
    show(found, lengths, at) {
      drawn = [found, lengths, at];
      for (const [name, output] of Object.entries(outputs)) output.textContent = wordOf(found[name][at]);
      const told = Object.entries(outputs).map(([name, output]) => `${names[name]} ${output.textContent}`);
      svg.setAttribute("aria-label", say(title, lengths[at], told));
      draw();
    },
  };
}
