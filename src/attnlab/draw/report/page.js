// Puts the parts in their places and lets them talk to each other: a verdict opens a trace.

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
      view.stage.closest("section").scrollIntoView({ behavior: isCalm() ? "auto" : "smooth" });
      view.on.focus({ preventScroll: true });
    },
  };
}

function isCalm() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

function mountTheme() {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const name = () => {
    button.textContent = isDark() ? "☀ Light" : "☾ Dark";
    button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
  });
  system.addEventListener("change", name);
  button.hidden = false;
  name();
}

// With nothing focused, the arrow keys belong to the trace that is on the screen.
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

function mountSections() {
  const traces = makeTraceIndex();
  for (const stage of document.querySelectorAll(".stage")) {
    const i = Number(stage.dataset.section);
    const section = sections[i];
    if (section.kind === "lines") mountLines(stage, section);
    if (section.kind === "verdicts") mountVerdicts(stage, section, traces);
    if (section.kind === "trace") {
      const view = mountTrace(stage, section);
      if (view) traces.views.set(i, view);
    }
  }
  listenForArrows(traces.views);
}

mountTheme();
mountSections();
