// Mathematics in responses. Temml makes MathML elements of TeX; it is loaded when a text first has
// some. TeX that Temml does not accept, and links, classes and pictures in it, appear as text.

import { element } from "./element.js";

const LONGEST = 5000;
const OPTIONS = { throwOnError: true, maxSize: [10, 200], maxExpand: 300 };
let library;

// A dollar sign begins mathematics only before a character, and ends it only after one: "$5 and $6"
// is text.
const INLINE = [
  /^\$\$([^$]+)\$\$/, /^\\\[((?:[^\\]|\\[^[\]])+)\\\]/, /^\\\(((?:[^\\]|\\[^()])+)\\\)/,
  /^\$((?:[^\s$\\]|\\[^\n])(?:(?:[^$\\\n]|\\[^\n])*(?:[^\s$\\]|\\[^\n]))?)\$(?![\w$])/,
];
const BLOCK = /^ {0,3}(?:\$\$([^$]+)\$\$|\\\[((?:[^\\]|\\[^[\]])+)\\\]) *(?:\n+|$)/;

/** What marked needs to find mathematics in Markdown. */
export const extensions = [
  {
    name: "formula", level: "block",
    start: (text) => text.match(/(?:^|\n) {0,3}(?:\$\$|\\\[)/)?.index,
    tokenizer(text) {
      const found = BLOCK.exec(text);
      return found ? { type: "formula", raw: found[0], tex: found[1] ?? found[2], display: true } : undefined;
    },
  },
  {
    name: "formula", level: "inline",
    start: (text) => text.match(/(?<![\w$\\])\$|\\[([]/)?.index,
    tokenizer(text) {
      for (const [i, form] of INLINE.entries()) {
        const found = form.exec(text);
        if (found) return { type: "formula", raw: found[0], tex: found[1], display: i < 2 };
      }
      return undefined;
    },
  },
];

function load() {
  library ??= new Promise((resolve, reject) => {
    const script = element("script", { src: "page/temml.js" });
    script.onload = () => resolve(window.temml);
    script.onerror = reject;
    document.head.append(script);
  });
  library.catch(() => (library = undefined));
  return library;
}

function draw(place, token, temml) {
  try {
    const tree = temml.__renderToMathMLTree(token.tex, { ...OPTIONS, displayMode: token.display });
    place.replaceChildren(tree.toNode());
  } catch {
    place.textContent = token.raw.trim();
  }
}

/** The element of a token: its source until the library is there. */
export function formula(token) {
  const shown = token.display ? { class: "formula", tabindex: "0", role: "group", "aria-label": "Formula" } : {};
  const place = element("span", shown, token.raw.trim());
  if (token.tex.length > LONGEST) return place;
  if (window.temml) draw(place, token, window.temml);
  else load().then((temml) => draw(place, token, temml), () => {});
  return place;
}
