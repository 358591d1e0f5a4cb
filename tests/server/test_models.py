"""Several models: names, loading on demand, unloading of the least recently used."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

import trinity
from scripts.models.make_synthetic import SHAPES, write_model
from tests.server.conftest import LIMIT, MakeApp, socket_server, wait_for
from trinity.errors import FormatError, InputError
from trinity.formats.defaults import ChatTemplate
from trinity.model import Model
from trinity.server import process
from trinity.server.app import make_app
from trinity.server.endpoints.llama_models import Watch
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignored
from trinity.server.model_refs import (
    GLOBAL,
    Preset,
    longest_context,
    name_and_ref,
    served_models,
    usual_context,
    weight_bytes,
)
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.settings import ServerOptions
from trinity.server.transport.loop_turns import CLIENT

NO_POOL = SimpleNamespace(pool=SimpleNamespace(limit=7), other_bytes=3)


class FakeModel:
    """The parts of a model that the server uses without requests."""

    engine = NO_POOL

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def served(name: str, size: int = 90) -> Served:
    return Served(name, f"{name}.gguf", lambda: FakeModel(), lambda: size)  # type: ignore[return-value,arg-type]


def loaded(models: Models) -> list[str]:
    return [one.name for one in models.served.values() if one.model is not None]


def test_least_used_is_unloaded_first() -> None:
    async def test() -> None:
        models = Models([served("a"), served("b"), served("c")], memory_limit=200)
        for name in ("a", "b", "a"):
            (await models.lease(Ignored(), name)).release()
        assert loaded(models) == ["a", "b"]
        old: Any = models.served["b"].model
        (await models.lease(Ignored(), "c")).release()
        assert loaded(models) == ["a", "c"]
        assert old.closed
        assert (await models.lease(Ignored(), None)).name == "a"
        await models.close()
        assert loaded(models) == []

    asyncio.run(test())


def test_a_model_in_use_stays_until_it_is_let_go() -> None:
    async def test() -> None:
        models = Models([served("a"), served("b")], memory_limit=150)
        held = await models.lease(Ignored(), "a")
        waiting = asyncio.ensure_future(models.lease(Ignored(), "b"))
        await asyncio.sleep(0.05)
        assert loaded(models) == ["a"]
        assert not waiting.done()
        held.release()
        held.release()  # again is harmless
        assert (await waiting).name == "b"
        assert loaded(models) == ["b"]

    asyncio.run(test())


def test_a_model_that_is_never_idle_gives_way() -> None:
    async def test() -> None:
        models = Models([served("a"), served("b")], memory_limit=150)
        order = list[str]()

        async def ask(name: str, count: int) -> None:
            for _ in range(count):
                lease = await models.lease(Ignored(), name)
                order.append(name)
                await asyncio.sleep(0.002)
                lease.release()

        async with asyncio.timeout(LIMIT):
            # At each moment one of these uses "a".
            asking = [asyncio.ensure_future(ask("a", 40)) for _ in range(5)]
            await asyncio.sleep(0.01)
            await ask("b", 5)
            assert not all(one.done() for one in asking)
            await asyncio.gather(*asking)
        assert (order.count("a"), order.count("b")) == (200, 5)
        assert models._wanted is None

    asyncio.run(test())


def test_clients_take_turns_to_load() -> None:
    async def test() -> None:
        models = Models([served(name) for name in "abc"], memory_limit=150)
        order = list[str]()

        async def ask(client: str, name: str) -> None:
            CLIENT.set(client)
            lease = await models.lease(Ignored(), name)
            order.append(client)
            await asyncio.sleep(0)
            lease.release()

        async with asyncio.timeout(LIMIT):
            held = await models.lease(Ignored(), "a")
            floods = [asyncio.ensure_future(ask("attacker", "bc"[i % 2])) for i in range(40)]
            await asyncio.sleep(0)
            gone = [asyncio.ensure_future(ask("gone", "b")) for _ in range(3)]
            one = asyncio.ensure_future(ask("ordinary", "c"))
            await asyncio.sleep(0)
            for other in gone:
                other.cancel()
            held.release()
            await asyncio.gather(*floods, one)
        assert order.index("ordinary") <= 2
        assert order.count("attacker") == 40
        assert order.count("gone") == 0
        # Nothing holds the lock.
        (await models.lease(Ignored(), "a")).release()

    asyncio.run(test())


def test_two_who_ask_load_once() -> None:
    async def test() -> None:
        loads = []

        def load() -> Any:
            loads.append(1)
            return FakeModel()

        models = Models([Served("a", "a", load)])
        leases = await asyncio.gather(*(models.lease(Ignored(), "a") for _ in range(5)))
        assert len(loads) == 1
        assert models.served["a"].users == len(leases)

    asyncio.run(test())


def test_what_cannot_be_had_is_said() -> None:
    def broken() -> Any:
        raise FormatError("a.gguf: it is damaged")

    async def test() -> None:
        models = Models([Served("a", "a", broken), served("b", 1000)], memory_limit=500)
        for name, status in (("a", 503), ("b", 503), ("c", 404)):
            with pytest.raises(ApiError) as error:
                await models.lease(Ignored(), name)
            assert error.value.status == status

    asyncio.run(test())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("path/to/model.gguf", ("model", "path/to/model.gguf")),
        ("path/to/directory/", ("directory", "path/to/directory/")),
        ("small=path/a=b.gguf", ("small", "path/a=b.gguf")),
        ("org/small=m.gguf", ("org/small", "m.gguf")),
        ("hf:user/repo:Q4_K_M", ("user/repo:Q4_K_M", "hf:user/repo:Q4_K_M")),
        ("ollama:llama3.2", ("llama3.2", "ollama:llama3.2")),
        ("x=hf:user/repo", ("x", "hf:user/repo")),
    ],
)
def test_names(text: str, expected: tuple[str, str]) -> None:
    assert name_and_ref(text) == expected


def test_a_name_is_used_once() -> None:
    with pytest.raises(InputError, match="two models are called 'm'"):
        served_models(["a/m.gguf", "b/m.gguf"], {}, print)


def test_several_models_each_keep_their_own_limit(shared_data: Path) -> None:
    bert = str(shared_data / "encoders" / "bert_mean" / "model.gguf")
    refs = [f"demo={trinity.demo_model()}", f"bert={bert}"]
    asked = 100_000
    demo, encoder = (
        one.load() for one in served_models(refs, {"context_length": asked, "threads": 1}, print)
    )
    with demo, encoder:
        assert demo.context_length == demo.config.context_length < asked
        assert encoder.context_length == encoder.config.context_length < asked


def test_a_served_model_has_the_context_that_it_was_made_for(tmp_path: Path) -> None:
    """131,072 tokens of 2 layers with 2 KV heads of 64 take 2 KiB each in float32."""
    path = str(tmp_path / "long.gguf")
    shape = replace(SHAPES["tiny"], hidden_size=256, num_heads=4, num_kv_heads=2, num_layers=2,
                    head_dim=64, intermediate_size=64, context_length=131_072)  # fmt: skip
    write_model(path, shape)
    assert usual_context(path, 1 << 40) == 131_072
    assert usual_context(path, 4 * 131_072 * 2048) == 131_072
    assert usual_context(path, 4 * 50_000 * 2048) == 50_000 // 128 * 128
    assert usual_context(path, 0) == 4096
    assert usual_context(trinity.demo_model(), 0) == 512  # all that it has
    (served,) = served_models([path], {"threads": 1}, print)
    assert longest_context(path, 50_000 * 2048) == 50_000 // 128 * 128
    assert longest_context(path, 1 << 40) == 131_072
    with served.load() as model:
        assert model.context_length == usual_context(path)


def test_presets() -> None:
    """A model's options: those of the command line override them, and it may load at the start."""
    demo = trinity.demo_model()
    presets = {
        GLOBAL: Preset(loading={"context_length": 128, "threads": 1}),
        "a": Preset(loading={"context_length": 64, "threads": 1},
                    generation={"max_tokens": 3, "seed": 1},
                    template=ChatTemplate("{{ bos_token }}Hi"),
                    aliases=("first",), at_start=True),
    }  # fmt: skip
    made = served_models([f"{name}={demo}" for name in "abc"], {}, print, None, presets)
    models = Models(made)
    app = make_app(models, ServerOptions(preload=False), defaults={"max_tokens": 2})
    with TestClient(app, base_url="http://localhost") as client:
        wait_for(lambda: models.ready)
        assert loaded(models) == ["a"]
        body = {"messages": [{"role": "user", "content": "a"}]}
        lengths = {}
        for name in ("first", "b"):
            answer = client.post("/v1/chat/completions", json={**body, "model": name}).json()
            assert answer["usage"]["completion_tokens"] == 2
            lengths[name] = answer["usage"]["prompt_tokens"]
        assert lengths["first"] < lengths["b"]
        contexts = [one.model and one.model.context_length for one in made]
        assert contexts == [64, 128, None]
    own = served_models([f"a={demo}"], {"context_length": 256}, print, None, presets)[0]
    assert own.longest is None
    with own.load() as model:
        assert model.context_length == 256


