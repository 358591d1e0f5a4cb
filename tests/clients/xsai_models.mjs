// xsAI, the small AI SDK: its functions for text, streams, objects, tools, embeddings and speech.
// packages: xsai@0.4.4 zod@4

import assert from "node:assert";
import { readFile } from "node:fs/promises";
import {
  embed, embedMany, generateObject, generateText, generateTranscription, streamObject, streamText,
  tool,
} from "xsai";
import { z } from "zod";
import { chat, embedder, main, row, scripted, scriptedUrl, speech, url } from "./rows.mjs";

const small = { apiKey: "none", baseURL: `${url}/v1/`, model: chat };
const large = { apiKey: "none", baseURL: `${scriptedUrl}/v1/`, model: scripted };
const hello = "Hello! How can I help you today?";
const asked = (content) => [{ role: "user", content }];
const person = z.object({ name: z.string(), age: z.number() });
const ann = asked("A Person called Ann as JSON, please.");

async function joined(stream) {
  let text = "";
  for await (const part of stream) text += part;
  return text;
}

const weather = () => tool({
  name: "get_weather", description: "The weather of a city.",
  parameters: z.object({ city: z.string() }),
  execute: ({ city }) => `18 degrees in ${city}`,
});

row("generateText", async () => {
  const { text, usage, finishReason } = await generateText({
    ...small, messages: [{ role: "system", content: "Be short." }, ...asked("Say hello.")],
    maxTokens: 8, temperature: 0, topP: 0.9, seed: 1, stop: ["\n\n"],
  });
  assert.ok(text);
  assert.ok(["stop", "length"].includes(finishReason));
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
});

row("streamText", async () => {
  const { textStream, usage } = streamText({
    ...large, messages: asked("Hi."), streamOptions: { includeUsage: true },
  });
  assert.equal(await joined(textStream), hello);
  assert.ok((await usage).completion_tokens > 0);
});

row("generateText with a tool", async () => {
  const { text, steps } = await generateText({
    ...large, messages: asked("What is the weather in Paris?"), tools: [await weather()],
    maxSteps: 3,
  });
  assert.equal(text, "It is 18 degrees in Paris.");
  assert.equal(steps.length, 2);
});

row("streamText with a tool", async () => {
  const { textStream, fullStream } = streamText({
    ...large, messages: asked("What is the weather in Paris?"), tools: [await weather()],
    maxSteps: 3, toolChoice: "auto", parallelToolCalls: true,
  });
  const events = [];
  const [text] = await Promise.all([joined(textStream), (async () => {
    for await (const event of fullStream) events.push(event);
  })()]);
  assert.equal(text, "It is 18 degrees in Paris.");
  const [call] = events.filter((one) => one.type === "tool-call");
  assert.deepEqual([call.toolName, JSON.parse(call.args)], ["get_weather", { city: "Paris" }]);
});

row("toolChoice required", async () => {
  const { steps } = await generateText({
    ...large, messages: asked("What is the weather in Paris?"), tools: [await weather()],
    toolChoice: "required", maxSteps: 2,
  });
  assert.deepEqual(steps[0].toolCalls.map((one) => one.toolName), ["get_weather"]);
});

row("toolChoice allowed_tools", async () => {
  const { steps } = await generateText({
    ...large, messages: asked("What is the weather in Paris?"), tools: [await weather()],
    maxSteps: 2,
    toolChoice: {
      type: "allowed_tools", mode: "required",
      tools: [{ type: "function", function: { name: "get_weather" } }],
    },
  });
  assert.deepEqual(steps[0].toolCalls.map((one) => one.toolName), ["get_weather"]);
});

row("generateObject", async () => {
  const { object } = await generateObject({ ...large, messages: ann, schema: person });
  assert.deepEqual(object, { name: "Ann", age: 40 });
});

row("generateObject as an array", async () => {
  const { object } = await generateObject({
    ...large, messages: asked("Persons called Ann as JSON, please."), schema: person,
    output: "array", schemaName: "people", schemaDescription: "Persons.",
  });
  assert.deepEqual(object, [{ name: "Ann", age: 40 }]);
});

row("streamObject", async () => {
  const { partialObjectStream } = await streamObject({ ...large, messages: ann, schema: person });
  let last;
  for await (const part of partialObjectStream) last = part;
  assert.deepEqual(last, { name: "Ann", age: 40 });
});

row("reasoningEffort", async () => {
  const { text } = await generateText({
    ...large, messages: asked("Hi."), reasoningEffort: "none", topK: 40,
  });
  assert.equal(text, hello);
});

row("embed", async () => {
  const { embedding, usage } = await embed({ ...small, model: embedder, input: "Hello" });
  assert.equal(embedding.length, 384);
  assert.ok(usage.prompt_tokens > 0);
});

row("embedMany", async () => {
  const { embeddings } = await embedMany({ ...small, model: embedder, input: ["Hello", "You"] });
  assert.deepEqual(embeddings.map((one) => one.length), [384, 384]);
});

row("generateTranscription", async () => {
  const file = new Blob([await readFile(`${process.env.TRINITY_SPOKEN}/en2.opus`)]);
  const { text } = await generateTranscription({
    ...small, model: speech, file, fileName: "en2.opus", language: "en",
  });
  assert.match(text, /leave your coat by the door/);
});

row("generateTranscription with words", async () => {
  const file = new Blob([await readFile(`${process.env.TRINITY_SPOKEN}/en2.opus`)]);
  const { words, duration } = await generateTranscription({
    ...small, model: speech, file, fileName: "en2.opus", responseFormat: "verbose_json",
    timestampGranularities: "word",
  });
  assert.ok(words.length > 2 && duration > 1);
});

await main();
