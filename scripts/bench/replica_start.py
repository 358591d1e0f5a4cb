"""Measure how long a new replica takes from the start of its process to its first response.

    python scripts/bench/replica_start.py --model smollm2.gguf --times 3

A deployment of one replica starts on Ray, answers a request of one token, and ends. Printed are the
seconds from the start of its process to its constructor (Python, Ray and trinity are imported), for
loading the model, and until the first token. Kernels come from the wheel or from the cache.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [str(ROOT), str(ROOT / "kernels")]
sys.path[:0] = [folder for folder in FOLDERS if folder not in sys.path]

from trinity.ray.cluster import Replicas, connected  # noqa: E402
from trinity.ray.replica import Replica  # noqa: E402

NAME = "replica-start"


def age() -> float:
    """Return the seconds since this process started."""
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


class TimedReplica(Replica):
    """A replica that notes its age."""

    def __init__(self, ref: str) -> None:
        begun = age()
        super().__init__(ref, 1, {"context_length": 1024})
        self._ages = begun, age()

    def first(self) -> tuple[float, float, float]:
        """Return the ages at the beginning and end of the constructor, and after a token."""
        before = age()
        self._model.generate("Hello", max_tokens=1)
        return (*self._ages, self._ages[1] + age() - before)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([*FOLDERS, os.environ.get("PYTHONPATH", "")])
    with connected(Replicas(1, 1)):
        from ray import serve

        serve.start(proxy_location="Disabled", logging_config={"log_level": "ERROR"})
        deployment: Any = serve.deployment(TimedReplica, name="replica")
        for _ in range(options.times):
            handle = serve.run(deployment.bind(options.model), name=NAME, route_prefix=None)
            begun, loaded, ended = handle.first.remote().result()
            print(
                f"constructor after {begun:.2f} s, model loaded in {loaded - begun:.2f} s, first "
                f"token {ended - loaded:.2f} s later; without loading "
                f"{ended - loaded + begun:.2f} s", flush=True,
            )  # fmt: skip
            serve.delete(NAME)
    return 0


if __name__ == "__main__":
    sys.exit(main())
