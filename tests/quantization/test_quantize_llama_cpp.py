"""llama.cpp loads quantized files and computes what trinity's reader gives."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.naive import naive_logits
from tests.tiny_models import write_tiny_model
from trinity.providers import open_weights
from trinity.quantization import MIXES, quantize
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Rows

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed"
)
TOKENS = [1, 270, 280, 300, 261]
TERNARY = ("I2_S", "TQ1_0", "TQ2_0")


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """llama-cpp-python without its log."""
    import llama_cpp

    silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    yield llama_cpp
    llama_cpp.llama_log_set(llama_cpp.llama_log_callback(0), ctypes.c_void_p(0))


def their_logits(library: Any, path: Path) -> NDArray[np.float32]:
    """Return llama.cpp's logits after the last token."""
    parameters = library.llama_model_default_params()
    model = library.llama_model_load_from_file(os.fsencode(path), parameters)
    assert model, "llama.cpp does not load the file"
    options = library.llama_context_default_params()
    options.n_ctx = options.n_batch = 64
    options.n_threads = options.n_threads_batch = 1
    context = library.llama_init_from_model(model, options)
    tokens = (library.llama_token * len(TOKENS))(*TOKENS)
    assert library.llama_decode(context, library.llama_batch_get_one(tokens, len(TOKENS))) == 0
    size = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))
    logits = np.ctypeslib.as_array(library.llama_get_logits_ith(context, -1), (size,)).copy()
    library.llama_free(context)
    library.llama_model_free(model)
    return logits


@pytest.mark.parametrize("mix", [mix for mix in MIXES if mix != "I2_S"])
def test_llama_cpp_runs_it(mix: str, library: Any, tmp_path: Path) -> None:
    source, out = tmp_path / "source.gguf", tmp_path / "out.gguf"
    write_tiny_model(source, hidden_size=256, num_layers=9, tied=False)
    quantize(source, out, mix)
    provider = open_weights(out)
    tensors = {name: provider.tensor(name).dequantize() for name in provider.tensor_names()}
    expected = naive_logits(tensors, provider.config, TOKENS, arch="llama", int8_activations=False)[
        -1
    ]
    found = their_logits(library, out)
    # llama.cpp rounds activations to int8, or float products to half precision.
    assert np.corrcoef(found, expected)[0, 1] > 0.995
    assert np.linalg.norm(found - expected) < 0.1 * np.linalg.norm(expected)


def their_steps(library: Any, path: Path, tokens: list[int]) -> NDArray[np.float32]:
    """Return llama.cpp's logits after each of the tokens, one at a time."""
    model = library.llama_model_load_from_file(
        os.fsencode(path), library.llama_model_default_params()
    )
    options = library.llama_context_default_params()
    options.n_ctx = options.n_batch = 128
    options.n_threads = options.n_threads_batch = 1
    context = library.llama_init_from_model(model, options)
    size = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))
    found = []
    for token in tokens:
        one = (library.llama_token * 1)(token)
        assert library.llama_decode(context, library.llama_batch_get_one(one, 1)) == 0
        logits = np.ctypeslib.as_array(library.llama_get_logits_ith(context, -1), (size,))
        found.append(logits.copy())
    library.llama_free(context)
    library.llama_model_free(model)
    return np.array(found)


def our_greedy(path: Path, start: list[int], count: int) -> list[int]:
    """Return trinity's greedy tokens."""
    engine = load_engine(open_weights(path), threads=1)
    cache = engine.new_cache()
    found, step = [], start
    for _ in range(count):
        step = [int(engine.step([Rows(cache, step)])[0].argmax())]
        found += step
    engine.close()
    return found


@pytest.mark.parametrize("mix", [mix for mix in MIXES if mix not in TERNARY])
def test_both_continue_alike(mix: str, library: Any, tmp_path: Path) -> None:
    """The model is random, so tokens may be almost equally likely."""
    source, out = tmp_path / "source.gguf", tmp_path / "out.gguf"
    write_tiny_model(source, hidden_size=256, num_layers=6, tied=False)
    quantize(source, out, mix)
    tokens = our_greedy(out, [1], 32)
    logits = their_steps(library, out, [1, *tokens[:-1]])
    short = logits.max(axis=1) - logits[range(32), tokens]
    # Both round activations to 8 bits, so logits are off by some 2% of their spread.
    assert short.max() < 0.15 * logits.std(), short
    assert (short == 0).mean() > 0.75


@pytest.mark.parametrize("mix", ["F32", "F16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "IQ4_NL"])
def test_both_tell_the_same_story(
    mix: str, library: Any, tmp_path: Path, shared_data: Path
) -> None:
    """The trained model gives the same tokens, except where two are equal to eight bits."""
    out = tmp_path / "out.gguf"
    quantize(shared_data / "models" / "stories260K.gguf", out, mix)
    tokens = our_greedy(out, [1], 64)
    logits = their_steps(library, out, [1, *tokens[:-1]])
    short = logits.max(axis=1) - logits[range(64), tokens]
    assert short.max() < 0.02 * logits.std(), short
    assert (short == 0).mean() > 0.98
