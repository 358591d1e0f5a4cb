"""Reference models and vocabularies are read quickly and as the gguf package reads them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest

import trinity
from tests.matrix import some
from tests.processor_time import within
from trinity.config import RopeScaling
from trinity.errors import ConfigError
from trinity.formats import GGUFProvider

READABLE_BY_GGUF = [
    "models/stories260K.gguf",
    "models/stories260K-Q8_0.gguf",
    "models/stories260K-Q4_0.gguf",
    "models/llama-2-tiny-random.gguf",
    "models/bitnet-tiny-TQ1_0.gguf",
    "models/bitnet-tiny-TQ2_0.gguf",
    "vocab/ggml-vocab-phi-3.gguf",
]


@pytest.mark.parametrize("name", some(READABLE_BY_GGUF, READABLE_BY_GGUF[2:5:2]))
def test_same_as_the_gguf_package(shared_data: Path, name: str) -> None:
    path = shared_data / name
    reference = gguf.GGUFReader(path)
    with GGUFProvider(path) as model:
        keys = [key for key in reference.fields if not key.startswith("GGUF.")]
        assert list(model.metadata) == keys
        for key in keys:
            expected = reference.fields[key].contents()
            found = model.metadata[key]
            assert (found.tolist() if isinstance(found, np.ndarray) else found) == expected
        assert model.tensor_names() == [tensor.name for tensor in reference.tensors]
        for expected in reference.tensors:
            tensor = model.tensor(expected.name)
            assert tensor.type == expected.tensor_type.name
            assert tensor.shape == tuple(expected.shape[::-1].tolist())
            assert tensor.data.tobytes() == expected.data.tobytes()


def test_stories_configuration(shared_data: Path) -> None:
    config = GGUFProvider(shared_data / "models" / "stories260K.gguf").config
    assert (config.architecture, config.name) == ("llama", "llama")
    assert (config.hidden_size, config.intermediate_size) == (64, 172)
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (5, 8, 4)
    assert (config.head_dim, config.rope_dim, config.vocab_size) == (8, 8, 512)
    assert (config.context_length, config.rope_theta) == (128, 10000.0)
    assert config.rms_norm_eps == pytest.approx(1e-5)
    assert config.rope_scaling == RopeScaling()
    assert not config.tie_word_embeddings


def test_bitnet_configuration_and_types(shared_data: Path) -> None:
    model = GGUFProvider(shared_data / "models" / "bitnet-tiny-I2_S.gguf")
    config = model.config
    assert config.architecture == "bitnet-b1.58"
    assert config.tie_word_embeddings
    assert config.rope_theta == 500000.0
    tensor = model.tensor("blk.1.ffn_down.weight")
    assert (tensor.type, tensor.shape) == ("I2_S", (512, 1536))
    assert tensor.nbytes == 512 * 1536 // 4 + 32
    types = [model.tensor(name).type for name in model.tensor_names()]
    assert (types.count("I2_S"), types.count("F32"), types.count("F16")) == (14, 9, 1)


@pytest.mark.full
def test_a_vocabulary_of_128256_opens_quickly_and_undecoded(shared_data: Path) -> None:
    path = shared_data / "vocab" / "ggml-vocab-llama-bpe.gguf"
    assert within(0.3, lambda: GGUFProvider(path).config.vocab_size) == 128256
    tracemalloc.start()
    model = GGUFProvider(path)
    assert model.metadata.array_length("tokenizer.ggml.merges") == 280147
    assert tracemalloc.get_traced_memory()[1] < 1_000_000, "nothing was decoded"
    tracemalloc.stop()
    tokens = model.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    assert len(tokens) == 128256
    assert tokens[128009] == "<|eot_id|>"


def test_a_file_without_tensors_still_opens(shared_data: Path) -> None:
    path = shared_data / "vocab" / "ggml-vocab-gpt-2.gguf"
    model = GGUFProvider(path)
    assert model.metadata["tokenizer.ggml.pre"] == "gpt-2"
    assert model.tensor_names() == []
    with pytest.raises(ConfigError, match="a vocabulary without weights"):
        trinity.load(path)
