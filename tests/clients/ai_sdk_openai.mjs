// The AI SDK by its OpenAI-compatible provider, and by OpenAI's own with both APIs.
// packages: ai@6 @ai-sdk/openai-compatible@2.0.92 @ai-sdk/openai@3.0.141 zod@4

import assert from "node:assert";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { chat, embedder, main, row, scripted, scriptedUrl, url } from "./rows.mjs";

const compatible = (address, more = {}) =>
  createOpenAICompatible({ name: "trinity", baseURL: `${address}/v1`, ...more });
const openai = (address) => createOpenAI({ baseURL: `${address}/v1`, apiKey: "none" });
const kinds = {
  "openai-compatible": (address, name) => compatible(address)(name),
  "openai-compatible structuredOutputs": (address, name) =>
    compatible(address, { supportsStructuredOutputs: true })(name),
  "openai (responses)": (address, name) => openai(address)(name),
  "openai chat()": (address, name) => openai(address).chat(name),
};
const person = z.object({ name: z.enum(["Tom", "Ann"]), age: z.literal([30, 40]) });
const weather = tool({
  inputSchema: z.object({ city: z.enum(["Paris", "Rome"]) }),
  execute: async ({ city }) => `18 degrees in ${city}`,
});
const prompt = "What is the weather in Paris?";

for (const [name, model] of Object.entries(kinds)) {
  const small = (more) =>
    generateText({ model: model(url, chat), maxOutputTokens: 100, maxRetries: 0, ...more });

  row(`${name} generateText`, async () => {
    assert.ok((await small({ prompt: "Say hello.", maxOutputTokens: 16 })).text);
  });

  row(`${name} streamText`, async () => {
    let text = "";
    for await (const one of streamText({ model: model(scriptedUrl, scripted), prompt: "Hi." })
      .textStream) text += one;
    assert.equal(text, "Hello! How can I help you today?");
  });

  row(`${name} tools auto`, async () => {
    const made = await generateText({
      model: model(scriptedUrl, scripted), prompt, tools: { get_weather: weather },
      stopWhen: stepCountIs(3),
    });
    assert.equal(made.text, "It is 18 degrees in Paris.");
  });

  row(`${name} tools required`, async () => {
    const made = await small({ prompt, tools: { get_weather: weather }, toolChoice: "required" });
    assert.equal(made.toolCalls.length, 1);
  });

  row(`${name} Output.object`, async () => {
    const output = Output.object({ schema: person });
    if (name === "openai-compatible") {
      // Without structuredOutputs the provider asks for any JSON object.
      const error = await small({ prompt, maxOutputTokens: 8, output }).then(
        (made) => made, (failure) => failure,
      );
      assert.ok(error.text.startsWith("{"));
      return;
    }
    assert.ok([30, 40].includes((await small({ prompt, output })).output.age));
  });

  row(`${name} Output.object + tools`, async () => {
    const output = Output.object({ schema: person });
    const made = await small({ prompt, output, tools: { get_weather: weather } });
    assert.ok(made.text || made.toolCalls.length);
  });

  row(`${name} multi-turn messages`, async () => {
    const first = await generateText({ model: model(scriptedUrl, scripted), prompt: "Hi." });
    const messages = [
      { role: "user", content: "Hi." }, ...first.response.messages,
      { role: "user", content: "Hi again." },
    ];
    const made = await generateText({ model: model(scriptedUrl, scripted), messages });
    assert.equal(made.text, "Hello! How can I help you today?");
  });
}

row("openai-compatible embedMany", async () => {
  const { embeddings } = await embedMany({
    model: compatible(url).textEmbeddingModel(embedder), values: ["a", "b"],
  });
  assert.equal(embeddings[1].length, 384);
});

await main();
