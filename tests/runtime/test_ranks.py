"""Rerankers that read the pair to its end, compared with transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.formats.huggingface.rank_models import (
    CONFIGS,
    FILE,
    PAIRS,
    PLACES,
    ROLES,
    TOKENS,
    write,
    write_file,
)
from tests.tools.golden_models import edit_json
from trinity.conversation.pair_prompt import filled
from trinity.errors import (
    ConfigError,
    ContextLengthError,
    FormatError,
    InputError,
    TrinityError,
    UnsupportedError,
)
from trinity.tools.contents import contents
from trinity.tools.convert import convert

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "ranks.json").read_text("utf-8"))
LARGEST_DIFFERENCE = 1e-4


def made(name: str, form: str, folder: Path) -> Path:
    if name == FILE:
        return write_file(folder / "model.gguf")
    path = write(name, folder / "model")
    if form == "gguf":
        convert(path, folder / "model.gguf", outtype="f32")
        path = folder / "model.gguf"
    return path


@pytest.mark.parametrize(
    ("name", "form"),
    [(FILE, "gguf"), *((name, form) for name in CONFIGS for form in ("directory", "gguf"))],
)
def test_tokens_and_scores(name: str, form: str, tmp_path: Path) -> None:
    with trinity.load(made(name, form, tmp_path), threads=2, kv_type="f32") as model:
        assert model.ranks
        assert not model.encodes
        for pair, ids, score in zip(PAIRS, *GOLDEN[name].values(), strict=True):
            assert model.embedder.pairs(pair[0], [pair[1]]).rows == [ids]
            assert abs(model.rank(pair[0], [pair[1]])[0] - score) < LARGEST_DIFFERENCE
        assert model.weights is not None
        assert contents(model.weights).facts["gives"] == "ranks"


def test_a_converted_file_has_the_prompt_of_pairs_as_llama_cpp_reads_it(tmp_path: Path) -> None:
    path = made("qwen3_logits", "gguf", tmp_path)
    metadata = trinity.open_weights(path).metadata
    assert metadata["tokenizer.chat_template.rerank"] == PLACES.removesuffix("\n")
    assert metadata["qwen3.pooling_type"] == 4
    assert list(metadata["qwen3.classifier.output_labels"]) == ["yes", "no"]  # type: ignore[call-overload]


def test_texts_side_by_side_have_the_scores_that_they_have_alone(tmp_path: Path) -> None:
    texts = [text for _, text in PAIRS] * 4
    with trinity.load(write_file(tmp_path / "m.gguf"), threads=2, batch_invariant=True) as model:
        alone = np.concatenate([model.rank("a query", [text]) for text in texts])
        assert np.array_equal(model.rank("a query", texts), alone)
        assert len(set(alone.tolist())) == len(PAIRS)
        assert model.rank("a query", []).shape == (0,)
        with pytest.raises(ContextLengthError, match="the query with a text has"):
            model.rank("a", ["b", "long " * 200], truncate=False)


def test_a_template_that_is_given_counts(tmp_path: Path) -> None:
    """A classifier's directory on the hub may lack a template."""
    golden = GOLDEN["qwen3_roles"]["ids"]
    with trinity.load(write("qwen3_classifier", tmp_path / "model"), threads=1) as model:
        assert model.embedder.pairs(*PAIRS[0][:1], [PAIRS[0][1]]).rows != golden[:1]
        model.use_chat_template(ROLES)
        assert model.embedder.pairs(*PAIRS[0][:1], [PAIRS[0][1]]).rows == golden[:1]


def test_what_looks_like_a_place_in_a_text_is_none() -> None:
    assert filled("q {query} d {document}", "{document}", "{query}") == "q {document} d {query}"


@pytest.mark.parametrize("times", [0, 9])
def test_a_template_without_a_place_or_with_many_is_refused(times: int, tmp_path: Path) -> None:
    path = write_file(tmp_path / "m.gguf", PLACES.replace("{document}", "{document}" * times))
    with (
        trinity.load(path, threads=1) as model,
        pytest.raises(
            ConfigError, match=rf"chat_template.rerank contains {{document}} {times} times"
        ),
    ):
        model.rank("a", ["b"])


@pytest.mark.parametrize("labels", [2, 3])
def test_a_classifier_of_several_labels_is_no_reranker(labels: int, tmp_path: Path) -> None:
    """The labels do not tell which one means relevance."""
    from safetensors.numpy import load_file, save_file

    path = write("qwen3_classifier", tmp_path / "model")
    edit_json(path / "config.json", id2label={str(i): f"LABEL_{i}" for i in range(labels)})
    tensors = load_file(path / "model.safetensors")
    tensors["score.weight"] = np.tile(tensors["score.weight"], (labels, 1))
    save_file(tensors, path / "model.safetensors")
    with trinity.load(path, threads=1) as model:
        assert not model.ranks
        with pytest.raises(InputError, match=r"not a reranker: .*Qwen3ForSequenceClassification"):
            model.rank("a", ["b"])


def test_a_model_that_only_writes_is_no_reranker(tmp_path: Path) -> None:
    path = write("qwen3_logits", tmp_path / "model")
    (path / "modules.json").unlink()
    (path / "1_LogitScore/config.json").unlink()
    with (
        trinity.load(path, threads=1) as model,
        pytest.raises(InputError, match=r"not a reranker: .*modules\.json and 1_LogitScore"),
    ):
        model.rank("a", ["b"])


@pytest.mark.parametrize(
    ("file", "values", "error", "said"),
    [
        ("1_LogitScore/config.json", {"true_token_id": 264}, ConfigError, "the token 264, but"),
        ("1_LogitScore/config.json", {"true_token_id": None}, ConfigError, "true_token_id is None"),
        ("1_LogitScore/config.json", {"false_token_id": "no"}, ConfigError, "_id 'no'; expected"),
        ("config.json", {"logit_scale": 0.5}, UnsupportedError, "logit_scale is 0.5"),
    ],
)
def test_what_scores_otherwise_is_refused(
    file: str, values: dict[str, Any], error: type[TrinityError], said: str, tmp_path: Path
) -> None:
    path = write("qwen3_logits", tmp_path / "model")
    edit_json(path / file, **values)
    with pytest.raises(error, match=said):
        trinity.load(path, threads=1)


def test_a_module_in_another_folder_is_refused(tmp_path: Path) -> None:
    path = write("qwen3_logits", tmp_path / "model")
    (path / "1_LogitScore").rename(path / "2_LogitScore")
    modules = json.loads((path / "modules.json").read_text())
    modules[1]["path"] = "2_LogitScore"
    (path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(FormatError, match=r"LogitScore in '2_LogitScore', but 1_LogitScore/config"):
        trinity.load(path, threads=1)


def test_a_model_with_logits_to_rank_by_writes_as_before(tmp_path: Path) -> None:
    with trinity.load(write("qwen3_logits", tmp_path / "model"), threads=1) as model:
        ranks = model.generate("abc", max_tokens=8, temperature=0.0).token_ids
    assert TOKENS["qwen3_logits"][1] is not None
    (tmp_path / "model/1_LogitScore/config.json").unlink()
    (tmp_path / "model/modules.json").unlink()
    with trinity.load(tmp_path / "model", threads=1) as model:
        assert model.generate("abc", max_tokens=8, temperature=0.0).token_ids == ranks
