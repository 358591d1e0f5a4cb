// Genkit: its plugin for Ollama, and its plugin for OpenAI-compatible servers.
// packages: genkit@1.42.0 genkitx-ollama@1.42.0 @genkit-ai/compat-oai@1.42.0

import assert from "node:assert";
import { openAICompatible } from "@genkit-ai/compat-oai";
import { genkit, z } from "genkit";
import { ollama } from "genkitx-ollama";
import { chat, embedder, main, row, scripted, scriptedUrl, url } from "./rows.mjs";

const person = z.object({ name: z.string(), age: z.number() });

function made(kind, address, names) {
  if (kind === "ollama") {
    const models = names.map((name) => ({ name, type: "chat", supports: { tools: true } }));
    const embedders = [{ name: embedder, dimensions: 384 }];
    return genkit({ plugins: [ollama({ models, embedders, serverAddress: address })] });
  }
  const options = { name: "openai", apiKey: "none", baseURL: `${address}/v1` };
  return genkit({ plugins: [openAICompatible(options)] });
}

function weather(ai) {
  const about = {
    name: "get_weather", description: "The weather of a city.",
    inputSchema: z.object({ city: z.string() }), outputSchema: z.string(),
  };
  return ai.defineTool(about, async ({ city }) => `18 degrees in ${city}`);
}

for (const kind of ["ollama", "openai"]) {
  const small = made(kind, url, [chat]), large = made(kind, scriptedUrl, [scripted]);
  const tool = weather(large);

  row(`${kind} generate`, async () => {
    const { text } = await small.generate({ model: `${kind}/${chat}`, prompt: "Say hello." });
    assert.ok(text);
  });

  row(`${kind} generateStream`, async () => {
    const { stream, response } = large.generateStream({
      model: `${kind}/${scripted}`, prompt: "Say hello.",
    });
    let found = "";
    for await (const part of stream) found += part.text;
    assert.equal(found, "Hello! How can I help you today?");
    assert.equal((await response).text, found);
  });

  row(`${kind} system, history, options`, async () => {
    const { text } = await small.generate({
      model: `${kind}/${chat}`, system: "Be short.", prompt: "And?",
      config: { temperature: 0.5, topP: 0.9, stopSequences: ["\n\n\n"] },
      messages: [{ role: "user", content: [{ text: "Hi." }] },
        { role: "model", content: [{ text: "Hello." }] }],
    });
    assert.ok(text);
  });

  row(`${kind} structured output`, async () => {
    const { output } = await large.generate({
      model: `${kind}/${scripted}`, prompt: "A Person called Ann as JSON, please.",
      output: { schema: person },
    });
    assert.deepEqual(output, { name: "Ann", age: 40 });
  });

  row(`${kind} tools`, async () => {
    const { text } = await large.generate({
      model: `${kind}/${scripted}`, prompt: "What is the weather in Paris?", tools: [tool],
    });
    assert.equal(text, "It is 18 degrees in Paris.");
  });
}

row("ollama embed", async () => {
  const ai = made("ollama", url, [chat]);
  const [found] = await ai.embed({ embedder: `ollama/${embedder}`, content: "Hello" });
  assert.equal(found.embedding.length, 384);
});

await main();
