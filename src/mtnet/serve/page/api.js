// Requests to what learns (engine.js), where errors are shown, and elements of the page.

import { call } from "./engine.js";

const problem = document.getElementById("problem");

export function show(text) {
  problem.textContent = text;
  problem.hidden = !text;
}

export { call };
export const get = async (path) => (await call("GET", path)).json();
export const post = async (path, body) => (await call("POST", path, body)).json();
export const remove = (path) => call("DELETE", path).catch(() => {});

// Calls `work` again and again as long as it was asked for meanwhile; never two at a time.
export function latest(work) {
  let running = false;
  let wanted = false;
  return async function run() {
    wanted = true;
    if (running) return;
    running = true;
    while (wanted) {
      wanted = false;
      try {
        await work(() => wanted);
        show("");
      } catch (error) {
        show(error.message);
      }
    }
    running = false;
  };
}

export function element(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-") || key === "role" || key === "for") node.setAttribute(key, value);
    else node[key] = value;
  }
  node.append(...children);
  return node;
}

// Horizontal bars from 0 to 1: rows of [name, share, text].
export function bars(parent, rows) {
  while (parent.children.length > rows.length) parent.lastChild.remove();
  rows.forEach(([name, share, text], i) => {
    let bar = parent.children[i];
    if (!bar) {
      bar = element("div", { className: "bar" }, element("span"),
        element("div", { "aria-hidden": "true" }, element("div")), element("span"));
      parent.append(bar);
    }
    bar.children[0].textContent = name;
    bar.children[0].title = name;
    bar.children[1].firstChild.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
    bar.children[2].textContent = text;
  });
}

export const METHODS = { "mt-net": "MT-net", maml: "MAML", prototypical: "Prototypical network" };
