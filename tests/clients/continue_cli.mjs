// Continue's command line agent, by its OpenAI, Ollama and Anthropic providers.
// packages: @continuedev/cli@1.5.47

import assert from "node:assert";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { main, row, scripted, scriptedUrl } from "./rows.mjs";

const program = join(dirname(fileURLToPath(import.meta.url)), "node_modules", ".bin", "cn");
const addresses = {
  openai: `${scriptedUrl}/v1`, ollama: scriptedUrl, anthropic: `${scriptedUrl}/v1`,
};

function cn(folder, provider, text) {
  const home = mkdtempSync(join(tmpdir(), "cn-")), config = join(home, "config.yaml");
  writeFileSync(config, JSON.stringify({ // YAML takes JSON
    name: "local", version: "0.0.1", schema: "v1",
    models: [{ name: "Scripted", provider, model: scripted, apiBase: addresses[provider],
      apiKey: "none", roles: ["chat"], capabilities: ["tool_use"] }],
  }));
  const options = { cwd: folder, env: { ...process.env, HOME: home }, timeout: 300000 };
  return new Promise((resolve, reject) => {
    const words = ["--config", config, "--auto", "-p", text];
    const child = execFile(program, words, options, (error, output, errors) => {
      if (error) reject(new Error(`${output}\n${errors}`.slice(-800)));
      else resolve(output);
    });
    child.stdin.end();
  });
}

for (const provider of Object.keys(addresses)) {
  row(`cn -p, ${provider}`, async () => {
    const folder = mkdtempSync(join(tmpdir(), "work-"));
    assert.match(await cn(folder, provider, "Say hello."), /Hello! How can I help you today\?/);
  });

  row(`cn -p runs a command, ${provider}`, async () => {
    const folder = mkdtempSync(join(tmpdir(), "work-"));
    const output = await cn(folder, provider, "Write the file cn-note.txt.");
    assert.match(output, /The file cn-note\.txt is written\./);
    assert.equal(readFileSync(join(folder, "cn-note.txt"), "utf8").trim(), "written by cn");
  });
}

await main();
