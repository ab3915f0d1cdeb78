// The tabs, and the networks that they use.

import { get, show } from "./api.js";
import { start as startClasses } from "./classes.js";
import { start as startCurve } from "./curve.js";

const tabs = [...document.querySelectorAll('[role="tab"]')];

function select(tab) {
  for (const other of tabs) {
    const on = other === tab;
    other.setAttribute("aria-selected", String(on));
    other.tabIndex = on ? 0 : -1;
    document.getElementById(other.getAttribute("aria-controls")).hidden = !on;
  }
  history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
}

for (const [i, tab] of tabs.entries()) {
  tab.addEventListener("click", () => select(tab));
  tab.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    const next = tabs[(i + move + tabs.length) % tabs.length];
    select(next);
    next.focus();
  });
}
if (location.hash === "#curve") select(tabs[1]);

try {
  const { networks } = await get("/v1/networks");
  startClasses(networks);
  startCurve(networks);
  document.body.dataset.ready = "true";
} catch (error) {
  show(error.message);
}
