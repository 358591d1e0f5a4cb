"""Unknown keyword arguments, and names of other libraries."""

from __future__ import annotations

import pytest

import trinity
from tests.toy_model import toy_model
from trinity.options import keywords
from trinity.options.load_options import LoadKeywords
from trinity.runtime.options import GenerationOptions

OURS = {"n", "temperature (0.0 is greedy)", "the method stream() or chat_stream()"}


def test_names_of_others_are_ours() -> None:
    """Each suggestion exists, and none of the other libraries' names is one of trinity's."""
    own = LoadKeywords.__annotations__.keys() | GenerationOptions.__annotations__.keys()
    assert set(keywords._OTHERS.values()) <= own | OURS
    assert not set(keywords._OTHERS) & own


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max_new_tokens", "did you mean max_tokens"),
        ("temperatur", "did you mean temperature"),
        ("stream", "chat_stream"),
        ("xyzzy", "'xyzzy'$"),
    ],
)
def test_generation(name: str, hint: str) -> None:
    model, _ = toy_model()
    with pytest.raises(TypeError, match=hint):
        model.generate("a", **{name: 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("n_ctx", "did you mean context_length"),
        ("n_threads", "did you mean threads"),
        ("n_gpu_layers", "only runs on the CPU"),
        ("quantise", "did you mean quantize"),
    ],
)
def test_loading(name: str, hint: str) -> None:
    with pytest.raises(TypeError, match=hint):
        trinity.load("model.gguf", **{name: 1})  # type: ignore[arg-type]


def test_several_prompts() -> None:
    model, _ = toy_model()
    with pytest.raises(trinity.InputError, match=r"generate_batch\(\)"):
        model.generate(["a", "b"])  # type: ignore[list-item]
