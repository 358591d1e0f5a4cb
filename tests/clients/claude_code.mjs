// Claude Code, with ANTHROPIC_BASE_URL.

// packages: @anthropic-ai/claude-code@2.1.197

import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { launched, main, row, scripted, scriptedUrl } from "./rows.mjs";

const run = promisify(execFile);
const folder = fileURLToPath(new URL("node_modules/@anthropic-ai/claude-code", import.meta.url));
// npm may leave out a package's own installation script, which puts the program into its place.
execFileSync("node", [join(folder, "install.cjs")], { stdio: "ignore" });
const program = join(folder, "bin", "claude.exe");
const bin = fileURLToPath(new URL(".", import.meta.url));
const home = mkdtempSync(join(tmpdir(), "claude-home-"));
const project = mkdtempSync(join(tmpdir(), "claude-project-"));
const env = { PATH: process.env.PATH, HOME: home, ANTHROPIC_BASE_URL: scriptedUrl,
  ANTHROPIC_API_KEY: "none", ANTHROPIC_MODEL: scripted };

async function claude(...options) {
  return claudeIn(env, ...options);
}

async function claudeIn(env, ...options) {
  return ended(program, options, env);
}

async function ended(program, options, env) {
  const started = run(program, options, { cwd: project, env, timeout: 300_000 });
  started.child.stdin.end();
  return (await started).stdout.trim();
}

row("claude -p, ANTHROPIC_BASE_URL", async () => {
  assert.equal(await claude("-p", "hi"), "Hello! How can I help you today?");
});

row("claude -p --output-format json", async () => {
  const found = JSON.parse(await claude("-p", "hi", "--output-format", "json"));
  assert.equal(found.result, "Hello! How can I help you today?");
  assert.equal(found.is_error, false);
  assert(found.usage.cache_read_input_tokens > 10_000, "the prompt was not found in the cache");
});

row("claude -p with Bash", async () => {
  const found = await claude("-p", "Write forty-two into answer.txt.", "--allowedTools", "Bash");
  assert.equal(found, "answer.txt now has 42.");
  assert.equal(readFileSync(join(project, "answer.txt"), "utf8"), "42\n");
});

row("claude -p with Read, and a conversation that is continued", async () => {
  writeFileSync(join(project, "secret.txt"), "the word is zebra\n");
  const found = await claude("-p", "Which word is in secret.txt?", "--continue",
    "--allowedTools", "Read");
  assert.equal(found, "The word is zebra.");
});

row("claude -p without a model's name", async () => {
  const { ANTHROPIC_MODEL, ...less } = env;
  assert.equal(await claudeIn(less, "-p", "hi"), "Hello! How can I help you today?");
});

row("trinity launch claude --run", async () => {
  const options = ["-p", "Write forty-two into answer.txt.", "--allowedTools", "Bash"];
  const found = await ended(...launched("claude", bin, options, { HOME: home }));
  assert.equal(found, "answer.txt now has 42.");
});

await main();
