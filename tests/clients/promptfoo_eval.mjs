// promptfoo: evaluations by its providers for OpenAI's, Ollama's, Anthropic's and llama.cpp's APIs.
// packages: promptfoo@0.123.1 node@22

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chat, embedder, main, row, scripted, scriptedUrl, url } from "./rows.mjs";

const programs = join(dirname(fileURLToPath(import.meta.url)), "node_modules", ".bin");
const home = mkdtempSync(join(tmpdir(), "promptfoo-"));
const openai = { apiBaseUrl: `${scriptedUrl}/v1`, apiKey: "none" };
const providers = {
  "openai:chat": [{ id: `openai:chat:${scripted}`, config: openai }],
  "openai:responses": [{ id: `openai:responses:${scripted}`, config: openai }],
  "anthropic:messages": [
    { id: `anthropic:messages:${scripted}`, config: { apiBaseUrl: scriptedUrl, apiKey: "none" } },
  ],
  "ollama:chat": [{ id: `ollama:chat:${scripted}` }, { OLLAMA_BASE_URL: scriptedUrl }],
  "localai:chat": [{ id: `localai:chat:${scripted}` }, { LOCALAI_BASE_URL: `${scriptedUrl}/v1` }],
  "llama": [{ id: "llama" }, { LLAMA_BASE_URL: scriptedUrl }],
};

async function evaluated(provider, assertion, variables = {}, prompt = "Say hello.") {
  const folder = mkdtempSync(join(tmpdir(), "eval-"));
  const config = join(folder, "config.json"), results = join(folder, "results.json");
  const tests = [{ assert: [assertion] }];
  writeFileSync(config, JSON.stringify({ prompts: [prompt], providers: [provider], tests }));
  const env = {
    ...process.env, ...variables, HOME: home, PROMPTFOO_CONFIG_DIR: home,
    PROMPTFOO_DISABLE_TELEMETRY: "1", PROMPTFOO_DISABLE_UPDATE: "1",
  };
  const words = [join(programs, "promptfoo"), "eval", "-c", config, "-o", results, "--no-cache", "--no-progress-bar"];
  let told = "";
  await new Promise((resolve) => {
    execFile(join(programs, "node"), words, { cwd: folder, env, timeout: 300000 }, (error, output, errors) => {
      told = `${output}\n${errors}`;
      resolve();
    });
  });
  const found = JSON.parse(readFileSync(results, "utf8")).results.results[0];
  assert.ok(found, told.slice(-800));
  assert.ok(found.success, found.error ?? JSON.stringify(found.response));
  return found;
}

for (const [name, [provider, variables]] of Object.entries(providers)) {
  row(name, async () => {
    await evaluated(provider, { type: "contains", value: "Hello!" }, variables);
  });
}

row("similar, by embeddings of openai:embedding", async () => {
  const graded = { id: `openai:embedding:${embedder}`,
    config: { apiBaseUrl: `${url}/v1`, apiKey: "none" } };
  const assertion = { type: "similar", value: "Hello, how can I help?", threshold: 0.5,
    provider: graded };
  await evaluated(providers["openai:chat"][0], assertion);
});

await main();
