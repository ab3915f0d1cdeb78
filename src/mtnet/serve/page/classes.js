// The tab of classes: examples are drawn and learned, and a query is named.

import { METHODS, bars, call, element, get, latest, post, remove } from "./api.js";
import { Pad } from "./pad.js";
import { lossPlot } from "./plots.js";

const FEWEST = 2;
const MOST = 20;
const byId = (id) => document.getElementById(id);
const percent = (share) => `${Math.round(100 * share)} %`;

let networks = [];
let cards = [];
let made = 0;
let task = null;
let stale = true; // the task does not have the examples that are drawn
let tests = []; // [drawing, label] of queries whose class is known
let results = { queries: [], tests: [] };
let query;

function addCard() {
  if (cards.length >= MOST) return;
  const card = { id: ++made, saved: [] };
  const name = element("input", { type: "text", value: String.fromCharCode(64 + ((made - 1) % 26) + 1), maxLength: 40 });
  name.setAttribute("aria-label", "Name of the class");
  card.name = name;
  card.pad = new Pad(`class ${name.value}`, changedExamples);
  card.thumbs = element("div", { className: "thumbs" });
  name.addEventListener("change", () => {
    card.pad.rename(`class ${name.value}`);
    changedExamples();
  });
  const more = card.pad.button("One more", () => {
    if (card.pad.empty) return;
    card.saved.push(card.pad.data);
    card.pad.clear(true);
    showThumbs(card);
    card.pad.canvas.focus();
  });
  more.title = "Keep this drawing and draw another example of the class";
  const gone = card.pad.button("Remove", () => removeCard(card));
  gone.setAttribute("aria-label", "Remove the class");
  card.pad.tools.append(more, gone);
  card.node = element("fieldset", { className: "card" }, name, card.pad.canvas, card.pad.tools, card.thumbs);
  cards.push(card);
  byId("cards").append(card.node);
  counted();
}

function removeCard(card) {
  if (cards.length <= FEWEST) return;
  cards = cards.filter((other) => other !== card);
  card.node.remove();
  counted();
  changedExamples();
}

function counted() {
  byId("add-class").disabled = cards.length >= MOST;
  offerNetworks();
}

function showThumbs(card) {
  card.thumbs.replaceChildren(...card.saved.map((data, i) => {
    const image = element("img", { src: data, alt: `Example ${i + 1}: remove it` });
    const button = element("button", { type: "button", title: "Remove this example" }, image);
    button.addEventListener("click", () => {
      card.saved.splice(i, 1);
      showThumbs(card);
      changedExamples();
    });
    return button;
  }));
}

function examples() {
  return cards.flatMap((card, i) => {
    const label = card.name.value.trim() || `class ${i + 1}`;
    const drawings = card.pad.empty ? card.saved : [...card.saved, card.pad.data];
    return drawings.map((image) => ({ image, label }));
  });
}

function chosen() { return networks.find((network) => network.name === byId("network").value); }

function offerNetworks() {
  const ways = cards.length;
  for (const option of byId("network").options) {
    const [fewest, most] = networks.find((network) => network.name === option.value).ways;
    option.disabled = ways < fewest || ways > most;
  }
  const select = byId("network");
  if (!select.value || select.selectedOptions[0].disabled) {
    select.value = [...select.options].find((option) => !option.disabled)?.value ?? "";
    changedExamples();
  }
  describe();
}

function describe() {
  const network = chosen();
  if (!network) return;
  const [fewest, most] = network.ways;
  const measured = (network.measured.accuracy || [])
    .map((row) => `${row.mean} % at ${row.ways} classes`).join(", ");
  byId("network-about").textContent = `${network.name}: ${network.about}. `
    + `${fewest === most ? fewest : `${fewest} to ${most}`} classes. `
    + (measured ? `On characters that it has not seen, with one example each: ${measured}`
      + `${network.measured.statistics === "inductive" ? "" : " (measured with all queries of a task at once)"}.` : "");
}

function changedExamples() {
  stale = true;
  const names = [...new Set(examples().map((example) => example.label))];
  const truth = byId("truth");
  const before = truth.value;
  truth.replaceChildren(...names.map((name) => element("option", { value: name, textContent: name })));
  if (names.includes(before)) truth.value = before;
  update();
}

const update = latest(async (again) => {
  const began = performance.now();
  if (stale) {
    stale = false;
    if (!(await learn())) return;
    if (again()) return;
  }
  if (!task) return;
  const asked = [...(query.empty ? [] : [query.data]), ...tests.map(([image]) => image)];
  if (asked.length) {
    const found = await post(`/v1/tasks/${task.id}/predict`, { images: asked, steps: true, seen: true });
    showAnswers(found, !query.empty);
  } else showAnswers(null, false);
  byId("time").textContent = `Answered in ${Math.round(performance.now() - began)} ms.`;
});

