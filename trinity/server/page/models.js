// The server's models: which is chosen, whether it is loaded, how much of its context is used.

import { element } from "./element.js";
import * as server from "./server.js";
import * as store from "./store.js";

const DEMO = /[\\/]trinity[\\/]data[\\/]demo(-chat)?\.gguf$/;
const select = document.getElementById("model");
const LOOK_MS = 1000;  // between looks at what a response waits for
let cards = [];
let first = null;  // the path and the default options of the first model

export const chosenModel = () => select.value;
const card = () => cards.find((one) => one.id === select.value);
const isFirst = () => cards[0]?.id === select.value;

/** Whether the chosen model is loaded, as far as is known. */
export const isLoaded = () => card()?.loaded ?? false;

/** Whether the chosen model reads images. */
export const readsImages = () => card()?.architecture?.input_modalities?.includes("image") ?? false;

/** The options that apply where none are set; known for the first model only. */
export const defaults = () => (isFirst() ? first?.defaults : undefined);

/** Ask the server for its models. */
export async function look() {
  cards = await server.models();
  if (first || !cards[0]?.loaded) return;  // asking would load it
  try {
    first = await server.props();
  } catch {
    // The endpoint is disabled: the defaults are not shown.
  }
}

/** Fill the list of models; the chosen one stays chosen. */
export async function fillModels() {
  await look();
  const names = cards.map((one) => one.id);
  const before = select.value || store.remembered("model");
  select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  if (names.includes(before)) select.value = before;
}

/** What a new chat should know: the demo model says what it was trained on. */
export function about() {
  return isFirst() && DEMO.test(first?.path ?? "")
    ? "This small demo model knows the novel War and Peace and nothing else. Ask it: Who is Pierre?" : "";
}

/** Show how much of the context the last response and its prompt took. */
export function gauge(conversation) {
  const used = conversation.messages.findLast((one) => one.used)?.used;
  const length = card()?.context_length;
  const place = document.getElementById("context");
  place.hidden = !used || !length;
  if (place.hidden) return;
  const omitted = conversation.omitted ? ` · the oldest ${conversation.omitted} messages are not sent` : "";
  place.querySelector("label").textContent = `Context: ${used} of ${length} tokens${omitted}`;
  place.querySelector("meter").value = used / length;
}

/** Say what a response waits for, until the returned timer is cleared. */
export function waiting(say) {
  say("Waiting for the model");
  return setInterval(async () => {
    try {
      await look();
    } catch {
      return;  // the request itself fails or waits
    }
    if (!isLoaded()) say(`Loading ${chosenModel()}`);
  }, LOOK_MS);
}
