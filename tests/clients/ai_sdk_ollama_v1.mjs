// The AI SDK 4 by ollama-ai-provider, which checks each line of Ollama's API.
// packages: ai@4 ollama-ai-provider@1.2.0 zod@3

import assert from "node:assert";
import { embed, generateObject, generateText, streamText, tool } from "ai";
import { createOllama } from "ollama-ai-provider";
import { z } from "zod";
import { embedder, main, row, scripted, scriptedUrl, url } from "./rows.mjs";

const ollama = createOllama({ baseURL: `${scriptedUrl}/api` });
const model = ollama(scripted);
const hello = "Hello! How can I help you today?";
const person = z.object({ name: z.string(), age: z.number() });
const get_weather = tool({
  description: "The weather of a city", parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `18 degrees in ${city}`,
});
const question = {
  model, tools: { get_weather }, maxSteps: 3, prompt: "What is the weather in Paris?",
};

async function streamed(asked) {
  let text = "";
  for await (const part of streamText(asked).textStream) text += part;
  return text;
}

row("generateText", async () => {
  assert.equal((await generateText({ model, prompt: "Say hello." })).text, hello);
});

row("streamText", async () => {
  assert.equal(await streamed({ model, prompt: "Say hello." }), hello);
});

row("generateText with a tool", async () => {
  assert.equal((await generateText(question)).text, "It is 18 degrees in Paris.");
});

// Without simulateStreaming, the client reads no tool_calls from a stream.
row("streamText with a tool, simulateStreaming", async () => {
  const simulated = ollama(scripted, { simulateStreaming: true });
  const text = await streamed({ ...question, model: simulated });
  assert.equal(text, "It is 18 degrees in Paris.");
});

for (const structuredOutputs of [false, true])
  row(`generateObject, structuredOutputs ${structuredOutputs}`, async () => {
    const asked = { model: ollama(scripted, { structuredOutputs }), schema: person };
    const found = await generateObject({ ...asked, prompt: "A Person called Ann as JSON, please." });
    assert.deepEqual(found.object, { name: "Ann", age: 40 });
  });

row("embed", async () => {
  const other = createOllama({ baseURL: `${url}/api` });
  const found = await embed({ model: other.embedding(embedder), value: "hi" });
  assert.equal(found.embedding.length, 384);
});

await main();
