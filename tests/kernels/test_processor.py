"""Features of ARM processors, from what Linux reports."""

from __future__ import annotations

import ctypes
import json
import platform
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernels.arm_processors import PROCESSORS, Processor
from tests.kernels.process import run_python
from trinity_kernels import isa, trial
from trinity_kernels.processor import Target, arm_features, auxiliary_words, feature_text, listed

# This process as an ARM processor: what LLVM and Linux say is given, what Numba gets is printed.
PRETEND = """
import json, sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
llvm.get_process_triple = lambda: "aarch64-unknown-linux-gnu"
llvm.get_host_cpu_name = lambda: {name!r}
from llvmlite.binding.targets import FeatureMap
llvm.get_host_cpu_features = lambda: FeatureMap(
    {{"neon": True, "fp-armv8": True, "sve": True}}
)
import trinity_kernels.processor as processor
processor._identity = lambda: None
processor.host_arm_features = lambda: processor.arm_features(*{words!r})
{before}
from trinity_kernels import isa, trial
trial.failures = lambda levels: {{}}
here = processor.target()
print(json.dumps([here.name, here.features, isa.available_levels()]))
"""


def pretend(machine: str, before: str = "", **environment: str) -> tuple[str, set[str], list[str]]:
    """Set Numba's name of the processor, its features, and the available levels."""
    one = PROCESSORS[machine]
    code = PRETEND.format(name=one.llvm_name, words=one.hwcaps(), before=before)
    name, features, levels = json.loads(run_python(code, **environment))
    return name, set(features.split(",")), levels


@pytest.fixture
def fresh() -> Iterator[None]:
    """Forget what isa knows of this process."""
    remembered = (isa.possible_levels, isa.available_levels, isa._lost)
    for function in remembered:
        function.cache_clear()
    yield
    for function in remembered:
        function.cache_clear()


@pytest.mark.parametrize("machine", PROCESSORS.values(), ids=PROCESSORS.keys())
def test_the_level_of_a_processor(
    machine: Processor, fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = feature_text(arm_features(*machine.hwcaps()))
    here = Target("aarch64", machine.llvm_name, features, listed(features), False)
    monkeypatch.setattr(isa, "target", lambda: here)
    monkeypatch.setattr(trial, "failures", lambda levels: {})
    monkeypatch.delenv("TRINITY_ISA", raising=False)
    assert isa.select_level() == machine.level
    assert isa.available_levels()[-1] == "portable"
    # What the name would imply and the system does not show is switched off, not left out.
    assert {f"-{name}" for name in machine.withheld} <= set(features.split(","))
    lacking = {"portable": ("neon", "dotprod"), "neon": ("neon-i8mm", "i8mm")}
    if machine.level in lacking:
        level, feature = lacking[machine.level]
        with pytest.raises(isa.IsaError, match=f"'{level}' cannot run here: missing {feature}"):
            isa.select_level(level)


def test_words_of_the_auxiliary_vector() -> None:
    # The words of two machines as bits, not through the table of names.
    assert PROCESSORS["pi4"].hwcaps() == (0x887, 0)
    assert PROCESSORS["pi5"].hwcaps() == (0x119FFF, 0)
    assert arm_features(0x887, 0)["neon"]
    assert not arm_features(0x887, 0)["dotprod"]
    assert arm_features(0x119FFF, 0)["dotprod"]
    assert arm_features(0x119FFF, 1 << 13)["i8mm"]
    # Half of what a feature needs is not enough: AES without PMULL, SHA-3 without SHA-512.
    assert not arm_features(0b1011, 0)["aes"]
    assert not arm_features(0b11 | 1 << 17, 0)["sha3"]


@pytest.mark.parametrize("word", [0, 1 << 20, 0b01, 0b10])
def test_words_that_say_nothing(word: int) -> None:
    assert arm_features(word, 0) == {}


def test_what_is_missing_comes_last() -> None:
    assert feature_text({"sve": False, "neon": True, "dotprod": True}) == "+dotprod,+neon,-sve"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("+a,-b,+c", {"a", "c"}),
        ("+a,-a", set()),
        ("-a,+a", {"a"}),
        (" +a , +b", {"a", "b"}),
        ("", set()),
        ("a,,+", set()),
    ],
)
def test_features_of_a_text(text: str, found: set[str]) -> None:
    assert listed(text) == found


def test_the_vector_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: object) -> None:
        raise OSError("no C library")

    monkeypatch.setattr(ctypes, "CDLL", none)
    file = tmp_path / "auxv"
    file.write_bytes(struct.pack("LLLLLLLL", 33, 7, 16, 0x119FFF, 26, 1 << 13, 0, 0))
    assert auxiliary_words(file) == (0x119FFF, 1 << 13)
    file.write_bytes(b"\x10\0\0")
    assert auxiliary_words(file) == (0, 0)
    assert auxiliary_words(tmp_path / "missing") == (0, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="the auxiliary vector is Linux's")
def test_both_ways_to_the_vector_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    by_call = auxiliary_words()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    # On x86 glibc puts a word of its own in the first one's place.
    first = 1 if platform.machine() == "x86_64" else 0
    assert auxiliary_words()[first:] == by_call[first:]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "machine", ["pi5", "m1-virtual", "altra-masked", "phone-no-sve", "snapdragon-x"]
)
def test_numba_gets_what_the_processor_has(machine: str) -> None:
    one = PROCESSORS[machine]
    name, features, levels = pretend(machine)
    assert name == one.compiled_for
    assert levels[0] == one.level
    assert ("-dotprod" if one.level == "portable" else "+dotprod") in features
    assert ("+i8mm" if one.level == "neon-i8mm" else "-i8mm") in features
    # LLVM's own word for SVE, given above, does not stand against the system's.
    assert "-sve" in features


def test_a_name_of_the_users_keeps_the_features() -> None:
    name, features, levels = pretend("pi5", NUMBA_CPU_NAME="cortex-a72")
    assert name == "cortex-a72"
    assert "+dotprod" in features
    assert levels == ["neon", "portable"]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "environment",
    [
        {"NUMBA_CPU_NAME": "generic"},
        {"NUMBA_CPU_FEATURES": ""},
        {"NUMBA_CPU_FEATURES": "+neon"},
        {"NUMBA_CPU_FEATURES": "+neon,+dotprod,-dotprod"},
        {"NUMBA_CPU_FEATURES": "+avx2,+fma,+f16c"},
    ],
)
def test_features_of_the_users_replace_the_processors(environment: dict[str, str]) -> None:
    _, features, levels = pretend("pi5", **environment)
    assert features == set(environment.get("NUMBA_CPU_FEATURES", "").split(","))
    assert levels == ["portable"]


@pytest.mark.full
def test_a_program_that_used_numba_first() -> None:
    # Numba's target machine is made by then; kernels are written by one of their own.
    assert pretend("pi5", "import numba; numba.njit(lambda: None)") == pretend("pi5")


@pytest.mark.full
def test_an_unknown_system_leaves_llvms_word() -> None:
    _, features, levels = pretend("pi5", "processor.host_arm_features = dict")
    assert features == {"+neon", "+fp-armv8", "+sve"}
    assert levels == ["portable"]
