"""Decoding of request bodies in many threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trinity.server.schemas import _LONE

ROOT = Path(__file__).resolve().parents[2]
# Threads that meet types for the first time, each in another order.
CODE = """
import random, sys, threading
import msgspec
from trinity.server import schemas
from trinity.server.endpoints import ENDPOINTS

sys.setswitchinterval(1e-6)
kinds = [one.body for one in ENDPOINTS if one.body is not None]
values = (None, [{"role": "user", "content": [{"type": "text", "text": "x"}]}], "x", 1)
bodies = {
    kind: [msgspec.json.encode({field: value}) for value in values
           for field in getattr(kind, "__struct_encode_fields__", ())]
    for kind in kinds
}
barrier = threading.Barrier(16)

def decode(seed):
    order = random.Random(seed).sample(kinds, len(kinds))
    barrier.wait()
    for kind in order:
        for body in bodies[kind]:
            try:
                schemas.decoder(kind).decode(body)
            except msgspec.ValidationError:
                pass

threads = [threading.Thread(target=decode, args=(seed,)) for seed in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.full
def test_types_that_many_threads_meet_at_once() -> None:
    """msgspec itself crashes there."""
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_half_a_character_is_searched_in_parts() -> None:
    """A regex match holds the interpreter's lock."""
    text = b'"' + b"\\n" * 10_000 + b"x" * 1_000_000 + b'\\ud83d\\ude00\\ud83d"'
    matches = list(_LONE.finditer(text))
    assert b"".join(match.group() for match in matches) == text
    assert max(len(match.group()) for match in matches) <= 512 * 512
    assert [match["half"] for match in matches if match["half"]] == [b"\\ud83d"]
