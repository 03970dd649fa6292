// Checks heads for the Python tests: node design_runner.mjs ENGINE_FOLDER < requests.json prints a list of answers.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(`${process.argv[2]}/${name}.js`).href);
const { checkHead, designHead, makeVectorTask, prepareHead, readPlace } = await load("vectors");
const { TwinTraining } = await load("twin");

const ANSWERS = {
  check({ task, head, tolerance }) {
    const made = makeVectorTask(task);
    const prepared = prepareHead(made, head);
    const read = made.inputs.map((ids) => ids.map((_, place) => readPlace(prepared, prepared.codesOf(ids), place)));
    const { right, ...found } = checkHead(made, head, tolerance);
    return { ...found, right: Array.from(right), texts: made.texts, read };
  },
  design: ({ task, tolerance }) => designHead(makeVectorTask(task), tolerance),
  twin({ rule, settings }) {
    const training = new TwinTraining(rule, settings);
    while (training.step < training.settings.steps) training.advance();
    return training.head;
  },
};

const requests = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(requests.map(({ what, ...request }) => ANSWERS[what](request))));
