// LangChain's ChatOpenAI and OpenAIEmbeddings in JavaScript.
// packages: @langchain/openai@1.5.8 @langchain/core@1 zod@4

import assert from "node:assert";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { z } from "zod";
import { chat, embedder, main, row, scripted, scriptedUrl, url } from "./rows.mjs";

const model = (address, name, more = {}) =>
  new ChatOpenAI({
    model: name, apiKey: "none", maxRetries: 0, configuration: { baseURL: `${address}/v1` }, ...more,
  });
const person = z.object({ name: z.enum(["Tom", "Ann"]), city: z.enum(["Paris", "Rome"]) });
const weather = tool(async ({ city }) => `18 degrees in ${city}`, {
  name: "get_weather", description: "The weather of a city.", schema: z.object({ city: z.string() }),
});

for (const useResponsesApi of [false, true]) {
  const kind = useResponsesApi ? "responses" : "chat";

  row(`ChatOpenAI ${kind} invoke`, async () => {
    const made = await model(scriptedUrl, scripted, { useResponsesApi }).invoke("Hi.");
    assert.equal(made.text, "Hello! How can I help you today?");
  });

  row(`ChatOpenAI ${kind} stream`, async () => {
    let text = "";
    for await (const one of await model(scriptedUrl, scripted, { useResponsesApi }).stream("Hi."))
      text += one.text;
    assert.equal(text, "Hello! How can I help you today?");
  });

  row(`ChatOpenAI ${kind} bindTools`, async () => {
    const bound = model(scriptedUrl, scripted, { useResponsesApi }).bindTools([weather]);
    const made = await bound.invoke("What is the weather in Paris?");
    assert.deepEqual(made.tool_calls[0].args, { city: "Paris" });
  });

  row(`ChatOpenAI ${kind} withStructuredOutput`, async () => {
    const made = await model(url, chat, { useResponsesApi, maxTokens: 100 })
      .withStructuredOutput(person, { method: "jsonSchema" }).invoke("Invent a person.");
    assert.ok(["Paris", "Rome"].includes(made.city));
  });
}

row("OpenAIEmbeddings", async () => {
  const made = new OpenAIEmbeddings({
    model: embedder, apiKey: "none", configuration: { baseURL: `${url}/v1` },
  });
  assert.equal((await made.embedQuery("Hi.")).length, 384);
});

await main();
