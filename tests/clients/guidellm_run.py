"""guidellm: benchmarks over chat completions, completions and responses."""

# packages: guidellm==0.8.1

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rows import SCRIPTED, SCRIPTED_URL, main, row

REQUESTS = 3


def benchmark(request_format: str, *profile: str) -> None:
    folder = Path(tempfile.mkdtemp())
    prompts = [{"prompt": f"Say hello {number}."} for number in range(REQUESTS)]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, prompts)), encoding="utf-8")
    backend = (
        f"kind=openai_http,target={SCRIPTED_URL},model={SCRIPTED},request_format={request_format}"
    )
    command = [
        str(Path(sys.executable).parent / "guidellm"), "run", "--backend", backend,
        "--profile", *(profile or ("kind=synchronous",)),
        "--constraint", f"kind=max_requests,count={REQUESTS}",
        "--data", f"kind=json_file,path={folder / 'data.jsonl'}",
        "--output", f"kind=json,path={folder / 'out.json'}", "--disable-console",
    ]  # fmt: skip
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HOME": str(folder)}
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stderr[-800:]
    (one,) = json.loads((folder / "out.json").read_text(encoding="utf-8"))["benchmarks"]
    totals = one["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (REQUESTS, 0), totals


@row("run, chat completions")
def _() -> None:
    benchmark("/v1/chat/completions")


@row("run, completions")
def _() -> None:
    benchmark("/v1/completions")


@row("run, responses")
def _() -> None:
    benchmark("/v1/responses")


@row("run, 2 concurrent")
def _() -> None:
    benchmark("/v1/chat/completions", "kind=concurrent,streams=2")


if __name__ == "__main__":
    main()
