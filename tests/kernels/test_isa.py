"""Available levels, the chosen one, and errors for one that is not available."""

from __future__ import annotations

import pytest

from tests.kernels.process import run_python
from trinity_kernels import isa

SELECT = "from trinity_kernels import isa; print(isa.select_level())"
LEVELS = "from trinity_kernels import isa; print(*isa.available_levels())"
REFUSED = """
from trinity_kernels import isa
try:
    isa.select_level("amx")
except isa.IsaError as error:
    print(error)
"""
HASWELL = "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe,+popcnt,+sse4.2,+sse4.1,+ssse3"


def test_levels_are_ordered_and_end_in_portable() -> None:
    levels = isa.available_levels()
    assert levels[-1] == "portable"
    assert list(levels) == [level for level in isa.LEVELS if level in levels]


def test_bases_are_lower_levels_of_the_same_processors() -> None:
    for level, base in isa.BASES.items():
        assert isa.LEVELS.index(level) < isa.LEVELS.index(base)
        assert isa._ARCHITECTURES[level] == isa._ARCHITECTURES[base]


def test_the_best_level_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRINITY_ISA", raising=False)
    assert isa.select_level() == isa.available_levels()[0]


def test_an_argument_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRINITY_ISA", "nonsense")
    assert isa.select_level("portable") == "portable"


def test_unknown_level(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(isa.IsaError, match=r"unknown .* 'sse9'; the levels are amx, .*portable"):
        isa.select_level("sse9")
    monkeypatch.setenv("TRINITY_ISA", "avx513")
    with pytest.raises(isa.IsaError, match="'avx513'"):
        isa.select_level()


def test_environment_of_a_process() -> None:
    assert run_python(SELECT, TRINITY_ISA="portable").strip() == "portable"


def test_a_level_that_the_cpu_lacks_names_what_is_missing() -> None:
    said = run_python(REFUSED, NUMBA_CPU_NAME="haswell", NUMBA_CPU_FEATURES=HASWELL)
    assert "'amx' cannot run here: missing amx-tile" in said
    assert "available are" in said
    assert "portable" in said


@pytest.mark.full
def test_features_that_numba_is_told_decide() -> None:
    assert run_python(LEVELS, NUMBA_CPU_NAME="generic").split() == ["portable"]
    # Without a name they are added to all that this one's implies, of which a host may hide some.
    haswell = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": HASWELL}
    assert run_python(LEVELS, **haswell).split() == ["avx2", "portable"]
    assert run_python(LEVELS, NUMBA_DISABLE_JIT="1").split() == ["portable"]
