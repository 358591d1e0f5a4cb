// Vercel's AI SDK with its providers for Anthropic and Ollama.

// packages: ai@7 @ai-sdk/anthropic@3.0.140 ai-sdk-ollama@4.3.0 zod@4

import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { embed, generateText, Output, stepCountIs, streamText, tool } from "ai";
import { createOllama } from "ai-sdk-ollama";
import { z } from "zod";
import { chat, embedder, main, row, scripted, scriptedUrl, url } from "./rows.mjs";

const anthropic = (baseURL) => createAnthropic({ baseURL: `${baseURL}/v1`, apiKey: "none" });
const ollama = (baseURL) => createOllama({ baseURL });
const providers = { "@ai-sdk/anthropic": anthropic, "ai-sdk-ollama": ollama };
const person = z.object({ name: z.string(), age: z.number() });
const tools = { get_weather: tool({
  description: "Weather of a city", inputSchema: z.object({ city: z.string() }),
  execute: async () => "18 degrees",
}) };
const usual = { prompt: "Say hello.", maxOutputTokens: 12, maxRetries: 0 };

for (const [name, make] of Object.entries(providers)) {
  const model = make(url)(chat);
  const giving = make(scriptedUrl)(scripted);

  row(`${name} generateText`, async () => {
    const answer = await generateText({ model, ...usual });
    assert(answer.text && answer.usage.outputTokens > 0);
  });

  row(`${name} streamText`, async () => {
    let text = "";
    for await (const part of streamText({ model, ...usual }).textStream) text += part;
    assert(text);
  });

  row(`${name} tools auto`, async () => {
    const answer = await generateText({ model: giving, tools, stopWhen: stepCountIs(3),
      prompt: "What is the weather in Paris?", maxOutputTokens: 100, maxRetries: 0 });
    assert.equal(answer.steps[0].toolCalls[0].input.city, "Paris");
    assert.equal(answer.text, "It is 18 degrees in Paris.");
  });

  row(`${name} tools in a stream`, async () => {
    const stream = streamText({ model: giving, tools, stopWhen: stepCountIs(3),
      prompt: "What is the weather in Paris?", maxOutputTokens: 100, maxRetries: 0 });
    let text = "";
    for await (const part of stream.textStream) text += part;
    assert(text.endsWith("It is 18 degrees in Paris."), text);
  });

  row(`${name} Output.object`, async () => {
    const answer = await generateText({ model, maxRetries: 0, maxOutputTokens: 300, temperature: 0,
      output: Output.object({ schema: person }), prompt: "Tom is 30. Answer as JSON." });
    person.parse(answer.output);
  });

  row(`${name} multi-turn messages`, async () => {
    const messages = [{ role: "system", content: "Be short." }, { role: "user", content: "Hi." },
      { role: "assistant", content: "Hello." }, { role: "user", content: "Say goodbye." }];
    const answer = await generateText({ model, messages, maxOutputTokens: 12, maxRetries: 0,
      allowSystemInMessages: true });
    assert(answer.text);
  });
}

row("@ai-sdk/anthropic tools required", async () => {
  const answer = await generateText({ model: anthropic(url)(chat), toolChoice: "required",
    tools: { get_weather: tool({ inputSchema: z.object({ city: z.string() }) }) },
    prompt: "What is the weather in Paris?", maxOutputTokens: 300, maxRetries: 0, temperature: 0 });
  assert.equal(answer.toolCalls.length, 1);
  assert.equal(typeof answer.toolCalls[0].input.city, "string");
});

row("@ai-sdk/anthropic Output.object + tools", async () => {
  const answer = await generateText({ model: anthropic(scriptedUrl)(scripted), tools,
    maxOutputTokens: 100, maxRetries: 0, output: Output.object({ schema: person }),
    prompt: "A Person called Ann as JSON, please.", stopWhen: stepCountIs(3) });
  assert.deepEqual(answer.output, { name: "Ann", age: 40 });
});

row("@ai-sdk/anthropic thinking", async () => {
  const answer = await generateText({ model: anthropic(url)(chat), ...usual,
    providerOptions: { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } } });
  assert(answer.text);
});

row("ai-sdk-ollama tools required", async () => {
  await generateText({ model: ollama(url)(chat), tools, toolChoice: "required", maxRetries: 0,
    prompt: "What is the weather in Paris?", maxOutputTokens: 60, temperature: 0 }).then((answer) =>
    assert(answer.toolCalls.length));
}, { excused: "Ollama's API has no `tool_choice`" });

row("ai-sdk-ollama Output.object + tools", async () => {
  const answer = await generateText({ model: ollama(scriptedUrl)(scripted), tools,
    maxOutputTokens: 100, maxRetries: 0, output: Output.object({ schema: person }),
    prompt: "A Person called Ann as JSON, please.", stopWhen: stepCountIs(3) });
  assert.deepEqual(answer.output, { name: "Ann", age: 40 });
});

row("ai-sdk-ollama embed", async () => {
  const found = await embed({ model: ollama(url).embedding(embedder), value: "Hello" });
  assert.equal(found.embedding.length, 384);
});

await main();
