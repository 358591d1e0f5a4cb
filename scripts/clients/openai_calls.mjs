// Calls of OpenAI's client for Node (npm install openai) against a server:
//
//     node scripts/clients/openai_calls.mjs http://127.0.0.1:8080 demo
//
// The client is found as Node finds packages: from this folder upwards. NODE_CLIENT may name the
// module's file where it lies elsewhere. Its newest versions need Node 22.

import assert from "node:assert/strict";

const [base = "http://127.0.0.1:8080", model = "demo", key = "none"] = process.argv.slice(2);
const { default: OpenAI } = await import(process.env.NODE_CLIENT ?? "openai");
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: key, maxRetries: 0 });

const messages = [{ role: "user", content: "Who was Prince Andrew?" }];
const chat = (more = {}) =>
  client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 12, ...more });
const text = (answer) => answer.choices[0].message.content;
const schema = {
  type: "object",
  properties: { name: { type: "string", maxLength: 8 }, age: { enum: [1, 2, 3] } },
  required: ["name", "age"],
  additionalProperties: false,
};
const place = {
  type: "object",
  properties: { city: { type: "string", enum: ["Moscow", "Paris"] } },
  required: ["city"],
  additionalProperties: false,
};
const weather = { type: "function", function: { name: "weather", parameters: place } };
const forced = { tools: [weather], tool_choice: { type: "function", function: { name: "weather" } },
  parallel_tool_calls: false, max_tokens: 120 };
const format = { type: "json_schema", json_schema: { name: "person", schema, strict: true } };

async function all(stream) {
  const found = [];
  for await (const one of stream) found.push(one);
  return found;
}

async function refused(call, status, word) {
  const error = await call().then(() => null, (error) => error);
  assert.ok(error instanceof OpenAI.APIError, `not refused: ${error}`);
  assert.equal(error.status, status);
  assert.ok(error.message.includes(word), error.message);
  return error;
}

function checkPerson(json) {
  const found = JSON.parse(json);
  assert.deepEqual(Object.keys(found).sort(), ["age", "name"]);
  assert.ok([1, 2, 3].includes(found.age));
}

function checkWeather(call) {
  assert.equal(call.function.name, "weather");
  assert.ok(["Moscow", "Paris"].includes(JSON.parse(call.function.arguments).city));
}

