"""Shapes of tensors and buffers that follow from a family's operations, and refusals."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from trinity import models
from trinity.config import ModelConfig, RopeScaling
from trinity.errors import ConfigError, TrinityError, UnsupportedError
from trinity.formats.config_limits import examples
from trinity.formats.gguf_writer import GGUFWriter
from trinity.formats.tensor_names import beside, complete
from trinity.models import ARCHITECTURES, decoder_of
from trinity.models.architecture import Architecture, TokenTable
from trinity.models.decoder import Decoder
from trinity.models.expert_operations import ExpertLinear
from trinity.models.operations import (
    Attention,
    Copy,
    Gated,
    HeadLinear,
    Linear,
    Norm,
    Operation,
    Rope,
    Rotation,
    Temperature,
)
from trinity.providers import open_weights

CONFIG = ModelConfig(
    architecture="llama", hidden_size=64, intermediate_size=172, num_layers=2, num_heads=8,
    num_kv_heads=4, head_dim=8, vocab_size=512, context_length=128, rms_norm_eps=1e-5, rope_dim=8,
)  # fmt: skip
LLAMA: dict[str, tuple[int, ...]] = {
    "token_embd.weight": (512, 64),
    "output.weight": (512, 64),
    "output_norm.weight": (64,),
    "rope_freqs.weight": (4,),
}
for _layer in range(2):
    LLAMA |= {
        f"blk.{_layer}.{name}": shape
        for name, shape in {
            "attn_q.weight": (64, 64),
            "attn_q.bias": (64,),
            "attn_q_norm.weight": (8,),
            "attn_k.weight": (32, 64),
            "attn_v.weight": (32, 64),
            "attn_output.weight": (64, 64),
            "attn_output.scale": (1,),
            "attn_norm.weight": (64,),
            "ffn_gate.weight": (172, 64),
            "ffn_up.weight": (172, 64),
            "ffn_down.weight": (64, 172),
            "ffn_norm.weight": (64,),
        }.items()
    }
BITNET = LLAMA | {
    f"blk.{layer}.{name}.weight": (width,)
    for layer in range(2)
    for name, width in (("attn_sub_norm", 64), ("ffn_sub_norm", 172))
}


def checked(shapes: Mapping[str, tuple[int, ...]], config: ModelConfig = CONFIG) -> Decoder:
    """Return the decoder of a file with these tensors."""
    return decoder_of(config, shapes.keys(), shapes.__getitem__, "x.gguf")


def test_what_fits_is_taken() -> None:
    assert checked(LLAMA).widths == {
        "x": 64, "h": 64, "q": 64, "k": 32, "v": 32, "a": 64, "gate": 172, "up": 172
    }  # fmt: skip
    checked(BITNET, replace(CONFIG, architecture="bitnet"))


@pytest.mark.parametrize("name", BITNET)
def test_tensors_of_another_shape(name: str) -> None:
    shape = tuple(size * 2 for size in BITNET[name])
    with pytest.raises(ConfigError) as caught:
        checked(BITNET | {name: shape}, replace(CONFIG, architecture="bitnet"))
    assert f"x.gguf: tensor {name!r} has shape {shape}" in str(caught.value)
    assert str(BITNET[name]) in str(caught.value)


@pytest.mark.parametrize("name", [name for name in BITNET if name.endswith("t")])
def test_missing_tensors(name: str) -> None:
    left = {key: shape for key, shape in BITNET.items() if key != name}
    if "_q_norm" in name or "rope" in name:
        checked(left, replace(CONFIG, architecture="bitnet"))
        return
    with pytest.raises(ConfigError, match=f"no tensor {name!r}"):
        checked(left, replace(CONFIG, architecture="bitnet"))


def test_more_layers_than_declared() -> None:
    with pytest.raises(ConfigError, match=r"says 2 layers, but .*'blk\.2\.attn_norm\.weight'"):
        checked(LLAMA | {"blk.2.attn_norm.weight": (64,)})


def test_a_tensor_that_nothing_reads() -> None:
    with pytest.raises(UnsupportedError, match=r"does not use tensor 'blk\.1\.attn_sinks\.weight'"):
        checked(LLAMA | {"blk.1.attn_sinks.weight": (8,)})
    checked(LLAMA | {"blk.1.attn_rot_embd.weight": (4,), "another.weight": (1,)})
    with pytest.raises(UnsupportedError, match=r"does not use tensor 'output_scores\.weight'"):
        checked(LLAMA | {"output_scores.weight": (8,)})


def test_one_weight_for_q_k_and_v() -> None:
    fused = {
        name: shape
        for name, shape in LLAMA.items()
        if not any(f".attn_{part}.weight" in name for part in "qkv") and ".bias" not in name
    } | {f"blk.{layer}.attn_qkv.weight": (128, 64) for layer in range(2)}
    checked(fused)
    with pytest.raises(ConfigError, match=r"\(127, 64\), but the metadata implies \(128, 64\)"):
        checked(fused | {"blk.1.attn_qkv.weight": (127, 64)})


def test_a_lookup_finds_the_architecture_that_its_file_declares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declared = {
        name: architecture
        for found in pkgutil.iter_modules(models.__path__)
        for architecture in getattr(
            importlib.import_module(f"{models.__name__}.{found.name}"), "ARCHITECTURES", ()
        )
        for name in architecture.names
    }
    assert dict(ARCHITECTURES) == declared
    # No lookup needs the import of all files.
    monkeypatch.setattr(type(ARCHITECTURES), "_all", {})
    monkeypatch.setattr(ARCHITECTURES, "_found", {})
    assert {name: ARCHITECTURES[name] for name in declared} == declared
    assert "no-such-name" not in ARCHITECTURES


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_family_states_its_tensors(name: str) -> None:
    config = replace(CONFIG, architecture=name, sliding_window=16, tie_word_embeddings=True)
    config = replace(config, **examples(ARCHITECTURES[name].needs, 2))
    if ARCHITECTURES[name].mixed:
        config = replace(config, layer_kv_heads=(0, 2), layer_intermediate_sizes=(0, 0))
    elif config.ssm is not None:
        config = replace(config, recurrent_layers=(True, False))
    decoder = Decoder(ARCHITECTURES[name], config, {"blk.0.attn_q_norm.weight"})
    needed = decoder.tensors()
    last = {"mamba": "ssm_out", "mamba2": "ssm_out", "rwkv6": "time_mix_output",
            "rwkv7": "time_mix_output"}  # fmt: skip
    attends = name not in last
    last_weight = f"blk.1.{last.get(name, 'attn_output')}.weight"
    assert {"token_embd.weight", last_weight} <= needed.keys()
    architecture = ARCHITECTURES[name]
    norm = f"{architecture.output_norm}.weight"
    assert (norm in needed) == (architecture.norm != "none" and architecture.output_norm != "")
    recurrent = {layer for layer, _ in decoder.states}
    sizes = config.short_conv_kernel, config.kda_conv_kernel, config.wkv_head_size
    assert bool(recurrent) == (config.ssm is not None or any(sizes))
    assert (1 in decoder.attention_layers) == attends
    assert recurrent | {*decoder.attention_layers} == {0, 1}
    before = {"x"}.union(*(operation.buffers() for operation in decoder.prologue))
    for layer in decoder.layers:
        written = set(before)
        for operation in layer:
            if isinstance(operation, Norm | Linear):
                assert operation.x in written, operation
            written.update(operation.buffers())
            if isinstance(operation, ExpertLinear):
                written.update(operation.expert_buffers())
    with pytest.raises(TrinityError):
        decoder.check(lambda name: (), "x.gguf")


def test_values_of_another_size() -> None:
    shapes = LLAMA | {
        f"blk.{layer}.{name}.weight": shape
        for layer in range(2)
        for name, shape in (("attn_v", (20, 64)), ("attn_output", (64, 40)))
    }
    decoder = checked(shapes, replace(CONFIG, value_dim=5))
    assert (decoder.widths["v"], decoder.widths["a"], decoder.widths["k"]) == (20, 40, 32)
    with pytest.raises(ConfigError, match=r"attn_v\.weight"):
        checked(LLAMA, replace(CONFIG, value_dim=5))


def windowed(architecture: str, **changes: Any) -> Decoder:
    """Return a decoder of 8 layers with a window of 16."""
    config = replace(
        CONFIG, **({"architecture": architecture, "num_layers": 8, "sliding_window": 16,
                    "rope_theta": 1e6, "logit_scale": 0.5} | changes),
    )  # fmt: skip
    return Decoder(ARCHITECTURES[architecture], config, ())


def rotations(decoder: Decoder) -> list[Rotation | None]:
    """Return every layer's rotation."""
    return [o.rotation for layer in decoder.layers for o in layer if isinstance(o, Rope)]


