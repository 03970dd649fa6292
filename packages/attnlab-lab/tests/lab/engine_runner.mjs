// Runs the engine for the Python tests: node engine_runner.mjs ENGINE_FOLDER REQUESTS.json prints a list of answers.
// Arrays travel as base64 of 64-bit numbers. A request that throws an EngineError answers { refused: sentence }.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, requests] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${folder}/${name}.js`).href);
const [arrays, edits, models, numbers, random, safetensors, training] = await Promise.all(
  ["arrays", "edits", "models", "numbers", "random", "safetensors", "training"].map(load),
);
const [{ makeEngine }, { SequenceTask }, { serve }] = await Promise.all(["engine", "tasks", "worker"].map(load));

const bytesOf = (text) => {
  const found = Buffer.from(text, "base64");
  return found.buffer.slice(found.byteOffset, found.byteOffset + found.length);
};
const floatsOf = (text) => new Float64Array(bytesOf(text));
const told = (data) => Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64");
const plain = (value) => {
  if (ArrayBuffer.isView(value)) return { array: told(Float64Array.from(value)) };
  if (value instanceof ArrayBuffer) return { bytes: told(new Uint8Array(value)) };
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, plain(each)]));
};

// An argument in which { bytes } stands for an ArrayBuffer.
function given(value) {
  return value?.weights?.bytes ? { ...value, weights: bytesOf(value.weights.bytes) } : value;
}

function build({ kind, config, weights }) {
  const model = models.makeModel(kind, config, 0);
  models.loadWeights(model, safetensors.readTensors(bytesOf(weights)));
  return model;
}

const tokensOf = ({ batch, length, ids }) => ({ batch, length, ids: Int32Array.from(ids) });

function outputOf(model, tape, { inputs }, hooks = []) {
  if (inputs.vectors) {
    const x = arrays.constant(inputs.shape, floatsOf(inputs.vectors));
    return models.forwardSingleHead(model, tape, x, { hooks });
  }
  return models.forward(model, tape, tokensOf(inputs.tokens), { hooks });
}

const gradientsOf = (model) =>
  [...model.weights].flatMap(([name, { grad }]) => (grad ? [[name, told(Float64Array.from(grad))]] : []));

const ANSWERS = {
  /** The output, the loss and all gradients of one batch. */
  gradients(request) {
    const [model, tape] = [build(request), new arrays.Tape({ isRecording: true })];
    const output = outputOf(model, tape, request);
    const loss = tape.crossEntropy(output, Int32Array.from(request.targets), floatsOf(request.shares));
    tape.backward(loss);
    return { output: told(output.data), loss: told(loss.data), gradients: Object.fromEntries(gradientsOf(model)) };
  },
  /** The weights after steps on given batches of rows. */
  steps(request) {
    const [model, tape] = [build(request), new arrays.Tape({ isRecording: true })];
    const settings = training.readSettings(request.settings);
    const optimizer = new training.Optimizer(model.numbers, model.gradients, settings);
    const losses = request.batches.map(({ tokens, targets }) => {
      tape.restart();
      model.gradients.fill(0);
      const shares = new Float64Array(targets.length).fill(1 / targets.length);
      const output = models.forward(model, tape, tokensOf(tokens));
      const loss = tape.crossEntropy(output, Int32Array.from(targets), shares);
      tape.backward(loss);
      optimizer.update();
      return loss.data[0];
    });
    return { losses, weights: told(model.numbers), names: [...model.weights.keys()] };
  },
  rates({ settings, steps }) {
    return steps.map((step) => training.shareOfPeak(step, training.readSettings(settings)));
  },
  /** One pass under edits. */
  edited(request) {
    const model = build(request);
    const editor = new edits.Editor(model, request.edits);
    const output = outputOf(model, new arrays.Tape(), request, [editor]);
    editor.finish();
    return { output: told(output.data) };
  },
  values({ name, inputs, others }) {
    const more = others ? floatsOf(others) : null;
    return told(floatsOf(inputs).map((x, i) => numbers[name](x, more?.[i])));
  },
  random({ name, args }) {
    return args.map((each) => random[name](...each));
  },
  task({ task }) {
    const { prompts, answers, vocabulary, rowLength } = new SequenceTask(task);
    return { prompts, answers, vocabulary, rowLength };
  },
  /** What a worker answers to messages that come at once, in the order of its answers. */
  messages({ messages }) {
    return new Promise((resolve) => {
      const answers = [];
      const port = {
        postMessage(answer) {
          answers.push(plain(answer));
          if (answers.length === messages.length) resolve(answers);
        },
      };
      serve(port);
      for (const { args, ...data } of messages) port.onmessage({ data: { ...data, args: args.map(given) } });
    });
  },
  /** Calls of the served page: what each answers, whether the page's engine was asked, and the paths of the server. */
  async served({ calls, replies, script }) {
    globalThis.location = { port: "1" };
    const { joinEngines } = await import(`data:text/javascript,${encodeURIComponent(script)}`);
    const port = {};
    serve(port);
    const asked = { local: false, paths: [] };
    const local = (method, ...args) => new Promise((resolve, reject) => {
      asked.local = true;
      port.postMessage = ({ result, error }) => (error === undefined ? resolve(result) : reject(new Error(error)));
      port.onmessage({ data: { number: 1, method, args } });
    });
    globalThis.fetch = async (path, { body = "null" }) => {
      asked.paths.push(path);
      return { status: 200, json: async () => replies[path] ?? { asked: JSON.parse(body) } };
    };
    const joined = joinEngines(local, () => {});
    const answers = [];
    for (const [method, ...args] of calls) {
      Object.assign(asked, { local: false, paths: [] });
      const answer = await joined(method, ...args.map(given)).then(plain, ({ message }) => ({ error: message }));
      answers.push({ answer: answer ?? null, ...asked });
    }
    return answers;
  },
  /** Calls of one engine's methods in turn; { bytes } in arguments stands for an ArrayBuffer. */
  engine({ calls }) {
    const engine = makeEngine();
    return calls.map(([method, ...args]) => attempt(() => plain(engine[method](...args.map(given)) ?? null)));
  },
};

function attempt(run) {
  try {
    return run();
  } catch (error) {
    if (error.name !== "EngineError") throw error;
    return { refused: error.message };
  }
}

const asked = JSON.parse(readFileSync(requests, "utf-8"));
const answers = await Promise.all(asked.map((request) => attempt(() => ANSWERS[request.what](request))));
process.stdout.write(JSON.stringify(answers));
