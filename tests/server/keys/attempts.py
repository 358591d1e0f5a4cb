"""Attempts of one API key to reach data of another key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.server.keys.two_keys import Ask, Make, Server, asking

CHAT, COMPLETIONS, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
RESPONSES, FILES, BATCHES = "/v1/responses", "/v1/files", "/v1/batches"
TALK = [{"role": "user", "content": "My secret is swordfish. " * 12}]
GREEDY: Any = {"temperature": 0, "max_tokens": 4}
NAMED, RESUMED = {"X-Conversation-Id": "talk::1"}, {"Last-Event-ID": "1"}
PROMPT = list(range(20, 200))
ROW = {"custom_id": "a", "url": COMPLETIONS, "body": {"prompt": "swordfish", "max_tokens": 1}}
UNKNOWN = {"FILE": f"file-{'0' * 24}", "BATCH": f"batch_{'0' * 24}", "REPLY": "resp_0",
           "ITEM": "msg_0"}  # fmt: skip


@dataclass(frozen=True)
class Attempt:
    """``make`` creates key A's data, ``ask`` is the attempt with a key, ``view`` is A's request.

    ``unknown`` are names that no object has.
    """

    name: str
    make: Make
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
    body = {"input": "My secret is swordfish.", "max_output_tokens": 4, "temperature": 0}
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


def of_slots(name: str, make: Make, ask: Ask) -> Attempt:
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
