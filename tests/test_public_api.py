from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import trinity

ROOT = Path(__file__).resolve().parents[1]


def modules_after(code: str) -> set[str]:
    """The top-level modules that are loaded after ``code`` in a new interpreter."""
    program = f"{code}\nimport sys; print(*{{m.partition('.')[0] for m in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_model_needs_no_compiler_until_it_loads() -> None:
    assert modules_after("import trinity; trinity.Model, trinity.load") & {"numba"} == set()


def test_public_names_are_those_of_their_homes() -> None:
    assert set(trinity._HOME) | {"__version__"} == set(trinity.__all__)
    for name, home in trinity._HOME.items():
        assert getattr(trinity, name) is getattr(sys.modules[home], name)


def test_missing_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = trinity.nonsense


def test_signatures() -> None:
    load = inspect.signature(trinity.load)
    assert list(load.parameters) == ["path", "progress", "options"]
    assert load.parameters["progress"].kind is inspect.Parameter.KEYWORD_ONLY
    with pytest.raises(TypeError, match="nonsense"):
        trinity.load("model.gguf", nonsense=1)  # type: ignore[call-arg]
    tokenize = inspect.signature(trinity.Model.tokenize)
    assert list(tokenize.parameters) == ["self", "text", "add_bos", "add_eos", "parse_special"]


def test_the_errors_are_one_family() -> None:
    for name in trinity.__all__:
        if name.endswith("Error"):
            assert issubclass(getattr(trinity, name), trinity.TrinityError)
