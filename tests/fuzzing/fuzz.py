"""Fuzz every reader: cases made from seeds go on as far as they get, in workers that are watched.

    python tests/fuzzing/fuzz.py --minutes 10
    python tests/fuzzing/fuzz.py --cases 1000000 --first-seed 0 --workers 2
    python tests/fuzzing/fuzz.py --target gguf --seed 12345

A case is a file or a set of files that a seed gives: opened, inspected, loaded, tokenized with, one
token generated, verified, quantized, compared. Whatever ends otherwise than well or in a
TrinityError is a finding: a signal, a hang, another exception, files left behind, more memory than
3 x the files + 300 MB, more time than 2 s + 1 s per 100 MB until the first token. ``--guard`` puts
protected pages before and behind every buffer, for each type on each level from TRINITY_ISA down.
``--target`` with ``--seed`` runs one case in this process and shows its error. Exit status 1 where
anything was found.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT, ROOT / "kernels"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

WORKER = "--worker"


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == [WORKER]:
        from tests.fuzzing.worker import main as work

        return work(arguments[1:])
    options = parse(arguments)
    return one_case(options) if options.seed is not None else many(options)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, help="how many, 10,000 unless --minutes is given")
    parser.add_argument("--minutes", type=float, help="how long")
    parser.add_argument("--first-seed", type=int, help="of consecutive seeds; by the clock")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--targets", default="", help="names with commas; all")
    parser.add_argument(
        "--hang", type=float, default=300, help="seconds a case may take, to compile too"
    )
    parser.add_argument(
        "--guard", action="store_true", help="models between protected pages, by type and level"
    )
    parser.add_argument("--target", help="with --seed: one case")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--keep", type=Path, help="with --seed: the folder for the case's files")
    options = parser.parse_args(arguments)
    if (options.target is None) != (options.seed is None):
        parser.error("--target and --seed name one case; --targets chooses for many")
    return options


def one_case(options: argparse.Namespace) -> int:
    from tests.fuzzing import case as cases
    from tests.fuzzing.targets import TARGETS

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.keep is not None:
            folder = options.keep
            folder.mkdir(parents=True, exist_ok=True)
            case = cases.Case(options.target, options.seed, folder)
            TARGETS[options.target](case)
        else:
            case = cases.run(options.target, TARGETS[options.target], options.seed, folder)
    print(
        f"{options.target} {options.seed}: {', '.join(sorted(case.reached)) or 'nothing reached'}"
    )
    for refusal in case.refusals:
        print(f"  refused: {refusal}")
    for stage, seconds in case.seconds.items():
        print(f"  {seconds:.3f} s until {stage}")
    return 0


def many(options: argparse.Namespace) -> int:
    from tests.fuzzing.targets import USUAL, schedule
    from tests.fuzzing.watch import Result, table, watch

    names = options.targets.split(",") if options.targets else list(USUAL)
    if options.guard:
        names = ["guard"]
    first = int(time.time()) * 1000 if options.first_seed is None else options.first_seed
    cases = options.cases or (10_000 if options.minutes is None else 1 << 40)
    print(f"seeds from {first} (--first-seed {first}), {options.workers} workers", flush=True)

    def show(result: Result) -> None:
        kinds = len(result.findings)
        print(f"{result.cases:,} cases in {result.seconds:.0f} s, {kinds} kinds of findings")
        sys.stdout.flush()

    result = watch(
        names,
        schedule(names),
        first,
        first + cases,
        workers=options.workers,
        seconds=None if options.minutes is None else 60 * options.minutes,
        hang_seconds=options.hang,
        main=[sys.executable, str(Path(__file__).resolve()), WORKER, "tests.fuzzing.targets"],
        progress=show,
    )
    print(table(result))
    for group, found in sorted(result.findings.items()):
        print(f"{found.count:6} x {group} (--target {found.target} --seed {found.seed})")
    show(result)
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