@pytest.mark.parametrize("pattern", [3, (True, True, False, True, True, False, True, True)])
def test_windowed_layers(pattern: int | tuple[bool, ...]) -> None:
    decoder = windowed("gemma3", sliding_window_pattern=pattern)
    windows = [16, 16, 0, 16, 16, 0, 16, 16]
    assert [attention.window for attention in decoder.attention] == windows
    thetas = [rotation.theta for rotation in rotations(decoder) if rotation]
    assert thetas == [10000.0 if window else 1e6 for window in windows]


FULL = (False,) * 8


@pytest.mark.parametrize(
    ("architecture", "full", "still"),
    [
        ("llama", FULL, FULL),  # whose windowed layers are all
        ("gemma2", (False, True) * 4, FULL),
        ("gemma3", (*(False,) * 5, True, False, False), FULL),
        ("olmo2", (False, False, False, True) * 2, FULL),
        ("smollm3", (True,) * 8, (False, False, False, True) * 2),
        ("exaone4", (False, False, False, True) * 2, (False, False, False, True) * 2),
        ("cohere2", (False, False, False, True) * 2, (False, False, False, True) * 2),
    ],
)
def test_layers_without_window_or_rotation(
    architecture: str, full: tuple[bool, ...], still: tuple[bool, ...]
) -> None:
    decoder = windowed(architecture)
    assert tuple(attention.window == 0 for attention in decoder.attention) == full
    assert tuple(rotation is None for rotation in rotations(decoder)) == still


