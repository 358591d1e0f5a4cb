// The page: conversations on the left, the chosen one next to them, its settings, the monitor.

import { dialog, fail } from "./dialogs.js";
import { element } from "./element.js";
import * as files from "./files.js";
import * as models from "./models.js";
import { Monitor } from "./monitor.js";
import * as pictures from "./pictures.js";
import { body, note, omitOldest, told } from "./request.js";
import * as server from "./server.js";
import * as settings from "./settings.js";
import * as store from "./store.js";
import { Thread } from "./thread.js";

const SAVE_MS = 2000;
const id = (name) => document.getElementById(name);
const input = id("input");

let conversations = [];
let chosen = null;
const unwritten = new Set();  // conversations that the browser has not saved yet, or cannot save
const running = new Map();  // what stops a response, by the conversation's id

const thread = new Thread(id("thread"), id("scroll"), {
  edit: (message, text) => again(message, [{ ...message, content: text }]),
  regenerate: (message) => again(message, []),
});
const monitor = new Monitor(id("monitor"));

// Conversations

function choose(conversation) {
  if (chosen) [chosen.draft, chosen.pictures] = [input.value, pictures.all()];
  chosen = conversation;
  input.value = conversation.draft ?? "";
  pictures.set(conversation.pictures);
  grow();
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
      small("⤓", "Export", () => files.save(one)),
      small("✕", "Delete", () => remove(one)));
  }));
  if (held) document.querySelector(`[data-act="${CSS.escape(held)}"]`)?.focus();
  if (id("monitor").hidden) id("title").textContent = chosen.title;
  document.title = `${chosen.title} · trinity`;
  id("empty").hidden = chosen.messages.length > 0;
  models.gauge(chosen);
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

async function imported(chosenFiles) {
  const errors = [];
  for (const file of chosenFiles) {
    try {
      const conversation = await files.read(file);
      conversations.unshift(conversation);
      choose(conversation);
      await keep(conversation);
    } catch (error) {
      errors.push(error.message);
    }
  }
  if (errors.length) fail(errors.join(" "));
}

// Settings

async function openSettings() {
  const of = chosen;
  const form = await dialog("settings", (form) => settings.fill(form, of, models.defaults()));
  if (!form) return;
  settings.keep(form, of);
  if (of.messages.length) await keep(of);
  fail("");
  await showModels();
}

async function showModels() {
  try {
    await models.fillModels();
  } catch (error) {
    fail(told(error));
  }
  showModel();
}

function showModel() {
  id("about").textContent = models.about();
  id("attach").hidden = !models.readsImages();
  models.gauge(chosen);
}

// Responses

/** A new chat with a message that did not fit into another one. */
function beginWith(text, images) {
  input.value = "";
  pictures.set();
  begin();
  input.value = text;
  pictures.set(images);
  grow();
}

function full(conversation, error, text, images) {
  if (!conversation.messages.length) return fail(error.message);  // the message alone is too long
  const actions = [["New chat", () => beginWith(text, images)]];
  if ((text || images.length) && (conversation.omitted ?? 0) < conversation.messages.length) {
    actions.push(["Omit the oldest messages", () => {
      omitOldest(conversation, input.value);
      send();
    }]);
  }
  fail(told(error), ...actions);
}

/**
 * Generate a response. If it fails before its first token, nothing was said: the messages of
 * before are restored, and the text that was sent returns to the input.
 */