def test_encoders_keep_the_engines_default(shared_data: Path) -> None:
    assert usual_context(str(shared_data / "encoders" / "bert_mean" / "model.gguf")) is None


def test_weights_are_weighed() -> None:
    """The file also has headers and a vocabulary, which are not counted."""
    path = trinity.demo_model()
    assert 0.8 * Path(path).stat().st_size < weight_bytes(path) < Path(path).stat().st_size


def test_a_model_says_whether_it_is_being_loaded() -> None:
    """With ``preload`` false, the first request loads it; the server is ready before."""
    go, models = threading.Event(), Models([served("a")])

    def load() -> Any:
        go.wait()
        return SimpleNamespace(
            context_length=7,
            engine=NO_POOL,
            adapters=(),
            reads_images=False,
            close=lambda: None,
            config=SimpleNamespace(vocab_size=9, context_length=7, hidden_size=4),
        )

    models.first.load = load
    app = make_app(models, ServerOptions(preload=False))
    with TestClient(app, base_url="http://localhost") as client:

        def status() -> str:
            (found,) = client.get("/v1/models").json()["data"]
            assert found["loaded"] == (found["status"]["value"] == "loaded")
            return str(found["status"]["value"])

        assert client.get("/health").status_code == 200
        assert status() == "unloaded"
        asking = threading.Thread(target=client.get, args=("/lora-adapters",))
        asking.start()
        wait_for(lambda: status() == "loading")
        go.set()
        wait_for(lambda: status() == "loaded")
        asking.join(LIMIT)


