// The engine behind messages: { number, method, args } -> { number, result } or { number, error }, in their order.

import { anatomy } from "./anatomy.js";
import { makeEngine } from "./engine.js";

const METHODS = ["create", "advance", "check", "ask", "open", "save", "drop", "createHead", "readHead", "anatomy"];

/** Serve calls that come to a port, such as the global scope of a worker. */
export function serve(port) {
  const engine = Object.assign(makeEngine(), { anatomy });
  port.onmessage = ({ data: call }) => port.postMessage(answerTo(engine, call));
}

function answerTo(engine, { number, method, args }) {
  try {
    if (!METHODS.includes(method)) throw new TypeError(`there is no method ${method}`);
    return { number, result: engine[method](...args) };
  } catch (error) {
    return { number, error: error.message };
  }
}
