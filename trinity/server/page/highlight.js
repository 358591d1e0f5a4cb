// Colours for code blocks: comments, strings, numbers and the keywords of common languages. Every
// pattern is linear in the length of the text.

import { element } from "./element.js";

// Longer code is shown without colours: the time of a frame is bounded.
const LONGEST = 20_000;
const STRING = String.raw`"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?`;
const SLASHES = String.raw`//.*|/\*[^]*?(?:\*/|$)`;
const HASH = String.raw`#.*`;
const WORD = String.raw`[A-Za-z_]\w*`;
const NUMBER = String.raw`\b\d[\w.]*`;

function language(comment, string, words) {
  return {
    pattern: new RegExp(`(?<comment>${comment})|(?<string>${string})|(?<number>${NUMBER})|(?<word>${WORD})`, "g"),
    words: new Set(words.split(" ")),
  };
}

const C = language(SLASHES, `${STRING}|\`(?:\\\\.|[^\`\\\\])*\`?`,
  "abstract as async await bool boolean break case catch char class const constexpr continue default defer delete do double else enum "
  + "export extends false final finally float fn for from func function go if impl implements import in int interface "
  + "internal let long loop match mod mut namespace new nil null nullptr of override package private protected pub public "
  + "range return self short signed sizeof static string struct super switch template this throw throws trait true try "
  + "type typedef typename typeof undefined union unsigned use using var virtual void volatile where while yield");
const PYTHON = language(HASH, `"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|${STRING}`,
  "False None True and as assert async await break case class continue def del elif else except finally for from global if "
  + "import in is lambda match nonlocal not or pass raise return self try while with yield");
const SHELL = language(String.raw`(?<![\w$])#.*`, STRING,
  "alias break case cd continue do done echo elif else esac exit export fi for function if in local read return set "
  + "shift source sudo then until while");
const SQL = language(String.raw`--.*|/\*[^]*?(?:\*/|$)`, STRING,
  "all and as asc by case create delete desc distinct drop else end exists from group having in index inner insert into "
  + "is join key left like limit not null on or order outer primary right select set table then union unique update values "
  + "when where with ALL AND AS ASC BY CASE CREATE DELETE DESC DISTINCT DROP ELSE END EXISTS FROM GROUP HAVING IN INDEX "
  + "INNER INSERT INTO IS JOIN KEY LEFT LIKE LIMIT NOT NULL ON OR ORDER OUTER PRIMARY RIGHT SELECT SET TABLE THEN UNION "
  + "UNIQUE UPDATE VALUES WHEN WHERE WITH");
const DATA = language(HASH, STRING, "true false null yes no on off");
const MARKUP = language(String.raw`<!--[^]*?(?:-->|$)`, STRING, "");

const LANGUAGES = new Map(Object.entries({
  c: C, cpp: C, "c++": C, cs: C, csharp: C, go: C, java: C, javascript: C, js: C, jsx: C, kotlin: C, php: C, rust: C, rs: C,
  swift: C, ts: C, tsx: C, typescript: C, css: C, scss: C, zig: C, dart: C,
  py: PYTHON, python: PYTHON, python3: PYTHON,
  bash: SHELL, console: SHELL, sh: SHELL, shell: SHELL, zsh: SHELL, dockerfile: SHELL, makefile: SHELL,
  sql: SQL, html: MARKUP, svg: MARKUP, xml: MARKUP,
  json: DATA, yaml: DATA, yml: DATA, toml: DATA, ini: DATA, r: DATA, ruby: DATA, rb: DATA,
}));

/** The nodes of code in a language: text, and spans with the class of what they are. */
export function highlighted(code, name) {
  const known = LANGUAGES.get(name.toLowerCase());
  if (!known || code.length > LONGEST) return [code];
  const made = [];
  let end = 0;
  for (const found of code.matchAll(known.pattern)) {
    const [kind] = Object.entries(found.groups).find(([, text]) => text !== undefined);
    if (kind === "word" && !known.words.has(found[0])) continue;
    made.push(code.slice(end, found.index), element("span", { class: `is-${kind}` }, found[0]));
    end = found.index + found[0].length;
  }
  return [...made, code.slice(end)];
}