async function learn() {
  const images = examples();
  const labels = new Set(images.map((example) => example.label));
  const network = chosen();
  const old = task;
  task = null;
  if (old) remove(`/v1/tasks/${old.id}`);
  byId("download").disabled = true;
  const [fewest] = network ? network.ways : [FEWEST];
  if (labels.size < fewest) {
    byId("answer").textContent = `Draw at least one example of ${fewest} classes; so far: ${labels.size}.`;
    return false;
  }
  if (!old) byId("answer").textContent = "Learning…";
  try {
    task = await post("/v1/tasks", { network: network.name, images });
  } catch (error) {
    byId("answer").textContent = "";
    throw error;
  }
  byId("download").disabled = false;
  showTask();
  return true;
}

function showTask() {
  const steps = task.accuracy.length > 1;
  byId("examples-before").textContent = steps ? percent(task.accuracy[0] / 100) : "no steps";
  byId("examples-after").textContent = percent(task.accuracy.at(-1) / 100);
  byId("losses").replaceChildren(steps ? lossPlot(task.losses)
    : element("p", { className: "note", textContent: "This method has no inner steps: it compares with class means." }));
  const cells = Object.entries(task.moved);
  if (!byId("moved").children.length) byId("moved").textContent = "";
  const largest = Math.max(1e-9, ...cells.map(([, moved]) => moved));
  bars(byId("moved"), cells.map(([cell, moved]) => [cell, moved / largest, `${(100 * moved).toPrecision(3)} %`]));
  if (!cells.length) byId("moved").textContent = "No layer changes.";
  if (query.empty) byId("answer").textContent = `Learned ${task.examples} examples. Draw a query.`;
}

function showAnswers(found, drawn) {
  byId("add-test").disabled = !drawn;
  if (found && drawn) {
    const { label, probabilities } = found.predictions[0];
    byId("answer").textContent = `${label}, ${percent(probabilities[label])}`;
    byId("answer").dataset.label = label;
    byId("truth").value = label;
    bars(byId("bars"), Object.entries(probabilities).map(([name, p]) => [name, p, percent(p)]));
    byId("seen-image").src = `data:image/png;base64,${found.seen[0]}`;
  } else bars(byId("bars"), []);
  byId("seen").hidden = !drawn;
  const right = (step) => tests.filter(([, label], i) => step[i + (drawn ? 1 : 0)].label === label).length;
  const known = found && tests.length;
  byId("tests-before").textContent = known && found.by_step.length > 1 ? `${right(found.by_step[0])} of ${tests.length}` : "–";
  byId("tests-after").textContent = known ? `${right(found.by_step.at(-1))} of ${tests.length}` : "–";
}

async function download() {
  const response = await call("GET", `/v1/tasks/${task.id}/model`);
  const url = URL.createObjectURL(await response.blob());
  element("a", { href: url, download: "model.safetensors" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function accuracy(network) {
  const measured = network.measured?.accuracy || [];
  return measured.find((one) => one.ways === 5)?.mean || 0;
}

export async function start(all) {
  networks = all.filter((network) => network.kind === "drawings");
  const rank = (network) => ["mt-net", "maml", "prototypical"].indexOf(network.method)
    + (network.ways[0] === network.ways[1] ? 10 : 0);
  networks.sort((a, b) => rank(a) - rank(b) || accuracy(b) - accuracy(a));
  const kind = (network) => (METHODS[network.method] || network.method)
    + (network.ways[0] === network.ways[1] ? `, ${network.ways[0]} classes only` : "");
  const alike = (network) => networks.filter((other) => kind(other) === kind(network)).length > 1;
  const name = (network) => kind(network) + (alike(network) ? `: ${network.name}` : "");
  byId("network").replaceChildren(...networks.map((network) =>
    element("option", { value: network.name, textContent: name(network) })));
  query = new Pad("the query", update);
  byId("query").append(query.canvas, query.tools);
  for (let i = 0; i < 5; i++) addCard();
  byId("network").addEventListener("change", () => { describe(); changedExamples(); });
  byId("add-class").addEventListener("click", addCard);
  byId("clear-all").addEventListener("click", () => {
    for (const card of cards) { card.saved = []; card.pad.clear(true); showThumbs(card); }
    query.clear(true);
    tests = [];
    changedExamples();
  });
  byId("add-test").addEventListener("click", () => {
    if (query.empty || !byId("truth").value) return;
    tests.push([query.data, byId("truth").value]);
    query.clear(true);
    update();
  });
  byId("download").addEventListener("click", () => download().catch((error) => { byId("answer").textContent = error.message; }));
}
