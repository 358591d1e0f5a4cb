"""Send random valid and invalid requests to `trinity serve` and check its responses.

    pip install schemathesis
    python tests/fuzzing/check_api.py
    python tests/fuzzing/check_api.py --openai openapi.json

Servers with everything turned on are started: of the demo model, of a small reranker and of a small
classifier. schemathesis makes requests of the server's own document, and
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
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
# A schema cannot say what fits the context, which names and tokens exist, or what excludes what.
NOT_CHECKED = "positive_data_acceptance"
# The first models of servers for some paths; the others get the demo model.
FIRST = {
    "qwen3_classifier": re.compile(r"(/v[12])?/(rerank|reranking|score)"),
    "qwen3_labels": re.compile(r"(/v1)?/classify"),
}
DEMO = "demo"
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
             "--request-timeout", "600", "--generation-database", "none",
             "--max-examples", str(given.cases), "--seed", str(given.seed)]  # fmt: skip
    environment, excluded = dict(os.environ), NOT_CHECKED
    if given.openai is not None:
        environment["OPENAI_DOCUMENT"] = str(given.openai.resolve())
        environment["SCHEMATHESIS_HOOKS"] = str(ROOT / "tests" / "fuzzing" / "api_checks.py")
        # Bodies that are no requests at all have no parameter to name.
        excluded += ",refusals_say_why"
    counts = Counts()
    wanted = {first_model(path) for path in given.path} or {DEMO, *FIRST}
    for first in sorted(wanted) if not given.only_openai else ():
        with TemporaryDirectory() as name, server(Path(name), first) as url:
            for path in paths_of(url):
                if first_model(path) != first or (given.path and path not in given.path):
                    continue
                options = [f"{url}/openapi.json", *usual, "--include-path", path,
                           "--exclude-checks", excluded]  # fmt: skip
                counts.add(path, run(options, Path(name), environment))
    if given.openai is not None:
        with TemporaryDirectory() as name, server(Path(name), DEMO) as url:
            folder = Path(name)
            from tests.fuzzing.openai_document import OpenAIDocument

            document = OpenAIDocument(given.openai).document()
            cut = folder / "openai.json"
            cut.write_text(json.dumps(document), encoding="utf-8")
            for path in document["paths"]:
                if given.path and f"/v1{path}" not in given.path:
                    continue
                options = [str(cut), "--url", f"{url}/v1", *OPENAIS, *usual, "--include-path", path]
                counts.add(f"OpenAI's {path}", run(options, folder, environment))
    print(f"{counts.cases} cases, {counts.failed} with failures")
    return int(counts.failed > 0)


@dataclass
class Counts:
    """The number of requests and of wrong responses."""

    cases: int = 0
    failed: int = 0

    def add(self, what: str, report: dict[str, Any]) -> None:
        """Add a run's counts and print them."""
        cases = report["test_cases"]
        wrong = cases["with_failures"] + cases["errored"] + len(report["errors"])
        if not report["complete"] or report["stop_reason"] != "completed":
            wrong += 1
        self.cases += cases["generated"]
        self.failed += wrong
        print(f"{cases['generated']:6} cases, {wrong} with failures: {what}", flush=True)


def paths_of(url: str) -> list[str]:
    """Return the paths of a server's document, without that of a stream that does not end."""
    with urllib.request.urlopen(f"{url}/openapi.json") as answer:
        return [path for path in json.load(answer)["paths"] if path != "/models/sse"]


def first_model(path: str) -> str:
    """Return the first model of the server that is asked under a path."""
    return next((name for name, paths in FIRST.items() if paths.fullmatch(path)), DEMO)


@contextmanager
def server(folder: Path, first: str) -> Iterator[str]:
    """Yield the URL of a server with short responses; ``first`` is its first model."""
    from tests import hub_server
    from tests.formats.huggingface.rank_models import write
    from tests.fuzzing.live_server import sound_whisper

    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")])
    model = ROOT / "trinity" / "data" / "demo-chat.gguf"
    if first != DEMO:
        model = write(first, folder / first)
    (folder / "slots").mkdir()
    (folder / "whisper.gguf").write_bytes(sound_whisper())
    options = [
        "--port", "0", "--max-tokens", "8", "--model", f"first={model}",
        "--request-seconds", "600", "--any-model-name", "--slot-save-path", f"{folder}/slots",
        "--state", f"{folder}/state", "--speech-model", f"{folder}/whisper.gguf",
        "--allow-create", "--allow-pull",
    ]  # fmt: skip
    with hub_server.running() as hub:
        variables = {
            "PYTHONPATH": paths, "TRINITY_STORE": f"{folder}/store", "HF_HOME": f"{folder}/hub",
            "OLLAMA_MODELS": f"{folder}/ollama", "HF_ENDPOINT": hub.url,
        }  # fmt: skip
        yield from _running(options, {**os.environ, **variables})


def _running(options: Sequence[str], environment: dict[str, str]) -> Iterator[str]:
    started = subprocess.Popen(
        [sys.executable, "-m", "trinity", "serve", *options],
        stderr=subprocess.PIPE, text=True, env=environment,
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


def run(options: Sequence[str], folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Run schemathesis, which prints what is wrong; return its report."""
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "schemathesis.cli", "run", *options,
               "--report-json-path", str(report)]  # fmt: skip
    # Not in a folder from which it could read settings or modules.
    done = subprocess.run(
        command, env={**environment, "PYTHONPATH": ""}, cwd=folder, check=False,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    if done.returncode:
        print(done.stdout, flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
