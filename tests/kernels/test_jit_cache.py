"""The cache of compiled kernels: read by the next process, renewed if a source changes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.kernels.process import KERNELS, run_python
from tests.matrix import some
from trinity_kernels.numba_cache import _CodeFiles

COMPILE = """
from trinity_kernels.ops.activation import gated
fresh = []
assert gated.address("portable", "relu2", lambda: fresh.append(1)) != 0
assert gated.address("portable", "relu2", lambda: fresh.append(2)) != 0
print(len(fresh))
"""
FOLDER = "from trinity_kernels.code_files import cache_folder; print(cache_folder())"


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """A copy of the package that tests may change."""
    copy = tmp_path / "installed"
    shutil.copytree(KERNELS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_the_second_process_compiles_nothing(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    assert run_python(COMPILE, TRINITY_CACHE_DIR=cache).strip() == "1"
    assert run_python(COMPILE, TRINITY_CACHE_DIR=cache).strip() == "0"


@pytest.mark.full
def test_a_changed_source_compiles_what_depends_on_it(tmp_path: Path, kernels: Path) -> None:
    cache = str(tmp_path / "cache")
    assert run_python(COMPILE, kernels=kernels, TRINITY_CACHE_DIR=cache).strip() == "1"
    for name, compiled in (("ops/norm.py", "0"), ("ops/exponential.py", "1")):
        source = kernels / "trinity_kernels" / name
        text = source.read_text(encoding="utf-8")
        source.write_text(text + "# one line more\n", encoding="utf-8")
        assert run_python(COMPILE, kernels=kernels, TRINITY_CACHE_DIR=cache).strip() == compiled
        source.write_text(text, encoding="utf-8")  # another time of change, the same content
        assert run_python(COMPILE, kernels=kernels, TRINITY_CACHE_DIR=cache).strip() == "0"


@pytest.mark.full
def test_installations_of_the_same_sources_share_the_code(tmp_path: Path, kernels: Path) -> None:
    cache = str(tmp_path / "cache")
    assert run_python(COMPILE, TRINITY_CACHE_DIR=cache).strip() == "1"
    assert run_python(COMPILE, kernels=kernels, TRINITY_CACHE_DIR=cache).strip() == "0"


@pytest.mark.full
def test_the_installation_is_not_written_to(tmp_path: Path, kernels: Path) -> None:
    before = sorted(kernels.rglob("*"))
    cache = tmp_path / "user"
    settings = {"XDG_CACHE_HOME": str(cache), "HOME": str(tmp_path), "LOCALAPPDATA": str(cache)}
    assert run_python(COMPILE, kernels=kernels, **settings).strip() == "1"
    assert run_python(COMPILE, kernels=kernels, **settings).strip() == "0"
    assert sorted(kernels.rglob("*")) == before


@pytest.mark.full
def test_without_a_folder_every_process_compiles(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    cache = str(blocked / "cache")
    assert run_python(FOLDER, TRINITY_CACHE_DIR=cache).strip() == "None"
    for _ in range(2):
        assert run_python(COMPILE, TRINITY_CACHE_DIR=cache).strip() == "1"


@pytest.mark.full
@pytest.mark.parametrize("kept", some([0, 60], [60]))
def test_truncated_files_are_compiled_anew(tmp_path: Path, kept: int) -> None:
    cache = tmp_path / "cache"
    run_python(COMPILE, TRINITY_CACHE_DIR=str(cache))
    damaged = [path for path in cache.rglob("*gated*") if path.suffix in (".nbc", ".code")]
    assert damaged
    for path in damaged:
        path.write_bytes(path.read_bytes()[:kept])
    assert run_python(COMPILE, TRINITY_CACHE_DIR=str(cache)).strip() == "1"
    assert run_python(COMPILE, TRINITY_CACHE_DIR=str(cache)).strip() == "0"


@pytest.mark.full
def test_truncated_files_of_a_team_are_compiled_anew(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    code = "from trinity_kernels.team import Team; Team(2).close(); print('ran')"
    run_python(code, TRINITY_CACHE_DIR=str(cache))
    damaged = [path for path in cache.rglob("*") if path.name.startswith(("_run", "_serve"))]
    assert damaged
    for path in damaged:
        path.write_bytes(path.read_bytes()[:50])
    assert run_python(code, TRINITY_CACHE_DIR=str(cache)).strip() == "ran"


def test_two_first_runs_at_once(tmp_path: Path) -> None:
    """One process stores code after the other has looked and before it stores another signature."""
    files = [_CodeFiles(str(tmp_path), "matmul", b"stamp") for _ in range(2)]
    assert [one.load("q4_0") for one in files] == [None, None]
    files[0].save("q4_0", b"of q4_0")
    files[1].save("q8_0", b"of q8_0")
    for one in files:
        assert one.load("q4_0") == b"of q4_0"
        assert one.load("q8_0") == b"of q8_0"


def test_code_of_another_signature_is_not_used(tmp_path: Path) -> None:
    """Nor is code of other sources, or code that was changed on disk."""
    files = _CodeFiles(str(tmp_path), "matmul", b"stamp")
    files.save("q4_0", b"of q4_0")
    shutil.copy(files.path("q4_0"), files.path("q8_0"))
    assert files.load("q8_0") is None
    assert _CodeFiles(str(tmp_path), "matmul", b"other").load("q4_0") is None
    content = bytearray(Path(files.path("q4_0")).read_bytes())
    content[-3] ^= 1
    Path(files.path("q4_0")).write_bytes(content)
    assert files.load("q4_0") is None


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="needs locks")
def test_a_process_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    """This also holds if nothing has to be compiled."""
    cache = tmp_path / "cache"
    run_python(COMPILE, TRINITY_CACHE_DIR=str(cache))
    (code,) = {path.parent for path in cache.rglob("*gated*")}
    (code / ".trinity-0123456789abcdef.tmp").write_bytes(b"half")
    assert run_python(COMPILE, TRINITY_CACHE_DIR=str(cache)).strip() == "0"
    assert not list(cache.rglob(".trinity-*"))


PROBLEM = """
from trinity_kernels.ops.activation import gated
from trinity_kernels.code_files import take_cache_problem
gated.address("portable", "relu2")
print(take_cache_problem())
print(take_cache_problem())
"""


@pytest.mark.full
def test_an_unusable_folder_is_told_once(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    cache = str(blocked / "cache")
    told, again = run_python(PROBLEM, TRINITY_CACHE_DIR=cache).splitlines()
    assert cache in told
    assert "TRINITY_CACHE_DIR" in told
    assert again == "None"


@pytest.mark.full
def test_a_full_disk_is_told(tmp_path: Path) -> None:
    full = """
import errno
from trinity_kernels import code_store
def no_space(*arguments, **options):
    raise OSError(errno.ENOSPC, "No space left on device")
code_store.whole_file = no_space
"""
    told, again = run_python(full + PROBLEM, TRINITY_CACHE_DIR=str(tmp_path)).splitlines()
    assert f"{tmp_path} (No space left on device)" in told
    assert again == "None"


@pytest.mark.full
def test_a_folder_that_works_has_no_problem(tmp_path: Path) -> None:
    told = run_python(PROBLEM, TRINITY_CACHE_DIR=str(tmp_path)).splitlines()
    assert told == ["None", "None"]
