// The tools of a view that is heard: squares of the map are cut, heads knocked out, and what was done is listed. An edit
// is the JSON of attnlab.edits, with its keys in the order that Python writes them.

import { make, makeButton } from "../../report/elements.js";

// head(): what the view shows; hear(edits): is told of every change.
export function makeTools(head, hear) {
  let edits = [];
  let isCutting = false;
  const change = (next) => {
    tools.take(next);
    hear(next);
  };
  const toggle = (edit) => {
    const rest = edits.filter((each) => !isSame(each, edit));
    change(rest.length < edits.length ? rest : [...edits, edit]);
  };
  const cut = ([i, j]) => {
    const { map } = head();
    const edit = cutAt(head(), i, j);
    const isThere = edits.some((each) => isSame(each, edit));
    if (isThere || !Number.isNaN(map.values[i * map.columns + j])) toggle(edit);
  };
  const cutting = makeButton("Cut squares", () => {
    isCutting = !isCutting;
    tools.show();
  }, { title: "A click on a square then cuts it, or puts it back; on the map the key x does." });
  const knocking = makeButton("", () => toggle(knockOut(head())), { "aria-keyshortcuts": "h" });
  const reset = makeButton("Undo all", () => change([]));
  const list = make("ul", { class: "edit-list", "aria-label": "Edits" });
  const answer = make("div", { class: "edit-answer", role: "status" });
  const root = make("div", { class: "edit-part", role: "group", "aria-label": "Edit the model" },
    make("div", { class: "bar" }, cutting, knocking, reset), list, answer);

  const tools = {
    root,
    press: (cell) => isCutting && cut(cell),
    key(event, cell) {
      if (event.key === "h") toggle(knockOut(head()));
      else if (event.key === "x" && cell) cut(cell);
      else return false;
      return true;
    },
    markOf: (i, j) => (edits.some((each) => isSame(each, cutAt(head(), i, j))) ? "cut" : ""),
    show() {
      const isOut = edits.some((each) => isSame(each, knockOut(head())));
      cutting.setAttribute("aria-pressed", isCutting);
      knocking.setAttribute("aria-pressed", isOut);
      knocking.textContent = `Knock out ${head().name.replace("Head", "head")}`;
      reset.hidden = edits.length === 0;
    },
    // Edits made elsewhere, or undone.
    take(next) {
      edits = next;
      list.replaceChildren(...edits.map((edit) => {
        const words = wordEdit(edit);
        const remove = () => change(edits.filter((each) => each !== edit));
        return make("li", {}, make("code", {}, words), makeButton("×", remove, { "aria-label": `Undo ${words}` }));
      }));
      tools.show();
    },
    tell: (...children) => answer.replaceChildren(...children),
    isAt: (others) => isSame(edits, others),
  };
  return tools;
}

function isSame(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}

// Where a head is, as an edit says it: by the number of its layer, or, where that may mean several, by its part's path.
function placeOf({ group, layer, head }) {
  const part = layer.site.replace(/\.?weights$/, "");
  const number = /^layers\.(\d+)\.attention$/.exec(part);
  if (number) return { layer: Number(number[1]), head };
  return part ? { site: part, head } : { head };
}

function knockOut(shown) {
  return { edit: "ZeroHead", version: 2, ...placeOf(shown) };
}

// A cell of a pooled map stands for several tokens: all of its edges are cut.
function cutAt(shown, i, j) {
  const { cells: [down, across], query_tokens: queries, key_tokens: keys } = shown.group;
  const edge = { query: spanOf(i, down, queries), key: spanOf(j, across, keys) };
  return { edit: "CutEdge", version: 2, ...placeOf(shown), ...edge };
}

function spanOf(index, side, tokens) {
  const [first, last] = [index * side, Math.min((index + 1) * side, tokens.length) - 1];
  return first === last ? first : `${first}..${last}`;
}

// As the command line writes it: "CutEdge layer=0 head=1 query=5 key=2".
function wordEdit({ edit, version: _, ...fields }) {
  return [edit, ...Object.entries(fields).map(([name, value]) => `${name}=${JSON.stringify(value)}`)].join(" ");
}
