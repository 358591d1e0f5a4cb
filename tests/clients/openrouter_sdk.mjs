// OpenRouter's SDK with another server's address: chat completions, responses and embeddings.
// packages: @openrouter/sdk@1.3.19

import assert from "node:assert";
import { OpenRouter } from "@openrouter/sdk";
import { embedder, main, row, scripted, scriptedUrl, url } from "./rows.mjs";

const client = new OpenRouter({ serverURL: `${scriptedUrl}/v1`, apiKey: "none" });
const hello = "Hello! How can I help you today?";
const chatRequest = { model: scripted, messages: [{ role: "user", content: "Say hello." }] };
const asked = { model: scripted, input: "Say hello." };

row("chat.send", async () => {
  const found = await client.chat.send({ chatRequest });
  assert.equal(found.choices[0].message.content, hello);
});

row("chat.send stream", async () => {
  let text = "";
  for await (const chunk of await client.chat.send({ chatRequest: { ...chatRequest, stream: true } }))
    text += chunk.choices[0]?.delta.content ?? "";
  assert.equal(text, hello);
});

row("callModel getText", async () => {
  assert.equal(await client.callModel(asked).getText(), hello);
});

row("callModel getTextStream", async () => {
  let text = "";
  for await (const part of client.callModel(asked).getTextStream()) text += part;
  assert.equal(text, hello);
});

row("embeddings.generate", async () => {
  const other = new OpenRouter({ serverURL: `${url}/v1`, apiKey: "none" });
  const found = await other.embeddings.generate({ requestBody: { model: embedder, input: "hi" } });
  assert.equal(found.data[0].embedding.length, 384);
});

await main();
