"""Directories of encoders give the embeddings of the libraries that wrote them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import trinity
from tests.providers.encoder_directories import NEWER_NOMIC, NOMIC, encoder_directory, weights
from trinity.errors import UnsupportedError

Make = Callable[..., Path]


@pytest.fixture
def make(shared_data: Path, tmp_path: Path) -> Make:
    def made(family: str, **changes: Any) -> Path:
        return encoder_directory(shared_data / "encoders", family, tmp_path, **changes)

    return made


@pytest.mark.parametrize(
    ("family", "prefix"),
    [
        ("bert_cls", ""), ("bert_mean", "bert."), ("qwen3_embedding", ""),
        ("qwen3_embedding", "model."), ("xlm_roberta", ""), ("gemma_embedding", ""),
        ("nomic_bert", ""),
    ],
)  # fmt: skip
def test_an_embedders_directory(shared_data: Path, make: Make, family: str, prefix: str) -> None:
    golden = json.loads((shared_data / "encoders" / family / "golden.json").read_text())
    path = make(family, prefix=prefix)
    with trinity.load(path, threads=1, kv_type="f32") as model:
        assert [model.tokenizer.encode(one["text"], add_eos=True) for one in golden["texts"]] == [
            one["ids"] for one in golden["texts"]
        ]
        found = model.embed([one["text"] for one in golden["texts"]])
    expected = np.load(shared_data / "encoders" / family / "embeddings.npy")
    assert np.abs(found - expected).max() < 1e-5


def test_nomic_berts_newer_names_and_older_configuration(shared_data: Path, make: Make) -> None:
    expected = np.load(shared_data / "encoders/nomic_bert/embeddings.npy")
    texts = json.loads((shared_data / "encoders/nomic_bert/golden.json").read_text())["texts"]
    path = make("nomic_bert")
    values = json.loads((path / "config.json").read_text())
    newer = (
        "hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "head_dim",
        "hidden_act", "layer_norm_eps", "rope_parameters", "max_position_embeddings",
    )  # fmt: skip
    older = {key: value for key, value in values.items() if key not in newer}
    (path / "config.json").write_text(json.dumps(older))
    arrays = {}
    for name, array in weights(shared_data / "encoders/nomic_bert/model.gguf", NOMIC).items():
        for ours, theirs in NEWER_NOMIC:
            name = name.replace(ours, theirs)
        if "Wqkv" in name:
            for part, rows in zip("qkv", np.split(array, 3), strict=True):
                arrays[name.replace("attn.Wqkv", f"self_attn.{part}_proj")] = rows.copy()
        else:
            arrays[name] = array
    save_file(arrays, path / "model.safetensors")
    with trinity.load(path, threads=1) as model:
        assert model.config.context_length == 2048
        found = model.embed([one["text"] for one in texts])
    assert np.abs(found - expected).max() < 1e-5


@pytest.mark.parametrize("class_name", ["Qwen3Model", "Qwen3ForCausalLM"])
def test_an_embedder_without_the_head_that_its_configuration_names(
    shared_data: Path, make: Make, class_name: str
) -> None:
    expected = np.load(shared_data / "encoders/qwen3_embedding/embeddings.npy")
    texts = json.loads((shared_data / "encoders/qwen3_embedding/golden.json").read_text())["texts"]
    path = make("qwen3_embedding", architectures=[class_name], tie_word_embeddings=False)
    with trinity.load(path, threads=1, kv_type="f32") as model:
        assert np.abs(model.embed([one["text"] for one in texts]) - expected).max() < 1e-5


def test_a_rerankers_directory_has_the_pooler(shared_data: Path, make: Make) -> None:
    """Scores are classifier(tanh(pooler(h))); h are the golden states of the first token."""
    rng = np.random.default_rng(5)
    matrix, bias = rng.normal(size=(64, 64)).astype("f4"), rng.normal(size=64).astype("f4")
    pooler = {"bert.pooler.dense.weight": matrix, "bert.pooler.dense.bias": bias}
    path = make("bert_rerank", prefix="bert.", more=pooler)
    folder = shared_data / "encoders/bert_rerank"
    arrays = weights(folder / "model.gguf")
    texts = json.loads((folder / "golden.json").read_text())["texts"]
    with trinity.load(path, threads=1) as model:
        for number, one in enumerate(texts):
            hidden = np.load(folder / f"hidden_{number}.npy").reshape(-1, 64)
            pooled = np.tanh(matrix @ hidden[0] + bias)
            expected = arrays["classifier.weight"].reshape(-1) @ pooled + arrays["classifier.bias"]
            assert abs(model.rank(one["text"][0], one["text"][1:])[0] - expected[0]) < 1e-4


def test_an_xlm_roberta_rerankers_directory(shared_data: Path, make: Make) -> None:
    texts = json.loads((shared_data / "encoders/xlm_roberta_rerank/golden.json").read_text())[
        "texts"
    ]
    with trinity.load(make("xlm_roberta_rerank", prefix="roberta."), threads=1) as model:
        for one in texts:
            assert model.tokenizer.encode_pair(*one["text"])[0] == one["ids"]
            assert abs(model.rank(one["text"][0], one["text"][1:])[0] - one["score"]) < 1e-4


def test_both_texts_of_xlm_robertas_pairs_are_of_one_type(
    shared_data: Path, make: Make, tmp_path: Path
) -> None:
    """transformers' tokenizer uses one type, even if the configuration has two."""
    from trinity.tools.convert import convert

    folder = shared_data / "encoders/xlm_roberta_rerank"
    name = "embeddings.token_type_embeddings.weight"
    first = weights(folder / "model.gguf")[name].reshape(1, -1)
    more = {f"roberta.{name}": np.concatenate([first, 1 + 9 * first])}
    path = make("xlm_roberta_rerank", prefix="roberta.", more=more, type_vocab_size=2)
    convert(path, tmp_path / "made.gguf", outtype="f32")
    one = json.loads((folder / "golden.json").read_text())["texts"][0]
    for source in (path, tmp_path / "made.gguf"):
        with trinity.load(source, threads=1) as model:
            assert abs(model.rank(one["text"][0], one["text"][1:])[0] - one["score"]) < 1e-4


