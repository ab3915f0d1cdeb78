// Small plots as SVG.

const NS = "http://www.w3.org/2000/svg";

export function svg(name, attributes, ...children) {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// The loss after 0, 1, ... steps.
export function lossPlot(losses) {
  const [w, h, left, bottom] = [320, 110, 44, 20];
  const most = Math.max(...losses, 1e-9);
  const x = (i) => left + (w - left - 12) * (losses.length > 1 ? i / (losses.length - 1) : 0);
  const y = (loss) => 8 + (h - bottom - 8) * (1 - loss / most);
  const words = losses.map((loss, i) => `${loss.toPrecision(3)} after ${i}`).join(", ");
  const plot = svg("svg", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": `Loss: ${words} steps` },
    svg("line", { x1: left, y1: h - bottom, x2: w, y2: h - bottom, class: "axis" }),
    svg("polyline", { class: "fit", points: losses.map((loss, i) => `${x(i)},${y(loss)}`).join(" ") }));
  losses.forEach((loss, i) => plot.append(svg("circle", { cx: x(i), cy: y(loss), r: 3, class: "point" }),
    svg("text", { x: x(i) - 3, y: h - 5 }, String(i))));
  plot.append(svg("text", { x: 0, y: 18 }, most.toPrecision(3)), svg("text", { x: 0, y: h - bottom }, "0"));
  return plot;
}

// A plane with x from -5 to 5 and y from -6 to 6, where curves and points are drawn.
export class Plane {
  constructor(label, clicked) {
    [this.w, this.h, this.x, this.y] = [400, 320, 5, 6];
    this.before = svg("polyline", { class: "before" });
    this.fit = svg("polyline", { class: "fit" });
    this.points = svg("g", {});
    this.node = svg("svg", { viewBox: `0 0 ${this.w} ${this.h}`, class: "plot", role: "img", "aria-label": label },
      svg("line", { x1: 0, y1: this.h / 2, x2: this.w, y2: this.h / 2, class: "axis" }),
      svg("line", { x1: this.w / 2, y1: 0, x2: this.w / 2, y2: this.h, class: "axis" }),
      svg("text", { x: this.w - 14, y: this.h / 2 - 5 }, "5"), svg("text", { x: 4, y: this.h / 2 - 5 }, "−5"),
      svg("text", { x: this.w / 2 + 5, y: 14 }, "6"), svg("text", { x: this.w / 2 + 5, y: this.h - 5 }, "−6"),
      this.before, this.fit, this.points);
    this.node.addEventListener("click", (event) => {
      const box = this.node.getBoundingClientRect();
      const [u, v] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
      clicked((2 * u - 1) * this.x, (1 - 2 * v) * this.y);
    });
  }

  at([x, y]) {
    return [(x / this.x + 1) / 2 * this.w, (1 - y / this.y) / 2 * this.h];
  }

  setPoints(points) {
    this.points.replaceChildren(...points.map((point) => {
      const [cx, cy] = this.at(point);
      return svg("circle", { cx, cy, r: 5, class: "point" });
    }));
  }

  setCurve(node, curve) {
    node.setAttribute("points", curve.map((point) => this.at(point).map((v) => v.toFixed(1)).join()).join(" "));
  }
}
