"""The structure of architecture.md: allowed imports, file names, file lengths."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"trinity": ROOT / "trinity", "trinity_kernels": ROOT / "kernels" / "trinity_kernels"}

# Lower layers come first; a module imports only from its own layer and from those before it.
LAYERS = (
    ("trinity.errors",),
    ("trinity.cache",),
    ("trinity.processes",),
    ("trinity.config",),
    ("trinity.options",),
    ("trinity.formats",),
    ("trinity.tokenizers",),
    ("trinity.grammar",),
    ("trinity.conversation",),
    ("trinity.hub",),
    ("trinity.models",),
    ("trinity.providers",),
    ("trinity.runtime",),
    ("trinity.quantization",),
    ("trinity.speech",),
    ("trinity.images",),
    ("trinity.model_defaults",),
    ("trinity.embeddings",),
    ("trinity.model",),
    ("trinity.loading",),
    ("trinity.tools",),
    ("trinity",),
    ("trinity.server",),
    ("trinity.ray",),
    ("trinity.cli",),
    ("trinity.__main__",),
)
COMPILER = {"numba", "llvmlite"}
# The lazy imports of the public module: `import trinity` must stay quick and work without these.
HEAVY = (
    "numpy", "numba", "llvmlite", "tokenizers", "sentencepiece", "jinja2", "typer", "rich",
    "prompt_toolkit", "huggingface_hub", "starlette", "uvicorn", "msgspec", "prometheus_client",
    "llguidance", "soundfile", "av", "PIL", "ray", "wsproto",
)  # fmt: skip
KNOWN_BELOW = ("trinity_kernels.ggml", "trinity_kernels.quants", "trinity_kernels.whole_file")
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
LONGEST_FILE = 600
DATA_TABLES: frozenset[str] = frozenset()  # paths from the root that may be longer


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of both packages: dotted name and file."""
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            yield ".".join(parts).removesuffix(".__init__"), path


@cache
def imports(module: str, path: Path) -> list[tuple[int, str]]:
    """Line and absolute name of everything that a file imports, at any depth.

    ``from a import b`` gives ``a.b`` where that is a module, else ``a``. Imports for the type
    checker alone count too: a name that a layer must not know, it must not know in types either.
    """
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.append((node.lineno, alias.name))
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.append((node.lineno, full if full in MODULE_NAMES else base))
    return found


MODULES = list(modules())
MODULE_NAMES = {name for name, _ in MODULES}
PYTHON_FILES = sorted(
    path
    for folder in ("trinity", "kernels", "tests", "scripts", "examples")
    for path in (ROOT / folder).rglob("*.py")
)


def test_the_document_shows_the_layers() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^## Imports\n\n```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    shown = [tuple(re.split(r"  +", line.strip())[0].split(", ")) for line in block.splitlines()]
    assert shown == list(reversed(LAYERS))


def layer(module: str) -> int:
    """The position of a module of trinity in LAYERS."""
    for position, names in enumerate(LAYERS):
        if any(module == n or (n != "trinity" and module.startswith(n + ".")) for n in names):
            return position
    raise AssertionError(f"{module} belongs to no layer: add it to LAYERS and docs/architecture.md")


def test_imports_point_downwards() -> None:
    """trinity imports only lower layers; trinity_kernels nothing of trinity; numba only kernels."""
    for module, path in MODULES:
        where = path.relative_to(ROOT)
        for line, target in imports(module, path):
            top = target.partition(".")[0]
            if module.partition(".")[0] == "trinity_kernels":
                assert top not in {"trinity", "kernels"}, f"{where}:{line} imports {target}"
                continue
            assert top not in COMPILER, f"{where}:{line} imports {target}; only kernels/ may"
            assert top != "kernels", f"{where}:{line}: the package is trinity_kernels, not kernels"
            if top == "trinity":
                assert layer(target) <= layer(module), (
                    f"{where}:{line} imports {target}, a higher layer"
                )


def runtime_imports(module: str, path: Path) -> set[str]:
    """The modules of both packages that a file imports, but for imports for types alone."""
    text = path.read_text(encoding="utf-8")
    for_types = {
        node.lineno
        for block in (ast.walk(ast.parse(text)) if "TYPE_CHECKING:" in text else ())
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    found = {target for line, target in imports(module, path) if line not in for_types}
    return (found & MODULE_NAMES) - {module}


def test_no_import_cycle() -> None:
    """No module imports itself through others, lazy imports included."""
    left = {module: runtime_imports(module, path) for module, path in MODULES}
    while ready := {module for module, needs in left.items() if not needs & left.keys()}:
        left = {module: needs for module, needs in left.items() if module not in ready}
    # What is left is in a cycle or imports one.
    while top := left.keys() - set().union(*left.values()):
        left = {module: needs for module, needs in left.items() if module not in top}
    assert not left


def test_formats_and_lower_know_only_the_types_of_the_kernels() -> None:
    """Below runtime, modules import only types, quants and file writing of the kernels."""
    for module, path in MODULES:
        if module.startswith("trinity.") and layer(module) < layer("trinity.runtime"):
            for line, target in imports(module, path):
                if target.partition(".")[0] == "trinity_kernels":
                    allowed = target.startswith(KNOWN_BELOW)
                    assert allowed, f"{path.relative_to(ROOT)}:{line} imports {target}"


def test_types_know_nothing_of_what_is_done_with_them() -> None:
    """quants only reads and decodes; products, quantizers and other operations import it."""
    above = ("trinity_kernels.ops", "trinity_kernels.quantizers", "trinity_kernels.tiles")
    for module, path in MODULES:
        if f"{module}.".startswith("trinity_kernels.quants."):
            for line, target in imports(module, path):
                assert not target.startswith(above), (
                    f"{path.relative_to(ROOT)}:{line} imports {target}"
                )


def test_importing_trinity_is_light() -> None:
    """`import trinity` loads neither the compiler nor the tokenizer libraries."""
    code = f"import sys, trinity; print(*(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.split() == []


def test_file_is_one_idea() -> None:
    """No vague module names, and no file of more than 600 lines except tables of data."""
    for path in PYTHON_FILES:
        where = path.relative_to(ROOT)
        assert path.stem.strip("_") not in VAGUE_NAMES, where
        if str(where) not in DATA_TABLES:
            lines = len(path.read_text(encoding="utf-8").splitlines())
            assert lines <= LONGEST_FILE, f"{where} has {lines} lines"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_with_modules_is_a_package(package: str) -> None:
    """A folder without __init__.py would be missing from the wheel."""
    folder = PACKAGES[package]
    missing = {p.parent for p in folder.rglob("*.py") if not (p.parent / "__init__.py").exists()}
    assert missing == set()
