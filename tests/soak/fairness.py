"""Attack a server, and measure an ordinary client and /health beside each attack, and memory after.

    python tests/soak/fairness.py
    python tests/soak/fairness.py --seconds 30 doubling_grammars idle_connections
    python tests/soak/fairness.py --table report.jsonl

The attacks are the functions of tests/soak/attacks. A server with a random, tiny model runs in a
process of its own, an attack in another, from another address and with another key than the
ordinary client. What must hold beside an attack is in ``LIMITS``. The machine itself may be busy,
and an attacker shares its processors with the server: a second server, which nobody attacks, is
asked in the same way at the same time, and what its worst times exceed its own idle times is added
to the limits of time. Exit status 1 where an attack misses a limit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT, ROOT / "kernels"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from tests.soak.attacked_server import KINDS, Server, running, write_models  # noqa: E402
from tests.soak.attacks.target import Attack, Target, all_attacks  # noqa: E402
from tests.soak.fairness_report import append, table  # noqa: E402
from tests.soak.ordinary_client import PATIENCE, Times, Watch, chat, health  # noqa: E402

# Beside an attack, an ordinary client's first token comes within FIRST_FACTOR times the idle
# server's time and FIRST_MORE seconds; between tokens pass at most GAP seconds, until an answer of
# /health HEALTH seconds. MEMORY_SECONDS after it the server has at most MEMORY bytes more.
FIRST_FACTOR, FIRST_MORE = 3.0, 0.200
GAP = 0.250
HEALTH = 0.050
MEMORY, MEMORY_SECONDS = 64 << 20, 10.0
TRIES = 2
NAMES = ("first token", "gap", "/health")


@dataclass
class Measured:
    """What an attack did: to a server, to one that nobody attacked, to memory."""

    attack: str
    answers: dict[str, int]
    sent: int
    idle: float  # seconds until a first token on the idle server, the median
    attacked: Times
    apart: Times
    apart_idle: tuple[float, float, float]
    grown: int
    ended: int | None
    scale: float = 1.0  # of the limits of time, for a machine that does other work, too
    waited: float = 0.0  # seconds after the attack until ``grown`` was measured

    def promised(self) -> tuple[float, float, float]:
        """The limits of first token, gap and /health on a machine that does nothing else."""
        return FIRST_FACTOR * self.idle + FIRST_MORE, GAP, HEALTH

    def limits(self) -> tuple[float, float, float]:
        """The limits of first token, gap and /health, with what the machine itself added."""
        pairs = zip(self.promised(), self.apart.worst(), self.apart_idle, strict=True)
        first, gap, answer = (
            self.scale * (limit + max(0.0, busy - idle)) for limit, busy, idle in pairs
        )
        return first, gap, answer

    def missed(self, limits: tuple[float, float, float] | None = None) -> list[str]:
        """What did not hold, of ``limits`` or of the object's own."""
        found = []
        for name, seconds, limit in zip(
            NAMES, self.attacked.worst(), limits or self.limits(), strict=True
        ):
            if seconds > limit:
                found.append(f"{name} {seconds * 1000:.0f} ms, limit {limit * 1000:.0f} ms")
        if not self.attacked.firsts:
            found.append("no chat was answered")
        if self.attacked.failures:
            found.append(f"{len(self.attacked.failures)} failed: {self.attacked.failures[0]:.300}")
        if self.grown > MEMORY:
            found.append(f"{self.grown >> 20} MB more, limit {MEMORY >> 20} MB")
        elif self.waited > self.scale * MEMORY_SECONDS:
            found.append(f"memory came back after {self.waited:.0f} s")
        if self.ended is not None:
            found.append(f"the server ended with {self.ended}")
        return found

    def row(self) -> dict[str, object]:
        """The worst figures against the limits without ``scale``, for a report."""
        strict = replace(self, scale=1.0)
        return {
            "attack": self.attack,
            "idle": self.idle,
            "worst": dict(zip(NAMES, self.attacked.worst(), strict=True)),
            "promised": dict(zip(NAMES, strict.promised(), strict=True)),
            "with_machine": dict(zip(NAMES, strict.limits(), strict=True)),
            "memory": self.grown,
            "memory_seconds": self.waited,
            "missed": strict.missed(strict.promised()),
            "missed_with_machine": strict.missed(),
        }

    def __str__(self) -> str:
        first, gap, answer = (1000 * one for one in self.attacked.worst())
        came = ", ".join(f"{count} x {what}" for what, count in sorted(self.answers.items()))
        line = (
            f"{self.attack:36} first {first:6.0f} ms (idle {1000 * self.idle:3.0f}), "
            f"gap {gap:5.0f}, health {answer:5.0f}, {self.grown >> 20:4} MB; {came or self.sent}"
        )
        return "\n".join([line, *(f"    MISSED {one}" for one in self.missed())])


