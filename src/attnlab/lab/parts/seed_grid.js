// All seeds at one glance: the heads of each as one picture, as radio buttons.

import { make, makeButton, setVariable } from "../../draw/report/elements.js";
import { makePicture } from "../../draw/map/paint.js";
import { pixelOf } from "../../draw/map/shades.js";
import { SEED_WORDS } from "../words_populations.js";
import { WEIGHTS } from "./maps.js";
import { mapAt } from "./population.js";

const MOST_ACROSS = 4; // heads in a line of a picture

export function makeSeedGrid(choose) {
  const root = make("div", { class: "seed-grid", role: "radiogroup", "aria-label": SEED_WORDS.seeds });
  let [cells, built] = [new Map(), []];
  root.addEventListener("keydown", (event) => {
    const all = [...root.children];
    const at = all.indexOf(event.target);
    const across = all.filter(({ offsetTop }) => offsetTop === all[0].offsetTop).length;
    const ends = { Home: -at, End: all.length - 1 - at };
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across, ...ends };
    const to = all[at + by[event.key]];
    if (!to || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    choose(to.dataset.name);
    to.focus();
  });
  const find = (wanted) => [...root.children].find(({ dataset }) => dataset.name === wanted);
  return {
    root,
    // Draws the pictures, if they are others.
    build(...wanted) {
      if (wanted.every((each, i) => each === built[i])) return;
      built = wanted;
      const [members, attention, colors] = wanted;
      setVariable(root, "--across", Math.min(attention?.heads ?? 1, MOST_ACROSS));
      cells = new Map(members.map((member) => [member.name, makeSeedCell(member, attention, colors, choose)]));
    },
    list: (members) => root.replaceChildren(...members.map(({ name }) => cells.get(name))),
    mark(chosen) {
      const reached = find(chosen) ?? root.firstChild;
      for (const cell of root.children) {
        cell.setAttribute("aria-checked", cell.dataset.name === chosen);
        cell.tabIndex = cell === reached ? 0 : -1;
      }
    },
    // Scrolls to a cell within the grid, and the page not at all.
    reveal(name) {
      const { offsetTop: top = 0, offsetHeight: high = 0 } = find(name) ?? {};
      const isSeen = top >= root.scrollTop && top + high <= root.scrollTop + root.clientHeight;
      if (high && !isSeen) root.scrollTop = top;
    },
  };
}

function makeSeedCell(member, attention, colors, choose) {
  const { name, row, kind, solvedAt, fault } = member;
  const look = solvedAt === null ? "seed unsolved" : "seed";
  const named = { "data-name": name, "aria-label": SEED_WORDS.cell(member) };
  const cell = makeButton("", () => choose(name), { class: look, role: "radio", ...named });
  if (attention && row !== null) {
    const { order, heads, maps: all } = attention;
    const maps = order[row].map((head) => mapAt(all, attention, row * heads + head));
    cell.append(pictureOfHeads(maps, attention, colors));
  }
  cell.append(make("b", {}, name), make("span", {}, fault ? SEED_WORDS.diverged : kind));
  return cell;
}

// Several maps as one picture of one pixel for each weight, with a line between them.
export function pictureOfHeads(maps, { rows, columns }, colors) {
  const across = Math.min(maps.length, MOST_ACROSS);
  const width = across * (columns + 1) - 1;
  const pixels = new Uint32Array(width * (Math.ceil(maps.length / across) * (rows + 1) - 1)).fill(colors.blank);
  maps.forEach((values, head) => values.forEach((value, k) => {
    const y = Math.floor(head / across) * (rows + 1) + Math.floor(k / columns);
    const x = (head % across) * (columns + 1) + (k % columns);
    pixels[y * width + x] = Number.isNaN(value) ? 0 : pixelOf(value, WEIGHTS, colors);
  }));
  const picture = makePicture(pixels, width, pixels.length / width);
  picture.setAttribute("aria-hidden", "true");
  return picture;
}
