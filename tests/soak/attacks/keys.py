"""Attempts of one API key against another: guesses of prompts, ids and keys."""

from __future__ import annotations

import random
import secrets

from tests.soak.attacks.target import ATTACKERS_KEY, CHAT, Target, attack

BEGINNING = list(range(5, 200))


@attack()
def guesses_of_a_prompt(target: Target) -> None:
    """Each token of the vocabulary behind a prompt's beginning, for what is cached of it."""

    def guess() -> None:
        prompt = [*BEGINNING, random.randrange(5, 200), 5]
        target.ask("/completion", {"prompt": prompt, "n_predict": 1})

    target.again(guess, 8)


@attack()
def a_salt_for_each_request(target: Target) -> None:
    """Prompts each of which is cached apart."""

    def ask() -> None:
        salt = secrets.token_hex(500)
        target.ask("/completion", {"prompt": BEGINNING, "n_predict": 1, "cache_salt": salt})

    target.again(ask, 8)


@attack("slots")
def every_slot_with_many_salts(target: Target) -> None:
    """Slots that are filled and erased, with and without a salt."""

    def ask() -> None:
        slot = random.randrange(1024)
        body = {"prompt": BEGINNING, "n_predict": 1, "id_slot": slot}
        target.ask("/completion", {**body, "cache_salt": secrets.token_hex(8)})
        target.ask("/completion", body)
        target.ask(f"/slots/{slot}?action=erase", {})

    target.again(ask, 8)


@attack()
def ids_of_others(target: Target) -> None:
    """Random ids of all that a server keeps, read, ended and followed."""

    def ask() -> None:
        name = secrets.token_hex(12)
        for path in (f"/v1/responses/resp_{name}", f"/v1/stream?conv_id={name}"):
            target.ask(path)
            target.ask(path, method="DELETE")
        for path in (f"/v1/files/file-{name}", f"/v1/batches/batch_{name}"):
            target.ask(path)
        target.ask("/v1/streams/lookup", {"conversation_ids": [name] * 1024})
        talk = {"messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 1}
        target.ask(CHAT, talk, {"X-Conversation-Id": name, "Last-Event-ID": "1"})

    target.again(ask, 8)


@attack()
def keys_that_almost_match(target: Target) -> None:
    """Keys that differ from a known one in the last character, or are 8 KB long."""

    def ask() -> None:
        wrong = ATTACKERS_KEY[:-1] + random.choice("0123456789")
        for key in (wrong, ATTACKERS_KEY + "x" * 8000):
            target.ask("/v1/models", headers={"Authorization": f"Bearer {key}"})

    target.again(ask, 8)