def test_layers_without_a_window_of_the_file() -> None:
    # As in EXAONE 4.0 1.2B: without windows every layer rotates.
    decoder = windowed("exaone4", sliding_window=None)
    assert not any(attention.window for attention in decoder.attention)
    assert None not in rotations(decoder)


def test_windowed_layers_with_a_base_of_their_own() -> None:
    for name in ("gemma2", "exaone4", "cohere2", "olmo2"):
        found = {
            rotation.theta for rotation in rotations(windowed(name, rope_theta_swa=5e4)) if rotation
        }
        assert found == ({5e4} if name in ("exaone4", "cohere2") else {5e4, 1e6}), name


def test_only_full_layers_of_olmo3_stretch() -> None:
    yarn = RopeScaling("yarn", 8.0, 64)
    found = rotations(windowed("olmo2", rope_scaling=yarn))
    assert [rotation.scaling == yarn for rotation in found if rotation] == [
        False, False, False, True, False, False, False, True
    ]  # fmt: skip


def test_what_gemma_2_has_where_the_file_says_nothing() -> None:
    architecture = ARCHITECTURES["gemma2"]
    config = replace(CONFIG, architecture="gemma2")
    decoder = Decoder(architecture, architecture.completed(config), ())
    assert [attention.window for attention in decoder.attention] == [4096, 0]
    assert [attention.softcap for attention in decoder.attention] == [50.0, 50.0]
    assert architecture.logit_softcap(config) == 30.0
    own = replace(config, sliding_window=8, attn_logit_softcap=4.0, final_logit_softcap=9.0)
    decoder = Decoder(architecture, architecture.completed(own), ())
    assert [attention.window for attention in decoder.attention] == [8, 0]
    assert [attention.softcap for attention in decoder.attention] == [4.0, 4.0]
    assert architecture.logit_softcap(own) == 9.0


