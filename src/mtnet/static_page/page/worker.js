// Runs the graphs of the networks, so that one can draw while a task is learned.

import * as ort from "../runtime/ort.js";

ort.env.logLevel = "error";
ort.env.wasm.numThreads = 1; // more threads need headers that few static servers send
ort.env.wasm.wasmPaths = { wasm: new URL("../runtime/ort.wasm", import.meta.url).href };

const sessions = new Map();
const learned = new Map(); // the layers of each task

function session(graph) {
  if (!sessions.has(graph)) {
    const url = new URL(`../networks/${encodeURIComponent(graph)}`, import.meta.url);
    const made = ort.InferenceSession.create(url.href, { executionProviders: ["wasm"] });
    made.catch(() => sessions.delete(graph));
    sessions.set(graph, made);
  }
  return sessions.get(graph);
}

const tensor = (rows, shape) =>
  new ort.Tensor("float32", Float32Array.from(rows.flatMap((row) => [...row])), [rows.length, ...shape]);

// A tensor as lists in lists.
function lists({ data, dims }) {
  let all = [...data];
  for (const size of dims.slice(1).reverse()) {
    const parts = all.length / size;
    all = Array.from({ length: parts }, (_, i) => all.slice(i * size, (i + 1) * size));
  }
  return all;
}

const actions = {
  async learn({ task, graph, shape, x, y }) {
    const found = await (await session(graph)).run({ x: tensor(x, shape), y: tensor(y, [y[0].length]) });
    const { losses, outputs, moved, ...layers } = found;
    learned.set(task, layers);
    return { losses: lists(losses), outputs: lists(outputs), moved: lists(moved) };
  },

  async predict({ task, graph, shape, x }) {
    if (!learned.has(task)) throw new Error("there is no such task: it was deleted, or never made");
    const { predictions } = await (await session(graph)).run({ ...learned.get(task), x: tensor(x, shape) });
    return lists(predictions);
  },

  forget({ task }) { learned.delete(task); },
};

addEventListener("message", async ({ data: { id, action, values } }) => {
  try {
    postMessage({ id, result: await actions[action](values) });
  } catch (error) {
    postMessage({ id, problem: error.message });
  }
});