async function reply(conversation, before, text = "", images = []) {
  const stop = new AbortController();
  running.set(conversation.id, stop);
  fail("");
  const sent = body(conversation, models.chosenModel(), settings.given());
  const message = { role: "assistant", content: "", reasoning: "", note: "", model: models.chosenModel(), unfinished: true };
  conversation.messages.push(message);
  if (conversation === chosen) {
    thread.add(message);
    list();
  }
  const timer = models.waiting((text) => thread.wait(message, text));
  const began = performance.now();
  let [begun, usage, saved, reason, failure] = [null, null, began, null, null];
  try {
    await keep(conversation);
    for await (const event of server.answer(sent, stop.signal)) {
      usage = event.usage ?? usage;
      message.model = event.model ?? message.model;
      reason = event.choices[0]?.finish_reason ?? reason;
      const progress = event.prompt_progress;
      if (progress && begun === null) {
        clearInterval(timer);
        thread.wait(message, `Reading the prompt: ${progress.processed} of ${progress.total} tokens`);
      }
      const delta = event.choices[0]?.delta;
      if (!delta?.content && !delta?.reasoning_content) continue;
      begun ??= performance.now();
      clearInterval(timer);
      // marked counts a text in this form, so that what is drawn is found again.
      message.content += (delta.content ?? "").replaceAll("\r", "");
      message.reasoning += delta.reasoning_content ?? "";
      thread.grow(message);
      if (performance.now() - saved > SAVE_MS) {
        saved = performance.now();
        await keep(conversation);
      }
    }
    message.used = usage?.total_tokens;
    message.note = note(usage, began, begun) + (reason === "length" ? " · token limit or context full" : "");
    if (conversation === chosen) id("said").textContent = `Response: ${message.content}`;
  } catch (error) {
    failure = error;
    message.note = error.name === "AbortError" ? "stopped" : "failed";
  }
  clearInterval(timer);
  running.delete(conversation.id);
  delete message.unfinished;
  thread.end(message);
  if (!conversations.includes(conversation)) return;  // it was deleted meanwhile
  if (failure && begun === null) restore(conversation, before, text, images);
  if (failure && failure.name !== "AbortError" && conversation === chosen) {
    if (failure.code === "context_length_exceeded") full(conversation, failure, text, images);
    else fail(told(failure));
  }
  await keep(conversation);
  if (!models.isLoaded()) await showModels();  // its context is known now
  list();
}

function restore(conversation, before, text, images) {
  conversation.messages = before;
  if (!before.length) conversation.title = "New chat";
  const draft = (rest) => [text, rest].filter(Boolean).join("\n");
  if (conversation !== chosen) {
    conversation.draft = draft(conversation.draft);
    conversation.pictures = [...images, ...(conversation.pictures ?? [])];
    return;
  }
  thread.show(before);
  input.value = draft(input.value);
  pictures.set([...images, ...pictures.all()]);
  grow();
}

/** Continue from a message: it and all later ones are replaced. */
async function again(message, by) {
  if (running.has(chosen.id)) return;
  const before = [...chosen.messages];
  const place = before.indexOf(message);
  chosen.messages = [...before.slice(0, place), ...by];
  if (place < chosen.omitted) chosen.omitted = 0;
  thread.show(chosen.messages);
  input.focus();
  await reply(chosen, before);
}

async function send() {
  const text = input.value.trim();
  const images = pictures.all();
  if (!(text || images.length) || running.has(chosen.id)) return;
  input.value = "";
  pictures.set();
  grow();
  if (!chosen.messages.length && chosen.title === "New chat") {
    const line = text.replace(/\s+/g, " ");
    chosen.title = line.length > 60 ? `${line.slice(0, 59).trimEnd()}…` : line || "Image";
  }
  conversations = [chosen, ...conversations.filter((one) => one !== chosen)];
  const message = { role: "user", content: text.replaceAll("\r", ""), ...(images.length && { images }) };
  const before = chosen.messages;
  chosen.messages = [...before, message];
  thread.add(message);
  await reply(chosen, before, text, images);
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
addEventListener("resize", grow);
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
id("settings-button").addEventListener("click", openSettings);
id("import").addEventListener("click", () => id("import-file").click());
id("import-file").addEventListener("change", async () => {
  const given = [...id("import-file").files];
  id("import-file").value = "";  // the same file may be chosen again
  await imported(given);
});
pictures.listen(id("chat"), async (given) => {
  await pictures.add(given, models.readsImages()).then(() => fail(""), (error) => fail(error.message));
  input.focus();
});
id("model").addEventListener("change", () => {
  store.remember("model", models.chosenModel());
  showModel();
});
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
await showModels();
document.body.dataset.ready = "true";
