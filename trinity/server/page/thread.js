// The messages of one conversation on the screen.

import { copy } from "./clipboard.js";
import { element } from "./element.js";
import { Growing, render } from "./markdown.js";
import { shown } from "./pictures.js";

// Of the time, drawing a growing response takes at most this share.
const SHARE = 0.25;
// Messages that the browser leaves out together while none of them is to be seen: of 2,000 single
// ones the looking alone takes most of a frame.
const GROUP = 40;

/** Show who wrote a message: the user, or the model by its name. */
function name(view, message) {
  const shown = message.role === "user" ? "You" : message.model || "Response";
  view.who.textContent = shown;
  view.article.setAttribute("aria-label", shown);
}

export class Thread {
  #views = new Map();
  #follow = true;

  /** `acts`: what the buttons of a message do: edit(message, text), regenerate(message). */
  constructor(place, scroll, acts) {
    this.place = place;
    this.scroll = scroll;
    this.acts = acts;
    scroll.addEventListener("scroll", () => {
      this.#follow = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
    }, { passive: true });
    // Messages have their true height only when they are drawn.
    new ResizeObserver(() => this.#atEnd()).observe(place);
  }

  show(messages) {
    this.#views.clear();
    this.place.replaceChildren();
    for (const message of messages) this.#append(message);
    this.toEnd();
  }

  add(message) {
    this.#append(message);
    this.toEnd();
  }

  #append(message) {
    let group = this.place.lastElementChild;
    if (!group || group.childElementCount >= GROUP) {
      group = element("div", { class: "group" });
      this.place.append(group);
    }
    group.append(this.#made(message));
  }

  toEnd() {
    this.#follow = true;
    this.#atEnd();
  }

  #atEnd() {
    if (this.#follow) this.scroll.scrollTop = this.scroll.scrollHeight;
  }

  /** Say what a response waits for; drawn until its text begins. */
  wait(message, text) {
    const view = this.#views.get(message);
    if (!view || view.ended) return;
    view.waiting.hidden = !text;
    view.waiting.firstChild.textContent = text;
    this.#atEnd();
  }

  /** Draw a growing response, at most once a frame. */
  grow(message) {
    const view = this.#views.get(message);
    if (!view || view.asked) return;
    view.asked = true;
    view.article.setAttribute("aria-busy", "true");
    requestAnimationFrame(() => {
      view.asked = false;
      const began = performance.now();
      if (view.ended || began < view.next) return;
      view.waiting.hidden = true;
      view.growing ??= new Growing(view.body);
      view.growing.show(message.content);
      this.#thought(view, message);
      this.#atEnd();
      const cost = performance.now() - began;
      view.next = performance.now() + cost / SHARE - cost - 16;
    });
  }

  /** Draw a response that is complete. */
  end(message) {
    const view = this.#views.get(message);
    if (!view) return;
    view.ended = true;
    view.waiting.hidden = true;
    name(view, message);
    render(view.body, message.content);
    this.#thought(view, message);
    view.note.textContent = message.note ?? "";
    view.article.removeAttribute("aria-busy");
    this.#atEnd();
  }

  #thought(view, message) {
    view.thought.hidden = !message.reasoning;
    view.thinking.textContent = message.reasoning ?? "";
  }

  #made(message) {
    const who = element("h2");
    const waiting = element("p", { class: "waiting", role: "status" }, element("span"), element("span", { class: "dots", "aria-hidden": "true" }));
    waiting.hidden = true;
    const images = message.images?.length ? [element("div", { class: "images" }, ...message.images.map(shown))] : [];
    const body = element("div", { class: "body" });
    body.hidden = images.length > 0 && !message.content;
    const thinking = element("div", { class: "thinking" });
    const thought = element("details", {}, element("summary", {}, "Thinking"), thinking);
    const note = element("span", { class: "note" }, message.note ?? "");
    const buttons = element("div", { class: "actions" });
    const article = element("article", { class: message.role }, who, thought, ...images, body, waiting, buttons);
    const view = { article, who, waiting, body, thinking, thought, note, next: 0 };
    const button = (label, act) => {
      const made = element("button", { type: "button" }, label);
      made.addEventListener("click", act);
      return made;
    };
    buttons.append(button("Copy", () => copy(message.content)));
    if (message.role === "user") buttons.append(button("Edit", () => this.#edit(view, message)));
    else buttons.append(button("Regenerate", () => this.acts.regenerate(message)));
    buttons.append(note);
    this.#views.set(message, view);
    name(view, message);
    this.#thought(view, message);
    render(body, message.content);
    return article;
  }

  #edit(view, message) {
    const input = element("textarea", { "aria-label": "Edit the message", rows: "3" });
    input.value = message.content;
    const save = element("button", { type: "button", class: "primary" }, "Send");
    const cancel = element("button", { type: "button" }, "Cancel");
    const back = () => {
      render(view.body, message.content);
      view.article.classList.remove("editing");
      view.article.querySelector(".actions button:nth-child(2)").focus();
    };
    save.addEventListener("click", () => {
      if (input.value.trim() || message.images) this.acts.edit(message, input.value.trim());
    });
    cancel.addEventListener("click", back);
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        back();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        save.click();
      }
    });
    view.article.classList.add("editing");
    view.body.hidden = false;
    view.body.replaceChildren(input, element("div", { class: "buttons" }, cancel, save));
    input.focus();
  }
}
