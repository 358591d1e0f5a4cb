// The page: conversations on the left, the chosen one next to them, its settings, the monitor.

import { element } from "./markdown.js";
import { Monitor } from "./monitor.js";
import * as server from "./server.js";
import * as store from "./store.js";
import { Thread } from "./thread.js";

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const SAVE_MS = 2000;
const id = (name) => document.getElementById(name);
const input = id("input");

let conversations = [];
let chosen = null;
const unwritten = new Set();  // conversations that the browser has not saved yet, or cannot save
const running = new Map();  // what answers, by the conversation's id

const thread = new Thread(id("thread"), id("scroll"), {
  edit: (message, text) => again(message, [{ role: "user", content: text }]),
  regenerate: (message) => again(message, []),
});
const monitor = new Monitor(id("monitor"));

// Conversations

function choose(conversation) {
  chosen = conversation;
  store.remember("chosen", conversation.id);
  thread.show(conversation.messages);
  showMonitor(false);
  fail("");
  const open = document.body.classList.contains("menu");
  menu(false);
  if (open) id("menu").focus();  // not in what is hidden now
  list();
}

function list() {
  // Keyboard users keep the focus on the button, which is created again.
  const held = document.activeElement?.closest("#conversations button")?.dataset.act;
  id("conversations").replaceChildren(...conversations.map((one) => {
    const open = element("button", { type: "button", class: "open" }, one.title);
    open.dataset.act = `open ${one.id}`;
    if (one === chosen) open.setAttribute("aria-current", "true");
    open.addEventListener("click", () => choose(one));
    const small = (sign, name, act) => {
      const made = element("button", { type: "button", title: name, "aria-label": `${name} ${one.title}`, "data-act": `${name} ${one.id}` }, sign);
      made.addEventListener("click", act);
      return made;
    };
    return element("li", {}, open,
      small("✎", "Rename", () => rename(one)),
      small("⤓", "Export", () => save(one)),
      small("✕", "Delete", () => remove(one)));
  }));
  if (held) document.querySelector(`[data-act="${CSS.escape(held)}"]`)?.focus();
  if (id("monitor").hidden) id("title").textContent = chosen.title;
  document.title = `${chosen.title} · trinity`;
  id("empty").hidden = chosen.messages.length > 0;
  const busy = running.has(chosen.id);
  id("send").textContent = busy ? "Stop" : "Send";
  id("send").classList.toggle("stop", busy);
}

function begin() {
  let conversation = conversations.find((one) => one.messages.length === 0);
  if (!conversation) {
    conversation = store.fresh();
    conversation.system = chosen?.system ?? "";
    conversations.unshift(conversation);
  }
  choose(conversation);
  input.focus();
}

async function keep(conversation) {
  if (!conversations.includes(conversation)) return;  // it was deleted meanwhile
  conversation.changed = Date.now();
  unwritten.add(conversation);
  try {
    await store.put(conversation);
    unwritten.delete(conversation);
  } catch (error) {
    fail(`The browser could not save the chat: ${error?.message ?? error}`);
  }
}

/** Ask by a dialog; null where it is cancelled. */
function dialog(name, fill) {
  const box = id(name);
  const form = box.querySelector("form");
  form.reset();
  fill(form);
  box.returnValue = "";
  box.showModal();
  return new Promise((resolve) => {
    box.addEventListener("close", () => resolve(box.returnValue === "save" ? form : null), { once: true });
  });
}

async function rename(conversation) {
  const form = await dialog("rename", (form) => (form.elements.name.value = conversation.title));
  const title = form?.elements.name.value.trim();
  if (!title) return;
  conversation.title = title;
  list();
  await keep(conversation);
}

async function remove(conversation) {
  if (!await dialog("remove", () => (id("remove-name").textContent = conversation.title))) return;
  running.get(conversation.id)?.abort();
  conversations = conversations.filter((one) => one !== conversation);
  try {
    await store.remove(conversation.id);
  } catch (error) {
    fail(`The browser could not delete the chat: ${error?.message ?? error}`);
  }
  if (conversation !== chosen) list();
  else if (conversations.length) choose(conversations[0]);
  else begin();
}

