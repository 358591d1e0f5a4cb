"""The server as a process behind a socket: OpenAI's clients, signals, idle cost."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from starlette.testclient import TestClient

import trinity
from tests.processor_time import within
from tests.server.conftest import LIMIT, MakeApp, is_idle, socket_server, wait_for
from trinity.errors import InputError
from trinity.model import Model
from trinity.server import serving
from trinity.server.app import make_app
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.settings import ServerOptions
from trinity.server.transport import connection

ROOT = Path(__file__).resolve().parents[2]
FULL = pytest.mark.full
# Without --model the demo is served, whatever models this machine has.
NO_MODELS = {"HF_HUB_CACHE": "/no/such/folder", "OLLAMA_MODELS": "/no/such/folder"}
MESSAGES = [{"role": "user", "content": "Who was he?"}]


@contextmanager
def process(*flags: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a server of the command line and return its URL as soon as it listens."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")])
    started = subprocess.Popen(
        [sys.executable, "-m", "trinity", "serve", "--port", "0", "-t", "1", *flags],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **NO_MODELS, "PYTHONPATH": paths, **environment},
    )
    assert started.stderr is not None
    try:
        url = ""
        for line in started.stderr:
            found = re.match(r"listening on (http://\S+)", line)
            if found:
                url = found[1]
                break
        assert url
        # What it says later must not fill the pipe.
        reader = threading.Thread(target=started.stderr.read)
        reader.start()
        yield started, url
    finally:
        started.kill()
        started.wait()
        if url:
            reader.join()
        started.stderr.close()


def until_ready(url: str) -> None:
    wait_for(lambda: httpx.get(f"{url}/health", timeout=LIMIT).status_code == 200)


def test_openais_client(url: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=LIMIT, max_retries=0)
    answer = client.chat.completions.create(
        model="demo", messages=MESSAGES, max_tokens=8, n=2, logprobs=True, top_logprobs=2,  # type: ignore[arg-type]
    )  # fmt: skip
    assert len(answer.choices) == 2
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    events = client.chat.completions.create(
        model="demo", messages=MESSAGES, max_tokens=8, stream=True,  # type: ignore[arg-type]
        stream_options={"include_usage": True}, temperature=0,
    )  # fmt: skip
    found = list(events)
    assert found[-1].usage is not None
    assert found[-1].usage.completion_tokens == 8
    text = client.completions.create(model="demo", prompt="Prince", max_tokens=4, echo=True)
    assert text.choices[0].text.startswith("Prince")
    assert [one.id for one in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").id == "demo"
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="demo", messages=MESSAGES, temperature=-1)  # type: ignore[arg-type]
    assert refused.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as unknown:
        client.completions.create(model="other", prompt="x")
    assert unknown.value.code == "model_not_found"


@pytest.mark.parametrize("stream", [True, False])
def test_requirement_1_a_closed_socket_ends_the_sequence(
    stream: bool, url: str, model: Model
) -> None:
    """Completions that ran to their end would be counted."""
    counted = generated(url)
    # Enough work that the client leaves before it is done.
    body = {"messages": MESSAGES, "max_tokens": 400, "ignore_eos": True, "n": 16, "stream": stream}
    text = json.dumps(body).encode()
    place = httpx.URL(url)
    with socket.create_connection((place.host, place.port or 80), timeout=LIMIT) as client:
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}"
        )
        client.sendall(head.encode() + b"\r\n\r\n" + text)
        wait_for(lambda: model.scheduler_stats().running > 0)
    wait_for(lambda: is_idle(model))
    assert generated(url) == counted


def generated(url: str) -> list[str]:
    """Return the metrics' lines about tokens of completed responses."""
    lines = httpx.get(f"{url}/metrics", timeout=LIMIT).text.splitlines()
    return [line for line in lines if line.startswith("trinity_generated_tokens_total")]


def test_requests_may_be_hostile(url: str) -> None:
    """Bytes that are not HTTP end their connection, not the server."""
    port = int(url.rsplit(":", 1)[1])
    for sent in (b"\x00" * 64, b"GET / HTTP/9\r\n\r\n", b"GET /health HTTP/1.1\r\n\r\n",
                 b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200_000,
                 b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                 b"Content-Length: 99999999999\r\n\r\n"):  # fmt: skip
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as connection:
            connection.sendall(sent)
            assert connection.recv(100).split(b" ")[1][:1] == b"4"
    assert httpx.get(f"{url}/health", timeout=LIMIT).status_code == 200


