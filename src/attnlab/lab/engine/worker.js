// The engine behind messages: { number, method, args, newest } -> { number, result } or { number, error }.
// A call with `newest` drops the calls of the same method that still wait for an answer.

import { anatomy } from "./anatomy.js";
import { makeEngine } from "./engine.js";

const METHODS = ["create", "advance", "check", "ask", "open", "save", "drop", "createHead", "readHead", "anatomy"];

/** Serve calls that come to a port, such as the global scope of a worker. */
export function serve(port) {
  const engine = Object.assign(makeEngine(), { anatomy });
  let waiting = [];
  const answerNext = () => {
    const call = waiting.shift();
    if (!call) return;
    port.postMessage(answerTo(engine, call));
  };
  port.onmessage = ({ data: call }) => {
    const isDropped = (other) => call.newest && other.method === call.method;
    for (const { number } of waiting.filter(isDropped)) {
      port.postMessage({ number, error: "a newer call took its place." });
    }
    waiting = [...waiting.filter((other) => !isDropped(other)), call];
    setTimeout(answerNext); // calls that came meanwhile are heard first
  };
}

function answerTo(engine, { number, method, args }) {
  try {
    if (!METHODS.includes(method)) throw new TypeError(`there is no method ${method}`);
    return { number, result: engine[method](...args) };
  } catch (error) {
    return { number, error: error.message };
  }
}
