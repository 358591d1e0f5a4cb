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

const greedy = (more = {}) => client.chat.completions.create(
  { model: chat, messages, temperature: 0, max_tokens: 12, ...more },
);

async function all(stream) {
  const found = [];
  for await (const one of stream) found.push(one);
  return found;
}

async function refused(call, status) {
  const error = await call().then(() => null, (error) => error);
  assert.ok(error instanceof OpenAI.APIError, `not refused: ${error}`);
  assert.equal(error.status, status);
  return error;
}

row("chat, streamed: the text of the whole answer, then the usage", async () => {
  const chunks = await all(await greedy({ stream: true, stream_options: { include_usage: true } }));
  const text = chunks.map((one) => one.choices[0]?.delta.content ?? "").join("");
  assert.equal(text, (await greedy()).choices[0].message.content);
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.ok(chunks.at(-1).usage.completion_tokens > 0);
});

row("chat, streamed: left early", async () => {
  for await (const _ of await greedy({ stream: true, max_tokens: 200 })) break;
});

row("chat, streamed: tools required", async () => {
  const runner = client.chat.completions.stream({
    model: chat, messages, temperature: 0, max_tokens: 100, tools: [tool], tool_choice: "required",
  });
  const [call] = (await runner.finalMessage()).tool_calls;
  assert.ok(["Paris", "Rome"].includes(JSON.parse(call.function.arguments).city));
});

row("chat: stop", async () => {
  const text = (await greedy()).choices[0].message.content;
  const word = text.trim().split(/\s+/)[1];
  const stopped = (await greedy({ stop: word })).choices[0].message.content;
  assert.equal(stopped, text.slice(0, text.indexOf(word)));
});

row("chat: logprobs", async () => {
  const { content } = (await greedy({ logprobs: true, top_logprobs: 3 })).choices[0].logprobs;
  assert.ok(content.length > 0);
  for (const one of content) {
    assert.ok(Number.isFinite(one.logprob) && one.logprob <= 0);
    assert.equal(one.top_logprobs.length, 3);
  }
});

row("responses, streamed: numbers of the events", async () => {
  const events = await all(await client.responses.create(
    { model: chat, input: "Hi.", max_output_tokens: 8, stream: true },
  ));
  assert.deepEqual(events.map((one) => one.sequence_number), events.map((_, i) => i));
  assert.ok(["response.completed", "response.incomplete"].includes(events.at(-1).type));
});

row("errors: unknown model, value out of range, too long a prompt", async () => {
  assert.equal((await refused(() => greedy({ model: "no-such" }), 404)).code, "model_not_found");
  assert.equal((await refused(() => greedy({ top_p: 3 }), 400)).param, "top_p");
  const long = [{ role: "user", content: "war and peace ".repeat(40000) }];
  const error = await refused(() => greedy({ messages: long }), 400);
  assert.equal(error.code, "context_length_exceeded");
});

row("unknown parameters are named in a header", async () => {
  const body = { model: chat, messages, max_tokens: 5, temperatur: 1 };
  const { response } = await client.chat.completions.create(body).withResponse();
  assert.equal(response.headers.get("x-trinity-ignored"), "temperatur");
});

await main();