@pytest.mark.parametrize(("name", "layers"), [("gemma2", 46), ("gemma3", 62)])
def test_scores_of_the_27b_models(name: str, layers: int) -> None:
    own = windowed(name, head_dim=32, num_heads=4).attention[0]
    assert own.scale == pytest.approx(32**-0.5)
    of_27b = windowed(name, head_dim=32, num_heads=4, num_layers=layers).attention[0]
    assert of_27b.scale == pytest.approx((64 // 4) ** -0.5)


def test_constants_of_the_file() -> None:
    constants = {"attention_scale": 0.2, "residual_scale": 0.3, "embedding_scale": 6.0}
    granite, architecture = windowed("granite", **constants), ARCHITECTURES["granite"]
    assert {attention.scale for attention in granite.attention} == {0.2}
    onto_x = [
        operation.scale
        for layer in granite.layers
        for operation in layer
        if isinstance(operation, Linear) and operation.add
    ]
    assert onto_x == [0.3] * 16
    assert architecture.embedding_scale(granite.config) == 6.0
    assert architecture.logit_scale(granite.config) == 2.0  # divides
    assert ARCHITECTURES["cohere2"].logit_scale(granite.config) == 0.5  # multiplies
    still = windowed("granite", rope_finetuned=False)
    assert rotations(still) == [None] * 8


def test_queries_that_grow_with_their_position() -> None:
    def of(**changes: Any) -> set[Temperature | None]:
        decoder = windowed("mistral3", **changes)
        return {o.temperature for layer in decoder.layers for o in layer if isinstance(o, Rope)}

    yarn = RopeScaling("yarn", 16.0, 32)
    assert of(temperature_scale=0.1, rope_scaling=yarn) == {Temperature(0.1, 32)}
    assert of(temperature_scale=0.1) == {Temperature(0.1, CONFIG.context_length)}
    assert of(rope_scaling=yarn) == {None}


def test_names_of_what_lies_beside_a_weight() -> None:
    assert beside("attn_norm", "bias") == "attn_norm.bias"
    assert beside("per_layer_proj.weight", "bias") == "per_layer_proj.bias"
    assert complete("ffn_gate_inp.scale") == "ffn_gate_inp.scale"


def toy(*layers: list[Operation], **parts: Any) -> Decoder:
    """Return a decoder of these layers, with these parts of its family."""
    architecture = Architecture(("toy",), lambda config, index, has: layers[index], True, **parts)
    return Decoder(architecture, replace(CONFIG, num_layers=len(layers)), ())


def test_widths_of_tables_and_of_what_begins_later() -> None:
    decoder = toy(
        [
            Gated("gelu", 10, up="inputs", first=30),
            Copy("a", "b", 3, 5, 7, 9, x_first=1),
            Attention(4, 2, 8, 1.0, value_dim=16),
        ],
        tables=lambda config: (TokenTable("second", "inputs", 64),),
    )
    assert decoder.widths == {"x": 64, "h": 64, "inputs": 64, "gate": 10, "a": 64, "b": 23, "q": 32}
    assert decoder.tensors()["second.weight"] == (512, 64)


def test_tensors_of_many_dimensions() -> None:
    decoder = toy(
        [
            HeadLinear("q", "q", "attn_k_b", 4, 16, 8, 8, 16),
            Attention(4, 4, 8, 1.0),
            Norm("q", "attn_q_norm", "q", 8, 4, kind="layer", per_group=True),
        ]
    )
    tensors = decoder.tensors()
    assert tensors["blk.0.attn_k_b.weight"] == (4, 16, 8)
    assert tensors["blk.0.attn_q_norm.weight"] == (4, 8)
    assert decoder.optional_tensors()["blk.0.attn_q_norm.bias"] == (4, 8)


@pytest.mark.parametrize(
    "second",
    [
        Attention(4, 2, 8, 1.0, cache_of=1),
        Attention(4, 2, 8, 1.0, cache_of=2),
        Attention(4, 2, 8, 1.0, cache_of=-1),
        Attention(4, 4, 8, 1.0, cache_of=0),
        Attention(4, 2, 16, 1.0, cache_of=0),
        Attention(4, 2, 8, 1.0, cache_of=0, value_dim=4),
    ],
)
def test_a_cache_that_cannot_be_shared(second: Attention) -> None:
    first = Attention(4, 2, 8, 1.0)
    for attention, fits in ((replace(first, cache_of=0), True), (second, False)):
        decoder = toy([first], [attention], [first])
        shapes = decoder.tensors()
        decoder = Decoder(decoder.architecture, decoder.config, shapes.keys())
        if fits:
            decoder.check(shapes.__getitem__, "x.gguf")
            continue
        with pytest.raises(ConfigError, match=r"x\.gguf: .* layer 1 reads .* of layer -?\d, which"):
            decoder.check(shapes.__getitem__, "x.gguf")


@pytest.mark.parametrize("field", ["layer_kv_heads", "layer_intermediate_sizes"])
def test_layers_of_another_kind_in_a_family_of_one(field: str) -> None:
    with pytest.raises(UnsupportedError, match="is 0 for layer 1; trinity runs models of llama"):
        checked(LLAMA, replace(CONFIG, **{field: (2, 0)}))
    with pytest.raises(UnsupportedError, match="feed_forward_length is 0 for layer 0"):
        checked(LLAMA, replace(CONFIG, intermediate_size=0))


def test_layers_that_propose_tokens_are_left_out(shared_data: Path, tmp_path: Path) -> None:
    """MTP layers come last and are included in the block count."""
    path, copy = shared_data / "architectures" / "qwen3_5" / "model.gguf", tmp_path / "mtp.gguf"
    with open_weights(path) as provider, GGUFWriter(copy) as writer:
        for key, value in provider.metadata.items():
            if key == "qwen35.block_count":
                value = 5
            if key == "qwen35.attention.recurrent_layers":
                value = np.append(value, False)  # type: ignore[call-overload]
            writer.add(key, value)
        writer.add("qwen35.nextn_predict_layers", 1)
        for name in provider.tensor_names():
            values = provider.tensor(name).dequantize().astype(np.float32)
            writer.add_tensor(name, values.shape, "F32", values)
        more = np.ones((64, 128), np.float32)
        writer.add_tensor("blk.4.nextn.eh_proj.weight", more.shape, "F32", more)
    with trinity.load(path, kv_type="f32") as plain, trinity.load(copy, kv_type="f32") as model:
        assert np.array_equal(model.logits([20, 30, 40]), plain.logits([20, 30, 40]))
