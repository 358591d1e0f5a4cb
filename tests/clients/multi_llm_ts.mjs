// multi-llm-ts, the library of Witsy: its engines for OpenAI, Ollama, LM Studio and Anthropic
// packages: multi-llm-ts@5.1.1

import { igniteEngine, loadModels, Message } from "multi-llm-ts";
import assert from "node:assert";
import { chat, embedder, main, row, url } from "./rows.mjs";

const engines = {
  openai: { apiKey: "none", baseURL: `${url}/v1` },
  ollama: { baseURL: url },
  lmstudio: { baseURL: `${url}/v1` },
  anthropic: { apiKey: "none", baseURL: url },
};
const hello = [new Message("system", "Be short."), new Message("user", "Say hello.")];

for (const [name, settings] of Object.entries(engines)) {
  row(`${name}: models`, async () => {
    const found = await loadModels(name, settings);
    assert(found.chat.some((one) => one.id === chat), JSON.stringify(found));
    if (name === "ollama") assert(found.embedding.some((one) => one.id === embedder));
  });

  row(`${name}: complete and generate`, async () => {
    const engine = igniteEngine(name, settings);
    const model = engine.buildModel(chat);
    assert((await engine.complete(model, hello, { maxTokens: 8 })).content);
    let text = "";
    for await (const chunk of engine.generate(model, hello, { maxTokens: 8 })) {
      if (chunk.type === "content") text += chunk.text;
    }
    assert(text);
  });
}

await main();
