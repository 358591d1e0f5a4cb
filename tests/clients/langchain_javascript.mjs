// LangChain's models and embeddings for Ollama in JavaScript.

// packages: @langchain/ollama@1.3.0 @langchain/core@1 zod@4

import assert from "node:assert/strict";
import { tool } from "@langchain/core/tools";
import { ChatOllama, OllamaEmbeddings } from "@langchain/ollama";
import { z } from "zod";
import { chat, embedder, main, row, scripted, scriptedUrl, url } from "./rows.mjs";

const model = new ChatOllama({ model: chat, baseUrl: url, numPredict: 12, numCtx: 8192 });
const giving = new ChatOllama({ model: scripted, baseUrl: scriptedUrl });
const weather = tool(async () => "18 degrees", { name: "get_weather",
  description: "Weather of a city", schema: z.object({ city: z.string() }) });

row("invoke", async () => {
  assert((await model.invoke("Say hello.")).content);
});

row("stream", async () => {
  let text = "";
  for await (const part of await model.stream("Say hello.")) text += part.content;
  assert(text);
});

row("bindTools", async () => {
  const answer = await giving.bindTools([weather]).invoke("What is the weather in Paris?");
  assert.deepEqual(answer.tool_calls.map((call) => call.args), [{ city: "Paris" }]);
});

row("withStructuredOutput", async () => {
  const form = z.object({ name: z.string(), age: z.number() });
  const asked = new ChatOllama({ model: chat, baseUrl: url, numPredict: 300, temperature: 0 });
  form.parse(await asked.withStructuredOutput(form).invoke("Tom is 30. Answer as JSON."));
});

row("OllamaEmbeddings", async () => {
  const embeddings = new OllamaEmbeddings({ model: embedder, baseUrl: url, truncate: true });
  const found = await embeddings.embedDocuments(["Hello", "War and peace"]);
  assert.deepEqual(found.map((one) => one.length), [384, 384]);
});

await main();
