"""tests/soak/load_close.py detects leaks; the script itself takes thousands of turns."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.soak.attacked_server import write_models
from tests.soak.load_close import grown, server_turns

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")


@pytest.mark.full
def test_two_models_take_turns_in_a_server_without_the_collector(tmp_path: Path) -> None:
    write_models(tmp_path)
    seen, wrong = server_turns(tmp_path, 60)
    assert wrong == 0
    assert grown(seen) == []


def test_what_grows_is_found() -> None:
    flat = [{"descriptors": 9, "mappings": 400, "anonymous kB": 60_000} for _ in range(100)]
    assert grown(flat) == []
    for name, more in (("descriptors", 1), ("mappings", 21), ("anonymous kB", 3 << 10)):
        last = {**flat[0], name: flat[0][name] + more}
        assert [one.split(":")[0] for one in grown([*flat[:-1], last])] == [name]
