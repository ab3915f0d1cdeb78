// What learns and predicts: ONNX graphs in a worker of this page. It answers the requests that the
// page otherwise sends to the server.

import { inkOf, shown } from "./ink.js";

const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
const waiting = new Map();
const tasks = new Map();
let networks = [];
let count = 0;
let broken = null;

worker.addEventListener("message", ({ data: { id, result, problem } }) => {
  const { resolve, reject } = waiting.get(id);
  waiting.delete(id);
  if (problem === undefined) resolve(result);
  else reject(new Error(problem));
});
worker.addEventListener("error", () => {
  broken = new Error("This browser could not start the networks.");
  for (const { reject } of waiting.values()) reject(broken);
  waiting.clear();
});

async function ask(action, values) {
  if (broken) throw broken;
  const id = ++count;
  worker.postMessage({ id, action, values });
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

export async function call(method, path, body) {
  const [kind, id, what] = path.split("/").slice(2); // /v1/tasks/ID/predict
  let result;
  if (kind === "networks") result = await list();
  else if (method === "DELETE") result = await forget(id);
  else if (what === "predict") result = await predict(tasks.get(id), body);
  else if (method === "POST" && !id) result = await learn(networks.find(({ name }) => name === body.network), body);
  else throw new Error(`The static page does not answer ${path}.`);
  return new Response(JSON.stringify(result));
}

async function list() {
  const response = await fetch(new URL("../networks/index.json", import.meta.url));
  if (!response.ok) throw new Error("The networks could not be loaded.");
  networks = await response.json();
  return { networks };
}

async function forget(id) {
  tasks.delete(id);
  return ask("forget", { task: id });
}

async function learn(network, { images, rows }) {
  const labels = [...new Set((images || []).map(({ label }) => label))].sort();
  if (images) checkClasses(network, labels.length);
  const x = images ? await Promise.all(images.map(({ image }, i) => inkOf(image, `image ${i + 1}`)))
    : rows.map((row) => [row.x]);
  const y = images ? images.map(({ label }) => labels.map((other) => Number(other === label)))
    : rows.map((row) => [row.y]);
  const id = String(++count);
  const { losses, outputs, moved } = await ask("learn", { task: id, graph: network.learn, shape: network.shape, x, y });
  if (!losses.every(Number.isFinite)) {
    await forget(id);
    throw new Error("adapting to the examples diverged (weights are not finite): add examples, or check for extreme values");
  }
  tasks.set(id, { id, network, labels });
  return {
    id, network: network.name, method: network.method, labels, examples: x.length, losses,
    accuracy: images ? outputs.map((step) => share(step, y)) : null,
    moved: Object.fromEntries(network.cells.map((cell, i) => [cell, moved[i]])),
  };
}

function checkClasses({ name, ways: [fewest, most] }, classes) {
  if (classes >= fewest && classes <= most) return;
  throw new Error(`${name} needs ${fewest === most ? fewest : `${fewest} to ${most}`} classes; there are ${classes}`);
}

const largest = (row) => row.indexOf(Math.max(...row));

// Percent of the examples that are named right.
function share(outputs, y) {
  return 100 * outputs.filter((row, i) => y[i][largest(row)]).length / y.length;
}

async function predict({ id, network, labels }, { images, rows }) {
  const x = images ? await Promise.all(images.map((image, i) => inkOf(image, `image ${i + 1}`)))
    : rows.map((row) => [row.x]);
  const steps = await ask("predict", { task: id, graph: network.predict, shape: network.shape, x });
  const named = (row) => (labels.length ? {
    label: labels[largest(row)],
    probabilities: Object.fromEntries(labels.map((label, i) => [label, row[i]])),
  } : { value: row[0] });
  const byStep = steps.map((step) => step.map(named));
  return { predictions: byStep.at(-1), by_step: byStep, seen: images ? x.map(shown) : undefined };
}
