// Populations: one training over many seeds, which heads each seed found, and one seed among the others.

import { make } from "attnlab/draw/report/elements.js";
import { makeSeedGrid } from "attnlab/draw/view/modules/seed_grid.js";
import { SEED_WORDS } from "../words_populations.js";
import { RUN_WORDS } from "../words_runs.js";
import { makeSelect } from "../parts/controls.js";
import { readChoices, writeChoices, writeLink } from "../parts/link.js";
import { listMembers, readPopulation } from "../parts/population.js";
import { OUT_OF_RUNS } from "../parts/runs_folder.js";
import { makeSeedChoices } from "../parts/seed_choices.js";
import { makeSeedDetails } from "../parts/seed_details.js";
import { askServer, pathOf } from "../parts/server.js";

// What a link says, and what it means if it does not.
const USUAL = { population: null, member: null, order: "seed", only: "", attention: "0", reads: "" };

export function makePopulations({ lab }, page) {
  const state = {
    ...readChoices(USUAL, page.link.own),
    list: [], found: null, asked: 0, isUnread: false, isOver: false,
  };
  const takeOther = (changes) => take({ ...changes, member: null, only: "" });
  const population = makeSelect("population", SEED_WORDS.population, takeOther);
  const choices = makeSeedChoices(take);
  const grid = makeSeedGrid(choose);
  const details = makeSeedDetails(choose);
  const notice = make("p", { class: "message refused", role: "alert" });
  const [told, more] = [make("p", {}), make("p", { class: "note" })];
  const whole = make("div", { class: "seed-columns", hidden: true },
    make("section", { class: "seed-list" }, ...choices.nodes, grid.root), details.root);
  const command = SEED_WORDS.command(OUT_OF_RUNS);
  const toRuns = make("a", { class: "button" }, SEED_WORDS.toRuns);
  const root = make("div", { class: "room populations-room" }, make("div", { class: "told-line" }, page.status), notice,
    population.root, told, whole,
    make("section", {}, more, make("code", { class: "command" }, command), make("div", { class: "bar" }, toRuns)));

  const shownOf = ({ attentions }) => attentions[state.attention] ?? attentions[0];

  function choose(member) {
    state.member = member;
    drawSeed();
    grid.scrollTo(member);
    page.keepLink();
  }

  // Other choices; what the server has not told yet is asked for.
  function take(changes) {
    const before = { ...state };
    Object.assign(state, changes);
    page.keepLink();
    if (state.population !== before.population) state.found = null;
    return state.found && state.reads === before.reads ? draw() : load();
  }

  async function begin() {
    try {
      state.list = await askServer("/api/populations");
      population.root.hidden = state.list.length === 0;
      more.textContent = state.list.length ? SEED_WORDS.more : SEED_WORDS.none;
      await load();
    } catch (error) {
      notice.textContent = error.message;
    }
  }

  // The population that is asked for, or the newest that is finished.
  async function load() {
    const { list } = state;
    const mine = (state.asked += 1);
    const known = list.find(({ name }) => name === state.population);
    notice.textContent = known || !state.population ? "" : SEED_WORDS.missing(state.population);
    choices.refuse("");
    const entry = known ?? list.find((each) => each.state === "finished") ?? list[0];
    state.population = entry?.name ?? null;
    population.fill(list.map((each) => [each.name, RUN_WORDS.option(each)]), state.population);
    page.keepLink();
    if (!entry) return;
    if (entry.state === "finished") await ask(entry, mine);
    else told.textContent = SEED_WORDS.unfinished(entry);
    if (mine === state.asked && !state.isOver) draw();
  }

  async function ask({ name, members }, mine) {
    if (!state.found) told.textContent = SEED_WORDS.loading(members);
    const read = async (text) => {
      const answer = await askServer(`${pathOf("populations", name)}?text=${encodeURIComponent(text)}`);
      if (mine === state.asked) state.found = readPopulation(answer);
    };
    let refusal = "";
    try {
      await read(state.reads).catch(async (error) => {
        refusal = error.message; // of the input: what was shown before stays, or the means are shown
        if (!state.found) await read("");
      });
    } catch {
      if (mine === state.asked) [notice.textContent, told.textContent] = [refusal, ""];
    }
    if (mine !== state.asked || !state.found) return;
    choices.refuse(refusal);
    state.isUnread = refusal !== "";
    page.keepLink();
  }

  function draw() {
    const { found } = state;
    whole.hidden = !found;
    if (!found) return;
    told.textContent = `${SEED_WORDS.told(found)} ${SEED_WORDS.extremes(found)}`;
    const [shown, kept] = [shownOf(found), listMembers(found, state.order, state.only)];
    choices.show({ found, shown, state, number: kept.length, colors: lab.colors });
    grid.build(found.members, shown, lab.colors);
    grid.list(kept);
    drawSeed();
  }

  // A link holds nothing that was refused.
  function isRefused(key) {
    if (key === "reads") return state.isUnread;
    return key === "member" && state.found !== null && !state.found.names.includes(state.member);
  }

  function drawSeed() {
    const { found, population: name } = state;
    state.member ??= found.typical ?? found.names[0];
    grid.mark(state.member);
    details.show({ population: name, found, name: state.member, attention: shownOf(found), colors: lab.colors });
  }

  begin();
  return {
    root, heading: { title: SEED_WORDS.title, subtitle: SEED_WORDS.subtitle },
    show() {
      toRuns.href = writeLink({ ...page.link, room: "runs", own: {} });
      draw();
    },
    follow: (own) => take(readChoices(USUAL, own)),
    link: () => writeChoices(USUAL, state, isRefused),
    leave() {
      state.isOver = true;
      choices.forget();
    },
  };
}
