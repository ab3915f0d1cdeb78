// A pad to draw on, with mouse, touch, pen or keyboard; or an image file instead.

import { element } from "./api.js";

const SIZE = 280;
const WIDTH = 13;
const STEP = 12;

export class Pad {
  // `changed` is called when the pen lifts and after every other change.
  constructor(name, changed) {
    this.changed = changed;
    this.strokes = [];
    this.image = null;
    this.cursor = null;
    this.canvas = element("canvas", {
      className: "pad", width: SIZE, height: SIZE, tabIndex: 0, role: "img",
    });
    this.rename(name);
    this.context = this.canvas.getContext("2d");
    const file = element("input", { type: "file", accept: "image/png,image/jpeg" });
    this.tools = element("div", { className: "tools" },
      this.button("Undo", () => this.undo()),
      this.button("Clear", () => this.clear()),
      element("label", {}, "Upload", file));
    file.addEventListener("change", () => this.load(file));
    this.listen();
    this.paint();
  }

  rename(name) {
    this.canvas.setAttribute("aria-label",
      `Drawing of ${name}. Arrow keys move the pen, space puts it down or lifts it.`);
  }

  button(text, action) {
    const node = element("button", { type: "button", textContent: text });
    node.addEventListener("click", action);
    return node;
  }

  get empty() { return !this.strokes.length && !this.image; }

  // The drawing as a data URL of a PNG file.
  get data() {
    this.paint(false);
    const url = this.canvas.toDataURL("image/png");
    this.paint();
    return url;
  }

  undo() {
    if (this.image) this.image = null;
    else this.strokes.pop();
    this.finish();
  }

  clear(silent) {
    this.strokes = [];
    this.image = null;
    this.cursor = null;
    this.paint();
    if (!silent) this.changed();
  }

  finish() {
    this.paint();
    this.changed();
  }

  async load(file) {
    if (!file.files.length) return;
    const image = new Image();
    image.src = URL.createObjectURL(file.files[0]);
    try {
      await image.decode();
      this.strokes = [];
      this.image = image;
    } catch {
      this.image = null;
    }
    URL.revokeObjectURL(image.src);
    file.value = "";
    this.finish();
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [(event.clientX - box.left) * SIZE / box.width, (event.clientY - box.top) * SIZE / box.height];
  }

  listen() {
    const canvas = this.canvas;
    let drawing = false;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      event.preventDefault();
      canvas.focus({ preventScroll: true });
      canvas.setPointerCapture(event.pointerId);
      drawing = true;
      this.cursor = null;
      this.image = null;
      this.strokes.push([this.place(event)]);
      this.paint();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drawing) return;
      const events = event.getCoalescedEvents ? event.getCoalescedEvents() : [event];
      for (const one of events.length ? events : [event]) this.strokes.at(-1).push(this.place(one));
      this.paint();
    });
    const stop = () => {
      if (!drawing) return;
      drawing = false;
      this.finish();
    };
    canvas.addEventListener("pointerup", stop);
    canvas.addEventListener("pointercancel", stop);
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key !== " " && !(event.key in moves)) return;
    event.preventDefault();
    this.cursor ??= { at: [SIZE / 2, SIZE / 2], down: false };
    if (event.key === " ") {
      this.cursor.down = !this.cursor.down;
      if (this.cursor.down) {
        this.image = null;
        this.strokes.push([[...this.cursor.at]]);
      } else this.changed();
    } else {
      const [x, y] = moves[event.key];
      this.cursor.at = [this.cursor.at[0] + STEP * x, this.cursor.at[1] + STEP * y]
        .map((v) => Math.max(WIDTH, Math.min(SIZE - WIDTH, v)));
      if (this.cursor.down) this.strokes.at(-1).push([...this.cursor.at]);
    }
    this.paint();
  }

  paint(cursor = true) {
    const c = this.context;
    c.fillStyle = "#fff";
    c.fillRect(0, 0, SIZE, SIZE);
    if (this.image) {
      const scale = Math.min(SIZE / this.image.width, SIZE / this.image.height);
      const [w, h] = [this.image.width * scale, this.image.height * scale];
      c.drawImage(this.image, (SIZE - w) / 2, (SIZE - h) / 2, w, h);
    }
    c.strokeStyle = c.fillStyle = "#000";
    c.lineWidth = WIDTH;
    c.lineCap = c.lineJoin = "round";
    for (const stroke of this.strokes) {
      c.beginPath();
      c.moveTo(...stroke[0]);
      for (const point of stroke) c.lineTo(...point);
      c.stroke();
    }
    if (cursor && this.cursor) {
      c.beginPath();
      c.arc(...this.cursor.at, WIDTH, 0, 7);
      c.lineWidth = 2;
      c.strokeStyle = this.cursor.down ? "#c00" : "#06c";
      c.stroke();
    }
  }
}
