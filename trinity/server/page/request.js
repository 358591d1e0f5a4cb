// What is sent for a conversation, what fits the context, and what is said about a response.

/** The body of a request. A conversation without its oldest messages has `omitted`. */
export function body(conversation, model, settings) {
  const system = conversation.system ? [{ role: "system", content: conversation.system }] : [];
  const messages = sent(conversation).map(({ role, content, images }) => ({ role, content: parts(content, images) }));
  return { model: model || undefined, messages: [...system, ...messages], return_progress: true, ...settings };
}

function parts(content, images) {
  if (!images?.length) return content;
  const shown = images.map((url) => ({ type: "image_url", image_url: { url } }));
  return content ? [...shown, { type: "text", text: content }] : shown;
}

/** The messages that are sent: not the oldest that were omitted, and no turn without a response. */
function sent({ messages, omitted = 0 }) {
  return messages.slice(omitted).filter((one, i, all) => {
    const response = one.role === "user" ? all[i + 1] : one;
    return !response || response.role !== "assistant" || response.content;
  });
}

/** Omit the oldest turns until half of the text is left; `next` is the message to send. */
export function omitOldest(conversation, next) {
  const { messages } = conversation;
  let start = conversation.omitted ?? 0;
  const size = (from) => messages.slice(from).reduce((sum, one) => sum + one.content.length, next.length);
  const most = size(start) / 2;
  const before = start;
  while (start < messages.length && (start === before || size(start) > most || messages[start].role !== "user")) start += 1;
  conversation.omitted = start;
}

/** A line about a response: its length, its speed, what was cached. */
export function note(usage, began, first) {
  if (!usage || first === null) return "";
  const seconds = (performance.now() - first) / 1000;
  const speed = usage.completion_tokens > 1 && seconds > 0
    ? ` · ${((usage.completion_tokens - 1) / seconds).toFixed(1)} tokens/s` : "";
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  return `${usage.completion_tokens} tokens${speed} · first token after ${((first - began) / 1000).toFixed(2)} s`
    + (cached ? ` · ${cached} of ${usage.prompt_tokens} prompt tokens cached` : "");
}

/** An error in plain words. */
export function told(error) {
  if (error.status === 401) return "The server requires an API key. Enter it in the settings (⚙).";
  if (error instanceof TypeError) return "The server cannot be reached.";
  if (error.code === "context_length_exceeded") return "The context is full: the conversation and this message are too long for it.";
  return error.message;
}
