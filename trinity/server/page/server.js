// What the page asks the server: models, responses, metrics. Nothing else is requested.

export class ServerError extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let given = "";  // where the browser keeps nothing
export const key = {
  get() {
    try {
      return sessionStorage.getItem("trinity.key") ?? given;
    } catch {
      return given;
    }
  },
  set(value) {
    given = value;
    try {
      sessionStorage.setItem("trinity.key", value);
    } catch {
      // It holds until the page is closed.
    }
  },
};

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  const response = await fetch(path, { ...options, headers, credentials: "omit" });
  if (response.ok) return response;
  let error = { message: `The server returned status ${response.status}.` };
  try {
    error = (await response.json()).error;
  } catch {
    // The body is not JSON; the status says enough.
  }
  throw new ServerError(response.status, error.message, error.code);
}

export async function models() {
  return (await (await ask("v1/models")).json()).data;
}

/** The path of the first model, and its default options. */
export async function props() {
  const found = await (await ask("props")).json();
  return { path: found.model_path, defaults: found.default_generation_settings.params };
}

export async function metrics() {
  return (await ask("metrics")).text();
}

/** The events of an answer; `signal` stops it. */
export async function* answer(body, signal) {
  const response = await ask("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new ServerError(0, "The connection ended before the response was complete.");
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new ServerError(0, event.error.message, event.error.code);
      yield event;
    }
  }
}
