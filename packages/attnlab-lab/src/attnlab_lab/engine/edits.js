// Edits of one head each, in the JSON that attnlab.edits reads, such as
// { edit: "CutEdge", layer: 0, head: 1, query: 4, key: 2 }: what they change, where, and whether they landed.

import { EngineError, requireKnown, requireWhole } from "./errors.js";

const isOpen = (value) => value !== -Infinity;
const ALREADY_CLOSED = "this query does not attend to this key anyway";

/** Of each kind of edit: its site, and what becomes of a value there; `nothing` says why it changed none. */
const KINDS = {
  CutEdge: { at: "mask", isEdge: true, nothing: ALREADY_CLOSED, change: () => -Infinity },
  SetMask: {
    at: "mask",
    change(value, { mask: { tensor } }, { query, key }) {
      if (!tensor[query][key]) return -Infinity;
      return isOpen(value) ? value : 0;
    },
  },
  AddToScores: { at: "scores", isEdge: true, nothing: ALREADY_CLOSED, change: (value, { amount }) => value + amount },
  FreezePattern: {
    at: "weights",
    change: (_, { recording, head }, { site, query, key }) => recording.values[site].tensor[0][head][query][key],
  },
  UniformPattern: {
    at: "weights",
    change: (_, __, { key, visible }) => visible[key] && 1 / visible.reduce((sum, seen) => sum + seen, 0),
  },
  RedirectToFirst: { at: "weights", change: (_, __, { key, visible }) => Number(visible.indexOf(1) === key) },
  ZeroHead: { at: "heads", change: () => 0 },
};

/** A hook that applies edits in their order, and knows afterwards whether each landed. */
export class Editor {
  visible = new Map();

  constructor({ config }, forms) {
    this.edits = forms.map((form) => {
      const kind = KINDS[requireKnown("edit here", form.edit, Object.keys(KINDS))];
      requireWhole("layer", form.layer, 0, config.num_layers - 1);
      requireWhole("head", form.head, 0, config.num_heads - 1);
      return { form, kind, site: `layers.${form.layer}.attention.${kind.at}`, wasApplied: false, hasChanged: false };
    });
  }

  visit(site, array) {
    for (const edit of this.edits) if (edit.site === site) this.apply(edit, array);
    if (site.endsWith(".scores")) {
      const visible = Uint8Array.from(array.data, (value) => Number(isOpen(value)));
      this.visible.set(site.replace(/scores$/, "weights"), visible);
    }
    return array;
  }

  apply(edit, { shape, data }) {
    const { form, kind, site } = edit;
    const [batch, heads, queries, columns] = shape;
    const visible = this.visible.get(site);
    for (let row = 0; row < batch; row++) {
      for (let query = 0; query < queries; query++) {
        const start = ((row * heads + form.head) * queries + query) * columns;
        const place = { site, query, visible: visible?.subarray(start, start + columns) };
        for (let key = 0; key < columns; key++) {
          if (kind.isEdge && (query !== form.query || key !== form.key)) continue;
          const value = kind.change(data[start + key], form, { ...place, key });
          edit.wasApplied = true;
          edit.hasChanged ||= value !== data[start + key];
          data[start + key] = value;
        }
      }
    }
  }

  /** Throw where an edit landed nowhere, or changed nothing where that must be a mistake. */
  finish() {
    for (const { form: { edit: name }, kind, wasApplied, hasChanged } of this.edits) {
      if (!wasApplied) throw new EngineError(`${name} landed nowhere: its query or key was never reached.`);
      if (kind.nothing && !hasChanged) throw new EngineError(`${name} changed nothing: ${kind.nothing}.`);
    }
  }
}
