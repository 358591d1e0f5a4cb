// Conversations as files: export, and import of exports and of the files of `trinity chat`.

import { element } from "./element.js";
import { isImage } from "./pictures.js";
import { fresh } from "./store.js";

const ROLES = ["user", "assistant"];

/** Download a conversation as JSON. */
export function save(conversation) {
  const file = new Blob([JSON.stringify(conversation, null, 2)], { type: "application/json" });
  const url = URL.createObjectURL(file);
  const name = conversation.title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60);
  element("a", { href: url, download: `${name || "chat"}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** The conversation in a file. An error names the file and says what is wrong. */
export async function read(file) {
  let data;
  try {
    data = JSON.parse(await file.text());
  } catch {
    throw new Error(`${file.name} is not valid JSON. Choose a chat that was exported here or saved by trinity chat.`);
  }
  const given = Array.isArray(data) ? data : data?.messages;
  if (!Array.isArray(given)) throw new Error(`${file.name} has no list "messages". Choose a chat that was exported here or saved by trinity chat.`);
  const conversation = fresh();
  const system = given[0]?.role === "system" ? given[0].content : data.system;
  if (typeof system === "string") conversation.system = system;
  given.forEach((one, i) => {
    if (i === 0 && one?.role === "system") return;
    if (!ROLES.includes(one?.role) || typeof one.content !== "string") {
      throw new Error(`${file.name}: message ${i + 1} is not a text of the user or the assistant.`);
    }
    const text = (value) => (typeof value === "string" ? value : "");
    const images = Array.isArray(one.images) ? one.images.filter(isImage) : [];
    conversation.messages.push({
      role: one.role, content: one.content.replaceAll("\r", ""), reasoning: text(one.reasoning ?? one.reasoning_content), note: text(one.note), model: text(one.model),
      ...(images.length && { images }),
    });
  });
  const title = typeof data.title === "string" && data.title.trim() ? data.title : file.name.replace(/\.json$/i, "");
  conversation.title = title.slice(0, 200);
  return conversation;
}