def test_a_model_answers_to_its_aliases() -> None:
    one = served("a")
    one.aliases, one.tags = ("b", "c"), ("small",)
    models = Models([one, served("d")])
    assert [models.find(Ignored(), name) for name in ("a", "b", "c", None)] == [one] * 4
    with pytest.raises(ApiError, match="there is a, b, c, d"):
        models.find(Ignored(), "e")
    with TestClient(
        make_app(models, ServerOptions(preload=False)), base_url="http://localhost"
    ) as c:
        first, second = c.get("/v1/models").json()["data"]
        assert (first["aliases"], first["tags"]) == (["b", "c"], ["small"])
        assert (second["aliases"], second["tags"]) == ([], [])
        assert c.get("/v1/models/c").json()["id"] == "a"


def test_names_with_commas() -> None:
    settings = ServerOptions(alias="a, b,a", tags="x")
    assert (settings.aliases, settings.all_tags) == (("a", "b"), ("x",))
    with pytest.raises(InputError, match="alias"):
        _ = ServerOptions(alias="a,,b").aliases


def test_an_idle_model_is_unloaded_after_its_time() -> None:
    """The longest time of all owners counts; a new request cancels the timer."""

    async def run() -> None:
        one = served("a")
        models = Models([one], idle_seconds=0.01)
        lease = await models.lease(Ignored(), "a", "x")
        await asyncio.sleep(0.05)
        assert models.ready  # it is in use
        lease.release()
        (await models.lease(Ignored(), "a", "y")).release()
        models.keep(one, math.inf, "y")
        await asyncio.sleep(0.05)
        assert models.ready
        assert one.expires == math.inf
        models.keep(one, 0, "y")
        while models.ready:
            await asyncio.sleep(0.001)
        assert (one.users, one.bytes) == (0, 0)
        await models.load_first()
        while models.ready:  # no request came
            await asyncio.sleep(0.001)
        await models.close()

    asyncio.run(asyncio.wait_for(run(), LIMIT))


