// All seeds at one glance: the heads of each as one picture, as radio buttons. The lab and a notebook show the same.
//
// A member is { name, row (or null), kind, solvedAt (or null), fault (or null) }; an attention has the maps of all
// members { rows, columns, heads, order, maps }: member, head, query, key, and NaN where a pair is masked.

import { listenToArrows, make, makeButton, setVariable } from "../../report/elements.js";
import { makePicture } from "../../map/paint.js";
import { makeScale, pixelOf } from "../../map/shades.js";

const MOST_ACROSS = 4; // heads in a line of a picture
const SEED_SCALE = makeScale(0, 1);

export function makeSeedGrid(choose) {
  const root = make("div", { class: "seed-grid", role: "radiogroup", "aria-label": "All seeds" });
  let [cells, built] = [new Map(), []];
  const all = () => [...root.children];
  const across = () => all().filter(({ offsetTop }) => offsetTop === root.firstChild.offsetTop).length;
  listenToArrows(root, all, across, (i) => choose(all()[i].dataset.name));
  const find = (wanted) => all().find(({ dataset }) => dataset.name === wanted);
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
    scrollTo(name) {
      const { offsetTop: top = 0, offsetHeight: high = 0 } = find(name) ?? {};
      const isSeen = top >= root.scrollTop && top + high <= root.scrollTop + root.clientHeight;
      if (high && !isSeen) root.scrollTop = top;
    },
  };
}

function makeSeedCell(member, attention, colors, choose) {
  const { name, row, kind, solvedAt, fault } = member;
  const look = solvedAt === null ? "seed unsolved" : "seed";
  const named = { "data-name": name, "aria-label": sayMember(member) };
  const cell = makeButton("", () => choose(name), { class: look, role: "radio", ...named });
  if (attention && row !== null) {
    const { order, heads, rows, columns, maps: all } = attention;
    const size = rows * columns;
    const maps = order[row].map((head) => all.subarray((row * heads + head) * size, (row * heads + head + 1) * size));
    cell.append(pictureOfHeads(maps, attention, colors));
  }
  cell.append(make("b", {}, name), make("span", {}, fault ? "diverged" : kind));
  return cell;
}

function sayMember({ name, kind, solvedAt, fault }) {
  const outcome = solvedAt === null ? "not solved" : "solved";
  return `Seed ${name}${kind ? `, heads ${kind}` : ""}, ${fault ? "diverged" : outcome}`;
}

// Several maps as one picture of one pixel for each weight, with a line between them.
export function pictureOfHeads(maps, { rows, columns }, colors) {
  const across = Math.min(maps.length, MOST_ACROSS);
  const width = across * (columns + 1) - 1;
  const pixels = new Uint32Array(width * (Math.ceil(maps.length / across) * (rows + 1) - 1)).fill(colors.blank);
  maps.forEach((values, head) => values.forEach((value, k) => {
    const y = Math.floor(head / across) * (rows + 1) + Math.floor(k / columns);
    const x = (head % across) * (columns + 1) + (k % columns);
    pixels[y * width + x] = Number.isNaN(value) ? 0 : pixelOf(value, SEED_SCALE, colors);
  }));
  return makePicture(pixels, width, pixels.length / width);
}
