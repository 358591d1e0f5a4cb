"""Random requests, good and bad, to `trinity serve`, whose every answer must be as documented.

    pip install schemathesis
    python scripts/check_api.py
    python scripts/check_api.py --openai openapi.json

A server of the demo model is started. schemathesis makes requests of the server's own document, and
with --openai of OpenAI's as well: what that allows must be answered by its schemas, or refused by
name.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
# A schema cannot say what fits the context, which names and tokens exist, or what excludes what.
OURS = ["--exclude-checks", "positive_data_acceptance"]
OPENAIS = ["--mode", "positive", "--checks", "not_a_server_error,fits_openai,refusals_say_why"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=120, help="most random ones of an operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--path", action="append", default=[], help="only these")
    parser.add_argument("--openai", type=Path, help="OpenAI's document, openapi.json")
    parser.add_argument("--only-openai", action="store_true", help="not the server's own document")
    given = parser.parse_args()
    usual = ["--phases", "coverage,fuzzing", "--continue-on-failure", "--no-color",
             "--request-timeout", "60", "--generation-database", "none",
             "--max-examples", str(given.cases), "--seed", str(given.seed)]  # fmt: skip
    for path in given.path:
        usual += ["--include-path", path]
    environment = dict(os.environ)
    if given.openai is not None:
        environment["OPENAI_DOCUMENT"] = str(given.openai.resolve())
        environment["SCHEMATHESIS_HOOKS"] = str(ROOT / "scripts" / "api_checks.py")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        if not given.only_openai:
            with server() as url:
                options = [f"{url}/openapi.json", *OURS, *usual]
                failed |= run("the server's own document", options, folder, environment)
        if given.openai is not None:
            from scripts.openai_document import OpenAIDocument

            cut = Path(folder) / "openai.json"
            cut.write_text(json.dumps(OpenAIDocument(given.openai).document()), encoding="utf-8")
            with server("--any-model-name") as url:
                options = [str(cut), "--url", f"{url}/v1", *OPENAIS, *usual]
                failed |= run("OpenAI's document", options, folder, environment)
    return int(failed)


@contextmanager
def server(*flags: str) -> Iterator[str]:
    """The URL of a server of the demo model, with few tokens for each answer."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")])
    started = subprocess.Popen(
        [sys.executable, "-m", "trinity", "serve", "--port", "0", "--max-tokens", "8",
         "--request-seconds", "60", *flags],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert started.stderr is not None
    told = iter(started.stderr)
    try:
        url = next(found[1] for line in told if (found := re.match(r"listening on (\S+)", line)))
        threading.Thread(target=lambda: sys.stderr.writelines(told), daemon=True).start()
        yield url
        assert started.poll() is None, "the server has ended"
    finally:
        started.terminate()
        started.wait()


def run(what: str, options: Sequence[str], folder: str, environment: dict[str, str]) -> bool:
    """Run schemathesis and say what it found. Whether there were failures."""
    report = Path(folder) / "report.json"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "schemathesis.cli", "run", *options,
               "--report-json-path", str(report)]  # fmt: skip
    # Not in a folder from which it could read settings or modules.
    done = subprocess.run(command, env={**environment, "PYTHONPATH": ""}, cwd=folder, check=False)
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    cases, operations = found["test_cases"], found["operations"]
    print(
        f"{what}: {operations['tested']} of {operations['total']} operations, "
        f"{cases['generated']} cases, {cases['with_failures']} with failures, "
        f"{cases['errored']} errors",
        flush=True,
    )
    return done.returncode != 0 or bool(cases["with_failures"])


if __name__ == "__main__":
    sys.exit(main())
