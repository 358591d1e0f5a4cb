// The openai package of npm.
// packages: openai@6.49.0 zod@4

import assert from "node:assert";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { chat, embedder, main, row, scripted, scriptedUrl, url } from "./rows.mjs";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const script = new OpenAI({ baseURL: `${scriptedUrl}/v1`, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "Say hello." }];
const person = z.object({ name: z.enum(["Tom", "Ann"]), age: z.literal([30, 40]) });
const parameters = {
  type: "object", properties: { city: { enum: ["Paris", "Rome"] } }, required: ["city"],
};
const tool = { type: "function", function: { name: "get_weather", parameters } };

row("chat", async () => {
  const made = await client.chat.completions.create({ model: chat, messages, max_tokens: 6 });
  assert.ok(made.choices[0].message.content);
});

row("chat stream for await", async () => {
  let text = "";
  const stream = await client.chat.completions.create(
    { model: chat, messages, max_tokens: 6, stream: true },
  );
  for await (const one of stream) text += one.choices[0]?.delta?.content ?? "";
  assert.ok(text);
});

row("chat.completions.stream() helper", async () => {
  const stream = client.chat.completions.stream({ model: chat, messages, max_tokens: 6 });
  assert.ok(await stream.finalContent());
});

row("chat.completions.parse zodResponseFormat", async () => {
  const made = await client.chat.completions.parse({
    model: chat, messages, max_tokens: 60, response_format: zodResponseFormat(person, "person"),
  });
  assert.ok([30, 40].includes(made.choices[0].message.parsed.age));
});

row("runTools helper", async () => {
  const runner = script.chat.completions.runTools({
    model: scripted,
    messages: [{ role: "user", content: "What is the weather in Paris?" }],
    tools: [{
      type: "function",
      function: {
        name: "get_weather", parse: JSON.parse, parameters,
        function: ({ city }) => `18 degrees in ${city}`,
      },
    }],
  });
  assert.equal(await runner.finalContent(), "It is 18 degrees in Paris.");
});

row("tools required", async () => {
  const made = await client.chat.completions.create(
    { model: chat, messages, max_tokens: 100, tools: [tool], tool_choice: "required" },
  );
  const [choice] = made.choices;
  assert.equal(choice.finish_reason, "tool_calls");
  assert.equal(choice.message.tool_calls.length, 1);
  assert.ok(["Paris", "Rome"].includes(JSON.parse(choice.message.tool_calls[0].function.arguments).city));
});

row("responses.create", async () => {
  const made = await client.responses.create({ model: chat, input: "Hi.", max_output_tokens: 16 });
  assert.ok(made.output_text);
});

row("responses.stream", async () => {
  const stream = script.responses.stream({ model: scripted, input: "Hi." });
  assert.equal((await stream.finalResponse()).output_text, "Hello! How can I help you today?");
});

row("responses.parse zodTextFormat", async () => {
  const made = await client.responses.parse(
    { model: chat, input: "Hi.", text: { format: zodTextFormat(person, "person") } },
  );
  assert.ok([30, 40].includes(made.output_parsed.age));
});

row("responses store, retrieve, previous_response_id", async () => {
  const made = await client.responses.create({ model: chat, input: "Hi.", max_output_tokens: 4 });
  assert.equal((await client.responses.retrieve(made.id)).id, made.id);
  const again = await client.responses.create(
    { model: chat, input: "And?", previous_response_id: made.id, max_output_tokens: 4 },
  );
  assert.ok(again.usage.input_tokens > made.usage.input_tokens);
});

row("embeddings", async () => {
  const made = await client.embeddings.create({ model: embedder, input: "Hi." });
  assert.equal(made.data[0].embedding.length, 384);
});

row("models.list", async () => {
  const names = [];
  for await (const one of client.models.list()) names.push(one.id);
  assert.ok(names.includes(chat));
});

await main();
