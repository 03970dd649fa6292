// The engine in its worker: each call is a message with a number, each answer a promise. `count` hears how many calls
// wait for an answer.

import { WORDS } from "../words.js";

export function startEngine(script, count) {
  const worker = new Worker(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
  const waiting = new Map();
  let last = 0;
  const settle = (number, how, value) => {
    waiting.get(number)?.[how](value);
    waiting.delete(number);
    count(waiting.size);
  };
  worker.addEventListener("message", ({ data: { number, result, error } }) => {
    if (error === undefined) settle(number, "resolve", result);
    else settle(number, "reject", new Error(error));
  });
  worker.addEventListener("error", (event) => {
    for (const number of [...waiting.keys()]) settle(number, "reject", new Error(event.message ?? WORDS.noWorker));
  });
  return (method, ...args) => new Promise((resolve, reject) => {
    last += 1;
    waiting.set(last, { resolve, reject });
    count(waiting.size);
    worker.postMessage({ number: last, method, args });
  });
}
