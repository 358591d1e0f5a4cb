// Codex, OpenAI's coding agent: the Responses API with tools that the client runs.
// packages: @openai/codex@0.169.0

import assert from "node:assert";
import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { launched, main, row, scripted, scriptedUrl } from "./rows.mjs";

const program = join(dirname(fileURLToPath(import.meta.url)), "node_modules", ".bin", "codex");
const home = mkdtempSync(join(tmpdir(), "codex-"));
writeFileSync(
  join(home, "config.toml"),
  `model = "${scripted}"
model_provider = "trinity"
[model_providers.trinity]
name = "trinity"
base_url = "${scriptedUrl}/v1"
wire_api = "responses"
`,
);

function codex(folder, ...more) {
  const arguments_ = ["exec", "--skip-git-repo-check", ...more];
  return ended(folder, program, arguments_, { ...process.env, CODEX_HOME: home });
}

function ended(folder, program, arguments_, env) {
  const options = { cwd: folder, env, timeout: 300000 };
  return new Promise((resolve, reject) => {
    const child = execFile(program, arguments_, options, (error, output, errors) => {
      if (error) reject(new Error(`${output}\n${errors}`.slice(-800)));
      else resolve(output);
    });
    child.stdin.end();
  });
}

row("codex exec, wire_api responses", async () => {
  const folder = mkdtempSync(join(tmpdir(), "work-"));
  assert.match(await codex(folder, "Say hello."), /Hello! How can I help you today\?/);
});

row("codex exec runs a command and reads its output", async () => {
  const folder = mkdtempSync(join(tmpdir(), "work-"));
  const output = await codex(
    folder, "--dangerously-bypass-approvals-and-sandbox", "Write the file codex-note.txt.",
  );
  assert.match(output, /The file codex-note\.txt is written\./);
  assert.ok(existsSync(join(folder, "codex-note.txt")));
  assert.equal(readFileSync(join(folder, "codex-note.txt"), "utf8").trim(), "written by codex");
});

row("trinity launch codex --run", async () => {
  const folder = mkdtempSync(join(tmpdir(), "work-"));
  const options = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
    "Write the file codex-note.txt."];
  const environment = { CODEX_HOME: mkdtempSync(join(tmpdir(), "codex-")) };
  const here = dirname(fileURLToPath(import.meta.url));
  const output = await ended(folder, ...launched("codex", here, options, environment));
  assert.match(output, /The file codex-note\.txt is written\./);
  assert.ok(existsSync(join(folder, "codex-note.txt")));
});

await main();
