"""Reading the presets again while the server runs: GET /models?reload=1 and SIGHUP."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

import trinity
from tests.server.conftest import LIMIT, MakeApp, wait_for
from tests.server.test_models import FakeModel, loaded
from tests.server.test_process import NO_MODELS, ROOT, process
from trinity.errors import InputError
from trinity.server.app import make_app
from trinity.server.endpoints.llama_models import Watch
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignored
from trinity.server.models import Models
from trinity.server.reload import Reload
from trinity.server.served import Served
from trinity.server.settings import ServerOptions

PRESETS = """
[story]
model = {story}
temp = {temperature}

[*]
"""


def served(name: str, way: str = "", **more: Any) -> Served:
    return Served(name, f"{name}.gguf", lambda: FakeModel(), loaded_with=(name, way), **more)  # type: ignore[return-value,arg-type]


def reloading(before: list[Served], after: Callable[[], list[Served]]) -> tuple[Models, Reload]:
    models = Models(before)
    return models, Reload(models, after, lambda line: None)


def test_what_did_not_change_stays_loaded() -> None:
    async def test() -> None:
        new = [served("d"), served("b", "longer"), served("a", aliases=("x",), tags=("t",))]
        models, reload = reloading([served("a"), served("b"), served("c")], lambda: new)
        models.add(served("pulled"))
        watch = Watch(models, set())
        kept = models.served["a"]
        for name in ("a", "b", "c"):
            (await models.lease(Ignored(), name)).release()
        held = await models.lease(Ignored(), "c")
        b, c = models.served["b"], models.served["c"]
        closed: list[Any] = [b.model, c.model]
        await reload()
        assert list(models.served) == ["d", "b", "a", "pulled"]
        assert models.served["a"] is kept
        assert models.find(Ignored(), "x") is kept
        assert list(kept.tags) == ["t"]
        assert models.first.name == "d"
        await asyncio.sleep(0.05)
        assert loaded(models) == ["a"]
        assert closed[0].closed
        assert not closed[1].closed  # a request still uses it
        held.release()
        await asyncio.sleep(0.05)
        assert closed[1].closed
        assert watch.has_next
        await reload()
        assert list(models.served) == ["d", "b", "a", "pulled"]
        new.pop(1)
        await reload()
        assert list(models.served) == ["d", "a", "pulled"]
        with pytest.raises(ApiError, match="no model 'b'"):
            models.find(Ignored(), "b")
        await models.close()

    asyncio.run(test())


def test_a_wrong_file_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> list[Served]:
        raise InputError("presets.ini: line 3 is wrong")

    async def test() -> None:
        models, reload = reloading([served("a")], broken)
        with pytest.raises(ApiError, match="the server's log says why") as found:
            await reload()
        assert found.value.status == 503
        assert list(models.served) == ["a"]
        assert "line 3" in caplog.text

    asyncio.run(test())


def test_calls_during_a_reload_share_the_next_one() -> None:
    reads, go_on = list[int](), threading.Event()

    def slow() -> list[Served]:
        reads.append(len(reads))
        go_on.wait(LIMIT)
        return [served("a")]

    async def test() -> None:
        _, reload = reloading([served("a")], slow)
        calls = [asyncio.create_task(reload())]
        while not reads:
            await asyncio.sleep(0.001)
        calls += [asyncio.create_task(reload()) for _ in range(20)]
        await asyncio.sleep(0.01)
        calls[0].cancel()  # its client has left
        calls[1].cancel()
        go_on.set()
        await asyncio.wait(calls)
        assert [call.cancelled() for call in calls] == [True, True, *[False] * 19]
        assert len(reads) == 2

    asyncio.run(test())


def test_the_list_is_read_again_on_request(make: MakeApp) -> None:
    models = Models([served("a")])
    models.reload = Reload(models, lambda: [served("a"), served("b")], lambda line: None)
    with TestClient(
        make_app(models, ServerOptions(preload=False)), base_url="http://localhost"
    ) as client:
        for query, names in (("", ["a"]), ("?reload=0", ["a"]), ("?reload=1", ["a", "b"])):
            listed = client.get(f"/models{query}").json()["data"]
            assert [one["id"] for one in listed] == names
        assert client.get("/v1/models?reload=yes").status_code == 400
    with TestClient(make(), base_url="http://localhost") as client:  # nothing to be read
        assert client.get("/models?reload=1").status_code == 200


def names(url: str) -> dict[str, str]:
    listed = httpx.get(f"{url}/models", timeout=LIMIT).json()["data"]
    return {one["id"]: one["status"]["value"] for one in listed}


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP")
def test_sighup_reads_the_presets_again(tmp_path: Path) -> None:
    file, story = tmp_path / "presets.ini", trinity.demo_model()
    file.write_text(PRESETS.format(story=story, temperature=0.5))
    with process("--models-preset", str(file)) as (server, url):

        def temperature() -> float:
            known = httpx.get(f"{url}/props?model=story", timeout=LIMIT).json()
            return float(known["default_generation_settings"]["params"]["temperature"])

        assert temperature() == 0.5
        assert names(url) == {"story": "loaded"}
        changed = PRESETS.format(story=story, temperature=0.25)
        file.write_text(f"{changed}[other]\nmodel = {story}\n")
        server.send_signal(signal.SIGHUP)
        wait_for(lambda: "other" in names(url))
        assert names(url) == {"story": "loaded", "other": "unloaded"}
        assert temperature() == 0.25
        file.write_text("[story]\nno-such-option = 1\n")
        server.send_signal(signal.SIGHUP)
        response = httpx.get(f"{url}/models?reload=1", timeout=LIMIT)
        assert response.status_code == 503
        assert names(url) == {"story": "loaded", "other": "unloaded"}
        file.write_text(f"[other]\nmodel = {story}\nctx = 256\n")
        assert httpx.get(f"{url}/models?reload=1", timeout=LIMIT).status_code == 200
        assert list(names(url)) == ["other"]
        server.send_signal(signal.SIGTERM)
        assert server.wait(LIMIT) == 0


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP")
def test_a_closed_terminal_ends_the_server() -> None:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")])
    number, terminal = pty.fork()
    if number == 0:
        environment = {**os.environ, **NO_MODELS, "PYTHONPATH": paths}
        command = [sys.executable, "-m", "trinity", "serve", "--port", "0", "-t", "1"]
        os.execve(sys.executable, command, environment)
    said = b""
    while b"models:" not in said:
        said += os.read(terminal, 4096)
    os.kill(number, signal.SIGHUP)
    while b"reloaded; models: demo" not in said:
        said += os.read(terminal, 4096)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) == -signal.SIGHUP
