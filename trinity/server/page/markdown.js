// Markdown to DOM nodes. marked finds the tokens; text becomes text nodes and never markup, so
// whatever a model writes, nothing of it runs or loads.

import { copy } from "./clipboard.js";
import { element } from "./element.js";
import { highlighted } from "./highlight.js";
import { extensions, formula } from "./mathematics.js";
import { Marked } from "./marked.js";

const marked = new Marked({ gfm: true, breaks: true, extensions });
// Beyond, a text is shown as it is: the time of a frame is bounded.
const LONGEST = 200_000;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };
const TAGS = { strong: "strong", em: "em", del: "del", paragraph: "p", blockquote: "blockquote" };

/** Block tokens of a text; one token of plain text where marked gives up. */
export function blocks(text) {
  if (text.length <= LONGEST) {
    try {
      return marked.lexer(text);
    } catch {
      // Nested too deep.
    }
  }
  return [{ type: "plain", raw: text, text }];
}

/** The nodes of tokens. */
export function nodes(tokens) {
  try {
    return tokens.flatMap(node);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return [element("pre", {}, tokens.map((token) => token.raw).join(""))];
  }
}

function decoded(text) {
  return text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|(\w{1,8}));/gi, (raw, ten, hex, name) => {
    if (name) return Object.hasOwn(ENTITIES, name) ? ENTITIES[name] : raw;
    const point = ten ? parseInt(ten, 10) : parseInt(hex, 16);
    return point > 0 && point <= 0x10ffff ? String.fromCodePoint(point) : raw;
  });
}

/** The address where a link may lead, or null. */
export function address(href) {
  try {
    const url = new URL(decoded(href));
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function link(href, children) {
  const to = address(href);
  if (to === null) return element("span", {}, ...children);
  return element("a", { href: to, rel: "noopener noreferrer", target: "_blank" }, ...children);
}

function inside(token) {
  return token.tokens ? nodes(token.tokens) : [decoded(token.text ?? token.raw)];
}

function node(token) {
  switch (token.type) {
    case "space":
    case "def":
      return [];
    case "strong":
    case "em":
    case "del":
    case "paragraph":
    case "blockquote":
      return [element(TAGS[token.type], {}, ...inside(token))];
    case "heading":
      // The page's own title is the only h1.
      return [element(`h${Math.min(token.depth + 1, 6)}`, {}, ...inside(token))];
    case "code":
      return [code(token)];
    case "codespan":
      return [element("code", {}, token.text)];
    case "formula":
      return [formula(token)];
    case "br":
      return [element("br")];
    case "hr":
      return [element("hr")];
    case "link":
      return [link(token.href, inside(token))];
    case "image":
      // It is not loaded: that would tell its server who reads this.
      return [link(token.href, [`Image: ${decoded(token.text) || decoded(token.href)}`])];
    case "list": {
      const start = token.ordered && token.start !== 1 ? { start: token.start } : {};
      return [element(token.ordered ? "ol" : "ul", start, ...token.items.map(item))];
    }
    case "checkbox":
      return [token.checked ? "☑ " : "☐ "];
    case "table":
      return [table(token)];
    case "text":
      return token.tokens ? nodes(token.tokens) : [decoded(token.text)];
    case "escape":
      return [token.text];
    default:
      return [token.raw];  // raw HTML, and what marked may find in future
  }
}

function item(token) {
  const mark = token.task && !token.tokens.some((one) => one.type === "checkbox" || one.tokens?.some((two) => two.type === "checkbox"));
  return element("li", {}, ...(mark ? [token.checked ? "☑ " : "☐ "] : []), ...nodes(token.tokens));
}

function code(token) {
  const button = element("button", { type: "button", class: "copy" }, "Copy");
  button.addEventListener("click", async () => {
    await copy(token.text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  const language = (token.lang ?? "").split(/\s/)[0].slice(0, 30);
  const text = element("pre", { tabindex: "0" }, element("code", {}, ...highlighted(token.text, language)));
  return element("div", { class: "code" }, element("div", { class: "bar" }, element("span", {}, language), button), text);
}

function table(token) {
  const cells = (tag, row) => row.map((cell) => element(tag, cell.align ? { class: `to-${cell.align}` } : {}, ...nodes(cell.tokens)));
  const rows = token.rows.map((row) => element("tr", {}, ...cells("td", row)));
  const head = element("thead", {}, element("tr", {}, ...cells("th", token.header)));
  return element("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Table" },
    element("table", {}, head, element("tbody", {}, ...rows)));
}

/** A text that grows: blocks that are whole stay, only the last is made anew. */
export class Growing {
  #done = 0;
  #tail = [];

  constructor(place) {
    this.place = place;
  }

  show(text) {
    const tokens = blocks(text.slice(this.#done));
    let last = tokens.length - 1;
    while (last > 0 && tokens[last].type === "space") last -= 1;
    for (const node of this.#tail) node.remove();
    const whole = tokens.slice(0, Math.max(last, 0));
    this.place.append(...nodes(whole));
    this.#done += whole.reduce((sum, token) => sum + token.raw.length, 0);
    this.#tail = nodes(tokens.slice(Math.max(last, 0))).map((one) =>
      typeof one === "string" ? document.createTextNode(one) : one);
    this.place.append(...this.#tail);
  }
}

export function render(place, text) {
  place.replaceChildren(...nodes(blocks(text)));
}
