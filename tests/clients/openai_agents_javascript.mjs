// OpenAI's Agents SDK for JavaScript, by chat completions and by responses.
// packages: @openai/agents@0.20.0 openai@6.49.0 zod@4

import assert from "node:assert";
import {
  Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, run, setTracingDisabled, tool,
} from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";
import { chat, main, row, scripted, scriptedUrl, url } from "./rows.mjs";

setTracingDisabled(true);
const small = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
const large = new OpenAI({ baseURL: `${scriptedUrl}/v1`, apiKey: "none" });
const weather = tool({
  name: "get_weather", description: "The weather of a city.", parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `18 degrees in ${city}`,
});

for (const [kind, Model] of Object.entries({
  chat: OpenAIChatCompletionsModel, responses: OpenAIResponsesModel,
})) {
  const model = new Model(large, scripted);

  row(`${kind} run`, async () => {
    const agent = new Agent({ name: "a", instructions: "Be short.", model: new Model(small, chat),
      modelSettings: { maxTokens: 16 } });
    assert.ok((await run(agent, "Say hello.")).finalOutput);
  });

  row(`${kind} stream`, async () => {
    const found = await run(new Agent({ name: "a", model }), "Say hello.", { stream: true });
    let text = "";
    for await (const piece of found.toTextStream()) text += piece;
    await found.completed;
    assert.equal(text, "Hello! How can I help you today?");
  });

  row(`${kind} tool`, async () => {
    const agent = new Agent({ name: "a", model, tools: [weather] });
    assert.equal((await run(agent, "What is the weather in Paris?")).finalOutput, "It is 18 degrees in Paris.");
  });

  row(`${kind} structured output`, async () => {
    const agent = new Agent({ name: "a", model, outputType: z.object({ name: z.string(), age: z.number() }) });
    const { finalOutput } = await run(agent, "A Person called Ann as JSON, please.");
    assert.deepEqual(finalOutput, { name: "Ann", age: 40 });
  });
}

await main();
