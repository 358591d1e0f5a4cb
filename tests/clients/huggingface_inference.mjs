// Hugging Face's inference client for JavaScript with another server's address.

// packages: @huggingface/inference@4.13.30

import assert from "node:assert";
import { InferenceClient } from "@huggingface/inference";
import { chat, main, row, scripted, scriptedUrl, url } from "./rows.mjs";

const HELLO = [{ role: "user", content: "Say hello." }];
const TOOL = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather of a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};
const client = new InferenceClient("none", { endpointUrl: `${url}/v1/chat/completions` });

row("chatCompletion", async () => {
  const made = await client.chatCompletion({ model: chat, messages: HELLO, max_tokens: 20 });
  assert(made.choices[0].message.content);
  assert(made.usage.total_tokens > 0);
});

row("chatCompletionStream", async () => {
  let text = "";
  for await (const chunk of client.chatCompletionStream({
    model: chat, messages: HELLO, max_tokens: 20, stream_options: { include_usage: true },
  })) {
    text += chunk.choices[0]?.delta?.content ?? "";
  }
  assert(text);
});

row("chatCompletion response_format", async () => {
  const schema = {
    type: "object",
    properties: { name: { enum: ["Tom", "Ann"] }, age: { enum: [30, 40] } },
    required: ["name", "age"],
  };
  const made = await client.chatCompletion({
    model: chat, messages: HELLO, max_tokens: 60,
    response_format: { type: "json_schema", json_schema: { name: "person", schema, strict: true } },
  });
  assert(["Tom", "Ann"].includes(JSON.parse(made.choices[0].message.content).name));
});

row("chatCompletion tools", async () => {
  const other = new InferenceClient("none", { endpointUrl: `${scriptedUrl}/v1/chat/completions` });
  const made = await other.chatCompletion({
    model: scripted, messages: [{ role: "user", content: "What is the weather in Paris?" }],
    tools: [TOOL], tool_choice: "auto",
  });
  const [call] = made.choices[0].message.tool_calls;
  assert.deepEqual(JSON.parse(call.function.arguments), { city: "Paris" });
});

row("an unknown model", async () => {
  const asked = client.chatCompletion({ model: "no such", messages: HELLO });
  await assert.rejects(asked, (error) => error.httpResponse.status === 404);
});

await main();
