// The lab's server, where there is one: its answers, the events of a job, and an engine that asks a run's model.

import { unpackAll } from "attnlab/draw/map/wire.js";
import { RUN_WORDS } from "../words_runs.js";

const SHAPE = { task: "task", letters: "letters", length: "length", heads: "num_heads", layers: "num_layers" };

// The server's sentence, if it refuses, is the message of an error with `isAnswer`.
// keepalive: it is sent even if the page goes.
export async function askServer(path, body, signal, keepalive = false) {
  const how = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, { ...how, signal, keepalive }).catch(() => null);
  if (!answer || answer.status === 403) throw new Error(answer ? RUN_WORDS.anew : RUN_WORDS.away);
  const told = await answer.json();
  if (told.error) throw Object.assign(new Error(told.error), { isAnswer: true });
  return unpackAll(told);
}

// Asks the server for several things, each by its name; `notice` tells what it refuses.
export function makeAsker(notice) {
  const newest = {}; // what ends the question that was asked last of each; older ones are ended
  const waiting = new Set();
  const wait = (what, isBusy) => {
    if (isBusy) waiting.add(what);
    else waiting.delete(what);
    document.body.dataset.busy = waiting.size > 0;
  };
  const begin = (what) => {
    newest[what]?.abort();
    return (newest[what] = new AbortController());
  };
  let [asked, told] = [0, 0]; // questions, and which of them the notice is of
  return {
    // The answer, or { refusal }; null if the same was asked again meanwhile, or dropped.
    async ask(what, path, body) {
      const mine = begin(what);
      const number = (asked += 1);
      wait(what, true);
      const found = await askServer(path, body, mine.signal).catch(({ message }) => ({ refusal: message }));
      if (mine !== newest[what]) return null;
      wait(what, false);
      if (number > told) { // or a later one was answered first
        told = number;
        notice.tell(found.refusal ?? "");
      }
      return found;
    },
    // What is on its way is too late.
    drop() {
      for (const what of Object.keys(newest)) {
        begin(what);
        wait(what, false);
      }
    },
  };
}

export function pathOf(kind, name, deed = "") {
  return `/api/${kind}/${encodeURIComponent(name)}${deed}`;
}

// The settings of a link to a run, from its config.
export function settingsOfRun(run, { settings }) {
  return { run, seed: 1, ...Object.fromEntries(Object.entries(SHAPE).map(([name, field]) => [name, settings[field]])) };
}

// A figure over the steps, of metrics or of events.
export function seriesOf(lines, name) {
  return lines.filter((line) => Number.isFinite(line[name])).map((line) => [line.step, line[name]]);
}

// The events of one job as they come: `now()` is what they said so far.
export function followJob(hear) {
  const fresh = () => ({ stage: "", step: 0, steps: 0, trained: 0, lines: [], left: null, sentence: "", isRead: false, from: null });
  let [source, followed, now] = [null, null, fresh()];
  const close = () => source?.close();
  const takers = {
    began: () => Object.assign(now, { from: null, sentence: "" }),
    stage: ({ name }) => Object.assign(now, { stage: name, step: 0, steps: 0, from: null }),
    failed: ({ sentence }) => Object.assign(now, { sentence }),
    step({ at, step, steps, figures }) {
      now.from ??= { at, step };
      const speed = (step - now.from.step) / (at - now.from.at);
      Object.assign(now, { step, steps, left: speed > 0 && at > now.from.at + 1 ? (steps - step) / speed : null });
      if (!Number.isFinite(figures.loss)) return;
      while (now.lines.at(-1)?.step >= step) now.lines.pop(); // a resumed job goes back to its checkpoint
      now.lines.push({ step, ...figures });
      now.trained = steps;
    },
  };
  // A hidden page does not listen: a browser has few connections for all its tabs.
  document.addEventListener("visibilitychange", () => document.hidden && close());
  return {
    now: () => now,
    follow(job) {
      const name = job?.name ?? null;
      if (name !== followed) {
        close();
        [source, followed, now] = [null, name, fresh()];
      }
      const isLive = job?.state === "running" || job?.state === "waiting";
      if (!name || (source && source.readyState !== EventSource.CLOSED) || (now.isRead && !isLive)) return;
      now = fresh();
      source = new EventSource(pathOf("jobs", name, "/events"));
      source.addEventListener("message", ({ data }) => {
        const told = JSON.parse(data);
        takers[told.event]?.(told);
        hear();
      });
      source.addEventListener("error", () => (now.isRead = true)); // or the server is away, and the job asked for again
    },
  };
}

// One `call` for both engines: PyTorch answers for the model of a run, which { run } names; the page's engine for all else.
export function joinEngines(local, count) {
  const opened = new Map();
  let waiting = 0;
  const methods = {
    async create({ run }) {
      const [name, member] = run.split("/"); // of a population
      const { config, metrics } = await askServer(member ? pathOf("populations", name, `/${member}`) : pathOf("runs", name));
      const { inputs, vocabulary, parameters } = await askServer("/api/domain", { run });
      const losses = seriesOf(metrics, "loss");
      const [steps, loss] = losses.at(-1) ?? [0, null];
      opened.set(run, { step: steps, steps, loss, losses, isDone: true });
      return { id: { run }, ...config.model, parameters, vocabulary, inputs, steps };
    },
    advance: ({ run }) => opened.get(run),
    async check({ run }, edits = []) {
      const { right, margins, answers } = await askServer("/api/domain", { run, edits });
      return { right: Uint8Array.from(right), margins: Float64Array.from(margins), answers };
    },
    ask: ({ run }, input, edits = []) => askServer("/api/ask", { run, input, edits }),
    drop: ({ run }) => opened.delete(run),
  };
  return async (method, first, ...rest) => {
    if (!first?.run) return local(method, first, ...rest);
    count(waiting += 1);
    try {
      return await methods[method](first, ...rest);
    } finally {
      count(waiting -= 1);
    }
  };
}
