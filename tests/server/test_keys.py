"""What belongs to one API key does not exist for another one.

Each attempt is made on a server where key A has something and on one where it has nothing: key B
gets the same answer. The same request of key A gets another one, so the attempt could succeed.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import trinity
from tests.models.adapter_files import peft_directory
from tests.runtime.test_adapters import HIDDEN, pairs_of
from tests.tiny_models import write_tiny_model
from trinity.model import Model
from trinity.server.app import make_app
from trinity.server.batch_queue import BatchQueue
from trinity.server.models import Models, Served
from trinity.server.settings import ServerOptions

CHAT, COMPLETIONS, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
RESPONSES, FILES, BATCHES = "/v1/responses", "/v1/files", "/v1/batches"
TALK = [{"role": "user", "content": "My secret is 4711. " * 12}]
GREEDY: Any = {"temperature": 0, "max_tokens": 4}
NAMED, RESUMED = {"X-Conversation-Id": "talk::1"}, {"Last-Event-ID": "1"}
PROMPT = list(range(20, 200))
ROW = {"custom_id": "a", "url": COMPLETIONS, "body": {"prompt": "x", "max_tokens": 1}}
# What differs from one answer to the next in any case.
VOLATILE = frozenset(
    {"created", "created_at", "completed_at", "cancelling_at", "cancelled_at", "expires_at",
     "cpu_seconds", "started_at", "id", "first_id", "last_id", "item_id", "prompt_ms",
     "predicted_ms", "prompt_per_token_ms", "predicted_per_token_ms", "prompt_per_second",
     "predicted_per_second", "total_duration", "load_duration", "prompt_eval_duration",
     "eval_duration", "timestamp", "save_ms", "restore_ms", "time_ms"}
)  # fmt: skip


@dataclass
class Server:
    """A server of two keys. ``names`` are those of what key A has, or may have, by placeholder."""

    client: TestClient
    keys: dict[str, str]
    names: dict[str, str] = field(default_factory=dict)

    def ask(
        self, key: str, method: str, path: str, body: Any = None, **options: Any
    ) -> tuple[int, Any]:
        """Status and content of an answer, without what differs in any case."""
        headers = {"Authorization": f"Bearer {self.keys[key]}", **options.pop("headers", {})}
        content = json.dumps(body)
        for placeholder, name in self.names.items():
            path, content = path.replace(placeholder, name), content.replace(placeholder, name)
        if body is not None:
            options["json"] = json.loads(content)
        found = self.client.request(method, path, headers=headers, **options)
        text = found.text
        for placeholder, name in self.names.items():
            text = text.replace(name, placeholder)
        try:
            return found.status_code, steady(json.loads(text))
        except ValueError:
            return found.status_code, [steady(one) for one in data_of(text)] or text

    def made(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """What key A has made."""
        headers = {"Authorization": f"Bearer {self.keys['A']}", **options.pop("headers", {})}
        found = self.client.request(method, path, headers=headers, json=body, **options)
        assert found.status_code == 200, found.text
        return found.json() if found.headers["content-type"] == "application/json" else found.text


def data_of(text: str) -> list[Any]:
    """The data of a stream's events."""
    lines = [line for line in text.split("\n") if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def steady(found: Any) -> Any:
    """JSON without volatile values."""
    if isinstance(found, dict):
        return {key: steady(one) for key, one in found.items() if key not in VOLATILE}
    return [steady(one) for one in found] if isinstance(found, list) else found


Ask = Callable[[Server, str], Any]
UNKNOWN = {"FILE": f"file-{'0' * 24}", "BATCH": f"batch_{'0' * 24}", "REPLY": "resp_0",
           "ITEM": "msg_0"}  # fmt: skip


def asking(method: str, path: str, body: Any = None, **options: Any) -> Ask:
    """An attempt that is one request."""
    return lambda server, key: server.ask(key, method, path, body, **options)


@dataclass(frozen=True)
class Attempt:
    """What ``make`` makes for key A, what ``ask`` tries with a key, and A's ``view`` of it.

    ``unknown`` are names that no object has.
    """

    name: str
    make: Callable[[Server], Any]
    ask: Ask
    view: Ask
    unknown: Mapping[str, str] = field(default_factory=dict)


def upload(server: Server) -> None:
    files = {"file": ("in.jsonl", json.dumps(ROW).encode())}
    made = server.made("POST", FILES, files=files, data={"purpose": "batch"})
    server.names["FILE"] = made["id"]


def begin(server: Server) -> None:
    upload(server)
    body = {"input_file_id": server.names["FILE"], "endpoint": COMPLETIONS}
    server.names["BATCH"] = server.made("POST", BATCHES, body)["id"]


def stream(server: Server) -> None:
    server.made("POST", CHAT, {"messages": TALK, "stream": True, **GREEDY}, headers=NAMED)


def respond(server: Server) -> None:
    body = {"input": "My secret is 4711.", "max_output_tokens": 4, "temperature": 0}
    server.names["REPLY"] = name = server.made("POST", RESPONSES, body)["id"]
    items = server.made("GET", f"{RESPONSES}/{name}/input_items")
    server.names["ITEM"] = items["data"][0]["id"]


def fill_slot(server: Server) -> None:
    body = {"prompt": PROMPT, "id_slot": 0, "n_predict": 2, "temperature": 0}
    server.made("POST", "/completion", body)


def save_slot(server: Server) -> None:
    fill_slot(server)
    server.made("POST", "/slots/0?action=save", {"filename": "a.bin"})


def weigh(server: Server) -> None:
    server.made("POST", "/lora-adapters", [{"id": 1, "scale": 0.5}])


def cache(server: Server) -> None:
    server.made("POST", COMPLETIONS, {"prompt": PROMPT, **GREEDY})
    server.made("POST", CHAT, {"messages": TALK, **GREEDY})


SLOT = {"prompt": [*PROMPT, 3], "id_slot": 0, "n_predict": 2, "temperature": 0}
ALL_FILES, ALL_BATCHES = asking("GET", FILES), asking("GET", BATCHES)
STREAM, RESPONSE = (
    asking("GET", "/v1/stream?conv_id=talk::1"),
    asking("GET", f"{RESPONSES}/REPLY"),
)
LOOKUP = {"conversation_ids": ["talk::1"]}
CACHED = asking("POST", COMPLETIONS, {"prompt": PROMPT, **GREEDY})
ADAPTED = asking("POST", COMPLETIONS, {"prompt": [5, 9, 17, 30], "logprobs": 1, **GREEDY})
FOLLOW = {"input": "What is it?", "max_output_tokens": 4, "temperature": 0, "store": False}


def of_files(name: str, ask: Ask) -> Attempt:
    return Attempt(f"file: {name}", upload, ask, ALL_FILES, UNKNOWN)


def of_batches(name: str, ask: Ask) -> Attempt:
    return Attempt(f"batch: {name}", begin, ask, ALL_BATCHES, UNKNOWN)


def of_streams(name: str, ask: Ask) -> Attempt:
    return Attempt(f"stream: {name}", stream, ask, STREAM)


def of_responses(name: str, ask: Ask) -> Attempt:
    return Attempt(f"response: {name}", respond, ask, RESPONSE, UNKNOWN)


def of_slots(name: str, make: Callable[[Server], Any], ask: Ask) -> Attempt:
    return Attempt(f"slot: {name}", make, ask, asking("POST", "/completion", SLOT))


def of_adapters(name: str, ask: Ask) -> Attempt:
    return Attempt(f"adapter: {name}", weigh, ask, ADAPTED)


def of_prompts(name: str, ask: Ask) -> Attempt:
    return Attempt(f"cached tokens: {name}", cache, ask, CACHED)


def overwrite(server: Server, key: str) -> Any:
    body = {"prompt": [7] * 50, "id_slot": 0, "n_predict": 2, "temperature": 0}
    server.ask(key, "POST", "/completion", body)
    return server.ask(key, "POST", "/slots/0?action=save", {"filename": "a.bin"})


def restored(server: Server, key: str) -> Any:
    server.ask(key, "POST", "/slots/0?action=restore", {"filename": "a.bin"})
    return server.ask(key, "POST", "/completion", SLOT)


OTHER_TALK = {"messages": [{"role": "user", "content": "Hello"}], "stream": True, **GREEDY}
MESSAGE = {"model": "demo", "messages": TALK, "max_tokens": 4, "temperature": 0}
ATTEMPTS = [
    of_files("list", ALL_FILES),
    of_files("list after it", asking("GET", f"{FILES}?after=FILE")),
    of_files("describe", asking("GET", f"{FILES}/FILE")),
    of_files("read", asking("GET", f"{FILES}/FILE/content")),
    of_files("delete", asking("DELETE", f"{FILES}/FILE")),
    of_files("answer", asking("POST", BATCHES, {"input_file_id": "FILE", "endpoint": COMPLETIONS})),
    of_batches("list", ALL_BATCHES),
    of_batches("list after it", asking("GET", f"{BATCHES}?after=BATCH")),
    of_batches("describe", asking("GET", f"{BATCHES}/BATCH")),
    of_batches("cancel", asking("POST", f"{BATCHES}/BATCH/cancel")),
    of_batches("delete its file", asking("DELETE", f"{FILES}/FILE")),
    of_streams("read", STREAM),
    of_streams("read after an event", asking("GET", "/v1/stream?conv_id=talk::1", headers=RESUMED)),
    of_streams("go on", asking("POST", CHAT, OTHER_TALK, headers=NAMED | RESUMED)),
    of_streams("look up", asking("POST", "/v1/streams/lookup", LOOKUP)),
    of_streams("look up like it", asking("POST", "/v1/streams/lookup",
                                         {"conversation_ids": ["talk"]})),
    of_streams("end", asking("DELETE", "/v1/stream?conv_id=talk::1")),
    of_streams("replace", asking("POST", CHAT, OTHER_TALK, headers=NAMED)),
    of_responses("read", RESPONSE),
    of_responses("read its input", asking("GET", f"{RESPONSES}/REPLY/input_items")),
    of_responses("delete", asking("DELETE", f"{RESPONSES}/REPLY")),
    of_responses("follow", asking("POST", RESPONSES, {**FOLLOW, "previous_response_id": "REPLY"})),
    of_responses("count", asking("POST", f"{RESPONSES}/input_tokens",
                                 {"input": "x", "previous_response_id": "REPLY"})),
    of_responses("refer to an item", asking("POST", RESPONSES, {
        **FOLLOW, "input": [{"type": "item_reference", "id": "ITEM"}]})),
    of_slots("go on", fill_slot, asking("POST", "/completion", SLOT)),
    of_slots("erase", fill_slot, asking("POST", "/slots/0?action=erase")),
    of_slots("save", fill_slot, asking("POST", "/slots/0?action=save", {"filename": "b.bin"})),
    of_slots("restore", save_slot, asking("POST", "/slots/1?action=restore",
                                          {"filename": "a.bin"})),
    Attempt("slot: overwrite what is saved", save_slot, overwrite, restored),
    of_adapters("see weights", asking("GET", "/lora-adapters")),
    of_adapters("set weights", asking("POST", "/lora-adapters", [{"id": 0, "scale": -1}])),
    of_adapters("answer with them", ADAPTED),
    of_prompts("a completion's", CACHED),
    of_prompts("a chat's", asking("POST", CHAT, {"messages": TALK, **GREEDY})),
    of_prompts("a stream's", asking("POST", CHAT, {
        "messages": TALK, "stream": True, "stream_options": {"include_usage": True}, **GREEDY})),
    of_prompts("a message's", asking("POST", MESSAGES, MESSAGE)),
    of_prompts("a response's", asking("POST", RESPONSES, {**FOLLOW, "input": TALK})),
    of_prompts("llama.cpp's timings", asking("POST", "/completion", {
        "prompt": PROMPT, "n_predict": 2, "temperature": 0})),
    of_prompts("progress", asking("POST", "/completion", {
        "prompt": PROMPT, "n_predict": 2, "temperature": 0, "stream": True,
        "return_progress": True})),
]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """A tiny model with two adapters, of which the first is used."""
    folder = tmp_path_factory.mktemp("keys")
    write_tiny_model(folder / "m.gguf", type="F32", hidden_size=HIDDEN, context_length=1024)
    for seed in (1, 2):
        peft_directory(folder / str(seed), pairs_of(seed))
    lora = [(folder / "1", 1.0), (folder / "2", 0.0)]
    with trinity.load(folder / "m.gguf", lora=lora, threads=1, batch_invariant=True) as model:
        yield model


Serve = Callable[..., Any]


@pytest.fixture
def serve(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Runs a server of two new keys, whose batches wait for ever."""

    async def nothing(*given: object) -> None:
        return

    monkeypatch.setattr(BatchQueue, "run", nothing)

    @contextmanager
    def served(make: Callable[[Server], Any] | None = None, **options: Any) -> Iterator[Server]:
        keys = {name: secrets.token_urlsafe(16) for name in "AB"}
        folder = tmp_path / secrets.token_hex(4)
        (folder / "slots").mkdir(parents=True)
        models = Models([Served("demo", "", lambda: model, model=model)])
        models.close = nothing  # type: ignore[method-assign]
        settings = ServerOptions(
            api_key=tuple(keys.values()), state=folder, slot_save_path=folder / "slots", **options
        )
        with TestClient(make_app(models, settings), base_url="http://localhost") as client:
            server = Server(client, keys)
            if make is not None:
                make(server)
            yield server

    return served


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda one: one.name)
def test_an_attempt_to_reach_what_another_key_has(serve: Serve, attempt: Attempt) -> None:
    with serve() as empty:
        empty.names |= attempt.unknown
        nothing = attempt.ask(empty, "B")
    with serve(attempt.make) as attacked:
        assert attempt.ask(attacked, "B") == nothing
        after = attempt.view(attacked, "A")
    with serve(attempt.make) as untouched:
        view = attempt.view(untouched, "A")
        assert after == view
    with serve(attempt.make) as owned:  # the attempt has an effect where the key is right
        assert attempt.ask(owned, "A") != nothing or attempt.view(owned, "A") != view


def test_there_are_at_least_30_attempts() -> None:
    names = [one.name for one in ATTEMPTS]
    assert len(set(names)) == len(names) >= 30
