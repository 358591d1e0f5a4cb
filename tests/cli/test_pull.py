"""`trinity pull`: downloads, output, and Ctrl-C without losing what is downloaded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub_client import Client, environment
from tests.hub_server import HubServer, Repository, running
from tests.tiny_models import write_tiny_model

pytest.importorskip("huggingface_hub")
PATIENCE = 120


@pytest.fixture(scope="module")
def server() -> Iterator[HubServer]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def client(server: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    found = Client(environment(server.url, tmp_path_factory.mktemp("hub")))
    yield found
    found.close()


def start(server: HubServer, home: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "trinity", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=home,
        env=environment(server.url, home / "hf"),
    )


def trinity(server: HubServer, home: Path, *arguments: str) -> tuple[int, str, str]:
    process = start(server, home, *arguments)
    out, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, out, errors


def test_pull_then_inspect(server: HubServer, client: Client, tmp_path: Path) -> None:
    """A bare name is looked up on the hub; the printed command names the exact file."""
    write_tiny_model(tmp_path / "m.gguf")
    content = (tmp_path / "m.gguf").read_bytes()
    server.repositories["u/pull"] = Repository({"m-Q8_0.gguf": content, "m-q4_k_m.gguf": content})
    code, out, errors = client.run("pull", "u/pull:Q8_0")
    assert (code, out) == (0, "trinity chat --model hf:u/pull:m-Q8_0.gguf\n"), errors
    assert "downloading u/pull:Q8_0: 100%\n" in errors
    code, out, errors = client.run("tokenize", "-m", "hf:u/pull", "hello")
    assert code == 0, errors
    assert out.strip()
    assert "hf:u/pull: using m-q4_k_m.gguf; also available: Q8_0" in errors
    code, out, errors = client.run("inspect", "hf:u/pull:Q3_K_M")
    assert (code, out) == (1, "")
    assert "error: hf:u/pull:Q3_K_M: there is no 'Q3_K_M'; there is: Q8_0, Q4_K_M" in errors


@pytest.mark.full
def test_two_at_once_download_once(server: HubServer, tmp_path: Path) -> None:
    content = os.urandom(1 << 20)
    server.repositories["u/two"] = Repository({"m.gguf": content}, pause=0.2)
    server.requests.clear()
    both = [start(server, tmp_path, "pull", "hf:u/two") for _ in range(2)]
    ends = [process.communicate(timeout=PATIENCE) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert len(server.asked("GET", "/cdn/")) == 1
    (blob,) = (tmp_path / "hf" / "hub" / "models--u--two" / "blobs").iterdir()
    assert blob.read_bytes() == content


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("model.gguf", "error: model.gguf: 'model.gguf' is not the name of a repository"),
        ("ollama:m", "error: ollama:m: `ollama pull m` downloads models for Ollama"),
    ],
)
def test_names_that_are_not_the_hubs(client: Client, name: str, what: str) -> None:
    code, out, errors = client.run("pull", name)
    assert (code, out) == (1, "")
    assert what in errors


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_ends_at_once_and_the_download_goes_on(server: HubServer, tmp_path: Path) -> None:
    content = os.urandom(1 << 21)
    repository = Repository({"m.gguf": content}, pause=0.5)
    server.repositories["u/slow"] = repository
    process = start(server, tmp_path, "pull", "hf:u/slow")
    blobs = tmp_path / "hf" / "hub" / "models--u--slow" / "blobs"
    until = time.monotonic() + PATIENCE
    while not any(path.stat().st_size for path in blobs.glob("*.incomplete")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    assert "Traceback" not in process.communicate()[1]
    (unfinished,) = blobs.glob("*.incomplete")
    have = unfinished.stat().st_size
    assert 0 < have < len(content)
    assert unfinished.read_bytes() == content[:have]
    repository.pause = 0
    server.requests.clear()
    code, _, errors = trinity(server, tmp_path, "pull", "hf:u/slow")
    assert code == 0, errors
    assert [one.get("range") for one in server.asked("GET", "/cdn/")] == [f"bytes={have}-"]
    (blob,) = blobs.iterdir()
    assert blob.read_bytes() == content
