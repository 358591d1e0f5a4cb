"""Directories of encoders: the files of transformers and sentence-transformers beside weights.

The weights are those of the reference data's GGUF files, under the names of transformers.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

import trinity
from trinity.errors import UnsupportedError

Arrays = dict[str, NDArray[np.float32]]
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
Make = Callable[..., Path]
NAMES = (
    ("token_embd_norm", "embeddings.LayerNorm"), ("token_embd", "embeddings.word_embeddings"),
    ("position_embd", "embeddings.position_embeddings"),
    ("token_types", "embeddings.token_type_embeddings"), ("cls.output", "classifier"),
    ("attn_output_norm", "attention.output.LayerNorm"), ("attn_output", "attention.output.dense"),
    ("attn_q", "attention.self.query"), ("attn_k", "attention.self.key"),
    ("attn_v", "attention.self.value"), ("ffn_up", "intermediate.dense"),
    ("ffn_down", "output.dense"), ("layer_output_norm", "output.LayerNorm"),
    ("blk.", "encoder.layer."),
)  # fmt: skip
QWEN3 = (
    ("token_embd", "embed_tokens"), ("output_norm", "norm"), ("blk.", "layers."),
    ("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm"),
    ("attn_q_norm", "self_attn.q_norm"), ("attn_k_norm", "self_attn.k_norm"),
    ("attn_q", "self_attn.q_proj"), ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"), ("attn_output", "self_attn.o_proj"),
    ("ffn_gate", "mlp.gate_proj"), ("ffn_up", "mlp.up_proj"), ("ffn_down", "mlp.down_proj"),
)  # fmt: skip

GEMMA = (
    ("attn_norm", "input_layernorm"), ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
    *(pair for pair in QWEN3 if pair[0] not in ("attn_norm", "ffn_norm")),
)  # fmt: skip
# As the class that came with nomic-embed saved them, and as transformers names them.
NOMIC = (
    ("token_embd_norm", "emb_ln"), ("token_embd", "embeddings.word_embeddings"),
    ("token_types", "embeddings.token_type_embeddings"), ("blk.", "encoder.layers."),
    ("attn_qkv", "attn.Wqkv"), ("attn_output_norm", "norm1"), ("attn_output", "attn.out_proj"),
    ("ffn_up", "mlp.fc11"), ("ffn_gate", "mlp.fc12"), ("ffn_down", "mlp.fc2"),
    ("layer_output_norm", "norm2"),
)  # fmt: skip
NEWER_NOMIC = (
    ("emb_ln", "embeddings.LayerNorm"), ("encoder.layers.", "layers."),
    ("attn.out_proj", "self_attn.o_proj"), ("fc11", "up_proj"), ("fc12", "gate_proj"),
    ("fc2", "down_proj"), ("norm1", "post_attention_layernorm"), ("norm2", "post_mlp_layernorm"),
)  # fmt: skip
FAMILIES = {"qwen3": QWEN3, "gemma": GEMMA, "nomic": NOMIC}


def weights(path: Path, names: tuple[tuple[str, str], ...] = NAMES) -> Arrays:
    """A GGUF file's tensors under the names of transformers."""
    found = {}
    with trinity.open_weights(path) as provider:
        for name in provider.tensor_names():
            tensor = provider.tensor(name)
            own = name
            for ours, theirs in names:
                if f"{ours}." in own or ours.endswith("."):
                    own = own.replace(ours, theirs)
            found[own] = tensor.dequantize().reshape(tensor.shape).copy()
    return found


def as_xlm_roberta(arrays: Arrays, folder: Path, target: Path) -> Arrays:
    """Two rows before positions, another classifier, and a tokenizer.json as transformers' own."""
    named = "embeddings.position_embeddings.weight"
    arrays[named] = np.concatenate([np.zeros((2, 64), np.float32), arrays[named]])
    for part in ("weight", "bias"):
        if f"classifier.{part}" in arrays:
            arrays[f"classifier.out_proj.{part}"] = arrays.pop(f"classifier.{part}")
            arrays[f"classifier.dense.{part}"] = arrays.pop(f"cls.{part}")
    with trinity.open_weights(folder / "model.gguf") as provider:
        found = {k.removeprefix("tokenizer.ggml."): v for k, v in provider.metadata.items()}
    tokens: list[str] = list(found["tokens"])  # type: ignore[call-overload]
    scores = np.asarray(found["scores"]).tolist()
    charsmap = base64.b64encode(np.asarray(found["precompiled_charsmap"]).astype("u1").tobytes())
    special = [i for i, text in enumerate(tokens) if text in SPECIAL]
    ends = {"<s>": 0, "</s>": 2}
    (target / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True} for i in special
        ],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": charsmap.decode()},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always",
             "split": True},
        ]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {
                text: {"id": text, "ids": [i], "tokens": [text]} for text, i in ends.items()
            },
        },
        "decoder": None,
        "model": {"type": "Unigram", "unk_id": 3, "byte_fallback": False,
                  "vocab": [list(pair) for pair in zip(tokens, scores, strict=True)]},
    }))  # fmt: skip
    return arrays


@pytest.fixture
def make(shared_data: Path, tmp_path: Path) -> Make:
    def made(family: str, *, prefix: str = "", more: Arrays | None = None, **config: Any) -> Path:
        folder = shared_data / "encoders" / family
        shutil.copytree(folder / "hf", tmp_path / family, copy_function=shutil.copyfile)
        names = FAMILIES.get(family.partition("_")[0], NAMES)
        arrays = weights(folder / "model.gguf", names)
        if names is GEMMA:  # which GGUF has with 1 added; dense layers have files of their own
            arrays = {
                name: array - (1 if "norm" in name else 0)
                for name, array in arrays.items()
                if not name.startswith("dense_")
            }
        if family.startswith("xlm"):
            arrays = as_xlm_roberta(arrays, folder, tmp_path / family)
        named = {k if k.startswith("classifier") else prefix + k: v for k, v in arrays.items()}
        save_file({**named, **(more or {})}, tmp_path / family / "model.safetensors")
        values = json.loads((folder / "hf/config.json").read_text())
        (tmp_path / family / "config.json").write_text(json.dumps({**values, **config}))
        return tmp_path / family

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
    """Scores are classifier(tanh(pooler(h))), h being the golden states of the first token."""
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
    texts = json.loads(
        (shared_data / "encoders/xlm_roberta_rerank/golden.json").read_text()
    )["texts"]  # fmt: skip
    with trinity.load(make("xlm_roberta_rerank", prefix="roberta."), threads=1) as model:
        for one in texts:
            assert model.tokenizer.encode_pair(*one["text"])[0] == one["ids"]
            assert abs(model.rank(one["text"][0], one["text"][1:])[0] - one["score"]) < 1e-4


def test_both_texts_of_xlm_robertas_pairs_are_of_one_type(
    shared_data: Path, make: Make, tmp_path: Path
) -> None:
    """transformers' tokenizer says so, also where the configuration has two types."""
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
    with pytest.raises(UnsupportedError, match="pooling_mode_max_tokens"):
        trinity.load(path, threads=1)
