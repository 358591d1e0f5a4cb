"""Kept streams, stored responses, slots and models."""

from __future__ import annotations

import itertools
import time

from tests.soak.attacks.connections import LONG
from tests.soak.attacks.target import CHAT, Target, attack

MESSAGES = [{"role": "user", "content": "x"}]
numbers = itertools.count()


@attack()
def kept_streams_of_large_bodies(target: Target) -> None:
    """450 conversations under names of their own with bodies of 3.9 MB."""
    texts = [{"type": "text", "text": "x" * 1000}] * 3900
    body = {
        **LONG,
        "messages": MESSAGES,
        "metadata": {"a": "b"},
        "chat_template_kwargs": {"a": texts},
    }
    data = target.request(CHAT, body, {"X-Conversation-Id": "000"})

    def begin() -> None:
        with target.connect() as client:
            name = f"X-Conversation-Id: {next(numbers):03}".encode()
            target.write(client, data.replace(b"X-Conversation-Id: 000", name, 1))
            client.recv(1000)

    target.once(begin, 450)


@attack()
def kept_streams_that_are_dropped(target: Target) -> None:
    """Streams begun under the same names again and again, and dropped."""

    def begin() -> None:
        name = f"s{next(numbers) % 100}"
        with target.connect() as client:
            target.write(client, target.request(CHAT, LONG, {"X-Conversation-Id": name}))
            client.recv(1000)
        target.ask(f"/v1/stream?conv_id={name}", method="DELETE")

    target.again(begin, 8)


@attack()
def lookups_of_streams(target: Target) -> None:
    """Lookups of 1,024 names of 256 characters."""
    names = [f"{i:04}" + "x" * 200 for i in range(1024)]
    target.again(lambda: target.ask("/v1/streams/lookup", {"conversation_ids": names}), 8)


@attack()
def stored_responses(target: Target) -> None:
    """Responses that are stored, with 1 MB of instructions each."""
    body = {"input": "x", "instructions": "a" * 400, "store": True, "max_output_tokens": 1,
            "metadata": {f"k{i}": "v" * 500 for i in range(16)}}  # fmt: skip
    target.again(lambda: target.ask("/v1/responses", body), 16)


@attack("slots")
def erase_beside_a_long_answer(target: Target) -> None:
    """A slot is erased while an answer of the attacker's runs."""
    body = {"prompt": "x", "n_predict": 480, "ignore_eos": True, "n": 1}

    def both() -> None:
        client = target.connect()
        target.write(client, target.request("/completion", {**body, "stream": True}))
        time.sleep(0.02)
        target.ask("/slots/0?action=erase", b"", method="POST")
        client.close()

    target.again(both, 4)


@attack("slots")
def slot_loops(target: Target) -> None:
    """Four clients save, restore and erase slots."""

    def loop() -> None:
        for action in ("save", "restore", "erase"):
            name = {"filename": f"slot{next(numbers) % 8}"}
            target.ask(f"/slots/{next(numbers) % 2}?action={action}", name, method="POST")

    target.again(loop, 4)


@attack()
def load_and_unload(target: Target) -> None:
    """The model is loaded and unloaded by four clients."""

    def loop() -> None:
        for path in ("/models/unload", "/models/load"):
            target.ask(path, {"model": "tiny"})

    target.again(loop, 4)


@attack()
def adapter_loops(target: Target) -> None:
    """The scales of adapters are set by eight clients."""
    target.again(lambda: target.ask("/lora-adapters", [{"id": 0, "scale": 1.0}] * 10_000), 8)


@attack()
def scrapes(target: Target) -> None:
    """Metrics, the OpenAPI document, slots and properties, by eight clients."""
    paths = itertools.cycle(("/metrics", "/openapi.json", "/slots", "/props", "/"))
    target.again(lambda: target.ask(next(paths)), 8)


@attack()
def wrong_keys(target: Target) -> None:
    """Keys of 60 KB that are wrong, over new connections."""
    target.again(
        lambda: target.ask("/v1/models", headers={"Authorization": "Bearer " + "x" * 60_000}), 16
    )


@attack()
def chains_of_responses(target: Target) -> None:
    """Responses each of which continues the one before, so that conversations grow."""

    def chain() -> None:
        name = ""
        while target.going():
            body = {"input": "x", "store": True, "max_output_tokens": 1}
            answer = target.ask("/v1/responses", {**body, "previous_response_id": name or None})
            name = answer.partition(b'"id":"')[2].partition(b'"')[0].decode()

    target.again(chain, 4)


@attack()
def resumed_streams(target: Target) -> None:
    """A kept stream that is read again from its beginning by 32 clients."""
    name = {"X-Conversation-Id": "resumed"}
    target.ask(CHAT, {**LONG, "logprobs": True, "top_logprobs": 20}, name)
    target.again(lambda: target.ask("/v1/stream?conv_id=resumed"), 32)
