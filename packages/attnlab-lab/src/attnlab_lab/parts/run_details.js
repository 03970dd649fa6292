// One run: while it trains, its stage, lines and time left; when it is done, its claims, and another run beside it.

import { make, makeButton, makeSvg, wordNumber } from "attnlab/draw/report/elements.js";
import { RUN_WORDS } from "../words_runs.js";
import { fillOptions } from "./controls.js";
import { CHART_WIDTH, makeLineChart, writeLine } from "./line_chart.js";
import { firstInput, readLink, writeLink } from "./link.js";
import { makeHeadings, makeRow } from "./one_input.js";
import { folderOf } from "./runs_folder.js";
import { askServer, followJob, pathOf, seriesOf, settingsOfRun } from "./server.js";

const NO_EDITS = { edits: [], at: null, hide: [], own: {} }; // what a link says of a model as it is

export function makeRunDetails({ act, compare }) {
  let [entry, other] = [null, null];
  let claimsOf = null; // the run whose claims are listed
  let files = { key: null, one: null, two: null }; // what is known of finished runs
  const log = followJob(() => requestAnimationFrame(draw));

  const title = make("h2", { id: "run-title" });
  const told = make("p", {});
  const [stage, left] = [make("span", {}), make("output", {})];
  const bar = make("progress", { max: 1 });
  const training = make("div", {}, make("p", { class: "margin-line" }, stage, left), bar);
  const charts = Object.keys(RUN_WORDS.figures).map(makeChart);
  const main = makeButton("", () => press(entry.state === "running" ? "pause" : "resume"));
  const cancel = makeButton(RUN_WORDS.cancel, () => press("cancel"));
  const report = make("a", { class: "button", target: "_blank", rel: "noopener" }, RUN_WORDS.report);
  const bench = make("a", { class: "button" }, RUN_WORDS.bench);
  const wholes = { population: "populations", sweep: "sweeps" }; // a run of many models, and its room
  const many = Object.keys(wholes).map((kind) => make("a", { class: "button", "data-kind": kind }, RUN_WORDS[kind]));
  const noBench = make("p", { class: "note" }, RUN_WORDS.noBench);
  const message = make("p", { class: "message refused", role: "status" });
  const claims = make("ul", { class: "run-claims" });
  const command = make("code", { class: "command" });
  const others = make("select", { id: "compare" });
  const beside = make("div", { class: "bar" }, make("label", { for: "compare" }, RUN_WORDS.compareWith), others);
  const table = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-labelledby": "comparison" });
  const root = make("section", { class: "run-details", "aria-labelledby": "run-title", hidden: true }, title, told, training,
    make("div", { class: "run-charts" }, ...charts.map((chart) => chart.root)), make("div", { class: "bar" }, main, cancel, report, bench, ...many),
    noBench, message, claims, command, beside, table);
  others.addEventListener("change", () => compare(others.value || null));

  async function press(deed) {
    message.textContent = await act(entry.name, deed).then(() => "", (error) => error.message);
  }

  // What a finished run holds is asked for once.
  async function load() {
    const wanted = [entry, other].map((each) => (each?.state === "finished" ? each.name : null));
    const key = JSON.stringify(wanted);
    if (key === files.key) return;
    files = { key, one: null, two: null };
    try {
      const [one, two] = await Promise.all(wanted.map((name) => name && askServer(pathOf("runs", name))));
      if (files.key === key) files = { key, one, two };
    } catch (error) {
      message.textContent = error.message;
    }
    draw();
  }

  function draw() {
    if (!entry) return;
    const { name, state, job, run } = entry;
    const { one, two } = files;
    const now = log.now();
    root.dataset.state = state;
    title.textContent = name;
    const more = state === "failed" ? now.sentence : run?.claims ? `${RUN_WORDS.claims(run)}.` : "";
    told.textContent = `${RUN_WORDS.told[state]} ${more}`;
    training.hidden = state !== "running" || !now.steps;
    stage.textContent = RUN_WORDS.stage(now.stage, now.step, now.steps, job?.sweep ? "model" : "step");
    left.textContent = now.left === null ? "" : RUN_WORDS.left(now.left);
    bar.value = now.steps && now.step / now.steps;
    bar.setAttribute("aria-label", RUN_WORDS.progress(name, bar.value));
    for (const chart of charts) chart.show(one?.metrics ?? now.lines, one ? 0 : now.trained);
    const isLive = state === "running" || state === "waiting";
    main.hidden = !job || ["waiting", "finished", "unknown"].includes(state);
    main.textContent = state === "running" ? RUN_WORDS.pause : RUN_WORDS.resume;
    const hasFocus = document.activeElement === cancel;
    cancel.hidden = !job || !isLive;
    if (hasFocus && cancel.hidden) main.focus();
    report.hidden = state !== "finished";
    report.href = `/runs/${encodeURIComponent(name)}/report.html`;
    const hasOne = many.every((whole) => !one?.config[whole.dataset.kind]);
    const link = one && hasOne && linkToBench(name, one.config);
    bench.hidden = !link;
    if (link) bench.href = link;
    for (const whole of many) {
      const { kind } = whole.dataset;
      whole.hidden = !one?.config[kind];
      whole.href = linkToRoom(wholes[kind], { [kind]: name });
    }
    noBench.hidden = !one || Boolean(link) || !hasOne || one.config.experiment !== "sorting";
    if (claimsOf !== one) claims.replaceChildren(...makeClaims(one?.claims ?? [])); // those that are open stay so
    claimsOf = one;
    table.replaceChildren(...(one && two ? [makeComparison([name, other.name], [one, two])] : []));
    table.hidden = !two;
    command.hidden = isLive;
    command.textContent = [entry, ...(two ? [other] : [])].map((each) =>
      `attnlab ${each.state === "finished" || each.state === "damaged" ? "show" : "resume"} ${folderOf(each.name)}`).join("\n");
  }

  return {
    root,
    show(wanted, otherName, entries) {
      if (entry?.name !== wanted?.name || entry?.state !== wanted?.state) {
        message.textContent = "";
        files.key = null;
      }
      entry = wanted;
      root.hidden = entry === null;
      const rest = entries.filter((each) => each !== entry && each.state === "finished" && entry?.state === "finished");
      other = rest.find(({ name }) => name === otherName) ?? null;
      beside.hidden = rest.length === 0;
      const options = [["", RUN_WORDS.nothing], ...rest.map(({ name }) => [name, name])];
      if (others.dataset.of !== String(options)) fillOptions(others, options, "");
      others.dataset.of = String(options);
      others.value = other?.name ?? "";
      log.follow(entry?.state === "finished" ? null : entry?.job);
      load(); // first, since what is known of another run goes
      draw();
    },
    close: () => log.follow(null),
  };
}

