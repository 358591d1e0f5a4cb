"""The package's machine code: reproducible, and used without a compiler."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.kernels.package_code import TARGETS, kernels_by_name, wanted
from tests.kernels.process import KERNELS, ROOT, run_python
from trinity_kernels import quants
from trinity_kernels.isa import _ARCHITECTURES, LEVELS, available_levels, interpreted
from trinity_kernels.loaded_code import supported
from trinity_kernels.processor import target
from trinity_kernels.quants import grid
from trinity_kernels.sources import modules_of

pytestmark = pytest.mark.skipif(
    interpreted() or not supported() or target().architecture != "x86_64",
    reason="the script makes code for Linux on x86-64",
)
LEVEL = "avx2" if "avx2" in available_levels() else "portable"
RUN = f"""
import sys
from trinity_kernels import code_store
from trinity_kernels.selftest import KERNELS, check
def refuse(*_):
    raise AssertionError("compiled")
code_store.keep = refuse
found = KERNELS["copy"].kernel.address("{LEVEL}", "none", refuse)
print(found != 0, check("copy", "{LEVEL}", "none"))
print("numba" in sys.modules)
"""


def compiled(out: Path) -> dict[str, bytes]:
    """The code of one kernel, and of what Python calls, by the files' names."""
    script = ROOT / "scripts" / "kernels" / "package_code.py"
    targets = {f"x86_64:{level}" for level in ("portable", LEVEL)}
    command = [sys.executable, str(script), str(out), "--targets", *targets]
    subprocess.run([*command, "--kernels", "copy:none"], check=True, timeout=300)
    return {path.name: path.read_bytes() for path in out.glob("linux-x86_64/*.code")}


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("code")
    assert any(name.startswith(f"copy-{LEVEL}-none-") for name in compiled(out))
    return out


@pytest.mark.full
def test_two_builds_have_the_same_bytes(code: Path, tmp_path: Path) -> None:
    first = {path.name: path.read_bytes() for path in code.glob("linux-x86_64/*.code")}
    assert compiled(tmp_path) == first


@pytest.mark.full
def test_an_installation_with_code_compiles_nothing(code: Path, tmp_path: Path) -> None:
    kernels, cache = tmp_path / "installed", str(tmp_path / "cache")
    shutil.copytree(KERNELS, kernels, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(code, kernels / "trinity_kernels" / "code")
    said = run_python(RUN, kernels=kernels, TRINITY_CACHE_DIR=cache).splitlines()
    assert said == ["True None", "False"]
    # Code of other sources, and damaged code, is not used.
    for path in kernels.glob("trinity_kernels/code/*/copy-*"):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(AssertionError, match="compiled"):
        run_python(RUN, kernels=kernels, TRINITY_CACHE_DIR=cache)


def test_every_level_of_both_architectures_is_a_target() -> None:
    levels = {
        f"{architecture}:{level}"
        for architecture in ("x86_64", "aarch64")
        for level in LEVELS
        if _ARCHITECTURES.get(level, architecture) == architecture
    }
    assert set(TARGETS) == levels


def test_every_kernel_is_compiled() -> None:
    sources = (KERNELS / "trinity_kernels").rglob("*.py")
    texts = [path.read_text(encoding="utf-8") for path in sources]
    pattern = re.compile(r"^@kernel(?:_with\(.*\))?\ndef (\w+)", re.MULTILINE)
    declared = {name for text in texts for name in pattern.findall(text)}
    assert declared
    kernels = kernels_by_name()
    assert declared == {kernels[name].name for target in TARGETS for name, _ in wanted(target)}


def test_amx_has_code_of_its_own_for_codebooks() -> None:
    gathered = {
        name
        for module in vars(quants).values()
        if hasattr(module, "READERS") and f"{quants.__name__}.grid" in modules_of(module.__name__)
        for name in module.READERS
    }
    assert gathered == set(grid.TYPES)
    assert {tag for kernel, tag in wanted("x86_64:amx") if kernel == "matmul"} == gathered


def test_every_type_is_packaged_for_every_level() -> None:
    expected = {"x86_64:amx": set(grid.TYPES), "aarch64:neon-i8mm": set()}
    for level in TARGETS:
        tags = {tag for kernel, tag in wanted(level) if kernel == "matmul"}
        assert tags == expected.get(level, set(quants.READERS))
