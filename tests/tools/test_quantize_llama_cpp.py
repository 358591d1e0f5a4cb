"""llama.cpp loads what trinity quantizes, and computes from it what trinity's reader says."""

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
from trinity.formats import open_weights
from trinity.tools.quantize import MIXES, quantize

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed"
)
TOKENS = [1, 270, 280, 300, 261]


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """The module, silenced."""
    import llama_cpp

    silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    yield llama_cpp
    llama_cpp.llama_log_set(llama_cpp.llama_log_callback(0), ctypes.c_void_p(0))


def their_logits(library: Any, path: Path) -> NDArray[np.float32]:
    """What llama.cpp computes after the last token."""
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