def test_a_broken_body_is_refused_once(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """uvicorn refuses the chunk that came with the headers; then the request is refused too."""
    port = int(url.rsplit(":", 1)[1])
    head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: br\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as client:
        client.sendall(head + b"Transfer-Encoding: chunked\r\n\r\nno size\r\n")
        answers = b"".join(iter(lambda: client.recv(4096), b""))
    assert answers.startswith(b"HTTP/1.1 400 ")
    assert answers.count(b"HTTP/1.1") == 1
    assert httpx.get(f"{url}/health", timeout=LIMIT).status_code == 200
    assert caplog.records == []


def test_requirement_19_health_says_that_the_model_is_loading() -> None:
    """``ready`` is called after that; a model that cannot be loaded is only reported."""
    go, ready, failures = threading.Event(), threading.Event(), list[BaseException]()

    def load() -> Model:
        go.wait()
        raise InputError("no such model")

    models = Models([Served("demo", "demo.gguf", load)])
    app = make_app(models, ServerOptions(), failures.append, ready.set)
    with TestClient(app, base_url="http://localhost") as client:
        health = client.get("/health")
        assert health.status_code == 503
        assert health.json()["error"]["message"] == "loading model"
        go.set()
        wait_for(lambda: bool(failures))
        assert not ready.is_set()
    for preload in (True, False):
        ready.clear()
        models = Models([Served("demo", "demo.gguf", lambda: trinity.load(trinity.demo_model()))])
        app = make_app(models, ServerOptions(preload=preload), failures.append, ready.set)
        with TestClient(app, base_url="http://localhost"):
            wait_for(ready.is_set)


def test_a_server_without_its_model_does_not_say_that_it_listens(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(InputError, match="no such file"):
        serving.serve([str(tmp_path / "none.gguf")], ServerOptions(port=0), {}, said.append)
    assert said == []


@pytest.mark.full
def test_requirement_19_a_server_idles_then_sigterm_drains() -> None:
    with process("--drain", "120") as (server, url):
        until_ready(url)
        first = {"messages": MESSAGES, "max_tokens": 2}
        httpx.post(f"{url}/v1/chat/completions", json=first, timeout=LIMIT)
        if Path("/proc/self/stat").exists():
            watched = 4.0
            most = 0.5 / 60 * watched + 0.02  # and two ticks
            within(most, lambda: time.sleep(watched), lambda: seconds(server.pid))
        body = {"messages": MESSAGES, "max_tokens": 200, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=LIMIT) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.send_signal(signal.SIGTERM)
            port = int(url.rsplit(":", 1)[1])
            wait_for(lambda: _is_refused(port))  # no new ones
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"  # the running one has ended as it should
        assert server.wait(LIMIT) == 0


@pytest.mark.few(1)
@pytest.mark.parametrize(("drain", "signals"), [("600", 2), pytest.param("0", 1, marks=FULL)])
def test_what_does_not_end_in_time_is_cut_and_a_second_signal_waits_for_nothing(
    drain: str, signals: int
) -> None:
    body = {"messages": MESSAGES, "max_tokens": 450, "ignore_eos": True, "stream": True}
    with process("--drain", drain) as (server, url):
        until_ready(url)
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=LIMIT) as answer:
            next(answer.iter_lines())
            for _ in range(signals):
                server.send_signal(signal.SIGTERM)
                time.sleep(0.3)
            server.wait(LIMIT)


def _is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=LIMIT).close()
    except OSError:
        return True
    return False


def seconds(pid: int) -> float:
    """Return the processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.full
def test_what_ends_a_start_is_said_after_the_warning() -> None:
    """The model cannot be loaded; the server listens on all addresses without a key."""
    done = subprocess.run(
        [sys.executable, "-m", "trinity", "serve", "--port", "0", "--host", "0.0.0.0",
         "-m", "/no/such/model.gguf"],
        capture_output=True, text=True, cwd=ROOT, timeout=LIMIT,
    )  # fmt: skip
    assert done.returncode == 1
    assert "warning: 0.0.0.0 is every address" in done.stderr
    assert re.search(r"^error: .*/no/such/model\.gguf", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr


def test_missing_libraries_are_named() -> None:
    code = (
        "import sys; sys.modules['starlette'] = None\n"
        "sys.argv = ['trinity', 'serve']\n"
        "from trinity.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1
    assert 'pip install "trinity-llm[serve]"' in done.stderr


def test_socket_is_given_back(make: MakeApp) -> None:
    with socket_server(make()) as url:
        port = int(url.rsplit(":", 1)[1])
        assert httpx.get(f"{url}/health", timeout=LIMIT).status_code == 200
    assert _is_refused(port)


def test_small_pieces_do_not_wait_for_acknowledgements(
    make: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each response on a kept connection, and each event, may wait for 40 ms."""
    found, made = [], connection.Connection.connection_made

    def watched(self: connection.Connection, transport: Any) -> None:
        made(self, transport)
        place = transport.get_extra_info("socket")
        found.append(place.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(connection.Connection, "connection_made", watched)
    with socket_server(make()) as url:
        assert httpx.get(f"{url}/health", timeout=LIMIT).status_code == 200
    assert found
    assert all(found)


def test_threads_give_way_to_the_event_loop_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's default of 5 ms would delay each turn of the event loop while a thread is busy."""
    found: list[float] = []
    monkeypatch.setattr(
        serving.Server, "run", lambda self, sockets: found.append(sys.getswitchinterval())
    )
    before = sys.getswitchinterval()
    try:
        serving.serve([trinity.demo_model()], ServerOptions(port=0), {}, lambda line: None)
    finally:
        sys.setswitchinterval(before)
    assert found == [pytest.approx(0.0005)]
