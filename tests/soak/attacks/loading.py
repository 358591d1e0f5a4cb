"""Models that are loaded and unloaded."""

from __future__ import annotations

from tests.soak.attacks.target import CHAT, Target, attack

MESSAGES = [{"role": "user", "content": "x"}]


@attack()
def a_model_that_shall_not_stay(target: Target) -> None:
    """Ask to unload the model that others use, after each answer and at once."""
    body = {"model": "tiny", "prompt": "x", "keep_alive": 0, "stream": False}

    def ask() -> None:
        target.ask("/api/generate", {**body, "options": {"num_predict": 1}})
        target.ask("/api/generate", {"model": "tiny", "keep_alive": 0})

    target.again(ask, 8)


@attack("two_models")
def models_that_come_and_go(target: Target) -> None:
    """Load and unload another model again and again."""
    body = {"model": "other", "prompt": "x", "keep_alive": 0, "stream": False}
    target.again(lambda: target.ask("/api/generate", {**body, "options": {"num_predict": 1}}), 8)


@attack("two_models")
def keep_alive_of_all_lengths(target: Target) -> None:
    """Set the time for which two models stay loaded, to another value in each request."""
    times = iter(range(10**9))

    def ask() -> None:
        name = ("tiny", "other")[next(times) % 2]
        target.ask("/api/generate", {"model": name, "keep_alive": f"{1000 + next(times)}ms"})
        target.ask(CHAT, {"model": name, "messages": MESSAGES, "max_tokens": 1})

    target.again(ask, 8)
