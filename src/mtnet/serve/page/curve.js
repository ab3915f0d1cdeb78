// The tab of curves: points are clicked, and networks fit them step by step.

import { METHODS, element, latest, post, remove, show } from "./api.js";
import { Plane, lossPlot } from "./plots.js";

const byId = (id) => document.getElementById(id);
const GRID = Array.from({ length: 101 }, (_, i) => -5 + i / 10);
const MOST = 100;
const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

let points = [];
let fits = []; // one per network: { network, plane, losses, curves, about }
let timer = null;

function add(x, y) {
  if (points.length >= MOST) return;
  points.push([x, y]);
  changed();
}

function changed() {
  for (const { plane } of fits) plane.setPoints(points);
  update();
}

const update = latest(async (again) => {
  if (!points.length) {
    for (const fit of fits) fit.curves = [];
    draw();
    return;
  }
  if (!fits.some((fit) => fit.curves.length)) byId("curve-answer").textContent = "Learning…";
  const results = await Promise.allSettled(fits.map(learn));
  results.forEach(({ reason }, i) => {
    fits[i].problem = reason?.message;
    if (reason) fits[i].curves = [];
  });
  if (!again()) draw();
});

async function learn(fit) {
  const rows = points.map(([x, y]) => ({ x, y }));
  const task = await post("/v1/tasks", { network: fit.network.name, rows });
  const path = `/v1/tasks/${task.id}`;
  const found = await post(`${path}/predict`, { rows: GRID.map((x) => ({ x })), steps: true });
  fit.losses = task.losses;
  fit.curves = found.by_step.map((step) => step.map(({ value }, i) => [GRID[i], value]));
  remove(path);
}

function draw() {
  const step = Number(byId("step").value);
  byId("step-value").textContent = step;
  const words = [];
  for (const fit of fits) {
    const at = Math.min(step, fit.curves.length - 1);
    fit.plane.setCurve(fit.plane.fit, fit.curves[at] || []);
    fit.plane.setCurve(fit.plane.before, fit.curves[0] || []);
    fit.plots.replaceChildren(...(fit.curves.length ? [lossPlot(fit.losses)] : []));
    if (fit.problem && points.length) words.push(`${fit.title}: ${fit.problem}`);
    if (!fit.curves.length) continue;
    words.push(`${fit.title}: loss ${fit.losses[at].toPrecision(3)} on ${count(points.length, "point")} after ${count(at, "step")}`);
  }
  byId("curve-answer").textContent = words.join("; ");
}

function play() {
  clearInterval(timer);
  const slider = byId("step");
  slider.value = 0;
  draw();
  timer = setInterval(() => {
    slider.value = Number(slider.value) + 1;
    draw();
    if (slider.value === slider.max) clearInterval(timer);
  }, 400);
}

function randomPoints() {
  const [height, speed, phase] = [1 + 3.5 * Math.random(), 0.8 + 0.4 * Math.random(), Math.PI * Math.random()];
  points = Array.from({ length: 10 }, () => {
    const x = 10 * Math.random() - 5;
    return [x, height * Math.sin(speed * x + phase)];
  });
  changed();
}

export function start(all) {
  const order = ["mt-net", "maml"];
  const networks = all.filter((network) => network.family === "sine")
    .sort((a, b) => order.indexOf(a.method) - order.indexOf(b.method));
  for (const network of networks) {
    const title = METHODS[network.method] || network.method;
    const plane = new Plane(`Points and the curve of ${title}; add points by the fields above`, add);
    const plots = element("div");
    byId("plots").append(element("section", {}, element("h2", { textContent: title }), plane.node,
      element("h3", { textContent: "Loss on the points by inner step" }), plots));
    fits.push({ network, title, plane, plots, losses: [], curves: [] });
  }
  const steps = Math.max(0, ...networks.map((network) => network.steps));
  byId("step").max = byId("step").value = steps;
  byId("step-value").textContent = steps;
  if (!networks.length) byId("curve-answer").textContent = "There is no network for curves.";
  byId("step").addEventListener("input", draw);
  byId("play").addEventListener("click", play);
  byId("undo-point").addEventListener("click", () => { points.pop(); changed(); });
  byId("clear-points").addEventListener("click", () => { points = []; changed(); });
  byId("random-points").addEventListener("click", randomPoints);
  byId("point-form").addEventListener("submit", (event) => {
    event.preventDefault();
    add(Number(byId("point-x").value), Number(byId("point-y").value));
    show("");
  });
}
