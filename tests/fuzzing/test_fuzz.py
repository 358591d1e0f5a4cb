"""The fuzzer finds planted defects, and earlier findings stay fixed."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzzing import case as cases
from tests.fuzzing import fuzz, guard_pages, models, planted_defects
from tests.fuzzing.case import Case
from tests.fuzzing.corpus import FOUND
from tests.fuzzing.targets import SHARES, TARGETS, USUAL, schedule
from tests.fuzzing.watch import Result, table, watch
from trinity.formats.gguf_types import is_type_of_gguf
from trinity_kernels import isa
from trinity_kernels.quants import READERS

PLANTED = "tests.fuzzing.planted_defects"
MAIN = [sys.executable, str(Path(fuzz.__file__).resolve()), fuzz.WORKER, PLANTED]
OF_NO_GGUF = sorted(name for name in READERS if not is_type_of_gguf(name))
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, protects pages")


def run_planted(names: list[str], count: int, hang_seconds: float = 600) -> Result:
    return watch(
        names, planted_defects.schedule(names), 0, count, workers=2, seconds=None,
        hang_seconds=hang_seconds, main=MAIN,
    )  # fmt: skip


@pytest.mark.full
@LINUX
def test_planted_defects_are_found_and_the_run_goes_on() -> None:
    names = [name for name in planted_defects.TARGETS if name != "hangs"]
    result = run_planted(names, len(names))
    groups = {found.target: group for group, found in result.findings.items()}
    assert groups.pop("dies").startswith("SIGSEGV in dies")
    assert groups.pop("grows") == "memory in grows"
    assert groups.pop("works_long") == "time in works_long"
    assert groups.pop("raises").endswith("trinity/formats/json_object.py:_parsed")
    assert groups.pop("hides") == "memory in hides"
    assert groups.pop("litters") == "leftover in litters"
    assert groups == {}
    for name, row in result.counts.items():
        assert row["cases"] == (0 if name == "dies" else 1), name
    assert "good" in table(result)


@pytest.mark.full
@LINUX
def test_a_hang_is_killed_and_its_stack_kept() -> None:
    result = run_planted(["good", "good", "hangs"], 6, hang_seconds=6)
    (group,) = result.findings
    assert group == "hang in hangs"
    assert "planted_defects.py" in result.findings[group].text
    assert result.findings[group].count == 2
    assert result.counts["good"]["cases"] == 4
    assert result.counts["good"]["read"] == result.counts["good"]["refused"] == 2


def test_a_seed_gives_the_same_case(tmp_path: Path) -> None:
    one, other = (bytes(models.model(random.Random("x")).encode()[0]) for _ in range(2))
    assert one == other
    assert schedule(USUAL) == schedule(USUAL)
    assert sorted(schedule(USUAL)) == sorted(n for n in USUAL for _ in range(SHARES[n]))


@pytest.mark.full
@pytest.mark.parametrize("target", [name for name in USUAL if name != "wide"])
def test_some_cases_of_every_target(target: str, tmp_path: Path) -> None:
    reached: set[str] = set()
    few = {"gguf": 6, "split": 6, "tl": 6, "huggingface": 20, "packed": 12}
    for seed in range(few.get(target, 40)):
        reached |= cases.run(target, TARGETS[target], seed, tmp_path).reached
    assert reached - {"refused"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.few(6)
@pytest.mark.parametrize("found", FOUND, ids=lambda f: f.__name__)
def test_what_was_found_stays_fixed(found: Callable[[Case], None], tmp_path: Path) -> None:
    cases.run(found.__name__, found, 0, tmp_path)


@LINUX
@pytest.mark.full
@pytest.mark.parametrize("type_name", ["I2_S", "Q4_0", "F16", OF_NO_GGUF[0], OF_NO_GGUF[-1]])
def test_between_protected_pages(
    type_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.fuzzing import target_guard

    level = isa.available_levels()[-1]
    for at_end in (True, False):
        monkeypatch.setattr(target_guard, "combinations", lambda e=at_end: [(type_name, level, e)])
        case = cases.run("guard", target_guard.guard, 0, tmp_path)
        assert case.reached >= {"loaded", "token"}


def test_every_type_that_runs_comes_between_protected_pages() -> None:
    from tests.fuzzing import target_guard

    assert {type_name for type_name, _, _ in target_guard.combinations()} == set(READERS)


@LINUX
@pytest.mark.parametrize("at_end", [True, False])
def test_a_guarded_array_ends_at_the_page(at_end: bool) -> None:
    data = guard_pages.guarded(100, at_end=at_end)
    data[:] = 7
    page = guard_pages.mmap.PAGESIZE
    edge = data.ctypes.data + (data.nbytes if at_end else 0)
    assert edge % page == 0
