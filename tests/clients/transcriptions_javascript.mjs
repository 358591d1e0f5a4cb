// Transcriptions by the openai package of npm, and by the AI SDK's OpenAI provider.
// packages: openai@6.49.0 ai@6 @ai-sdk/openai@3.0.141

import assert from "node:assert";
import { createReadStream, readFileSync } from "node:fs";
import { createOpenAI } from "@ai-sdk/openai";
import { experimental_transcribe as transcribe } from "ai";
import OpenAI from "openai";
import { main, row, speech, url } from "./rows.mjs";

const clip = `${process.env.TRINITY_SPOKEN ?? "tests/data/real/spoken"}/en2.opus`;
const words = /leave your coat by the door/;

row("openai audio.transcriptions", async () => {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
  const made = await client.audio.transcriptions.create(
    { model: speech, file: createReadStream(clip), language: "en" },
  );
  assert.match(made.text, words);
});

row("AI SDK transcribe", async () => {
  const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
  const made = await transcribe(
    { model: openai.transcription(speech), audio: readFileSync(clip), maxRetries: 0 },
  );
  assert.match(made.text, words);
});

await main();
