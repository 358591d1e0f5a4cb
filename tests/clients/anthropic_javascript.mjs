// The official @anthropic-ai/sdk package for JavaScript.

// packages: @anthropic-ai/sdk@1.14.0 zod@4

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";
import { chat, main, row, scripted, scriptedUrl, url } from "./rows.mjs";

const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
const giving = new Anthropic({ baseURL: scriptedUrl, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "Say hello." }];
const usual = { model: chat, max_tokens: 12, messages };
const question = [{ role: "user", content: "What is the weather in Paris?" }];
const tools = [{ name: "get_weather", description: "Weather of a city", input_schema: {
  type: "object", properties: { city: { type: "string" } }, required: ["city"] } }];

row("messages.create", async () => {
  const answer = await client.messages.create(usual);
  assert(answer.content[0].text && answer.usage.output_tokens <= 12);
});

row("messages.stream helper", async () => {
  const stream = client.messages.stream({ ...usual, temperature: 0 });
  let text = "";
  stream.on("text", (part) => (text += part));
  const final = await stream.finalMessage();
  assert.equal(final.content[0].text, text);
});

row("countTokens", async () => {
  const count = await client.messages.countTokens({ model: chat, messages });
  assert(count.input_tokens > 3);
});

row("tool round trip", async () => {
  const body = { model: scripted, max_tokens: 100, tools };
  const first = await giving.messages.create({ ...body, messages: question });
  const [call] = first.content;
  assert.deepEqual(call.input, { city: "Paris" });
  const result = { type: "tool_result", tool_use_id: call.id, content: "18 degrees" };
  const history = [...question, { role: "assistant", content: first.content },
    { role: "user", content: [result] }];
  const second = await giving.messages.create({ ...body, messages: history });
  assert.equal(second.content[0].text, "It is 18 degrees in Paris.");
});

row("system blocks with cache_control, metadata, stop_sequences", async () => {
  const cache_control = { type: "ephemeral" };
  const answer = await client.messages.create({ ...usual, metadata: { user_id: "u" },
    system: [{ type: "text", text: "Be short.", cache_control }], stop_sequences: ["\n\n\n"] });
  assert(answer.content.length);
});

row("thinking enabled budget", async () => {
  const thinking = { type: "enabled", budget_tokens: 1024 };
  const answer = await client.messages.create({ ...usual, thinking, max_tokens: 1030,
    stop_sequences: [".", "!", "\n"] });
  assert(answer.usage.output_tokens);
});

row("assistant prefill", async () => {
  const begun = [...question, { role: "assistant", content: "The weather in Paris is" }];
  const answer = await client.messages.create({ ...usual, messages: begun, temperature: 0 });
  assert(!answer.content[0].text.startsWith("The weather"));
});

row("output format (parse with zod)", async () => {
  const form = z.object({ name: z.string(), age: z.number().int() });
  const answer = await client.messages.parse({ model: chat, max_tokens: 300, temperature: 0,
    messages: [{ role: "user", content: "Tom is 30. Answer as JSON." }],
    output_config: { format: zodOutputFormat(form) } });
  form.parse(answer.parsed_output);
});

row("models.list", async () => {
  const found = await client.models.list();
  assert(found.data.some((one) => one.id === chat && one.display_name === chat && one.created_at));
});

row("beta.messages.create with betas", async () => {
  const answer = await client.beta.messages.create({ ...usual,
    betas: ["context-management-2025-06-27"],
    context_management: { edits: [{ type: "clear_tool_uses_20250919" }] } });
  assert(answer.content.length);
});

row("image block (text model)", async () => {
  const source = { type: "base64", media_type: "image/png", data: "aGk=" };
  const content = [{ type: "image", source }];
  await assert.rejects(client.messages.create({ ...usual, messages: [{ role: "user", content }] }),
    /the model reads only text/);
});

await main();