// A room with its choices, and nothing else.
export function linkToRoom(room, own) {
  const { settings, input } = readLink("");
  return writeLink({ ...NO_EDITS, room, settings, input, own });
}

// Null for a run that the Bench cannot show.
export function linkToBench(name, config) {
  const settings = settingsOfRun(name, config);
  if (config.experiment !== "sorting") return null;
  const link = writeLink({ ...NO_EDITS, room: "bench", settings, input: firstInput(settings) });
  try {
    readLink(link);
    return link;
  } catch {
    return null;
  }
}

// Self-checks that hold are one line, which opens to them.
function makeClaims(claims) {
  const folded = claims.filter(isFolded);
  const listed = claims.filter((claim) => !isFolded(claim)).map(makeClaim);
  if (folded.length === 0) return listed;
  const words = RUN_WORDS.selfChecks(folded.length, claims.filter((claim) => claim.is_self_check).length);
  return [...listed, make("li", {}, make("details", {}, make("summary", {}, words), make("ul", { class: "run-claims" }, ...folded.map(makeClaim))))];
}

const isFolded = (claim) => claim.is_self_check && claim.passed === true;

function makeClaim(claim) {
  const mark = make("span", { class: "mark", role: "img", "aria-label": RUN_WORDS.claimWord(claim.passed) }, RUN_WORDS.claimMark(claim.passed));
  return make("li", { class: claim.passed === false ? "failed" : "" }, make("details", {},
    make("summary", {}, mark, RUN_WORDS.claim(claim)),
    make("p", { class: "note" }, RUN_WORDS.measured(claim))));
}

// A figure over the steps, above zero.
function makeChart(name) {
  const line = makeSvg("path", { class: "series" });
  const { value, svg, nodes } = makeLineChart(RUN_WORDS.figures[name], line);
  const root = make("div", { "data-figure": name }, ...nodes);
  return {
    root,
    show(lines, steps) {
      const series = seriesOf(lines, name);
      root.hidden = series.length === 0;
      if (root.hidden) return;
      const [last, now] = series.at(-1);
      const [wide, high] = [Math.max(steps, last), series.reduce((most, [, each]) => Math.max(most, each), name === "accuracy" ? 1 : 0) * 1.05];
      const every = Math.ceil(series.length / CHART_WIDTH);
      const seen = series.filter((_, i) => i % every === 0 || i === series.length - 1);
      line.setAttribute("d", writeLine(seen, wide, high));
      value.textContent = wordNumber(now);
      svg.setAttribute("aria-label", RUN_WORDS.chart(RUN_WORDS.figures[name], wordNumber(now), last));
    },
  };
}

// A setting or a figure is named as in Python; a claim is a sentence already.
function wordKey(key) {
  return key.includes(" ") ? key : key.replaceAll("_", " ");
}

function makeComparison(names, files) {
  const settings = files.map(({ config }) => ({ experiment: config.experiment, seed: config.seed, ...config.settings }));
  const claims = files.map((file) => Object.fromEntries(file.claims.filter((claim) => !isFolded(claim)).map(({ statement, measured, passed }) => [statement, `${RUN_WORDS.claimMark(passed)} ${measured}`])));
  const figures = files.map(({ metrics }) => Object.assign({}, ...metrics));
  const part = (title, [one, two], word, isSeen = () => true) => {
    const keys = [...new Set([...Object.keys(one), ...Object.keys(two)])].filter((key) => isSeen(one[key], two[key]));
    const rows = keys.map((key) => makeRow(wordKey(key), [one, two].map((each) => (key in each ? word(each[key]) : "–"))));
    const none = makeRow(RUN_WORDS.noDifference, ["", ""]);
    return make("tbody", {}, make("tr", {}, make("th", { scope: "rowgroup", colspan: 3 }, title)), ...(rows.length ? rows : [none]));
  };
  return make("table", { class: "comparison" }, make("caption", { id: "comparison" }, RUN_WORDS.compared(names)),
    makeHeadings(["", ...names]),
    part(RUN_WORDS.parts.settings, settings, (value) => String(value ?? "none"), (one, two) => one !== two),
    part(RUN_WORDS.parts.claims, claims, String), part(RUN_WORDS.parts.figures, figures, wordNumber));
}
