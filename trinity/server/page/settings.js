// Sampling settings: kept in this browser, and the server's defaults for those that are not set.

import * as server from "./server.js";
import * as store from "./store.js";

const NAMES = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const RANDOM = 2 ** 32 - 1;  // the server's word for no seed

/** The settings that were given. */
export function given() {
  try {
    return JSON.parse(store.remembered("sampling")) ?? {};
  } catch {
    return {};
  }
}

/** Show the settings in a form, with the defaults of the model as placeholders. */
export function fill(form, conversation, defaults) {
  const values = given();
  for (const name of NAMES) {
    const input = form.elements[name];
    input.value = values[name] ?? "";
    input.placeholder = shown(name, defaults?.[name]);
  }
  form.elements.system.value = conversation.system;
  form.elements.key.value = server.key.get();
}

function shown(name, value) {
  if (value === undefined) return "default";
  if (name === "seed" && value === RANDOM) return "random";
  if (name === "max_tokens" && value < 0) return "no limit";
  return String(+value.toPrecision(4));  // models store 0.2 in 32 bits
}

/** Keep what the form has. */
export function keep(form, conversation) {
  const values = {};
  for (const name of NAMES) {
    if (form.elements[name].value !== "") values[name] = Number(form.elements[name].value);
  }
  store.remember("sampling", JSON.stringify(values));
  server.key.set(form.elements.key.value.trim());
  conversation.system = form.elements.system.value.trim();
}
