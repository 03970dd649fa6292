// Sweeps: one training over a grid of settings, how many seeds of each cell solve the problem, and one cell closer.

import { make } from "attnlab/draw/report/elements.js";
import { RUN_WORDS } from "../words_runs.js";
import { SWEEP_WORDS } from "../words_sweeps.js";
import { makeCellDetails } from "../parts/cell_details.js";
import { readChoices, writeChoices } from "../parts/link.js";
import { linkToRoom } from "../parts/run_details.js";
import { OUT_OF_RUNS } from "../parts/runs_folder.js";
import { makeSelect } from "../parts/controls.js";
import { askServer, pathOf } from "../parts/server.js";
import { closestCall } from "../parts/sweep_cells.js";
import { makeSweepMap } from "../parts/sweep_map.js";

const GROWS_EVERY = 2000; // milliseconds, while a sweep is in training
// What a link says, and what it means if it does not.
const WITHOUT_LINK = { sweep: null, figure: "share", cell: null };

export function makeSweeps({ lab }, page) {
  const state = { ...readChoices(WITHOUT_LINK, page.link.own), found: null, asked: 0, due: 0 };
  const sweep = makeSelect("sweep", SWEEP_WORDS.sweep, (taken) => take({ ...taken, cell: null }));
  const figure = makeSelect("figure", SWEEP_WORDS.figure, take);
  const map = makeSweepMap((cell) => take({ cell: String(cell) }));
  const details = makeCellDetails(train);
  const notice = make("p", { class: "message refused", role: "alert" });
  const [told, more] = [make("p", {}), make("p", { class: "note" })];
  const whole = make("div", { class: "seed-columns", hidden: true },
    make("section", { class: "seed-list" }, make("h2", {}, SWEEP_WORDS.grid), figure.root, ...map.nodes, make("p", { class: "note" }, SWEEP_WORDS.medians)),
    details.root);
  const command = SWEEP_WORDS.command(OUT_OF_RUNS);
  const toRuns = make("a", { class: "button", href: linkToRoom("runs", {}) }, SWEEP_WORDS.toRuns);
  const root = make("div", { class: "room sweeps-room" }, make("div", { class: "told-line" }, page.status), notice,
    sweep.root, told, whole,
    make("section", {}, more, make("code", { class: "command" }, command), make("div", { class: "bar" }, toRuns)));

  async function train(request) {
    const { name } = await askServer("/api/jobs", request);
    location.hash = linkToRoom("runs", { show: name });
  }

  function take(changes) {
    const { sweep: before } = state;
    Object.assign(state, changes);
    if (state.sweep !== before) return load();
    page.keepLink();
    return draw();
  }

  // The sweep that is asked for, or the newest; one in training is asked for again and again.
  async function load() {
    clearTimeout(state.due);
    const mine = (state.asked += 1);
    const { list, entry, found, words } = await look().catch(({ message }) => ({ list: [], found: null, words: message }));
    if (mine !== state.asked) return;
    const isMissing = state.sweep && entry?.name !== state.sweep;
    notice.textContent = isMissing && entry ? SWEEP_WORDS.missing(state.sweep) : "";
    Object.assign(state, { found, sweep: entry?.name ?? state.sweep });
    sweep.root.hidden = list.length === 0;
    sweep.fill(list.map((each) => [each.name, RUN_WORDS.option(each)]), state.sweep);
    more.textContent = list.length ? SWEEP_WORDS.more : SWEEP_WORDS.none;
    told.textContent = words;
    page.keepLink();
    draw();
    if (entry && entry.state !== "finished") state.due = setTimeout(load, GROWS_EVERY);
  }

  async function look() {
    const list = await askServer("/api/sweeps");
    const entry = list.find(({ name }) => name === state.sweep) ?? list[0];
    if (!entry) return { list, found: null, words: "" };
    try {
      const found = await askServer(pathOf("sweeps", entry.name));
      return { list, entry, found, words: SWEEP_WORDS.told(found) };
    } catch (error) {
      if (!error.isAnswer) throw error;
      return { list, entry, found: null, words: entry.state === "running" ? SWEEP_WORDS.begins : error.message };
    }
  }

  function draw() {
    const { found } = state;
    whole.hidden = !found;
    if (!found) return;
    const figures = SWEEP_WORDS.figures(found.figures);
    if (!figures.some(([name]) => name === state.figure)) state.figure = WITHOUT_LINK.figure;
    const isThere = state.cell !== null && Boolean(found.cells[Number(state.cell)]);
    const cell = isThere ? Number(state.cell) : closestCall(found.cells);
    figure.fill(figures, state.figure);
    map.show(found, state.figure, Object.fromEntries(figures)[state.figure], cell, lab.colors);
    details.show(found, found.cells[cell]);
  }

  load();
  return {
    root, heading: { title: SWEEP_WORDS.title, subtitle: SWEEP_WORDS.subtitle },
    show: draw,
    follow: (own) => take(readChoices(WITHOUT_LINK, own)),
    link: () => writeChoices(WITHOUT_LINK, state),
    leave() {
      state.asked += 1; // an answer on its way is too late
      clearTimeout(state.due);
    },
  };
}
