// Qwen Code, a coding agent, through its OpenAI-compatible provider.
// packages: @qwen-code/qwen-code@0.15.10

import assert from "node:assert";
import { execFile } from "node:child_process";
import { existsSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { launched, main, row, scripted, scriptedUrl } from "./rows.mjs";

const program = join(dirname(fileURLToPath(import.meta.url)), "node_modules", ".bin", "qwen");
const home = mkdtempSync(join(tmpdir(), "qwen-"));

function qwen(folder, ...more) {
  const env = {
    ...process.env, HOME: home, OPENAI_API_KEY: "none", OPENAI_BASE_URL: `${scriptedUrl}/v1`,
    OPENAI_MODEL: scripted,
  };
  return ended(folder, program, ["--auth-type", "openai", ...more], env);
}

function ended(folder, program, words, env) {
  const options = { cwd: folder, env, timeout: 300000 };
  return new Promise((resolve, reject) => {
    const child = execFile(program, words, options,
      (error, output, errors) => {
        if (error) reject(new Error(`${output}\n${errors}`.slice(-800)));
        else resolve(output);
      });
    child.stdin.end();
  });
}

row("qwen -p, --auth-type openai", async () => {
  const folder = mkdtempSync(join(tmpdir(), "work-"));
  assert.match(await qwen(folder, "-p", "Say hello."), /Hello! How can I help you today\?/);
});

row("qwen -p --yolo runs a command and reads its output", async () => {
  const folder = mkdtempSync(join(tmpdir(), "work-"));
  const output = await qwen(folder, "--yolo", "-p", "Write the file qwen-note.txt.");
  assert.match(output, /The file qwen-note\.txt is written\./);
  assert.ok(existsSync(join(folder, "qwen-note.txt")));
});

row("trinity launch qwen-code --run", async () => {
  const folder = mkdtempSync(join(tmpdir(), "work-"));
  const environment = { HOME: mkdtempSync(join(tmpdir(), "qwen-")) };
  const here = dirname(fileURLToPath(import.meta.url));
  const words = ["--yolo", "-p", "Write the file qwen-note.txt."];
  const output = await ended(folder, ...launched("qwen-code", here, words, environment));
  assert.match(output, /The file qwen-note\.txt is written\./);
  assert.ok(existsSync(join(folder, "qwen-note.txt")));
});

await main();