def test_a_directory_becomes_a_file_with_the_same_vectors(make: Make, tmp_path: Path) -> None:
    from trinity.tools.convert import convert

    convert(make("bert_mean"), tmp_path / "made.gguf", outtype="f32")
    with (
        trinity.load(tmp_path / "made.gguf", threads=1) as file,
        trinity.load(tmp_path / "bert_mean", threads=1) as directory,
    ):
        assert np.array_equal(file.embed(["a text", "b"]), directory.embed(["a text", "b"]))
    keys = trinity.open_weights(tmp_path / "made.gguf").metadata
    assert keys["bert.pooling_type"] == 1
    assert keys["tokenizer.ggml.token_type_count"] == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is true"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
    ],
)
def test_what_is_another_network_is_refused(
    make: Make, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        trinity.load(make("bert_cls", **values), threads=1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"moe_every_n_layers": 2}, "moe_every_n_layers is 2"),
        ({"qkv_proj_bias": True}, "qkv_proj_bias is True"),
        ({"activation_function": "gelu", "hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ],
)
def test_another_nomic_bert_is_refused(make: Make, values: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        trinity.load(make("nomic_bert", **values), threads=1)


def test_modules_that_change_the_vector_are_refused(make: Make) -> None:
    path = make("bert_cls")
    modules = json.loads((path / "modules.json").read_text())
    modules[2]["type"] = "sentence_transformers.models.LSTM"
    (path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(UnsupportedError, match="LSTM"):
        trinity.load(path, threads=1)
    (path / "modules.json").unlink()
    (path / "1_Pooling/config.json").write_text('{"pooling_mode_max_tokens": true}')
    with pytest.raises(UnsupportedError, match="pools by max"):
        trinity.load(path, threads=1)
