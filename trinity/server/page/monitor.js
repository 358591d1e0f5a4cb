// Live charts of the server's own figures, which it gives Prometheus at /metrics.

import { element } from "./element.js";
import { metrics } from "./server.js";

const EVERY_MS = 1000;
const KEPT = 120;
const [WIDTH, HEIGHT] = [400, 110];
const SVG = "http://www.w3.org/2000/svg";

// name, unit, and value from two readings `seconds` apart; undefined if it is not available
const CHARTS = [
  ["Speed", "generated tokens per second", (now, before, seconds) => (shares(now) - shares(before)) / seconds],
  ["Running", "requests", (now) => now["llamacpp:requests_processing"]],
  ["Queue", "waiting requests", (now) => now["llamacpp:requests_deferred"]],
  ["Cache", "% of prompt tokens taken from the cache", (now) => {
    const all = now.trinity_prompt_tokens_total;
    return all ? (100 * (now.trinity_cached_prompt_tokens_total ?? 0)) / all : 0;
  }],
  ["Memory", "GB used by the server", (now) => {
    const bytes = now.process_resident_memory_bytes;
    return bytes === undefined ? undefined : bytes / 1e9;
  }],
  ["CPU", "busy cores", (now, before, seconds) => {
    const spent = now.process_cpu_seconds_total - before.process_cpu_seconds_total;
    return Number.isNaN(spent) ? undefined : spent / seconds;
  }],
];

/** Rows of decoding steps: a request gets one token per row, and more if speculated tokens are accepted. */
function shares(figures) {
  return figures["llamacpp:n_decode_total"] * figures["llamacpp:n_busy_slots_per_decode"];
}

/** Sums by name over all labels. */
export function read(text) {
  const found = {};
  for (const line of text.split("\n")) {
    const parts = /^([a-zA-Z_:][\w:]*)(?:\{[^}]*\})? (\S+)/.exec(line);
    if (parts) found[parts[1]] = (found[parts[1]] ?? 0) + Number(parts[2]);
  }
  return found;
}

function drawn(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

class Chart {
  #values = [];

  constructor(name, unit) {
    this.name = name;
    this.unit = unit;
    this.value = element("strong", {}, "–");
    this.top = element("span", { class: "top" }, "");
    this.line = drawn("polyline", { class: "line" });
    this.area = drawn("polygon", { class: "area" });
    this.picture = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": name, preserveAspectRatio: "none" });
    this.picture.append(this.area, this.line);
    this.place = element("figure", {},
      element("figcaption", {}, element("h2", {}, name), this.value, element("span", {}, unit)),
      this.top, this.picture);
  }

  add(value) {
    if (value === undefined) {
      this.value.textContent = "not available";
      return;
    }
    this.#values = [...this.#values, Math.max(value, 0)].slice(-KEPT);
    const top = Math.max(...this.#values, 1e-9);
    const short = (number) => String(+number.toFixed(number >= 10 ? 0 : 2));
    const text = short(value);
    this.value.textContent = text;
    this.top.textContent = `maximum of 2 minutes: ${short(top)}`;
    this.picture.setAttribute("aria-label", `${this.name}: ${text} ${this.unit}`);
    const start = WIDTH - ((this.#values.length - 1) * WIDTH) / (KEPT - 1);
    const points = this.#values.map((one, i) =>
      `${(start + (i * WIDTH) / (KEPT - 1)).toFixed(1)},${(HEIGHT - 2 - (one / top) * (HEIGHT - 8)).toFixed(1)}`);
    this.line.setAttribute("points", points.join(" "));
    this.area.setAttribute("points", `${start.toFixed(1)},${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}`);
  }
}

export class Monitor {
  #timer = null;
  #before = null;

  constructor(place) {
    this.charts = CHARTS.map(([name, unit]) => new Chart(name, unit));
    this.state = element("p", { role: "status" }, "");
    place.append(this.state, element("div", { class: "charts" }, ...this.charts.map((one) => one.place)));
  }

  start() {
    if (this.#timer !== null) return;
    this.#timer = setInterval(() => this.#look(), EVERY_MS);
    this.#look();
  }

  stop() {
    clearInterval(this.#timer);
    this.#timer = null;
    this.#before = null;
  }

  async #look() {
    if (document.hidden) return;
    let figures;
    try {
      figures = read(await metrics());
    } catch (error) {
      this.state.textContent = error.message;
      return;
    }
    this.state.textContent = "";
    const at = performance.now();
    if (this.#before && this.#timer !== null) {
      const seconds = (at - this.#before.at) / 1000;
      CHARTS.forEach(([, , of], i) => this.charts[i].add(of(figures, this.#before.figures, seconds)));
    }
    this.#before = { at, figures };
  }
}