def measured(
    attack: Attack, server: Server, apart: Server, seconds: float, scale: float = 1.0
) -> Measured:
    """Attack a server for that long. ``apart`` is a server that nobody attacks."""
    for one in (server, apart):
        chat(one.port)
    idle = statistics.median(chat(server.port)[0] for _ in range(5))
    calm = [chat(apart.port) for _ in range(3)]
    apart_idle = (
        min(first for first, _ in calm),
        min(gap for _, gap in calm),
        min(health(apart.port)[1] for _ in range(3)),
    )
    before = server.memory()
    attacker = subprocess.Popen(
        [sys.executable, __file__, "--attack", attack.name, "--port", str(server.port),
         "--seconds", str(seconds)], stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    watches = [Watch(server.port), Watch(apart.port)]
    try:
        out, _ = attacker.communicate(timeout=seconds + PATIENCE + 60)
    finally:
        attacker.kill()
        ended = time.monotonic()
        attacked, alone = (watch.end() for watch in watches)
    grown, waited = server.memory() - before, 0.0
    while grown > MEMORY and waited < scale * MEMORY_SECONDS:
        time.sleep(0.1)
        waited = time.monotonic() - ended
        grown = server.memory() - before
    done = json.loads(out or '{"answers": {}, "sent": 0}')
    return Measured(
        attack.name, done["answers"], done["sent"], idle, attacked, alone, apart_idle, grown,
        server.process.poll(), scale, waited,
    )  # fmt: skip


def strike(attack: Attack, port: int, seconds: float) -> None:
    """Attack, in this process, then say what came back; clients leave as the process ends."""
    os.nice(19)  # an attacker has processors of its own: here the server goes first
    target = Target(port, seconds)
    attack.act(target)
    print(json.dumps({"answers": target.answers, "sent": target.sent}), flush=True)
    os._exit(0)


class Range:
    """The servers, each started when an attack first needs it, and again where it has ended."""

    def __init__(self, models: Path) -> None:
        self._models, self._stack = models, ExitStack()
        self._servers: dict[str, Server] = {}

    def __enter__(self) -> Range:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def measure(
        self, attack: Attack, seconds: float, scale: float = 1.0, tries: int = TRIES
    ) -> Measured:
        """Attack; where a limit was missed, again on a new server, up to so many times.

        The first try is appended to the report, if there is one.
        """
        for number in range(tries):
            server, apart = self.server(attack.server), self.server("apart")
            found = measured(attack, server, apart, seconds, scale)
            if number == 0:
                append({**found.row(), "seconds": seconds})
            if not found.missed():
                break
            self._end(attack.server)
        return found

    def server(self, name: str) -> Server:
        """The server of that kind; "apart" is one that nobody attacks."""
        if name not in self._servers:
            kind = KINDS["usual" if name == "apart" else name]
            self._servers[name] = self._stack.enter_context(running(self._models, kind))
        return self._servers[name]

    def _end(self, name: str) -> None:
        self._servers.pop(name).close()


def main() -> int:
    attacks = all_attacks()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack")
    parser.add_argument("--scale", type=float, default=1.0, help="of the limits of time")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print a report, attack nothing")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="ATTACK", help=", ".join(attacks))
    options = parser.parse_args()
    if options.attack:
        strike(attacks[options.attack], options.port, options.seconds)
    if options.table:
        print(table(options.table))
        return 0
    missed = 0
    with tempfile.TemporaryDirectory() as temporary:
        models = Path(temporary)
        write_models(models)
        with Range(models) as servers:
            for name in options.names or attacks:
                found = servers.measure(attacks[name], options.seconds, options.scale)
                missed += bool(found.missed())
                print(found, flush=True)
    print(f"{len(options.names or attacks)} attacks, {missed} missed a limit")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