def test_a_model_in_use_is_not_unloaded() -> None:
    async def run() -> None:
        one = served("a")
        models = Models([one], idle_seconds=0)
        with await models.lease(Ignored(), "a"):
            pass
        lease = await models.lease(Ignored(), "a")  # before the timer's task runs
        await asyncio.sleep(0.02)
        assert models.ready
        lease.release()
        await models.close()
        assert not models.ready

    asyncio.run(asyncio.wait_for(run(), LIMIT))


def test_events_of_models(model: Model) -> None:
    """A client that watches sees each status, in llama.cpp's words."""

    def broken() -> Model:
        raise InputError("no file")

    async def test() -> None:
        made = Served("a", "a.gguf", lambda: model)
        models = Models([made, Served("b", "b.gguf", broken)])
        models.close = nothing  # type: ignore[method-assign]
        watch = Watch(models, set())
        (await models.lease(Ignored(), "a")).release()
        with pytest.raises(ApiError):
            await models.lease(Ignored(), "b")
        models.add(served("c"))
        models.remove(models.served["c"])
        model.close, close = lambda: None, model.close  # type: ignore[method-assign]
        await models._unload(made)
        model.close = close  # type: ignore[method-assign]
        assert watch.has_next
        found, events = [], watch.events()
        while watch.has_next:
            found.append(json.loads((await anext(events)).decode().removeprefix("data: ")))
        await events.aclose()
        watch.close()
        assert not models.watching
        assert found == [
            {"model": "a", "event": "model_status", "data": {"status": "loading"}},
            {"model": "a", "event": "model_status", "data": {"status": "loaded"}},
            {"model": "b", "event": "model_status", "data": {"status": "loading"}},
            {"model": "b", "event": "model_status", "data": {"status": "unloaded", "failed": True}},
            {"model": "*", "event": "models_reload"},
            {"model": "c", "event": "model_remove"},
            {"model": "a", "event": "model_status", "data": {"status": "unloaded"}},
        ]

    async def nothing() -> None:
        """The session's model stays."""

    asyncio.run(test())


def test_events_are_streamed(make: MakeApp) -> None:
    with socket_server(make()) as url, httpx.stream("GET", f"{url}/models/sse") as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert httpx.post(f"{url}/models/load", json={"model": "demo"}).json() == {"success": True}
        failed = [one.get("status") for one in httpx.get(f"{url}/models").json()["data"]]
        assert failed == [{"value": "loaded"}]


def test_events_do_not_hold_up_the_end_of_the_server(make: MakeApp) -> None:
    with ExitStack() as watching:
        began = 0.0
        with socket_server(make()) as url:
            watching.enter_context(httpx.stream("GET", f"{url}/models/sse"))
            began = time.monotonic()
        assert time.monotonic() - began < ServerOptions().drain


@pytest.mark.full
def test_events_do_not_keep_memory_from_the_system(
    make: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []
    monkeypatch.setattr(process, "give_back_heap", lambda: given.append(1))
    with socket_server(make()) as url, httpx.stream("GET", f"{url}/models/sse"):
        wait_for(lambda: given)
        before = len(given)
        assert httpx.get(f"{url}/health").status_code == 200
        wait_for(lambda: len(given) > before)
