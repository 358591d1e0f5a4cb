// GitHub Copilot's command line agent with a custom provider, by each of its three APIs.
// packages: @github/copilot@1.0.102

import assert from "node:assert";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { main, row, scripted, scriptedUrl } from "./rows.mjs";

const program = join(dirname(fileURLToPath(import.meta.url)), "node_modules", ".bin", "copilot");
const home = mkdtempSync(join(tmpdir(), "copilot-"));

function copilot(folder, settings, ...words) {
  const env = { ...process.env, HOME: home, COPILOT_OFFLINE: "true", COPILOT_MODEL: scripted };
  const options = { cwd: folder, env: { ...env, ...settings }, timeout: 300000 };
  return new Promise((resolve, reject) => {
    const child = execFile(program, words, options, (error, output, errors) => {
      if (error) reject(new Error(`${output}\n${errors}`.slice(-800)));
      else resolve(output);
    });
    child.stdin.end();
  });
}

const openai = { COPILOT_PROVIDER_BASE_URL: `${scriptedUrl}/v1` };
for (const [name, settings] of [
  ["completions", openai],
  ["responses", { ...openai, COPILOT_PROVIDER_WIRE_API: "responses" }],
  ["anthropic", {
    COPILOT_PROVIDER_TYPE: "anthropic", COPILOT_PROVIDER_BASE_URL: scriptedUrl,
    COPILOT_PROVIDER_API_KEY: "none",
  }],
])
  row(`copilot -p --allow-all-tools by ${name}`, async () => {
    const folder = mkdtempSync(join(tmpdir(), "work-"));
    const words = ["-p", "Write the file copilot-note.txt.", "--allow-all-tools"];
    assert.match(await copilot(folder, settings, ...words), /The file copilot-note\.txt is written\./);
    assert.equal(readFileSync(join(folder, "copilot-note.txt"), "utf8"), "written by copilot\n");
  });

await main();
