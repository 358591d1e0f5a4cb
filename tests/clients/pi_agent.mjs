// pi, a coding agent, by chat completions, by responses and by Anthropic's messages.
// packages: @mariozechner/pi-coding-agent@0.73.1

import assert from "node:assert";
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { main, row, scripted, scriptedUrl } from "./rows.mjs";

const program = join(dirname(fileURLToPath(import.meta.url)), "node_modules", ".bin", "pi");
const apis = ["openai-completions", "openai-responses", "anthropic-messages"];
const home = mkdtempSync(join(tmpdir(), "pi-"));
mkdirSync(join(home, ".pi", "agent"), { recursive: true });
writeFileSync(join(home, ".pi", "agent", "models.json"), JSON.stringify({
  providers: Object.fromEntries(apis.map((api) => [api, {
    baseUrl: api.startsWith("openai") ? `${scriptedUrl}/v1` : scriptedUrl,
    api, apiKey: "none", models: [{ id: scripted }],
  }])),
}));

function pi(folder, api, text) {
  const words = ["--provider", api, "--model", scripted, "-p", text];
  const options = { cwd: folder, env: { ...process.env, HOME: home }, timeout: 300000 };
  return new Promise((resolve, reject) => {
    const child = execFile(program, words, options, (error, output, errors) => {
      if (error) reject(new Error(`${output}\n${errors}`.slice(-800)));
      else resolve(output);
    });
    child.stdin.end();
  });
}

for (const api of apis) {
  row(`pi -p, ${api}`, async () => {
    const folder = mkdtempSync(join(tmpdir(), "work-"));
    assert.match(await pi(folder, api, "Say hello."), /Hello! How can I help you today\?/);
  });

  row(`pi -p writes a file, ${api}`, async () => {
    const folder = mkdtempSync(join(tmpdir(), "work-"));
    const output = await pi(folder, api, "Write the file pi-note.txt.");
    assert.match(output, /The file pi-note\.txt is written\./);
    assert.equal(readFileSync(join(folder, "pi-note.txt"), "utf8").trim(), "written by pi");
  });
}

await main();
