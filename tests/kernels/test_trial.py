"""A level that the compiler or processor cannot run ends only a child process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.process import run_python
from tests.matrix import some
from trinity_kernels import isa, trial
from trinity_kernels.processor import Target

HAS = frozenset({"neon", "dotprod"})
ARM = Target("aarch64", "cortex-a76", "+neon,+dotprod", HAS, True)
LEVELS = """
import warnings
from trinity_kernels import isa
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        print(*isa.available_levels())
    except isa.IsaError as error:
        print("refused:", error)
for warning in caught:
    print(warning.category.__name__, warning.message)
"""
REQUESTED = """
from trinity_kernels import isa
try:
    isa.select_level()
except isa.IsaError as error:
    print(error)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of outcomes, with a processor whose levels must be tried."""
    monkeypatch.setattr(trial, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(trial, "target", lambda: ARM)
    return tmp_path


def child(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Replace the child's work; ``levels`` are its levels, ``ok(level)`` whether one works."""
    start = (
        "import json, os, signal, sys, time\n"
        "levels = json.loads(sys.argv[1])['levels']\n"
        "ok = lambda level: print(json.dumps([level, '']), flush=True)\n"
    )
    monkeypatch.setattr(trial, "_START", start + code)


def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object, **options: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "run", refused)


def test_x86_as_it_is_needs_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Target("x86_64", "haswell", "+avx2", frozenset({"avx2"}), False)
    monkeypatch.setattr(trial, "target", lambda: here)
    no_child(monkeypatch)
    assert trial.failures(isa.LEVELS) == {}


def test_arm_as_it_is_needs_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Target("aarch64", "cortex-a76", "+neon,+dotprod", HAS, False)
    monkeypatch.setattr(trial, "target", lambda: here)
    child(monkeypatch, "assert levels == ['neon', 'portable']; [ok(level) for level in levels]")
    assert trial.failures(["neon", "portable"]) == {}


def test_what_works_is_tried_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "for level in levels: ok(level)")
    assert trial.failures(["neon", "portable"]) == {}
    no_child(monkeypatch)
    assert trial.failures(["neon", "portable"]) == {}
    assert [file.name.split("-")[0] for file in folder.iterdir()] == ["tried"]


def test_other_features_are_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "for level in levels: ok(level)")
    assert trial.failures(["neon"]) == {}
    other = Target("aarch64", "cortex-a76", "+neon", HAS, True)
    monkeypatch.setattr(trial, "target", lambda: other)
    child(monkeypatch, "os.kill(os.getpid(), signal.SIGABRT)")
    assert "SIGABRT" in trial.failures(["neon"])["neon"]


def test_code_of_the_package_is_tried_where_it_is_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Target("aarch64", "cortex-a76", "+neon,+dotprod", HAS, False)
    monkeypatch.setattr(trial, "target", lambda: here)
    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    child(monkeypatch, "for level in levels: os.environ['NUMBA_CPU_NAME']; ok(level)")
    assert trial.failures(["neon"]) == {}
    monkeypatch.setattr(trial, "package_folder", lambda architecture: folder)
    child(monkeypatch, "assert 'NUMBA_CPU_NAME' not in os.environ; [ok(name) for name in levels]")
    assert trial.failures(["neon"]) == {}
    assert len(list(folder.iterdir())) == 2
    # The package's code is not used for a processor that was chosen.
    chosen = Target("aarch64", "cortex-a57", "+neon,+dotprod", HAS, True)
    monkeypatch.setattr(trial, "target", lambda: chosen)
    child(monkeypatch, "for level in levels: os.environ['NUMBA_CPU_NAME']; ok(level)")
    assert trial.failures(["neon"]) == {}


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("name", ["SIGABRT", "SIGILL", "SIGSEGV"])
def test_a_death_is_the_levels_that_was_tried(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child(
        monkeypatch,
        f"""
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for level in levels:
    if level == "avx2":
        print("LLVM ERROR: Cannot select: x", file=sys.stderr)
        print("more", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.{name})
    ok(level)
""",
    )
    found = trial.failures(["amx", "avx2", "portable"])
    assert list(found) == ["avx2"]
    assert name in found["avx2"]
    assert "cortex-a76" in found["avx2"]
    assert "LLVM ERROR: Cannot select: x" in found["avx2"]
    no_child(monkeypatch)
    assert trial.failures(["amx", "avx2", "portable"]) == found


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("raise MemoryError", "MemoryError"),
        ("sys.exit('no module')", "no module"),
        ("time.sleep(60)", "no end after"),
    ],
)
def test_what_says_nothing_of_a_level_is_not_remembered(
    code: str, said: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "SECONDS", 1.0 if "sleep" in code else 60.0)
    child(monkeypatch, code)
    found = trial.failures(["neon", "portable"])
    assert list(found) == ["neon"]
    assert said in found["neon"]
    assert list(folder.iterdir()) == []
    monkeypatch.setattr(trial, "SECONDS", 60.0)
    child(monkeypatch, "for level in levels: ok(level)")
    assert trial.failures(["neon", "portable"]) == {}


