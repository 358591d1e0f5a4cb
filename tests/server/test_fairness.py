"""Beside every attack of tests/soak/attacks an ordinary client is served, and memory comes back.

Each attack takes half a second here; ``python tests/soak/fairness.py`` takes longer ones. The
limits of time are three times those of fairness.py, because the machine may do other work, and grow
on a slower machine. They also grow by what a second server, which nobody attacks, loses at the same
time. An attack that misses a limit is tried again on a new server. The limit of memory is the one
that is promised. With TRINITY_FAIRNESS_REPORT, the first try of each attack is also compared with
the limits of fairness.py (see tests/soak/README.md).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.matrix import some
from tests.processor_time import slowness
from tests.soak import fairness, fairness_report
from tests.soak.attacked_server import write_models
from tests.soak.attacks.target import Attack, all_attacks
from tests.soak.fairness import Measured, Range
from tests.soak.ordinary_client import Times, Watch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, uses 127.0.0.2")
SECONDS, SCALE, TRIES = 0.5, 3.0, 3
ATTACKS = list(all_attacks().values())
# `make test` runs three of the first attacks of each file and of each kind of server; .ci/run runs
# all of these and a third of all attacks, which are at least 40.
FIRST = [
    *{one.act.__module__: one for one in reversed(ATTACKS)}.values(),
    *{one.server: one for one in reversed(ATTACKS)}.values(),
]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Range]:
    models = tmp_path_factory.mktemp("fairness")
    write_models(models)
    with Range(models) as found:
        yield found


@pytest.mark.few(1)
@pytest.mark.parametrize("attack", some(ATTACKS, FIRST, ATTACKS[::3]), ids=lambda one: one.name)
def test_an_ordinary_client_is_served_beside(attack: Attack, servers: Range) -> None:
    found = servers.measure(attack, SECONDS, SCALE * slowness(), TRIES)
    assert found.missed() == [], str(found)
    assert found.sent > 0 or found.attacked.firsts


def measured(attacked: Times, apart: Times, **changes: object) -> Measured:
    given = {"attack": "x", "answers": {}, "sent": 1, "idle": 0.010, "attacked": attacked,
             "apart": apart, "apart_idle": (0.01, 0.002, 0.001), "grown": 0,
             "ended": None}  # fmt: skip
    return Measured(**{**given, **changes})  # type: ignore[arg-type]


CALM = Times([0.01], [0.002], [0.001])


def test_limits_are_those_that_are_promised() -> None:
    assert measured(CALM, CALM).limits() == pytest.approx((0.230, 0.250, 0.050))
    assert measured(CALM, CALM).missed() == []
    assert measured(Times([0.24], [0.26], [0.06]), CALM).missed() == [
        "first token 240 ms, limit 230 ms",
        "gap 260 ms, limit 250 ms",
        "/health 60 ms, limit 50 ms",
    ]


def test_what_the_machine_adds_is_added_to_the_limits() -> None:
    busy = Times([0.11], [0.102], [0.101])
    assert measured(CALM, busy).limits() == pytest.approx((0.330, 0.350, 0.150))
    assert measured(CALM, busy, scale=2.0).limits() == pytest.approx((0.660, 0.700, 0.300))


def test_what_is_not_answered_misses() -> None:
    assert measured(Times(), CALM).missed() == ["no chat was answered"]
    assert measured(Times([0.01], failures=["refused"]), CALM).missed() == ["1 failed: refused"]
    assert measured(CALM, CALM, grown=65 << 20).missed() == ["65 MB more, limit 64 MB"]
    assert measured(CALM, CALM, ended=-9).missed() == ["the server ended with -9"]


def test_a_report_has_the_strict_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.jsonl"
    rows = [
        measured(CALM, CALM, attack="calm", scale=3.0).row(),
        measured(Times([0.24], [0.002], [0.06]), CALM, attack="slow", scale=3.0).row(),
        measured(
            Times([0.33], [0.002], [0.001]), Times([0.2], [0.002], [0.001]), attack="busy"
        ).row(),
        measured(CALM, CALM, attack="late", scale=3.0, waited=12.0).row(),
    ]
    monkeypatch.delenv("TRINITY_FAIRNESS_REPORT", raising=False)
    fairness_report.append(rows[0])  # writes nothing
    monkeypatch.setenv("TRINITY_FAIRNESS_REPORT", str(path))
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    for row in rows:
        fairness_report.append(row)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [one["attack"] for one in found] == ["calm", "slow", "busy", "late"]
    assert [one["workers"] for one in found] == [2] * 4
    assert found[1]["promised"] == {"first token": 0.23, "gap": 0.25, "/health": 0.05}
    assert found[1]["worst"] == {"first token": 0.24, "gap": 0.002, "/health": 0.06}
    assert [one["missed"] for one in found] == [
        [],
        ["first token 240 ms, limit 230 ms", "/health 60 ms, limit 50 ms"],
        ["first token 330 ms, limit 230 ms"],
        ["memory came back after 12 s"],
    ]
    assert [bool(one["missed_with_machine"]) for one in found] == [False, True, False, True]
    table = fairness_report.table(path)
    assert "| slow | 240 of 230 | 2 of 250 | 60 of 50 | 0 (0.0) | 2, " in table
    assert "limit 230 ms (kept with what the machine added) |" in table
    assert "4 attacks: 1 kept every limit, 2 kept them" in table


@pytest.mark.full
def test_an_attack_on_an_application_that_blocks_its_loop_is_seen(
    servers: Range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted defect: the server's process is stopped for a while during the attack."""
    server = servers.server("usual")

    class Pausing(Watch):
        """Stops the attacked server while it is watched."""

        def __init__(self, port: int) -> None:
            super().__init__(port)
            if port == server.port:
                os.kill(server.process.pid, signal.SIGSTOP)
                threading.Timer(3.0, os.kill, (server.process.pid, signal.SIGCONT)).start()

    monkeypatch.setattr(fairness, "Watch", Pausing)
    found = fairness.measured(
        all_attacks()["idle_connections"], server, servers.server("apart"), 1.0
    )
    assert any(one.startswith("/health") for one in found.missed())
