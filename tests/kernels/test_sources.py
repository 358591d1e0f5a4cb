"""The digest of a kernel's sources: which files it covers."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from tests.kernels.process import KERNELS, run_python
from trinity_kernels import sources

PACKAGE = KERNELS / "trinity_kernels"
MODULES = {
    ".".join(path.relative_to(KERNELS).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}
DIGESTS = """
from trinity_kernels.sources import digest_of
for name in ("activation", "norm", "matmul.rows", "matmul.panels"):
    print(digest_of(f"trinity_kernels.ops.{name}"))
"""


def imported(path: Path) -> set[str]:
    """Return the package's modules that the syntax tree of a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            base = node.module or ""
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else base for name in names}
    return {name for name in found if name.startswith("trinity_kernels")}


@pytest.mark.parametrize("module", sorted(set(MODULES) - sources.NO_CODE))
def test_the_text_search_finds_the_imports_of_the_syntax_tree(module: str) -> None:
    expected = imported(MODULES[module]) - sources.NO_CODE
    assert sources._read(module)[1] == expected


def test_modules_without_code_exist() -> None:
    assert set(MODULES) >= sources.NO_CODE


def test_what_a_kernel_depends_on() -> None:
    found = sources.modules_of("trinity_kernels.ops.norm")
    assert {"trinity_kernels.ops.norm", "trinity_kernels.simd", "trinity_kernels.lanes"} <= found
    assert "trinity_kernels.ops.rope" not in found
    assert "trinity_kernels.selftest" not in found
    # through others, and inside of blocks and functions
    through = sources.modules_of("trinity_kernels.ops.matmul.rows")
    assert {"trinity_kernels.quants.q4_k", "trinity_kernels.quants.emit"} <= through


def test_no_kernel_depends_on_how_code_is_kept() -> None:
    for module in MODULES:
        assert not sources.modules_of(module) - {module} & sources.NO_CODE


@pytest.mark.full
def test_a_change_reaches_what_depends_on_it_alone(tmp_path: Path) -> None:
    copy = tmp_path / "installed"
    shutil.copytree(KERNELS, copy, ignore=shutil.ignore_patterns("__pycache__"))

    def changed(name: str) -> list[bool]:
        """Whether one more line in a file changes each of DIGESTS."""
        before = run_python(DIGESTS, kernels=copy).split()
        path = copy / "trinity_kernels" / name
        text = path.read_text(encoding="utf-8")
        path.write_text(text + "# one line more\n", encoding="utf-8")
        after = run_python(DIGESTS, kernels=copy).split()
        path.write_text(text, encoding="utf-8")  # another time of change, the same content
        assert run_python(DIGESTS, kernels=copy).split() == before
        return [one != other for one, other in zip(before, after, strict=True)]

    assert changed("ops/exponential.py") == [True, False, False, False]
    assert changed("ops/norm.py") == [False, True, False, False]
    assert changed("quants/q4_k.py") == [False, False, True, True]
    assert changed("ops/matmul/panel_avx2.py") == [False, False, False, True]
    assert changed("simd.py") == [True, True, True, True]
    assert changed("code_files.py") == [False, False, False, False]


def test_the_module_of_a_file() -> None:
    assert sources.module_of(str(PACKAGE / "ops" / "norm.py")) == "trinity_kernels.ops.norm"
    assert sources.module_of(__file__) is None
