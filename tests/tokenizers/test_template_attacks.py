"""Hostile chat templates end soon, use little memory, and reach nothing.

The tests measure the processor time and resident memory of the rendering process, which do not
depend on a busy machine. To be fast, they run a third of the attacks, most of them with a tenth of
the real time limit. This runs all of them with the real limit and prints their cost:

    python -m tests.tokenizers.test_template_attacks
"""

from __future__ import annotations

import os
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.matrix import some
from tests.processor_time import slowness
from tests.tokenizers import hostile_templates as hostile
from trinity.errors import TokenizerError
from trinity.processes.confined import Confined
from trinity.tokenizers import chat
from trinity.tokenizers.chat import render_chat

MESSAGES = [
    {"role": "user", "content": "Hi é"},
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": " <b> "},
]
MEMORY_MB = 250  # of the process, its own 20 MB included
PARENT_MB = 40

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="memory is bounded and measured by Linux's means"
)


@pytest.fixture(scope="module")
def quick() -> Iterator[Confined]:
    real = chat._RENDERER._limits
    made = Confined(
        real.module,
        memory_bytes=real.memory_bytes,
        seconds=real.seconds / 10,
        reply_bytes=real.reply_bytes,
    )
    yield made
    made.close()


class Watch:
    """Peaks of the renderer's resident memory (MB) and processor time (s) during one call."""

    def __init__(self, renderer: Confined) -> None:
        self.memory = self.seconds = 0.0
        self._start: dict[int, float] = {}
        self._renderer = renderer
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._done.wait(0.01):
            self._look()

    def _look(self) -> None:
        child = self._renderer._processes[0].child
        if child is None:
            return
        process = Path(f"/proc/{child.process.pid}")
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            status = (process / "status").read_text()
        except OSError:
            return
        used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        self.seconds = max(self.seconds, used - self._start.setdefault(child.process.pid, used))
        if "VmHWM" in status:
            self.memory = max(self.memory, int(status.partition("VmHWM:")[2].split()[0]) / 1024)


def attack(template: str, renderer: Confined) -> tuple[str, Watch]:
    """The text, or the error after "!", and what it took beside the renderer's start."""
    render_chat("", [])
    with Watch(renderer) as watch:
        try:
            outcome = render_chat(template, MESSAGES)
        except TokenizerError as error:
            outcome = f"!{error}"
    return outcome, watch


def check(template: str, renderer: Confined) -> str:
    """The same, with what it took checked."""
    tracemalloc.start()
    try:
        outcome, watch = attack(template, renderer)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert watch.memory < MEMORY_MB
    seconds = renderer._limits.seconds
    assert watch.seconds < seconds or watch.seconds < seconds + 0.3 * slowness()
    assert peak < PARENT_MB * 1e6
    assert outcome[0:1] != "!" or (len(outcome) < 1000 and outcome.isprintable())
    return outcome


ALL = {
    f"{kind}: {name}": template
    for kind, templates in (
        ("memory", hostile.MEMORY),
        ("time", hostile.TIME),
        ("compiling", hostile.COMPILING),
    )
    for name, template in templates.items()
}
# These end in an error by the limits, and nothing else would end them.
ENDLESS = ["memory: output in a loop", "memory: views kept", "memory: macro", "time: range product"]
ENDLESS += ["time: sort", "compiling: folded power"]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", some(list(ALL)[::3], list(ALL)[::15]))
def test_greed(name: str, quick: Confined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "_RENDERER", quick)
    check(ALL[name], quick)


@pytest.mark.full
@pytest.mark.parametrize("name", some(ENDLESS, ENDLESS[-1:]))
def test_greed_with_the_real_limits(name: str) -> None:
    assert check(ALL[name], chat._RENDERER).startswith("!the chat template was stopped: it ")
    assert render_chat("{{ messages[0].role }}", MESSAGES) == "user"


@pytest.mark.few(3)
@pytest.mark.parametrize("template", hostile.INTERNALS)
def test_nothing_inside_is_reached(template: str) -> None:
    """What the sandbox forbids is an error, or undefined, which renders as empty text."""
    outcome = check(template, chat._RENDERER)
    assert outcome.startswith("!the chat template") or outcome in ("", "None", "[]")


def main() -> None:
    """Every attack with the real limits; what each took, and the most."""
    print("seconds  cpu    MB  attack")
    templates = {**ALL, **{template: template for template in hostile.INTERNALS}}
    longest = largest = 0.0
    for name, template in templates.items():
        start = time.perf_counter()
        outcome, watch = attack(template, chat._RENDERER)
        seconds = time.perf_counter() - start
        longest, largest = max(longest, seconds), max(largest, watch.memory)
        told = outcome[1:] if outcome[:1] == "!" else f"{len(outcome)} characters"
        print(
            f"{seconds:7.3f} {watch.seconds:5.2f} {watch.memory:5.0f}  {name[:40]:40} {told[:90]}"
        )
    print(f"{len(templates)} attacks: at most {longest:.2f} s and {largest:.0f} MB")


if __name__ == "__main__":
    main()