const calls = {
  "models.list": async () => {
    const names = (await client.models.list()).data.map((one) => one.id);
    assert.ok(names.includes(model));
  },
  "models.retrieve": async () => assert.equal((await client.models.retrieve(model)).id, model),
  "chat": async () => {
    const answer = await chat();
    assert.equal(answer.choices[0].message.role, "assistant");
    assert.ok(text(answer));
    const { prompt_tokens, completion_tokens, total_tokens } = answer.usage;
    assert.equal(total_tokens, prompt_tokens + completion_tokens);
  },
  "chat, streamed: the same text": async () => {
    const chunks = await all(await chat({ stream: true }));
    const found = chunks.map((one) => one.choices[0].delta.content ?? "").join("");
    assert.equal(found, text(await chat()));
  },
  "chat, streamed: usage": async () => {
    const chunks = await all(await chat({ stream: true, stream_options: { include_usage: true } }));
    assert.deepEqual(chunks.at(-1).choices, []);
    assert.ok(chunks.at(-1).usage.completion_tokens > 0);
  },
  "chat, streamed: by events": async () => {
    const runner = client.chat.completions.stream({ model, messages, temperature: 0, max_tokens: 8 });
    assert.ok(await runner.finalContent());
  },
  "chat, streamed: left early": async () => {
    const stream = await chat({ stream: true, max_tokens: 200 });
    for await (const _ of stream) break;
  },
  "chat: a conversation": async () => {
    const more = [{ role: "system", content: "Be short." }, ...messages,
      { role: "assistant", content: "A prince." },
      { role: "user", content: [{ type: "text", text: "And?" }] }];
    assert.ok(text(await chat({ messages: more })));
  },
  "chat: the second time from the cache": async () => {
    await chat();
    assert.ok((await chat()).usage.prompt_tokens_details.cached_tokens > 0);
  },
  "chat: max_completion_tokens": async () => {
    const answer = await chat({ max_tokens: undefined, max_completion_tokens: 2 });
    assert.equal(answer.choices[0].finish_reason, "length");
    assert.equal(answer.usage.completion_tokens, 2);
  },
  "chat: stop": async () => {
    const whole = text(await chat());
    const word = whole.trim().split(/\s+/)[1];
    assert.equal(text(await chat({ stop: word })), whole.slice(0, whole.indexOf(word)));
  },
  "chat: seed": async () => {
    const [a, b] = [await chat({ seed: 7, temperature: 1.5 }), await chat({ seed: 7, temperature: 1.5 })];
    assert.equal(text(a), text(b));
  },
  "chat: n = 3": async () => {
    const answer = await chat({ n: 3, seed: 1, temperature: 1.5 });
    assert.deepEqual(answer.choices.map((one) => one.index), [0, 1, 2]);
  },
  "chat: logprobs": async () => {
    const { content } = (await chat({ logprobs: true, top_logprobs: 3 })).choices[0].logprobs;
    assert.ok(content.length > 0);
    for (const one of content) {
      assert.ok(Number.isFinite(one.logprob) && one.logprob <= 0);
      assert.equal(one.top_logprobs.length, 3);
    }
  },
  "chat: json_schema strict": async () =>
    checkPerson(text(await chat({ response_format: format, max_tokens: 120 }))),
  "chat, streamed: json_schema strict": async () => {
    const chunks = await all(await chat({ response_format: format, max_tokens: 120, stream: true }));
    checkPerson(chunks.map((one) => one.choices[0].delta.content ?? "").join(""));
  },
  "chat: tools, one forced": async () =>
    checkWeather((await chat(forced)).choices[0].message.tool_calls[0]),
  "chat: tools, required": async () =>
    checkWeather(
      (await chat({ ...forced, tool_choice: "required" })).choices[0].message.tool_calls[0]),
  "chat, streamed: tools, one forced": async () => {
    const runner = client.chat.completions.stream({ model, messages, temperature: 0, ...forced });
    checkWeather((await runner.finalMessage()).tool_calls[0]);
  },
  "chat: tools, auto": async () => {
    const { message } = (await chat({ tools: [weather] })).choices[0];
    assert.ok(message.content || message.tool_calls);
  },
  "completions": async () => {
    const answer = await client.completions.create({ model, prompt: "Prince", max_tokens: 5 });
    assert.ok(answer.choices[0].text);
  },
  "completions, streamed": async () => {
    const chunks = await all(
      await client.completions.create({ model, prompt: "Prince", max_tokens: 5, stream: true }));
    assert.ok(chunks.map((one) => one.choices[0]?.text ?? "").join(""));
  },
  "embeddings": async () => {
    const { embedding } = (await client.embeddings.create({ model, input: "Pierre" })).data[0];
    assert.ok(Math.abs(embedding.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-3);
  },
  "embeddings: several, of fewer dimensions": async () => {
    const { data } = await client.embeddings.create({ model, input: ["a", "b"], dimensions: 8 });
    assert.deepEqual(data.map((one) => one.embedding.length), [8, 8]);
  },
  "responses": async () => {
    const answer = await client.responses.create(
      { model, input: "Hello", instructions: "Be short.", max_output_tokens: 8 });
    assert.ok(answer.output_text);
    assert.ok(answer.usage.output_tokens > 0);
  },
  "responses, streamed": async () => {
    const events = await all(await client.responses.create(
      { model, input: "Hello", max_output_tokens: 8, stream: true }));
    assert.deepEqual(events.map((one) => one.sequence_number), events.map((_, i) => i));
    assert.ok(["response.completed", "response.incomplete"].includes(events.at(-1).type));
  },
  "responses: tools, one forced": async () => {
    const answer = await client.responses.create({ model, input: "Hello", max_output_tokens: 120,
      tools: [{ type: "function", name: "weather", parameters: place, strict: true }],
      tool_choice: { type: "function", name: "weather" } });
    const call = answer.output.find((one) => one.type === "function_call");
    checkWeather({ function: call });
  },
  "eight at the same time": async () => {
    const answers = await Promise.all(Array.from({ length: 8 }, () => chat()));
    assert.equal(new Set(answers.map(text)).size, 1);
  },
  "error: a model that does not exist": () =>
    refused(() => chat({ model: "no-such-model" }), 404, "no-such-model"),
  "a parameter that does not exist": async () => {
    const body = { model, messages, max_tokens: 5, temperatur: 1 };
    const { response } = await client.chat.completions.create(body).withResponse();
    assert.equal(response.headers.get("x-trinity-ignored"), "temperatur");
  },
  "error: a parameter out of range": () => refused(() => chat({ top_p: 3 }), 400, "top_p"),
  "error: too long a prompt": async () => {
    const long = [{ role: "user", content: "war and peace ".repeat(40000) }];
    const error = await refused(() => chat({ messages: long }), 400, "tokens");
    assert.equal(error.code, "context_length_exceeded");
  },
};

let failed = 0;
for (const [name, call] of Object.entries(calls)) {
  const began = performance.now();
  const error = await call().then(() => null, (error) => error);
  const seconds = ((performance.now() - began) / 1000).toFixed(2).padStart(6);
  console.log(`${error ? "FAIL" : "pass"}  ${seconds} s  ${name}`);
  if (error) {
    failed += 1;
    console.log(`      ${String(error).slice(0, 500)}`);
  }
}
const count = Object.keys(calls).length;
console.log(`${count - failed} of ${count} calls passed`);
process.exitCode = failed ? 1 : 0;
