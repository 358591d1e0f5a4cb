"""llama.cpp loads every file of convert and quantize, and computes the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from tests.formats.huggingface import class_models
from tests.llama_cpp import LlamaCpp
from tests.providers.encoder_directories import encoder_directory
from tests.tools.family_directories import directory
from tests.tools.test_convert_families import FOLDERS
from trinity.errors import UnsupportedError
from trinity.quantization import quantize
from trinity.tools.convert import convert
from trinity.tools.convert.encode import OUTTYPES

Array = NDArray[np.float32]
# deepseek_v2_lite: llama.cpp takes a model for a "lite" one, without q_lora_rank, by 27 layers.
LOADED = tuple(name for name in FOLDERS if name != "deepseek_v2_lite")
# llama.cpp's thresholds come from the deviation of one value less.
NEARLY = ("gemma3n",)
# llama.cpp computes phimoe's norms and experts otherwise.
NOT_LOADED = ("sarvam_mla", "phimoe", "phimoe_plain")
LOADED_CLASSES = tuple(name for name in class_models.CONFIGS if name not in NOT_LOADED)
# What a reader of the GGUF alone can know; see the reference data's README.
KNOWN = {
    "gpt_oss": "logits_truncated_yarn.npy",
    "gpt_oss_mxfp4": "logits_truncated_yarn.npy",
    "mistral_window": "logits_nowindow.npy",
    "phi3": "logits_nowindow.npy",
}
# llama.cpp takes exaone4's window for models of 64 layers alone.
OTHERWISE = ("exaone4_window",)
# llama.cpp has no window in these families; prompts within the window do not need one.
NO_WINDOW = ("mistral_window", "phi3")
# Rounding activations to 8 bits, by either engine, changes tokens of this random model to a cosine
# of 0.57 with the logits of its own weights in float32. Those weights are what is compared.
UNSTABLE = ("qwen3_next", "jamba")
# The names in config.json of the experts of a layer and of those that a token takes.
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_top_k",
          "moe_k")  # fmt: skip
TYPES = ("f32", "f16", "q8_0", "Q4_K_M")
MORE_TYPES = ("bf16", "Q2_K", "Q3_K_M", "Q4_0", "Q4_1", "Q5_K_S", "Q6_K", "IQ4_NL", "IQ4_XS",
              "MXFP4", "Q1_0", "Q2_0", "TQ1_0", "TQ2_0")  # fmt: skip
CLASS_TYPES = ("f32", "q8_0", "Q4_K_M", pytest.param("f16", marks=pytest.mark.full))
_MELLUM_ROPE = {"rope_type": "default", "rope_theta": 5e5}
CHANGED: dict[str, dict[str, Any]] = {
    # llama.cpp gives windowed layers the rotation of the others.
    "mellum": {
        "rope_parameters": {"full_attention": _MELLUM_ROPE, "sliding_attention": _MELLUM_ROPE}
    },
    # llama.cpp has the sizes of the published models, whose chunks are longer than the prompt.
    "llama4": {"attention_chunk_size": 8192},
    "gemma3n": {
        "hidden_size_per_layer_input": 256,
        "num_kv_shared_layers": 0,
        "activation_sparsity_pattern": [0.95] * 5,
        "intermediate_size": [1024] * 5,
    },
    # llama.cpp requires experts in each layer after the dense ones.
    "ernie4_5_moe": {"moe_layer_interval": 1},
}
ENCODERS = ("bert_cls", "bert_mean", "xlm_roberta", "gemma_embedding", "nomic_bert",
            "qwen3_embedding")  # fmt: skip


@pytest.fixture(scope="module")
def llama_cpp() -> Iterator[LlamaCpp]:
    found = LlamaCpp()
    yield found
    found.close()


def written(source: Path, parent: Path, type_name: str) -> Path:
    """The file of one type that convert or quantize makes of a directory."""
    path = parent / f"{type_name}.gguf"
    if type_name in OUTTYPES:
        convert(source, path, type_name, allow_requantize=True)
    else:
        quantize(source, path, type_name, allow_requantize=True)
    return path


def dequantized(path: Path) -> Path:
    """The same weights in F32, in a second file."""
    made = path.with_name("dequantized.gguf")
    quantize(path, made, "F32", allow_requantize=True)
    return made


def cosine(found: Array, expected: Array) -> float:
    """Of all values as one vector."""
    a, b = found.astype(np.float64).reshape(-1), expected.astype(np.float64).reshape(-1)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def all_types() -> list[Any]:
    return [*TYPES, *(pytest.param(name, marks=pytest.mark.full) for name in MORE_TYPES)]


def all_experts(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a model with experts whose tokens take every expert, empty without."""
    inner = config.get("text_config", config)
    count = next((inner[key] for key in EXPERTS if inner.get(key)), None)
    if count is None:
        return {}
    changed = {key: count for key in CHOSEN if key in inner}
    assert changed
    if "n_group" in inner:
        changed |= {"n_group": 1, "topk_group": 1}
    return config | (changed if inner is config else {"text_config": inner | changed})


