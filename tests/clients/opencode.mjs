// opencode, a coding agent, through @ai-sdk/openai-compatible.
// packages: opencode-ai@1.18.33

import assert from "node:assert";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { launched, main, row, scripted, scriptedUrl } from "./rows.mjs";

const program = join(dirname(fileURLToPath(import.meta.url)), "node_modules", ".bin", "opencode");
const home = mkdtempSync(join(tmpdir(), "opencode-"));
const config = {
  $schema: "https://opencode.ai/config.json",
  provider: {
    trinity: {
      npm: "@ai-sdk/openai-compatible",
      name: "trinity",
      options: { baseURL: `${scriptedUrl}/v1` },
      models: { [scripted]: { name: scripted } },
    },
  },
  model: `trinity/${scripted}`,
  permission: "allow",
};

function opencode(...more) {
  const folder = mkdtempSync(join(tmpdir(), "work-"));
  writeFileSync(join(folder, "opencode.json"), JSON.stringify(config));
  const env = { ...process.env, HOME: home, PWD: folder, OPENCODE_DISABLE_MODELS_FETCH: "1" };
  return ended(folder, program, ["run", "-m", `trinity/${scripted}`, ...more], env);
}

function ended(folder, program, words, env) {
  const options = { cwd: folder, env, stdio: ["ignore", "pipe", "pipe"], timeout: 300000 };
  return new Promise((resolve, reject) => {
    const child = spawn(program, words, options);
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (output += text));
    child.on("close", (code) => {
      if (code) reject(new Error(output.slice(-800)));
      else resolve({ folder, output });
    });
  });
}

row("opencode run, @ai-sdk/openai-compatible", async () => {
  const { output } = await opencode("Say hello.");
  assert.match(output, /Hello! How can I help you today\?/);
});

row("opencode run runs a command and reads its output", async () => {
  const { folder, output } = await opencode("Write the file opencode-note.txt.");
  assert.match(output, /The file opencode-note\.txt is written\./);
  assert.ok(existsSync(join(folder, "opencode-note.txt")));
});

row("trinity launch opencode --run", async () => {
  const folder = mkdtempSync(join(tmpdir(), "work-"));
  const environment = { HOME: mkdtempSync(join(tmpdir(), "opencode-")), PWD: folder,
    OPENCODE_DISABLE_MODELS_FETCH: "1" };
  const here = dirname(fileURLToPath(import.meta.url));
  const words = ["run", "Write the file opencode-note.txt."];
  const { output } = await ended(folder, ...launched("opencode", here, words, environment));
  assert.match(output, /The file opencode-note\.txt is written\./);
  assert.ok(existsSync(join(folder, "opencode-note.txt")));
});

await main();