function save(conversation) {
  const file = new Blob([JSON.stringify(conversation, null, 2)], { type: "application/json" });
  const url = URL.createObjectURL(file);
  const name = conversation.title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60);
  element("a", { href: url, download: `${name || "chat"}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// Settings

function numbers() {
  try {
    return JSON.parse(store.remembered("sampling")) ?? {};
  } catch {
    return {};
  }
}

async function settings() {
  const of = chosen;
  const form = await dialog("settings", ({ elements }) => {
    const given = numbers();
    for (const name of NUMBERS) elements[name].value = given[name] ?? "";
    elements.system.value = of.system;
    elements.key.value = server.key.get();
  });
  if (!form) return;
  const given = {};
  for (const name of NUMBERS) {
    if (form.elements[name].value !== "") given[name] = Number(form.elements[name].value);
  }
  store.remember("sampling", JSON.stringify(given));
  server.key.set(form.elements.key.value.trim());
  of.system = form.elements.system.value.trim();
  if (of.messages.length) await keep(of);
  fail("");
  await fillModels();
}

async function fillModels() {
  const select = id("model");
  try {
    const names = (await server.models()).map((one) => one.id);
    const before = select.value || store.remembered("model");
    select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    if (names.includes(before)) select.value = before;
  } catch (error) {
    fail(told(error));
  }
}

// Answers

function fail(text) {
  id("error").textContent = text;
  id("error").hidden = !text;
}

function told(error) {
  if (error.status === 401) return "The server requires an API key. Enter it in the settings (⚙).";
  if (error instanceof TypeError) return "The server cannot be reached.";
  return error.message;
}

function note(usage, began, first) {
  if (!usage || first === null) return "";
  const seconds = (performance.now() - first) / 1000;
  const speed = usage.completion_tokens > 1 && seconds > 0
    ? ` · ${((usage.completion_tokens - 1) / seconds).toFixed(1)} tokens/s` : "";
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  return `${usage.completion_tokens} tokens${speed} · first token after ${((first - began) / 1000).toFixed(2)} s`
    + (cached ? ` · ${cached} of ${usage.prompt_tokens} prompt tokens cached` : "");
}

function request(conversation, before) {
  const system = conversation.system ? [{ role: "system", content: conversation.system }] : [];
  const messages = before.map(({ role, content }) => ({ role, content }));
  return { model: id("model").value || undefined, messages: [...system, ...messages], ...numbers() };
}

async function reply(conversation) {
  const stop = new AbortController();
  running.set(conversation.id, stop);
  fail("");
  const body = request(conversation, conversation.messages);
  const message = { role: "assistant", content: "", reasoning: "", note: "" };
  conversation.messages.push(message);
  if (conversation === chosen) {
    thread.add(message);
    list();
  }
  const began = performance.now();
  let [first, usage, saved, reason] = [null, null, began, null];
  try {
    await keep(conversation);
    for await (const event of server.answer(body, stop.signal)) {
      usage = event.usage ?? usage;
      reason = event.choices[0]?.finish_reason ?? reason;
      const delta = event.choices[0]?.delta;
      if (!delta?.content && !delta?.reasoning_content) continue;
      first ??= performance.now();
      // As marked counts a text, so that what is drawn is found again.
      message.content += (delta.content ?? "").replaceAll("\r", "");
      message.reasoning += delta.reasoning_content ?? "";
      thread.grow(message);
      if (performance.now() - saved > SAVE_MS) {
        saved = performance.now();
        await keep(conversation);
      }
    }
    message.note = note(usage, began, first) + (reason === "length" ? " · token limit or context full" : "");
    if (conversation === chosen) id("said").textContent = `Response: ${message.content}`;
  } catch (error) {
    message.note = error.name === "AbortError" ? "stopped" : "failed";
    if (error.name !== "AbortError" && conversation === chosen) fail(told(error));
  }
  running.delete(conversation.id);
  thread.end(message);
  if (!conversations.includes(conversation)) return;  // it was deleted meanwhile
  await keep(conversation);
  list();
}

/** Continue from a message: it and all later ones are replaced. */
async function again(message, by) {
  if (running.has(chosen.id)) return;
  const place = chosen.messages.indexOf(message);
  chosen.messages.splice(place, Infinity, ...by);
  thread.show(chosen.messages);
  input.focus();
  await reply(chosen);
}

async function send() {
  const text = input.value.trim();
  if (!text || running.has(chosen.id)) return;
  input.value = "";
  grow();
  if (!chosen.messages.length && chosen.title === "New chat") {
    chosen.title = text.replace(/\s+/g, " ").slice(0, 60);
  }
  conversations = [chosen, ...conversations.filter((one) => one !== chosen)];
  const message = { role: "user", content: text.replaceAll("\r", "") };
  chosen.messages.push(message);
  thread.add(message);
  await reply(chosen);
}

const halt = () => running.get(chosen.id)?.abort();

// Controls

function grow() {
  input.style.height = "auto";
  input.style.height = `${Math.min(input.scrollHeight, 200)}px`;
}

function showMonitor(on) {
  id("monitor").hidden = !on;
  id("chat").hidden = on;
  id("monitor-button").setAttribute("aria-pressed", String(on));
  id("title").textContent = on ? "Monitor" : chosen.title;
  if (on) monitor.start();
  else monitor.stop();
}

function menu(on) {
  document.body.classList.toggle("menu", on);
  id("menu").setAttribute("aria-expanded", String(on));
  if (on) id("new").focus();
}

input.addEventListener("input", grow);
input.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
id("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running.has(chosen.id)) halt();
  else send();
});
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (document.body.classList.contains("menu")) {
    menu(false);
    id("menu").focus();
  } else halt();
});
// No submit button: Enter takes the first of those.
for (const button of document.querySelectorAll("dialog .cancel")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}
id("new").addEventListener("click", begin);
id("settings-button").addEventListener("click", settings);
id("model").addEventListener("change", () => store.remember("model", id("model").value));
id("menu").addEventListener("click", () => menu(!document.body.classList.contains("menu")));
id("monitor-button").addEventListener("click", () => {
  menu(false);
  showMonitor(id("monitor").hidden);
});
document.querySelector("main").addEventListener("click", (event) => {
  if (!event.target.closest("#menu")) menu(false);
});

/** Another tab may have changed the chats: what is older here is not written over them. */
async function lookAgain() {
  if (document.hidden || running.size || unwritten.size || document.querySelector("dialog[open], .editing")) return;
  const found = await store.all();
  if (running.size || unwritten.size) return;
  const same = found.find((one) => one.id === chosen.id);
  const fresh = conversations.filter((one) => !one.messages.length && !found.some((two) => two.id === one.id));
  if (same?.changed === chosen.changed) found.splice(found.indexOf(same), 1, chosen);
  conversations = [...fresh, ...found];
  if (conversations.includes(chosen)) list();
  else if (same) choose(same);
  else begin();
}
for (const event of ["visibilitychange", "focus"]) {
  addEventListener(event, () => lookAgain().catch(() => {}));
}

let unkept = "";
try {
  conversations = await store.all();
} catch (error) {
  unkept = `The browser cannot save chats: ${error?.message ?? error}`;
}
const last = conversations.find((one) => one.id === store.remembered("chosen"));
if (last) choose(last);
else begin();
fail(unkept);
await fillModels();
document.body.dataset.ready = "true";