def test_a_program_that_cannot_start_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_child(monkeypatch)
    monkeypatch.setattr(sys, "executable", "")
    assert "cannot be started" in trial.failures(["neon", "portable"])["neon"]


def test_an_executable_that_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(folder / "missing"))
    assert list(trial.failures(["neon", "portable"])) == ["neon"]


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b'["neon"', b'["neon", "", 1]\n7\n{}\n', b"\0" * 9]
)
def test_a_damaged_file_says_nothing(
    content: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child(monkeypatch, "for level in levels: ok(level)")
    trial.failures(["neon"])
    (file,) = folder.iterdir()
    file.write_bytes(content)
    child(monkeypatch, "ok('neon')")
    assert trial.failures(["neon"]) == {}


def test_a_folder_that_went_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "for level in levels: ok(level)")
    folder.rmdir()
    assert trial.failures(["neon"]) == {}


def test_the_current_folder_is_not_imported(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "json.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(elsewhere)
    child(monkeypatch, "for level in levels: ok(level)")
    assert trial.failures(["neon"]) == {}


# -- real trials: x86 with features that contradict each other ------------------------------------

x86 = pytest.mark.skipif("avx2" not in isa.available_levels(), reason="this CPU has no AVX2")
TAKEN_BACK = "+avx2,+fma,+f16c,-avx"


@pytest.mark.full
@x86
def test_features_that_contradict_each_other(tmp_path: Path) -> None:
    # +avx2 with -avx is no AVX2 for LLVM, which no reading of the list shows: it aborts.
    chosen = {
        "NUMBA_CPU_NAME": "nehalem",
        "NUMBA_CPU_FEATURES": TAKEN_BACK,
        "TRINITY_CACHE_DIR": str(tmp_path),
    }
    levels, warning = run_python(LEVELS, **chosen).splitlines()
    assert levels == "portable"
    assert warning.startswith("RuntimeWarning instruction-set level 'avx2' is not used")
    assert "SIGABRT" in warning
    assert "LLVM ERROR" in warning
    said = run_python(REQUESTED, TRINITY_ISA="avx2", **chosen)
    assert "'avx2' cannot run here: a trial of it" in said


@pytest.mark.full
@x86
@pytest.mark.parametrize("name", some(["generic", "sandybridge"], ["sandybridge"]))
def test_names_of_processors_without_avx2(name: str, tmp_path: Path) -> None:
    # float16 has no instructions there; its conversions still come out right, or portable fails.
    found = run_python(LEVELS, NUMBA_CPU_NAME=name, TRINITY_CACHE_DIR=str(tmp_path))
    assert found.splitlines() == ["portable"]


@pytest.mark.full
@x86
def test_avx_switched_off(tmp_path: Path) -> None:
    found = run_python(LEVELS, NUMBA_ENABLE_AVX="0", TRINITY_CACHE_DIR=str(tmp_path))
    assert found.splitlines() == ["portable"]


@pytest.mark.full
@x86
def test_a_processor_for_which_nothing_compiles(tmp_path: Path) -> None:
    said = run_python(
        LEVELS,
        NUMBA_CPU_NAME="nehalem",
        NUMBA_CPU_FEATURES="-sse2,-x87",
        TRINITY_CACHE_DIR=str(tmp_path),
    )
    assert said.startswith("refused: nothing that is compiled for 'nehalem' runs here")
    assert "unset NUMBA_CPU_NAME" in said


@x86
def test_arms_features_make_no_arm() -> None:
    said = run_python(REQUESTED, TRINITY_ISA="neon")
    assert "'neon' cannot run here: it is for aarch64 processors" in said