@pytest.mark.few(12)
@pytest.mark.parametrize("type_name", all_types())
@pytest.mark.parametrize("name", LOADED)
def test_files_of_every_family(
    name: str, type_name: str, llama_cpp: LlamaCpp, shared_data: Path, tmp_path: Path
) -> None:
    """F32 against transformers; GELU is a table of half precision in llama.cpp. Others: as here.

    The engines round activations differently, which near a tie chooses another expert. Tokens of
    files other than F32 therefore take every expert, weighted by the router: all their logits as
    one vector are compared, as in families without experts. F32 compares the choice of experts.
    """
    folder = shared_data / "architectures" / name
    source, exact = folder / "hf", type_name == "f32"
    config = json.loads((source / "config.json").read_text("utf-8"))
    if not exact and (changed := all_experts(config)):
        source = directory(folder, tmp_path, config=changed)
    path = written(source, tmp_path, type_name)
    ids = json.loads((folder / "golden.json").read_text("utf-8"))["prompt_ids"]
    if name in NO_WINDOW and not exact:
        ids = ids[: config["sliding_window"]]
    found, least = llama_cpp(path, ids), 0.98
    if exact and name not in OTHERWISE and name != "gpt_oss_mxfp4":
        expected = np.load(folder / KNOWN.get(name, "logits.npy"))
        np.testing.assert_allclose(found, expected[:, : found.shape[1]], rtol=0, atol=0.02)
    elif name not in OTHERWISE:
        context = 1024 if name.startswith("phi3") else None  # llama.cpp's here: longrope's divisors
        if name in UNSTABLE:
            assert np.isfinite(found).all()
            path, least = dequantized(path), 0.999999
            found = llama_cpp(path, ids)
        with trinity.load(path, threads=1, kv_type="f32", context_length=context) as model:
            expected = model.logits(ids)[:, : found.shape[1]]
        assert cosine(found, expected) > least


@pytest.mark.few(12)
@pytest.mark.parametrize("type_name", CLASS_TYPES)
@pytest.mark.parametrize("name", LOADED_CLASSES)
def test_files_of_every_class(
    name: str, type_name: str, llama_cpp: LlamaCpp, tmp_path: Path
) -> None:
    """F32 against transformers, others against trinity with all experts, as above."""
    changes, exact = CHANGED.get(name, {}), type_name == "f32"
    if not exact:
        changes = all_experts(class_models.CONFIGS[name] | changes) or changes
    path = written(class_models.write(name, tmp_path / "model", **changes), tmp_path, type_name)
    found = llama_cpp(path, class_models.PROMPT)
    if not exact and name in UNSTABLE:
        path = dequantized(path)
        found = llama_cpp(path, class_models.PROMPT)
    if exact and not changes:
        expected, _ = class_models.golden(name)
    else:
        with trinity.load(path, threads=1, kv_type="f32") as model:
            expected = model.logits(class_models.PROMPT)
    if exact and name not in NEARLY:
        np.testing.assert_allclose(found, expected[:, : found.shape[1]], rtol=0, atol=0.02)
    else:
        least = 0.999 if exact else 0.98
        assert cosine(found, expected[:, : found.shape[1]]) > least


