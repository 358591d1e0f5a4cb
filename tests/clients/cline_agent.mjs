// Cline, a coding agent, through its OpenAI-compatible provider.
// packages: cline@3.0.65

import assert from "node:assert";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { main, row, scripted, scriptedUrl } from "./rows.mjs";

const program = join(dirname(fileURLToPath(import.meta.url)), "node_modules", ".bin", "cline");
const home = mkdtempSync(join(tmpdir(), "cline-"));

function cline(folder, ...words) {
  const options = { cwd: folder, env: { ...process.env, HOME: home }, timeout: 300000 };
  return new Promise((resolve, reject) => {
    const child = execFile(program, words, options, (error, output, errors) => {
      if (error) reject(new Error(`${output}\n${errors}`.slice(-800)));
      else resolve(output);
    });
    child.stdin.end();
  });
}

row("cline auth and a task", async () => {
  const folder = mkdtempSync(join(tmpdir(), "work-"));
  await cline(folder, "auth", "-p", "openai", "-k", "none", "-m", scripted, "-b",
    `${scriptedUrl}/v1`);
  assert.match(await cline(folder, "Say hello."), /Hello! How can I help you today\?/);
});

row("a task runs a command and reads its output", async () => {
  const folder = mkdtempSync(join(tmpdir(), "work-"));
  const output = await cline(folder, "Write the file cline-note.txt.");
  assert.match(output, /The file cline-note\.txt is written\./);
  const written = readFileSync(join(folder, "cline-note.txt"), "utf8");
  assert.equal(written.trim(), "written by cline");
});

await main();
