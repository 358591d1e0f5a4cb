"""Kill replicas of a server on Ray in mid-stream, and compare every text with an undisturbed one.

    python tests/soak/replicas.py --kills 50

Four clients stream at the same time. A replica is killed at a random moment: while requests wait,
while prompts are computed, while tokens are generated, at the end. Exit status 1 if a text differs
or a client gets an error.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT, ROOT / "kernels"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from tests.ray.running import served  # noqa: E402
from trinity import load  # noqa: E402
from trinity.loading import chat_model  # noqa: E402

LONG = "Pierre looked at Natasha and did not know what to say to her. " * 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    asked = [
        ("Who is Pierre?", {"temperature": 0, "max_tokens": 100, "ignore_eos": True}),
        ("Who is Natasha?", {"temperature": 0.9, "seed": 3, "max_tokens": 160, "ignore_eos": True}),
        (LONG, {"temperature": 0.7, "seed": 4, "max_tokens": 60, "ignore_eos": True}),
        (
            "Who is Kutuzov?",
            {"temperature": 1.0, "seed": 5, "max_tokens": 200, "stop": ["zzz"], "ignore_eos": True},
        ),
    ]
    with load(chat_model(), context_length=1024, threads=1) as model:
        wanted = [model.chat([{"role": "user", "content": q}], **o).text for q, o in asked]
    wrong = same = 0
    with tempfile.TemporaryDirectory() as folder, served(Path(folder) / "log") as server:
        for number in range(1, arguments.kills + 1):
            victims = server.wait()
            with ThreadPoolExecutor(len(asked)) as pool:
                began = time.monotonic()
                found = [pool.submit(server.streamed, q, **o) for q, o in asked]
                moment = draw.uniform(0, 0.7)
                time.sleep(moment)
                victim = draw.choice(victims)
                server.kill(victim)
                running = sum(not one.done() for one in found)
                for one, text in zip(found, wanted, strict=True):
                    error = one.exception()
                    if error is None and one.result() == text:
                        same += 1
                    else:
                        wrong += 1
                        print(f"kill {number}: {error!r} {error or one.result()!r}", flush=True)
            seconds = time.monotonic() - began
            print(
                f"kill {number} after {moment:.2f} s, {running} running: {same} same, {wrong} "
                f"wrong, {seconds:.1f} s",
                flush=True,
            )
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