@pytest.mark.few(8)
@pytest.mark.parametrize("type_name", all_types())
@pytest.mark.parametrize("name", ENCODERS)
def test_files_of_encoders(
    name: str, type_name: str, llama_cpp: LlamaCpp, shared_data: Path, tmp_path: Path
) -> None:
    """F32 and F16 are compared with sentence-transformers' vectors, others with trinity's."""
    encoders = shared_data / "encoders"
    path = written(encoder_directory(encoders, name, tmp_path), tmp_path, type_name)
    golden = json.loads((encoders / name / "golden.json").read_text("utf-8"))["texts"]
    expected = np.load(encoders / name / "embeddings.npy")
    if type_name not in ("f32", "f16"):
        with trinity.load(path, threads=1) as model:
            expected = model.embed([one["ids"] for one in golden])
    for one, vector in zip(golden, expected, strict=True):
        found = llama_cpp(path, one["ids"], embed=True)
        assert cosine(found, vector) > (0.9999 if type_name in ("f32", "f16") else 0.98)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
SCALINGS: dict[str, dict[str, object]] = {
    "linear": {"rope_type": "linear", "factor": 3.0},
    "llama3": LLAMA3,
    "yarn": YARN,
    "attention_factor": {**YARN, "attention_factor": 1.3},
    "mscale": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5},
    "equal mscales": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.7},
    "betas": {**YARN, "original_max_position_embeddings": 4096, "beta_fast": 16, "beta_slow": 2},
    "not truncated": {**YARN, "original_max_position_embeddings": 4096, "truncate": False},
}
REFUSED = {
    "llama3_rope": {"betas", "not truncated"},
    "qwen3": {"llama3", "betas", "not truncated"},
    "gemma": {"llama3", "betas", "not truncated"},
    "falcon_h1": {"llama3", "betas", "not truncated"},
    "granite": {"betas", "not truncated"},
    "exaone4": {"betas", "not truncated"},
    "smollm3": {"llama3", "not truncated"},
    "qwen3_5": {"llama3", "betas", "not truncated"},
    "deepseek_v2": set(SCALINGS) - {"equal mscales"},
    "ministral3": {"llama3", "linear", "not truncated"},
}


@pytest.mark.few(10)
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("name", REFUSED)
def test_rope_scaling_is_that_of_the_directory_or_refused(
    name: str, scaling: str, llama_cpp: LlamaCpp, shared_data: Path, tmp_path: Path
) -> None:
    folder = shared_data / "architectures" / name
    values = json.loads((folder / "hf" / "config.json").read_text("utf-8"))
    kept = {
        key: value
        for key, value in values.get("rope_parameters", {}).items()
        if key in ("rope_theta", "partial_rotary_factor")
    }
    values |= {"rope_parameters": {**kept, **SCALINGS[scaling]}, "max_position_embeddings": 8192}
    source, path = directory(folder, tmp_path, config=values), tmp_path / "made.gguf"
    if scaling in REFUSED[name]:
        with pytest.raises(UnsupportedError):
            convert(source, path, "f32")
        return
    convert(source, path, "f32")
    ids = json.loads((folder / "golden.json").read_text("utf-8"))["prompt_ids"]
    with trinity.load(source, threads=1, kv_type="f32", context_length=128) as model:
        expected = model.logits(ids)
    np.testing.assert_allclose(llama_cpp(path, ids), expected, rtol=0, atol=0.02)


def test_what_llama_cpp_refuses_is_an_error(llama_cpp: LlamaCpp, tmp_path: Path) -> None:
    """The check itself can fail: llama.cpp's log gives the reason for a damaged file."""
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    with pytest.raises(AssertionError, match="does not load the file"):
        llama_cpp(tmp_path / "bad.gguf", [1])
