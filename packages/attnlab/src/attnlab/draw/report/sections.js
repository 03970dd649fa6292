// The sections of a report, connected: a verdict opens a trace.

import { mountBars } from "./bars.js";
import { mountLines } from "./lines.js";
import { mountMaps } from "./maps.js";
import { mountTrace, stepByKey } from "./trace.js";
import { mountVerdicts } from "./verdicts.js";

const MOUNTS = { lines: mountLines, bars: mountBars, maps: mountMaps, verdicts: mountVerdicts, trace: mountTrace };
const sections = JSON.parse(document.getElementById("document").textContent);

// Finds inputs across all trace sections. Views are added as they are mounted, after the verdicts.
function makeTraceIndex() {
  const places = new Map();
  sections.forEach((section, i) => {
    if (section?.kind !== "trace") return;
    section.traces.forEach((trace, j) => {
      const key = JSON.stringify(trace.input);
      if (!places.has(key)) places.set(key, [i, j]);
    });
  });
  const views = new Map();
  return {
    views,
    has: (input) => places.has(JSON.stringify(input)),
    open(input) {
      const [i, j] = places.get(JSON.stringify(input));
      const view = views.get(i);
      view.chooser.choose(j);
      view.stage.closest("section").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
      view.on.focus({ preventScroll: true });
    },
  };
}

// Without a focus, the arrow keys control the visible trace.
function listenForArrows(views) {
  document.addEventListener("keydown", (event) => {
    if (event.target !== document.body && event.target.id !== "content") return;
    const inSight = [...views.values()].find(({ stage }) => {
      const box = stage.getBoundingClientRect();
      return box.top < innerHeight * 0.8 && box.bottom > innerHeight * 0.2;
    });
    if (inSight) stepByKey(inSight, event);
  });
}

// Returns the views of the traces, by the numbers of their sections.
export function mountSections() {
  const traces = makeTraceIndex();
  for (const stage of document.querySelectorAll(".stage")) {
    const i = Number(stage.dataset.section);
    const view = MOUNTS[sections[i].kind](stage, sections[i], traces);
    if (sections[i].kind === "trace" && view) traces.views.set(i, view);
  }
  listenForArrows(traces.views);
  return traces.views;
}
