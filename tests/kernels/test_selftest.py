"""The self-test passes on this machine and detects a wrong kernel."""

from __future__ import annotations

from typing import Any

import pytest

import trinity_kernels
from tests.kernels.process import run_python
from tests.matrix import KINDS, some, types
from trinity_kernels import isa, selftest
from trinity_kernels._jit import kernel
from trinity_kernels.isa import IsaError, available_levels
from trinity_kernels.ops import activation, kv_layout
from trinity_kernels.ops.matmul.activations import FORMS
from trinity_kernels.ops.matmul.panel_layout import panel_types
from trinity_kernels.ops.matmul.tile_layout import tile_types

ALL = [(name, tag) for name, check in selftest.KERNELS.items() for tag in check.tags]
FEW = [(name, tag) for name, tag in ALL if tag not in FORMS or tag in KINDS]
KERNELS = pytest.mark.parametrize(("name", "tag"), some(ALL, FEW))


@kernel
def nothing(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Computes nothing."""


def levels_of(name: str) -> list[str]:
    tiled = selftest.KERNELS[name].kernel.uses_tiles
    without = {"portable"} if name == "matmul_panels" else set()
    return [
        level
        for level in available_levels()
        if (level == "amx" or not tiled) and level not in without
    ]


def test_every_registered_tag_is_covered() -> None:
    tags = {name: set(check.tags) for name, check in selftest.KERNELS.items()}
    assert tags["matmul"] == set(FORMS)
    assert tags["attention"] == tags["rope_store"] == set(kv_layout.KV_TYPES)
    assert tags["gated"] == set(activation.ACTIVATIONS)
    assert tags["matmul_tiles"] == set(tile_types())
    assert tags["matmul_panels"] == set(panel_types())
    assert all(name == check.kernel.name for name, check in selftest.KERNELS.items())


@KERNELS
def test_kernels_pass(name: str, tag: str, levels: tuple[str, ...]) -> None:
    for level in {*levels}.intersection(levels_of(name)):
        assert selftest.check(name, level, tag) is None


@KERNELS
def test_a_kernel_that_computes_nothing_fails(
    name: str, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not levels_of(name):
        pytest.skip("its check runs other kernels, which this CPU cannot run")
    monkeypatch.setitem(selftest.KERNELS, name, selftest.KERNELS[name]._replace(kernel=nothing))
    assert selftest.check(name, levels_of(name)[0], tag)


@pytest.mark.parametrize(
    "wrong", types(tag for tag in FORMS if FORMS[tag] == FORMS["Q4_0"] and tag != "Q4_0")
)
def test_the_code_of_another_type_fails(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q4_0 has the smallest blocks of its form, so nothing is read out of bounds."""
    matmul = selftest.KERNELS["matmul"]

    class Swapped:
        uses_tiles = False

        def address(self, level: str, tag: str) -> int:
            return matmul.kernel.address(level, "Q4_0")

    monkeypatch.setitem(selftest.KERNELS, "matmul", matmul._replace(kernel=Swapped()))
    assert selftest.check("matmul", available_levels()[0], wrong)


@pytest.mark.full
def test_run_reports_each_kernel() -> None:
    lines: list[str] = []
    results = selftest.run(["portable"], lines.append)
    checked = [line for line in lines if line.startswith("portable: ")]
    assert len(checked) == len(results)
    assert all(r.passed and r.level == "portable" for r in results)
    tiles = {name for name, check in selftest.KERNELS.items() if check.kernel.uses_tiles}
    tiles.add("matmul_panels")
    found = {(r.kernel, r.tag) for r in results}
    assert found == {(name, tag) for name, tag in ALL if name not in tiles}


def test_levels_that_cannot_run_are_refused() -> None:
    with pytest.raises(IsaError, match="unknown"):
        selftest.run(["avx513"])
    with pytest.raises(IsaError, match="unknown"):
        trinity_kernels.warmup("avx513")
    lacking = [level for level in isa.LEVELS if level not in available_levels()]
    with pytest.raises(IsaError, match="cannot run here"):
        selftest.run(lacking[:1])


def test_the_package_alone_is_light() -> None:
    code = "import sys, trinity_kernels; print({'numba', 'llvmlite'} & set(sys.modules))"
    assert run_python(code).strip() == "set()"
