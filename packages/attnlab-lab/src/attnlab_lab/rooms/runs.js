// Runs: every run in the server's folder; one of them is watched, and new ones are started.

import { make, makeButton } from "attnlab/draw/report/elements.js";
import { RUN_WORDS } from "../words_runs.js";
import { makeNotice } from "../parts/controls.js";
import { makeRunDetails } from "../parts/run_details.js";
import { makeRunForm } from "../parts/run_form.js";
import { askServer, pathOf } from "../parts/server.js";

const LOOK_EVERY = 1200; // milliseconds
const LOOKS_PER_LIST = 8; // the list of runs takes longer than the jobs

export function makeRuns(session, page) {
  const { show = null, with: other = null, experiment = "sorting" } = page.link.own;
  const state = { shown: show, other, entries: [], isOver: false, looks: 0 };
  let [jobs, runs] = [null, []];

  const details = makeRunDetails({ act, compare: (name) => choose(state.shown, name) });
  const form = makeRunForm({ experiment, start, changed: page.keepLink });
  const cards = new Map();
  const list = make("ul", { class: "run-cards", "aria-labelledby": "runs-title" });
  const none = make("p", { class: "note" }, RUN_WORDS.none);
  const notice = makeNotice();
  const root = make("div", { class: "room runs-room" }, make("div", { class: "told-line" }, page.status, notice.root),
    details.root, form.root, make("section", { class: "run-list" }, make("h2", { id: "runs-title" }, RUN_WORDS.runs), none, list));

  function choose(name, beside = null) {
    Object.assign(state, { shown: name, other: beside });
    draw();
    page.keepLink();
  }

  async function act(name, deed) {
    await askServer(pathOf("jobs", name, `/${deed}`), {});
    await look();
  }

  async function start(asked) {
    const { name } = await askServer("/api/jobs", asked);
    state.shown = name;
    await look();
    choose(name);
    page.say(RUN_WORDS.started(name));
    details.root.scrollIntoView({ block: "nearest" });
  }

  async function look() {
    const found = await askServer("/api/jobs");
    const before = new Map(jobs?.map((job) => [job.name, job.state]));
    const changed = found.filter(({ name, state: is }) => before.get(name) !== is);
    if (changed.length || state.looks % LOOKS_PER_LIST === 0) runs = await askServer("/api/runs");
    for (const { name, state: is } of changed) if (jobs) page.say(RUN_WORDS.changed(name, is));
    jobs = found;
    state.looks += 1;
    state.entries = joinEntries(runs, jobs);
    if (!state.entries.some(({ name }) => name === state.shown)) {
      if (state.shown) page.notice(RUN_WORDS.noRun(state.shown));
      state.shown = state.entries[0]?.name ?? null;
    }
    draw();
    const refusal = await form.load();
    if (refusal) page.notice(refusal);
  }

  function draw() {
    const { entries, shown } = state;
    none.hidden = entries.length > 0;
    const nodes = entries.map((entry) => {
      if (!cards.has(entry.name)) cards.set(entry.name, makeCard(entry.name, choose));
      return cards.get(entry.name).show(entry, form.differing(entry), entry.name === shown);
    });
    if (nodes.length !== list.children.length || nodes.some((node, i) => node !== list.children[i])) {
      const focused = document.activeElement;
      list.replaceChildren(...nodes);
      if (list.contains(focused)) focused.focus();
    }
    details.show(entries.find(({ name }) => name === shown) ?? null, state.other, entries);
  }

  function lose({ message }) {
    state.entries = state.entries.map((entry) => (entry.state === "running" ? { ...entry, state: "unknown" } : entry));
    draw();
    return message;
  }

  // A server that is away is waited for.
  async function keepLooking() {
    while (!state.isOver) {
      notice.tell(document.hidden ? "" : await look().then(() => "", lose));
      await new Promise((done) => setTimeout(done, LOOK_EVERY));
    }
  }

  keepLooking();
  return {
    root, heading: { title: RUN_WORDS.title, subtitle: RUN_WORDS.subtitle },
    show() {},
    follow: (own) => choose(own.show ?? state.shown, own.with ?? null),
    link: () => ({ show: state.shown, with: state.other, experiment: form.experiment() }),
    leave() {
      state.isOver = true;
      details.close();
    },
  };
}

// A job and the run that it makes are one entry; the newest first.
function joinEntries(runs, jobs) {
  const found = new Map(runs.map((run) => [run.run, { ...run, name: run.run, run, job: null, when: Date.parse(run.started) }]));
  for (const job of jobs) {
    const entry = found.get(job.name) ?? { ...job, run: null, what: job.experiment, when: job.created * 1000 };
    if (entry.run || job.state !== "finished") found.set(job.name, { ...entry, job, state: entry.state === "finished" ? "finished" : job.state });
  }
  return [...found.values()].sort((one, two) => (two.when || 0) - (one.when || 0));
}

function makeCard(name, choose) {
  const button = makeButton(name, () => choose(name), { class: "run-name" });
  const state = make("span", { class: "run-state" });
  const facts = make("span", { class: "note" });
  const bar = make("progress", { max: 1 });
  const root = make("li", { class: "run-card" }, button, state, facts, bar);
  return {
    show({ run, job, state: is, what, seed, when }, differing, isShown) {
      button.setAttribute("aria-current", isShown);
      root.dataset.state = is;
      state.textContent = is;
      const day = when ? new Date(when).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }) : "";
      facts.textContent = [RUN_WORDS.of(what, seed), differing.join(", "), day, run?.claims ? RUN_WORDS.claims(run) : ""].filter(Boolean).join(" · ");
      bar.hidden = is !== "running" || !job?.last.steps;
      if (!bar.hidden) bar.value = job.last.step / job.last.steps;
      bar.setAttribute("aria-label", RUN_WORDS.progress(name, bar.value));
      return root;
    },
  };
}
