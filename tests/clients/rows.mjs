// The rows of a client script in JavaScript; see rows.py. A script names its packages in a line
// `// packages: openai@6.49.0 zod@4`, declares rows with `row(name, async () => ...)`, and ends
// with `await main()`.

export const url = process.env.TRINITY_URL ?? "http://127.0.0.1:8080";
export const scriptedUrl = process.env.TRINITY_SCRIPTED_URL ?? "http://127.0.0.1:8081";
export const [chat, demo, embedder, speech, scripted] =
  ["smol", "demo", "minilm", "whisper", "scripted"];

// The command `trinity launch --run`, its arguments and environment; the program must be in the PATH.
export function launched(program, folder, options, environment = {}) {
  const path = `${folder}/node_modules/.bin:${process.env.PATH}`;
  const words = ["-m", "trinity", "launch", program, "--run", "--url", scriptedUrl, "--", ...options];
  const env = { ...process.env, PYTHONPATH: process.env.TRINITY_PYTHONPATH, PATH: path, ...environment };
  return [process.env.TRINITY_PYTHON, words, env];
}

const rows = new Map();

export function row(name, run, { excused = null } = {}) {
  if (rows.has(name)) throw new Error(`two rows are called ${name}`);
  rows.set(name, { run, excused });
}

export async function main() {
  const wanted = process.argv.slice(2);
  for (const [name, { run, excused }] of rows) {
    if (wanted.length && !wanted.includes(name)) continue;
    const began = performance.now();
    let error = null;
    try {
      await run();
    } catch (failure) {
      error = `${failure?.stack ?? failure}`.slice(0, 1000);
    }
    const seconds = Math.round((performance.now() - began) / 10) / 100;
    // A client may have left an unfinished line.
    console.log(`\n${JSON.stringify({ row: name, error, excused, seconds })}`);
  }
  process.exit(0); // clients may keep connections open
}
