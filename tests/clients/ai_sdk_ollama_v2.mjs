// The AI SDK by ollama-ai-provider-v2, another provider of Ollama's API.
// packages: ai@7 ollama-ai-provider-v2@4.0.1 zod@4

import assert from "node:assert/strict";
import { embed, generateText, Output, stepCountIs, streamText, tool } from "ai";
import { createOllama } from "ollama-ai-provider-v2";
import { z } from "zod";
import { chat, embedder, main, row, scripted, scriptedUrl, url } from "./rows.mjs";

const small = createOllama({ baseURL: `${url}/api` })(chat);
const large = createOllama({ baseURL: `${scriptedUrl}/api` })(scripted);
const weather = tool({
  description: "The weather of a city.", inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `18 degrees in ${city}`,
});
const asked = {
  model: large, tools: { get_weather: weather }, stopWhen: stepCountIs(3), maxRetries: 0,
  prompt: "What is the weather in Paris?",
};

row("generateText", async () => {
  const found = await generateText({ model: small, prompt: "Say hello.", maxRetries: 0 });
  assert(found.text && found.usage.inputTokens > 0 && found.usage.outputTokens > 0);
  assert.equal(found.finishReason, "stop");
});

row("generateText with options", async () => {
  const found = await generateText({
    model: small, prompt: "Say hello.", maxRetries: 0, maxOutputTokens: 4, temperature: 0.5,
    topP: 0.9, topK: 20, seed: 3, stopSequences: ["\n\n\n"],
  });
  assert.equal(found.usage.outputTokens, 4);
}, { excused: "the client sends the limit as `max_output_tokens`, which Ollama's API does not have" });

row("streamText", async () => {
  let text = "";
  const { textStream } = streamText({ model: large, prompt: "Say hello.", maxRetries: 0 });
  for await (const part of textStream) text += part;
  assert.equal(text, "Hello! How can I help you today?");
});

row("several messages", async () => {
  const messages = [{ role: "user", content: "Hi." }, { role: "assistant", content: "Hello." },
    { role: "user", content: "Say goodbye." }];
  assert((await generateText({ model: small, messages, maxRetries: 0 })).text);
});

row("tools", async () => {
  assert.equal((await generateText(asked)).text, "It is 18 degrees in Paris.");
});

row("tools in a stream", async () => {
  assert.match(await streamText(asked).text, /It is 18 degrees in Paris\.$/);
});

row("Output.object", async () => {
  const schema = z.object({ name: z.string(), age: z.number() });
  const { output } = await generateText({
    model: small, output: Output.object({ schema }), prompt: "Tom is 30.", maxRetries: 0,
  });
  schema.parse(output);
});

row("embed", async () => {
  const model = createOllama({ baseURL: `${url}/api` }).textEmbeddingModel(embedder);
  assert.equal((await embed({ model, value: "Hello" })).embedding.length, 384);
});

await main();
