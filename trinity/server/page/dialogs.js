// Dialogs, and the line of errors above the input.

import { element } from "./element.js";

/** Ask by a dialog; null where it is cancelled. */
export function dialog(name, fill) {
  const box = document.getElementById(name);
  const form = box.querySelector("form");
  form.reset();
  fill(form);
  box.returnValue = "";
  box.showModal();
  return new Promise((resolve) => {
    box.addEventListener("close", () => resolve(box.returnValue === "save" ? form : null), { once: true });
  });
}

/** Show an error, with buttons for what can be done: pairs of a label and a function. */
export function fail(text, ...actions) {
  const buttons = actions.map(([label, act]) => {
    const made = element("button", { type: "button" }, label);
    made.addEventListener("click", act);
    return made;
  });
  const place = document.getElementById("error");
  place.replaceChildren(text, ...(buttons.length ? [element("span", { class: "buttons" }, ...buttons)] : []));
  place.hidden = !text;
}
