// Mastra: agents by its OpenAI-compatible model configuration.
// packages: @mastra/core@1.71.0 zod@4

import assert from "node:assert";
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { z } from "zod";
import { chat, main, row, scripted, scriptedUrl, url } from "./rows.mjs";

const weather = createTool({
  id: "get_weather", description: "The weather of a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `18 degrees in ${city}`,
});

function agent({ large = true, tools = {} } = {}) {
  const [id, address] = large ? [`trinity/${scripted}`, scriptedUrl] : [`trinity/${chat}`, url];
  return new Agent({
    id: "assistant", name: "assistant", instructions: "You help.", tools,
    model: { id, url: `${address}/v1`, apiKey: "none" },
  });
}

row("generate", async () => {
  const { text, usage } = await agent({ large: false }).generate("Say hello.");
  assert.ok(text);
  assert.ok(usage.inputTokens > 0 && usage.outputTokens > 0);
});

row("stream", async () => {
  let found = "";
  const { textStream } = await agent().stream("Say hello.");
  for await (const part of textStream) found += part;
  assert.equal(found, "Hello! How can I help you today?");
});

row("generate with a tool", async () => {
  const asked = agent({ tools: { get_weather: weather } });
  const { text } = await asked.generate("What is the weather in Paris?");
  assert.equal(text, "It is 18 degrees in Paris.");
});

row("stream with a tool", async () => {
  const asked = agent({ tools: { get_weather: weather } });
  const found = await asked.stream("What is the weather in Paris?");
  assert.equal(await found.text, "It is 18 degrees in Paris.");
  assert.ok((await found.toolCalls).length);
});

row("structured output", async () => {
  const schema = z.object({ name: z.string(), age: z.number() });
  const asked = agent({ large: false });
  const { object } = await asked.generate("Ann is 40.", { structuredOutput: { schema } });
  schema.parse(object);
});

await main();
