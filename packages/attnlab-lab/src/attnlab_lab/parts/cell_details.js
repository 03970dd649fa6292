// One cell of a sweep: how many of its seeds solve the problem, and when; its models can be trained again.

import { make, makeButton } from "attnlab/draw/report/elements.js";
import { SWEEP_WORDS } from "../words_sweeps.js";
import { trainingCommand } from "./runs_folder.js";

// `train(request)` starts the models of the cell as a job.
export function makeCellDetails(train) {
  const title = make("h2", { id: "cell-title" });
  const told = make("p", {});
  const seeds = make("ul", { class: "cell-seeds", "aria-label": SWEEP_WORDS.seeds });
  const message = make("p", { class: "message refused", role: "status" });
  const command = make("code", { class: "command" });
  const button = makeButton(SWEEP_WORDS.train, async () => {
    message.textContent = await train(request).then(() => "", (error) => error.message);
  });
  const again = make("div", { class: "cell-again" }, make("p", { class: "note" }, SWEEP_WORDS.again), command,
    make("div", { class: "bar" }, button), message);
  let request = null;
  return {
    root: make("section", { class: "cell-part", "aria-labelledby": "cell-title" }, title, told, seeds, again),
    show(sweep, cell) {
      const { name, refusal, members = [] } = cell;
      title.textContent = name;
      told.textContent = tellCell(cell).join(" ");
      message.textContent = "";
      again.hidden = refusal !== "";
      seeds.replaceChildren(...members.map(makeSeed));
      request = requestOf(sweep, cell);
      command.textContent = trainingCommand(request);
    },
  };
}

// What a job is asked for that trains the models of a cell.
function requestOf({ experiment, fixed, seeds }, { values }) {
  return { experiment, settings: { ...fixed, ...values }, seed: seeds[0], seeds: seeds.length };
}

function tellCell(cell) {
  if (cell.refusal) return [SWEEP_WORDS.refused(cell.refusal)];
  if (cell.solved === undefined) return [SWEEP_WORDS.waits];
  const said = [SWEEP_WORDS.solved(cell)];
  said.push(cell.solvedAt === null ? SWEEP_WORDS.never : SWEEP_WORDS.medianStep(cell.solvedAt));
  if (cell.loss !== null) said.push(SWEEP_WORDS.loss(cell.loss));
  if (Object.keys(cell.figures).length) said.push(SWEEP_WORDS.ofFigures(cell.figures));
  return said;
}

function makeSeed(member) {
  const [seed, solvedAt] = member;
  const words = SWEEP_WORDS.seed(member);
  const look = { class: solvedAt === null ? "" : "right", title: words };
  return make("li", look, make("span", { "aria-hidden": true }, String(seed)), make("span", { class: "unseen" }, words));
}
