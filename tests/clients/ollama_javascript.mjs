// The official ollama package for JavaScript.

// packages: ollama@0.6.4 zod@4

import assert from "node:assert/strict";
import { Ollama } from "ollama";
import { z } from "zod";
import { chat, embedder, main, row, scripted, scriptedUrl, url } from "./rows.mjs";

const client = new Ollama({ host: url });
const giving = new Ollama({ host: scriptedUrl });
const messages = [{ role: "user", content: "Say hello." }];
const options = { num_predict: 12, temperature: 0 };
const question = [{ role: "user", content: "What is the weather in Paris?" }];
const tools = [{ type: "function", function: {
  name: "get_weather", description: "Weather of a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
} }];

async function text(stream, of) {
  let found = "";
  for await (const part of stream) found += of(part);
  return found;
}

row("chat", async () => {
  const answer = await client.chat({ model: chat, messages, options });
  assert(answer.message.content && answer.done && answer.eval_count > 0);
});

row("chat stream", async () => {
  const whole = await client.chat({ model: chat, messages, options });
  const stream = await client.chat({ model: chat, messages, options, stream: true });
  assert.equal(await text(stream, (part) => part.message.content), whole.message.content);
});

row("chat abort()", async () => {
  const stream = await client.chat({
    model: chat, messages, stream: true, options: { num_predict: 2000 },
  });
  await assert.rejects(async () => {
    for await (const _ of stream) stream.abort();
  }, { name: "AbortError" });
});

row("chat tools", async () => {
  const first = await giving.chat({ model: scripted, messages: question, tools });
  const [call] = first.message.tool_calls;
  assert.deepEqual(call.function.arguments, { city: "Paris" });
  const result = { role: "tool", tool_name: "get_weather", content: "18 degrees" };
  const history = [...question, first.message, result];
  const second = await giving.chat({ model: scripted, messages: history, tools });
  assert.equal(second.message.content, "It is 18 degrees in Paris.");
});

row("chat format (zod toJSONSchema)", async () => {
  const form = z.object({ name: z.string(), age: z.number().int() });
  const answer = await client.chat({
    model: chat, messages: [{ role: "user", content: "Tom is 30. Answer as JSON." }],
    format: z.toJSONSchema(form), options: { ...options, num_predict: 200 },
  });
  form.parse(JSON.parse(answer.message.content));
});

row("chat think:false, keep_alive", async () => {
  const answer = await client.chat({
    model: chat, messages, options, think: false, keep_alive: "10m",
  });
  assert(answer.message.content);
});

row("generate", async () => {
  const whole = await client.generate({ model: chat, prompt: "Say hello.", options });
  const stream = await client.generate({ model: chat, prompt: "Say hello.", options, stream: true });
  assert(whole.response);
  assert.equal(await text(stream, (part) => part.response), whole.response);
});

row("generate suffix/template/context", async () => {
  const first = await client.generate({ model: chat, prompt: "Paris", options,
    template: "{{ .Prompt }} is", suffix: "" });
  assert(first.response && first.context.length > 2);
  const next = await client.generate({ model: chat, prompt: "Go on.", options,
    context: first.context });
  assert.deepEqual(next.context.slice(0, first.context.length), first.context);
  await assert.rejects(
    client.generate({ model: chat, prompt: "def f():", suffix: "return 1", options }),
    /does not support insert/,
  );
});

row("embed", async () => {
  const found = await client.embed({ model: embedder, input: ["Hello", "War and peace"] });
  assert.deepEqual(found.embeddings.map((one) => one.length), [384, 384]);
});

row("embed truncate:true", async () => {
  const long = "The quick brown fox jumps over the lazy dog. ".repeat(300);
  for (const input of ["Hello", long]) {
    const found = await client.embed({ model: embedder, input, truncate: true });
    assert.equal(found.embeddings[0].length, 384);
  }
});

row("embeddings", async () => {
  const found = await client.embeddings({ model: embedder, prompt: "Hello" });
  assert.equal(found.embedding.length, 384);
});

row("list/ps/version/show", async () => {
  assert((await client.list()).models.some((one) => one.model === chat));
  assert((await client.ps()).models.some((one) => one.model === chat));
  assert((await client.version()).version);
  const shown = await client.show({ model: chat });
  assert(shown.capabilities.includes("completion"));
  assert.equal(shown.model_info["general.architecture"], "llama");
});

row("pull", async () => {
  const stream = await client.pull({ model: chat, stream: true });
  let last;
  for await (const part of stream) last = part.status;
  assert.equal(last, "success");
  await assert.rejects(client.pull({ model: "nope" }), /is not on the Hugging Face hub/);
});

row("create, copy, delete", async () => {
  const made = await client.create({ model: "wario", from: chat, system: "You are Wario." });
  assert.equal(made.status, "success");
  await client.copy({ source: "wario", destination: "waluigi" });
  assert.equal((await client.show({ model: "waluigi" })).system, "You are Wario.");
  for (const model of ["wario", "waluigi"]) await client.delete({ model });
  await assert.rejects(client.show({ model: "wario" }), /not found/);
});

await main();
