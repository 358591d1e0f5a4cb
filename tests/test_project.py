"""Versions, exported names and docstrings of both packages."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import trinity

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = sorted(
    path
    for folder in ("trinity", "kernels/trinity_kernels")
    for path in (ROOT / folder).rglob("*.py")
)
Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def test_version_is_the_projects() -> None:
    """trinity.__version__ is that of pyproject.toml, installed or not."""
    assert trinity.__version__ == PROJECT["version"]


def test_cited_version_is_the_projects() -> None:
    """CITATION.cff names the version of pyproject.toml."""
    lines = (ROOT / "CITATION.cff").read_text("utf-8").splitlines()
    assert f"version: {PROJECT['version']}" in lines


def test_installed_version_is_the_projects() -> None:
    """The installed distribution is this tree's."""
    try:
        installed = importlib.metadata.version(PROJECT["name"])
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{PROJECT['name']} is not installed: the tests run from the tree alone")
    assert installed == PROJECT["version"]


def test_all_names_are_the_public_names() -> None:
    """__all__ holds every public name and nothing that does not exist."""
    for name in trinity.__all__:
        assert getattr(trinity, name) is not None, name
    public = {
        name
        for name, value in vars(trinity).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    } - {"annotations", "TYPE_CHECKING", "Any"}
    assert public <= set(trinity.__all__)
    assert len(set(trinity.__all__)) == len(trinity.__all__)


def test_dir_shows_the_public_names() -> None:
    """dir(trinity) shows names that are imported only when used."""
    assert set(trinity.__all__) <= set(dir(trinity))


def test_typed_markers_exist() -> None:
    """Both packages carry py.typed, so that a user's type checker reads their annotations."""
    assert (ROOT / "trinity" / "py.typed").exists()
    assert (ROOT / "kernels" / "trinity_kernels" / "py.typed").exists()


def public_definitions(tree: ast.Module) -> Iterator[tuple[str, Documented]]:
    """Public functions and classes of a module, and the public methods of those classes.

    Left out: overloads, and setters, whose property has the docstring.
    """
    for node in tree.body:
        if isinstance(node, Documented) and not node.name.startswith("_"):
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                for item in node.body:
                    if isinstance(item, Documented) and not item.name.startswith("_"):
                        yield f"{node.name}.{item.name}", item


def is_exempt(node: Documented) -> bool:
    """Whether the docstring is elsewhere: an overload or a setter."""
    names = {ast.unparse(d).rpartition(".")[2] for d in node.decorator_list}
    return bool(names & {"overload", "setter", "override"})


def test_public_names_are_documented() -> None:
    """Every module and every public function, method and class has a docstring."""
    missing = []
    for path in SOURCES:
        where = path.relative_to(ROOT)
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        if tree.body and not ast.get_docstring(tree):
            missing.append(f"{where}: the module")
        for name, node in public_definitions(tree):
            if not ast.get_docstring(node) and not is_exempt(node) and not is_ellipsis(node):
                missing.append(f"{where}:{node.lineno}: {name}")
    assert missing == []


def is_ellipsis(node: Documented) -> bool:
    """Whether the body is only `...`: a protocol's member, named by its class's docstring."""
    body = node.body
    return (
        len(body) == 1
        and isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and body[0].value.value is ...
    )


def test_every_error_is_a_trinity_error() -> None:
    """Every exported exception belongs to the one family."""
    exported = [getattr(trinity, name) for name in trinity.__all__]
    errors = [e for e in exported if isinstance(e, type) and issubclass(e, BaseException)]
    assert trinity.TrinityError in errors
    assert all(issubclass(e, trinity.TrinityError) for e in errors)


CLASS = re.compile(r"^ *class (\w+)[(:\[]", re.MULTILINE)
# Classes that share a name because one implements the other: a protocol and its implementation.
ONE_INTERFACE = {"Grammar": {"trinity/runtime/sampling/guide.py", "trinity/grammar/grammar.py"}}


def test_a_class_name_means_one_thing() -> None:
    """No two classes of the packages have one name, unless they share an interface."""
    found: dict[str, list[str]] = {}
    for path in SOURCES:
        for name in CLASS.findall(path.read_text(encoding="utf-8")):
            found.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    shared = {name: set(paths) for name, paths in found.items() if len(paths) > 1}
    assert shared == ONE_INTERFACE
