"""Settings of sentence-transformers change embeddings as they do there, or are refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.providers.encoder_directories import encoder_directory
from tests.providers.sentence_directories import (
    TEXTS,
    VARIANTS,
    dense,
    modules,
    sentence_directory,
    settings,
)
from trinity.errors import ContextLengthError, InputError, UnsupportedError
from trinity.tools.convert import convert

GOLDEN = Path(__file__).parents[1] / "data" / "sentence_transformers.npz"


@pytest.mark.parametrize("variant", VARIANTS)
def test_vectors_are_those_of_sentence_transformers(
    variant: str, shared_data: Path, tmp_path: Path
) -> None:
    """Lengths agree too, where sentence-transformers does not normalize."""
    golden = np.load(GOLDEN)
    folder = sentence_directory(shared_data / "encoders", variant, tmp_path)
    with trinity.load(folder, threads=1) as model, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = model.embed(TEXTS)
        expected = golden[variant]
        if model.embedder.rules.normalizes:
            expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * np.abs(expected).max())
        assert found.shape[1] == model.embedding_size
        if f"{variant}/document" in golden:
            other = model.embed(TEXTS, prompt_name="document")
            np.testing.assert_allclose(other, golden[f"{variant}/document"], rtol=0, atol=2e-5)
            assert np.array_equal(other, model.embed(TEXTS, prompt="a document, "))


def test_a_converted_file_has_the_same_rules(shared_data: Path, tmp_path: Path) -> None:
    for variant in ("limited", "prompt_left_out", "scalar_products", "fewer_dimensions"):
        folder = sentence_directory(shared_data / "encoders", variant, tmp_path)
        convert(folder, tmp_path / f"{variant}.gguf", "f32")
        with (
            trinity.load(folder, threads=1) as directory,
            trinity.load(tmp_path / f"{variant}.gguf", threads=1) as file,
        ):
            assert file.embedder.rules == directory.embedder.rules
            texts = TEXTS[:5]
            assert np.array_equal(file.embed(texts), directory.embed(texts))


def test_cuts_are_told_or_refused(shared_data: Path, tmp_path: Path) -> None:
    folder = sentence_directory(shared_data / "encoders", "limited", tmp_path)
    with trinity.load(folder, threads=1) as model:
        assert model.text_length == 16
        with pytest.warns(RuntimeWarning, match=r"cut to 16 tokens \(1 of 6 texts, .* text 5\)"):
            model.embed(TEXTS)
        with pytest.raises(ContextLengthError, match=r"text 5 has .* the model takes 16 of a text"):
            model.embed(TEXTS, truncate=False)
        with pytest.raises(InputError, match="no prompt 'query'; it has none"):
            model.embed(TEXTS, prompt_name="query")


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("sentence_bert_config.json", {"query_length": 32}, "query_length is 32"),
        ("sentence_bert_config.json", {"max_seq_length": "many"}, "max_seq_length is 'many'"),
        ("sentence_bert_config.json", {"config_args": {"is_decoder": True}}, "is_decoder = True"),
        (
            "sentence_bert_config.json",
            {"modality_config": {"message": {}}, "module_output_name": "token_embeddings"},
            "modality_config is",
        ),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "pools by cls and mean"),
        ("1_Pooling/config.json", {"pooling_mode": "weightedmean"}, "pools by weightedmean"),
        (
            "config_sentence_transformers.json",
            {"default_prompt_name": "query"},
            "default_prompt_name is 'query', but there is no such prompt",
        ),
        (
            "config_sentence_transformers.json",
            {"prompts": {"query": 1}},
            "expected an object of texts",
        ),
        ("config_sentence_transformers.json", {"truncate_dim": -1}, "truncate_dim is -1"),
    ],
)
def test_other_settings_are_refused(
    file: str, values: dict[str, Any], message: str, shared_data: Path, tmp_path: Path
) -> None:
    folder = encoder_directory(shared_data / "encoders", "bert_mean", tmp_path)
    settings(folder, file, **values)
    with pytest.raises(trinity.TrinityError, match=message):
        trinity.load(folder, threads=1)


def test_what_gguf_has_no_key_for_is_not_converted(shared_data: Path, tmp_path: Path) -> None:
    folder = sentence_directory(shared_data / "encoders", "dense_tanh", tmp_path)
    with pytest.raises(UnsupportedError, match="does not read dense layers after pooling for bert"):
        convert(folder, tmp_path / "made.gguf", "f32")
    gemma = encoder_directory(shared_data / "encoders", "gemma_embedding", tmp_path)
    settings(gemma, "2_Dense/config.json", activation_function="torch.nn.modules.activation.Tanh")
    with pytest.raises(UnsupportedError, match="the activation of its dense layer dense_2"):
        convert(gemma, tmp_path / "made.gguf", "f32")


def test_modules_in_another_order_are_refused(shared_data: Path, tmp_path: Path) -> None:
    folder = encoder_directory(shared_data / "encoders", "bert_mean", tmp_path)
    modules(folder, "Normalize", "Dense")
    dense(folder, "linear.Identity")
    with pytest.raises(UnsupportedError, match="in the order Transformer, Pooling, Dense"):
        trinity.load(folder, threads=1)


def test_texts_of_any_length_are_cut_in_bounded_time(shared_data: Path, tmp_path: Path) -> None:
    """Only the beginning of 30 MB is tokenized, so the vector is that of a part."""
    folder = sentence_directory(shared_data / "encoders", "limited", tmp_path)
    with trinity.load(folder, threads=1) as model:
        long = model.embedder.read_texts(["some words " * 3_000_000])
        assert long.cut == (0,)
        assert long.rows == model.embedder.read_texts(["some words " * 20]).rows


def test_golden_values_exist_for_each_variant() -> None:
    assert {name.partition("/")[0] for name in np.load(GOLDEN).files} == set(VARIANTS)
