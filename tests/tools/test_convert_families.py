"""Directories of every family become the files of llama.cpp's converter."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.formats.raw_safetensors import bfloat16
from tests.tools.family_directories import arrays_of, directory
from trinity.errors import TrinityError
from trinity.formats.provider import Tensor, WeightProvider
from trinity.loading import load, load_tokenizer
from trinity.providers import open_weights
from trinity.tokenizers.pretokenizers import PRE_TOKENIZERS
from trinity.tools.convert import convert

FOLDERS = (
    "cohere", "cohere2", "deepseek_v2", "deepseek_v2_lite", "exaone4", "exaone4_window",
    "falcon_h1", "gemma", "gemma2", "gemma3", "gemma4", "gemma4_e", "gemma4_moe", "glm4", "gpt_oss",
    "gpt_oss_mxfp4", "granite", "granitehybrid", "granitemoe", "lfm2", "llama3_rope", "ministral3",
    "mistral_window", "mixtral", "nemotron_h", "olmo2", "olmo3", "phi2", "phi3",
    "phi3_longrope_long", "phi3_longrope_short", "qwen2", "qwen2_moe", "qwen3", "qwen3_5",
    "qwen3_moe", "qwen3_next", "smollm3", "starcoder2",
)  # fmt: skip
# The directory's name, and words for lists of models.
NOT_COMPARED = {"general.name", "general.size_label", "general.type"}
# GGUF's llama has no window: the context is what makes no difference. llama.cpp's converter writes
# a constant for models with Mamba-2.
CONTEXTS = {"granitehybrid": 512, "mistral_window": 16, "nemotron_h": 512}
# Of the converter a constant for real vocabularies, here the id of some token.
NO_END = {"gemma": 107}
Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Folder:
    return lambda name: shared_data / "architectures" / name


@pytest.fixture(scope="module")
def converted(folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The file in F32 that a folder's directory becomes; each is made once."""
    made: dict[str, Path] = {}

    def path(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("converted") / f"{name}.gguf"
            convert(folder(name) / "hf", made[name], "f32")
        return made[name]

    return path


def pair(name: str, converted: Folder, folder: Folder) -> tuple[WeightProvider, WeightProvider]:
    """Ours and llama.cpp's."""
    return open_weights(converted(name)), open_weights(folder(name) / "model.gguf")


@pytest.mark.few(6)
@pytest.mark.parametrize("name", FOLDERS)
def test_tensors_are_those_of_llama_cpp(name: str, converted: Folder, folder: Folder) -> None:
    ours, theirs = pair(name, converted, folder)
    assert set(ours.tensor_names()) == set(theirs.tensor_names())
    for tensor in map(theirs.tensor, theirs.tensor_names()):
        own = ours.tensor(tensor.name)
        assert (own.type, own.shape) == (tensor.type, tensor.shape), tensor.name
        assert own.data.tobytes() == tensor.data.tobytes(), tensor.name


@pytest.mark.few(6)
@pytest.mark.parametrize("name", FOLDERS)
def test_keys_are_those_of_llama_cpp(name: str, converted: Folder, folder: Folder) -> None:
    """An absent key counts as its default, which a file may also state."""
    ours, theirs = (said(weights) for weights in pair(name, converted, folder))
    if name in CONTEXTS:
        theirs[f"{theirs['general.architecture']}.context_length"] = CONTEXTS[name]
    assert ours == theirs


def said(weights: WeightProvider) -> dict[str, object]:
    """The model's keys. What their absence means: llama.cpp src/llama-model.cpp, load_hparams."""
    found: dict[str, Any] = {}
    for key, value in weights.metadata.items():
        if not key.startswith("tokenizer.") and key not in NOT_COMPARED:
            found[key] = value.tolist() if isinstance(value, np.ndarray) else value
    prefix = f"{found['general.architecture']}."
    width = found[f"{prefix}embedding_length"] // found[f"{prefix}attention.head_count"]
    absent = {
        "attention.key_length": width,
        "attention.value_length": width,
        "rope.freq_base": 10000.0,
        "vocab_size": len(weights.metadata["tokenizer.ggml.tokens"]),  # type: ignore[arg-type]
    }
    found = {f"{prefix}{key}": value for key, value in absent.items()} | found
    return {f"{prefix}rope.dimension_count": found[f"{prefix}attention.key_length"]} | found


@pytest.mark.few(6)
@pytest.mark.parametrize("name", FOLDERS)
def test_the_configuration_is_that_of_llama_cpps_file(
    name: str, converted: Folder, folder: Folder
) -> None:
    ours, theirs = (weights.config for weights in pair(name, converted, folder))
    context = CONTEXTS.get(name, theirs.context_length)
    assert replace(ours, name="") == replace(theirs, name="", context_length=context)


@pytest.mark.few(6)
@pytest.mark.parametrize("name", FOLDERS)
def test_the_vocabulary_is_that_of_llama_cpps_file(
    name: str, converted: Folder, folder: Folder
) -> None:
    ours, theirs = (weights.metadata for weights in pair(name, converted, folder))
    for key in ("model", "tokens", "token_type", "scores", "merges", "padding_token_id"):
        full = f"tokenizer.ggml.{key}"
        assert (full in ours) == (full in theirs), key
        if full in theirs:
            np.testing.assert_array_equal(ours[full], theirs[full], err_msg=key)
    for key in ("bos_token_id", "eos_token_id"):
        assert ours[f"tokenizer.ggml.{key}"] == theirs[f"tokenizer.ggml.{key}"], key
    if ours["tokenizer.ggml.model"] == "gpt2":
        # The names were set by hand there, whether the vocabulary ignores merges or not.
        rules = [PRE_TOKENIZERS[str(keys["tokenizer.ggml.pre"])].regexes for keys in (ours, theirs)]
        assert rules[0] == rules[1]
    ends = [load_tokenizer(weights.path).eog_ids for weights in pair(name, converted, folder)]
    assert ends[0] == ends[1] - {NO_END.get(name)}


@pytest.mark.few(6)
@pytest.mark.parametrize("name", FOLDERS)
def test_token_ids_are_those_of_the_directorys_own_library(
    name: str, converted: Folder, folder: Folder
) -> None:
    tokenizer = load_tokenizer(converted(name))
    golden = json.loads((folder(name) / "golden.json").read_text("utf-8"))
    for text, ids in golden["tokenize"].items():
        assert tokenizer.encode(text, add_bos=False) == ids


@pytest.mark.few(1)
@pytest.mark.parametrize("outtype", ["f16", "bf16", "q8_0"])
@pytest.mark.parametrize("name", ["deepseek_v2", "gemma4_moe", "gpt_oss_mxfp4", "qwen2_moe"])
def test_types_are_those_of_llama_cpps_converter(
    name: str, outtype: str, folder: Folder, tmp_path: Path
) -> None:
    """Routers, norms, biases and scales stay F32, MXFP4 blocks are copied; values agree closely."""
    made = convert(folder(name) / "hf", tmp_path / "model.gguf", outtype)
    ours, theirs = open_weights(made.path), open_weights(folder(name) / "model.gguf")
    for tensor in map(theirs.tensor, theirs.tensor_names()):
        own = ours.tensor(tensor.name)
        assert own.type == their_type(tensor, outtype.upper()), tensor.name
        exact = own.type == tensor.type
        atol = 0 if exact else 0.02 * float(np.abs(tensor.dequantize()).max())
        np.testing.assert_allclose(own.dequantize(), tensor.dequantize(), rtol=0, atol=atol)
    blocks = name == "gpt_oss_mxfp4" and outtype != "q8_0"
    file_type = {"f16": 1, "bf16": 32, "q8_0": 7}[outtype]
    assert ours.metadata["general.file_type"] == (38 if blocks else file_type)


def their_type(tensor: Tensor, wanted: str) -> str:
    """Source: llama.cpp conversion/base.py, ModelBase.prepare_tensors."""
    if tensor.type == "MXFP4":
        return "MXFP4"
    routers = ("ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight")
    plain = len(tensor.shape) == 1 or tensor.name.endswith(("_norm.weight", *routers))
    if plain or not tensor.name.endswith(".weight"):
        return "F32"
    return "F16" if wanted == "Q8_0" and tensor.shape[-1] % 32 else wanted


@pytest.mark.few(1)
@pytest.mark.parametrize(("name", "layer"), [("qwen3_moe", 1), ("qwen2_moe", 0)])
def test_experts_in_one_tensor_are_those_of_a_tensor_each(
    name: str, layer: int, converted: Folder, folder: Folder, tmp_path: Path
) -> None:
    """Newer checkpoints hold gate and up of all experts together, the rows of gate first."""
    arrays, moved = arrays_of(folder(name)), {}
    for part in ("gate_proj", "up_proj", "down_proj"):
        start = f"model.layers.{layer}.mlp.experts."
        found = sorted(key for key in arrays if key.startswith(start) and part in key)
        found.sort(key=lambda key: int(key.removeprefix(start).split(".")[0]))
        moved[part] = np.stack([arrays.pop(key) for key in found])
    arrays[f"{start}gate_up_proj"] = np.concatenate([moved["gate_proj"], moved["up_proj"]], axis=1)
    arrays[f"{start}down_proj"] = moved["down_proj"]
    convert(directory(folder(name), tmp_path, arrays), tmp_path / "model.gguf", "f32")
    assert (tmp_path / "model.gguf").read_bytes() == converted(name).read_bytes()


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["gemma3", "deepseek_v2", "gpt_oss", "granitemoe"])
def test_large_tensors_are_read_in_pieces(
    name: str, converted: Folder, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With pieces of a few rows, and with any view, the file is the same."""
    from trinity.formats.huggingface import canonical, weights
    from trinity.tools.convert import encode

    monkeypatch.setattr(weights, "CHUNK_ELEMENTS", 300)
    monkeypatch.setattr(canonical, "CHUNK_ELEMENTS", 300)
    monkeypatch.setattr(encode, "_CHUNK_ELEMENTS", 300)
    convert(folder(name) / "hf", tmp_path / f"{name}.gguf", "f32")
    assert (tmp_path / f"{name}.gguf").read_bytes() == converted(name).read_bytes()


def test_bfloat16_norms_get_their_one_in_float32(folder: Folder, tmp_path: Path) -> None:
    """1 + 2**-9 is not a bfloat16 value."""
    arrays = arrays_of(folder("gemma"))
    arrays["model.norm.weight"] = bfloat16(np.full(64, 2.0**-9, np.float32))
    convert(directory(folder("gemma"), tmp_path, arrays), tmp_path / "model.gguf", "bf16")
    norm = open_weights(tmp_path / "model.gguf").tensor("output_norm.weight")
    assert (norm.type, set(norm.dequantize())) == ("F32", {1 + 2.0**-9})


@pytest.mark.full
def test_older_words_for_the_same_configuration(
    converted: Folder, folder: Folder, tmp_path: Path
) -> None:
    """The keys that transformers 4 wrote give the same file."""
    older = {
        "gemma3": {
            "rope_parameters": None, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "layer_types": None,
            "sliding_window_pattern": 6, "hidden_activation": None,
        },
        "gemma4": {
            "per_layer_config": None, "global_head_dim": 32, "num_global_key_value_heads": 1,
        },
        "lfm2": {
            "layer_types": None, "full_attn_idxs": [1, 3], "intermediate_size": None,
            "block_ff_dim": 144, "block_auto_adjust_ff_dim": None, "block_multiple_of": 32,
        },
        "ministral3": {},
        "granitehybrid": {
            "layer_types": ["linear_attention", "linear_attention", "full_attention",
                            "linear_attention"],
        },
        "nemotron_h": {
            "hybrid_override_pattern": None, "num_hidden_layers": None, "n_routed_experts": 8,
            "layers_block_type": ["mamba", "mlp", "attention", "mlp", "mamba"],
        },
        "olmo3": {"layer_types": None},
        "phi3_longrope_long": {"partial_rotary_factor": 0.75, "rope_theta": 10000.0},
        "qwen3_next": {
            "rope_parameters": None, "rope_theta": 1e6, "partial_rotary_factor": 0.25,
            "layer_types": None, "full_attention_interval": 4,
        },
        "qwen3_moe": {"num_local_experts": None, "num_experts": 8, "layer_types": None},
    }  # fmt: skip
    for name, changes in older.items():
        values = json.loads((folder(name) / "hf" / "config.json").read_text("utf-8"))
        rope = values.get("rope_parameters", {})
        if name == "phi3_longrope_long":
            scaling = {key: rope[key] for key in ("long_factor", "short_factor")}
            changes |= {"rope_parameters": None, "rope_scaling": {"type": "su", **scaling}}
        if name == "ministral3":
            changes |= {"rope_parameters": {key: rope[key] for key in rope if key != "rope_type"}}
        values |= changes
        for key in (key for key, value in changes.items() if value is None):
            del values[key]
        made = tmp_path / f"{name}.gguf"
        convert(directory(folder(name), tmp_path / name, config=values), made, "f32")
        assert said(open_weights(made)) == said(open_weights(converted(name))), name


@pytest.mark.parametrize("name", ["gemma3", "llama3_rope", "phi3_longrope_long", "qwen3"])
def test_logits_are_those_of_transformers(name: str, converted: Folder, folder: Folder) -> None:
    """For other families, equal tensors and configurations imply equal logits."""
    golden = json.loads((folder(name) / "golden.json").read_text("utf-8"))
    expected = np.load(folder(name) / "logits.npy")
    with load(converted(name)) as model:
        logits = model.logits(golden["prompt_ids"])
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-3)


def test_qwen_35_within_a_model_that_sees(
    converted: Folder, folder: Folder, tmp_path: Path
) -> None:
    """The vision part and the MTP layers are ignored."""
    arrays = {
        f"model.language_model.{name.removeprefix('model.')}": array
        for name, array in arrays_of(folder("qwen3_5")).items()
    }
    arrays["model.visual.blocks.0.attn.qkv.weight"] = np.ones((8, 8), np.float32)
    arrays["mtp.layers.0.input_layernorm.weight"] = np.ones(64, np.float32)
    values = json.loads((folder("qwen3_5") / "hf" / "config.json").read_text("utf-8"))
    outer = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "text_config": values,
        "vision_config": {"depth": 1},
        "tie_word_embeddings": True,
    }
    convert(
        directory(folder("qwen3_5"), tmp_path, arrays, config=outer), tmp_path / "q.gguf", "f32"
    )
    assert (tmp_path / "q.gguf").read_bytes() == converted("qwen3_5").read_bytes()


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("granitehybrid", {"mamba_proj_bias": True}, "mamba_proj_bias is true"),
        ("granitehybrid", {"time_step_limit": [0.01, 0.1]}, "time_step_limit is [0.01, 0.1]"),
        ("falcon_h1", {"time_step_limit": [0.0, 0.5]}, "steps of any size"),
        ("granitehybrid", {"layer_types": ["mamba"]}, "layer_types has 1 values"),
        ("granitehybrid", {"mamba_n_heads": 7}, "mamba_n_heads is 7; it must divide the inner"),
        ("nemotron_h", {"hybrid_override_pattern": "M-*"}, "expected a letter of"),
        ("nemotron_h", {"hybrid_override_pattern": "ME*EM"}, "E stands for a layer with experts"),
        ("falcon_h1", {"mamba_rms_norm": True, "mamba_norm_before_gate": True}, "before the norm"),
        ("falcon_h1", {"ssm_multipliers": [1.0]}, "expected a list of 5"),
        ("lfm2", {"conv_bias": True}, "conv_bias is true"),
        ("lfm2", {"layer_types": ["conv", "mamba"] * 2}, "conv, full_attention"),
        ("qwen3_5", {"layer_types": ["mamba"] * 4}, "linear_attention, full_attention"),
        ("qwen3_5", {"layer_types": [["linear_attention"]] * 4}, "layer_types has ['linear_"),
        ("nemotron_h", {"mamba_hidden_act": "gelu_new"}, "mamba_hidden_act is 'gelu_new'"),
        ("nemotron_h", {"time_step_min": 0.5}, "time_step_min is 0.5"),
        ("nemotron_h", {"layers_block_type": [{"mamba": 1}]}, "layers_block_type has {'mamba'"),
        ("qwen3_next", {"linear_num_value_heads": 3}, "not a multiple of linear_num_key_heads 2"),
        ("qwen3_next", {"norm_topk_prob": False}, "norm_topk_prob is false"),
    ],
)
def test_what_is_refused_of_layers_with_a_state(
    name: str, changes: dict[str, object], message: str, folder: Folder, tmp_path: Path
) -> None:
    values = json.loads((folder(name) / "hf" / "config.json").read_text("utf-8")) | changes
    with pytest.raises(TrinityError) as caught:
        open_weights(directory(folder(name), tmp_path, config=values))
    assert message in str(caught.value)


def test_a_norm_without_a_word_of_the_gate_is_refused(folder: Folder, tmp_path: Path) -> None:
    """A missing key means true in transformers' class, and null means false."""
    values = json.loads((folder("falcon_h1") / "hf" / "config.json").read_text("utf-8"))
    values["mamba_rms_norm"] = True
    values.pop("mamba_norm_before_gate", None)
    with pytest.raises(TrinityError, match="before the norm"):
        open_weights(directory(folder("falcon_h1"), tmp_path, config=values))


@pytest.mark.parametrize("end", [float("inf"), {"__float__": "Infinity"}])
def test_steps_without_a_limit(end: object, folder: Folder, tmp_path: Path) -> None:
    values = json.loads((folder("granitehybrid") / "hf" / "config.json").read_text("utf-8"))
    values["time_step_limit"] = [0.0, end]
    open_weights(directory(folder("granitehybrid"), tmp_path, config=values)).close()


def test_nemotron_never_ties_its_output(converted: Folder, folder: Folder, tmp_path: Path) -> None:
    """transformers' class never ties the weights, whatever the configuration says."""
    values = json.loads((folder("nemotron_h") / "hf" / "config.json").read_text("utf-8"))
    values["tie_word_embeddings"] = True
    made = tmp_path / "made.gguf"
    convert(directory(folder("nemotron_h"), tmp_path / "hf", config=values), made, "f32")
    assert made.read_bytes() == converted("nemotron_h").read_bytes()


def test_a_tied_output_with_a_factor_of_its_own(folder: Folder, tmp_path: Path) -> None:
    """Falcon-H1 multiplies embeddings and logits by different numbers."""
    values = json.loads((folder("falcon_h1") / "hf" / "config.json").read_text("utf-8"))
    values["tie_word_embeddings"] = True
    arrays = arrays_of(folder("falcon_h1"))
    del arrays["lm_head.weight"]
    tied = directory(folder("falcon_h1"), tmp_path / "tied", arrays, config=values)
    arrays["lm_head.weight"] = arrays["model.embed_tokens.weight"]
    values = values | {"tie_word_embeddings": False}
    apart = directory(folder("falcon_h1"), tmp_path / "apart", arrays, config=values)
    made = [tmp_path / name for name in ("tied.gguf", "apart.gguf")]
    for source, path in zip((tied, apart), made, strict=True):
        convert(source, path, "f32")
    assert made[0].read_bytes() == made[1].read_bytes()


@pytest.mark.parametrize(("name", "part"), [("gemma2", "q_proj"), ("gemma3", "q_norm")])
def test_a_scale_of_scores_of_its_own(name: str, part: str, folder: Folder, tmp_path: Path) -> None:
    """Scores are q k / sqrt(query_pre_attn_scalar); scaled queries compensate for it."""
    config = json.loads((folder(name) / "hf" / "config.json").read_text("utf-8"))
    usual, own = config["query_pre_attn_scalar"], 100
    arrays, larger, ids = arrays_of(folder(name)), np.sqrt(own / usual), [5, 8, 1, 30, 2, 9]
    for key in (key for key in arrays if f"{part}.weight" in key):
        added = part == "q_norm"  # Gemma's norms multiply by their weight + 1
        arrays[key] = ((arrays[key] + added) * larger - added).astype(np.float32)
    source = directory(folder(name), tmp_path, arrays, config | {"query_pre_attn_scalar": own})
    convert(source, tmp_path / "model.gguf", "f32")
    with load(str(folder(name) / "hf"), threads=1) as model:
        expected = model.logits(ids)
    for path in (source, tmp_path / "model.gguf"):
        with load(str(path), threads=1) as model:
            assert np.abs(model.logits(ids) - expected).max() < 1e-4
