// All heads of one kind of attention: layers are rows, heads are columns. One tab stop; arrow keys move to a head and
// show it.

import { clamp, make, setVariable, wordNumber } from "../../report/elements.js";
import { pictureOf } from "../../map/paint.js";
import { makeScale, STRONG } from "../../map/shades.js";

// `choose(layer, head)` is called when a head is picked.
export function makeOverview(choose) {
  const root = make("div", { class: "overview", role: "grid", "aria-label": "Heads by layer" });
  let cells = [];
  const mark = (layer, head) => {
    cells.flat().forEach((cell) => {
      cell.setAttribute("aria-selected", "false");
      cell.tabIndex = -1;
    });
    const cell = cells[layer][head];
    cell.setAttribute("aria-selected", "true");
    cell.tabIndex = 0;
    return cell;
  };
  root.addEventListener("click", (event) => {
    const cell = event.target.closest(".head");
    if (cell) choose(Number(cell.dataset.layer), Number(cell.dataset.head));
  });
  root.addEventListener("keydown", (event) => {
    const cell = event.target.closest(".head");
    const [down, right] = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -Infinity], End: [0, Infinity] }[event.key] ?? [];
    if (!cell || down === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const layer = clamp(Number(cell.dataset.layer) + down, 0, cells.length - 1);
    const head = clamp(Number(cell.dataset.head) + right, 0, cells[layer].length - 1);
    choose(layer, head);
    cells[layer][head].focus();
  });

  // `face(layer, head)` gives the { picture } of a head or { value, depth } of a measure, and words.
  const show = (group, face, selected) => {
    const most = Math.max(...group.layers.map((layer) => layer.heads.length));
    setVariable(root, "--count", most);
    root.classList.toggle("deep", group.layers.length > 16); // smaller, so that most layers are visible
    const names = Array.from({ length: most }, (_, head) => make("span", { role: "columnheader", class: "head-number" }, String(head)));
    const heading = make("div", { class: "overview-row", role: "row" }, make("span", { role: "columnheader", class: "layer-number" }, make("span", { class: "unseen" }, "Layer")), ...names);
    cells = group.layers.map((layer, i) => layer.heads.map((_, head) => makeHead(group, i, head, face(i, head))));
    const rows = cells.map((own, i) => make("div", { class: "overview-row", role: "row" },
      make("span", { role: "rowheader", class: "layer-number" }, group.layers[i].layer || "·"), ...own));
    root.replaceChildren(heading, ...rows);
    mark(...selected);
  };
  return { root, show, mark };
}

// Fade the edges behind which there are more heads, and show `note` while there are any.
export function fadeWhereMore(scroller, note) {
  const look = () => {
    const below = scroller.scrollHeight - scroller.clientHeight - scroller.scrollTop > 1;
    const right = scroller.scrollWidth - scroller.clientWidth - scroller.scrollLeft > 1;
    setVariable(scroller, "--below", below ? "2rem" : "0px");
    setVariable(scroller, "--right", right ? "2rem" : "0px");
    note.hidden = scroller.scrollHeight <= scroller.clientHeight + 1 && scroller.scrollWidth <= scroller.clientWidth + 1;
  };
  scroller.addEventListener("scroll", look);
  const observer = new ResizeObserver(look);
  observer.observe(scroller);
  observer.observe(scroller.firstChild);
}

function makeHead(group, layer, head, face) {
  const name = `Head ${group.layers[layer].name}.${head}`;
  const cell = make("span", { class: "head", role: "gridcell", "data-layer": layer, "data-head": head, "aria-label": face.words ? `${name}: ${face.words}` : name, title: face.words ? `${name}: ${face.words}` : name });
  if (face.picture) {
    cell.append(face.picture);
  } else {
    cell.classList.add("shade", "measure");
    cell.classList.toggle("minus", face.value < 0);
    cell.classList.toggle("strong", face.depth >= STRONG);
    setVariable(cell, "--w", face.depth);
    cell.append(face.brief);
  }
  return cell;
}

// How heads are shown: thumbnails, or one of the facts.
export function facesOf(group, { fact, variant, scale }, thumbs, colors, factWords) {
  if (fact === "picture") {
    const shades = makeScale(variant === 2 ? -1 : 0, 1, scale === "root");
    return (layer, head) => ({ picture: pictureOf({ ...thumbs[layer][head][variant], scale: shades, colors }) });
  }
  const read = (layer, head) => {
    const [first, second] = group.layers[layer].heads[head].facts.map((all) => all[fact]);
    if (variant < 2) return variant === 1 ? second : first;
    return first === null || second === null ? null : second - first; // no query with an allowed key
  };
  const all = group.layers.flatMap((layer, i) => layer.heads.map((_, head) => Math.abs(read(i, head) ?? 0)));
  const most = Math.max(...all) || 1;
  return (layer, head) => {
    const value = read(layer, head);
    const words = wordNumber(value);
    return { value, depth: Math.abs(value ?? 0) / most, words: `${factWords[fact][0].toLowerCase()} ${words}`, brief: briefly(value) };
  };
}

function briefly(value) {
  if (value === null) return "";
  const text = Math.abs(value) >= 10 ? value.toFixed(0) : Math.abs(value) >= 1 ? value.toFixed(1) : value.toFixed(2).replace("0.", ".");
  return text.replace("-", "−");
}
