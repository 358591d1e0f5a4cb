"""The two servers that client scripts ask: published models, and a model that follows a script."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.models import real_models
from tests import hub_server
from tests.formats.huggingface import rank_models

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
START_SECONDS = 300.0  # the first start compiles kernels
# Names of served models, and what they are called in scripts/models/real_models.py.
PUBLISHED = {"smol": "smollm2", "minilm": "minilm", "gemma": "gemma3-270m"}


def published() -> dict[str, Path]:
    """The published models that are installed, by the name under which they are served."""
    return {
        name: real_models.path_of(model)
        for name, model in PUBLISHED.items()
        if real_models.folder_of(model).is_dir()
    }


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def process(
    command: Sequence[str], port: int, log: Path, variables: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The URL of a server process once it answers; its output goes to ``log``."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    with log.open("wb") as output:
        server = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths, **(variables or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            end = time.monotonic() + START_SECONDS
            while not _answers(f"{url}/health"):
                told = f"the server does not answer: {log.read_text(errors='replace')[-2000:]}"
                assert server.poll() is None, told
                assert time.monotonic() < end, told
                time.sleep(0.2)
            yield url
        finally:
            server.terminate()
            try:
                server.wait(60)
            finally:
                server.kill()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@contextmanager
def serve(log: Path) -> Iterator[str]:
    """``trinity serve`` with the published models, the demo chat model and a random reranker.

    The settings are the defaults but for the seed, since a small model's draws would make rows
    vary, and for pulls, whose hub is a server here with the repository ``trinity/demo``, and for
    models that rows create.
    """
    port, models = free_port(), published()
    command = [sys.executable, "-m", "trinity", "serve", "--port", str(port), "--log-requests"]
    command += ["--seed", "7", "--allow-pull", "--allow-create"]
    for name, path in {**models, "demo": ROOT / "trinity" / "data" / "demo-chat.gguf"}.items():
        command += ["--model", f"{name}={path}"]
    speech = real_models.path_of("whisper-base")
    if (speech / "model.safetensors").is_file():
        command += ["--speech-model", f"whisper={speech}"]
    with hub_server.running() as hub, TemporaryDirectory() as home:
        rank_models.write("qwen3_classifier", Path(home, "ranker"))
        command += ["--model", f"ranker={home}/ranker"]
        demo = (ROOT / "trinity" / "data" / "demo.gguf").read_bytes()
        hub.repositories["trinity/demo"] = hub_server.Repository({"demo.gguf": demo})
        variables = {"HF_ENDPOINT": hub.url, "HF_HOME": home, "TRINITY_STORE": f"{home}/store"}
        with process(command, port, log, variables) as url:
            yield url


@contextmanager
def serve_scripted(log: Path, folder: Path) -> Iterator[str]:
    """The server of scripted.py; its model is written into ``folder``."""
    port = free_port()
    command = [sys.executable, str(HERE / "scripted.py"), str(folder), str(port)]
    with process(command, port, log) as url:
        yield url
