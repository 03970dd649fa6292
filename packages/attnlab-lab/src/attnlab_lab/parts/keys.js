// The keys of a room, folded away at its foot.

import { make } from "attnlab/draw/report/elements.js";
import { WORDS } from "../words.js";

export function makeKeys(keys) {
  const rows = keys.map(([names, words]) => [make("dt", {}, make("kbd", {}, names)), make("dd", {}, words)]);
  return make("details", { class: "keys-part", "data-part": "keys" },
    make("summary", {}, WORDS.keysTitle), make("dl", { class: "keys-list" }, ...rows.flat()));
}
