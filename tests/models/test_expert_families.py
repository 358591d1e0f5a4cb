"""Families with experts, and Gemma 4: layers and refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.models.test_decoder import CONFIG
from trinity.config import ExpertConfig, LatentConfig, ModelConfig, RopeScaling
from trinity.errors import ConfigError
from trinity.models import ARCHITECTURES, decoder_of
from trinity.models.decoder import Decoder
from trinity.models.expert_operations import ExpertGated, ExpertLinear, Route
from trinity.models.operations import (
    Attention,
    Copy,
    GatedAdd,
    HeadLinear,
    Linear,
    Norm,
    Operation,
    Rope,
    Scale,
)
from trinity.runtime.rotation import RopeTable

EXPERTS = ExpertConfig(8, 3, 32)
YARN = RopeScaling("yarn", 40.0, 4096, yarn_log_multiplier=0.0707)
LATENT = LatentConfig(kv_lora_rank=16, q_lora_rank=0, key_dim=192, value_dim=6)


def made(architecture: str, *names: str, **changes: Any) -> Decoder:
    """Return a decoder of two layers; ``names`` are optional tensors of its layers."""
    config = replace(CONFIG, architecture=architecture, experts=EXPERTS, logit_scale=1.0)
    config = replace(config, **changes)
    found = ARCHITECTURES[architecture]
    has = {f"blk.{layer}.{name}" for layer in range(config.num_layers) for name in names}
    return Decoder(found, found.completed(config), has)


def only(decoder: Decoder, kind: type[Operation], layer: int = 1) -> Any:
    """Return a layer's only operation of a kind."""
    (found,) = (operation for operation in decoder.layers[layer] if isinstance(operation, kind))
    return found


@pytest.mark.parametrize(
    ("architecture", "gating", "normalize"),
    [
        ("llama", "softmax", True), ("qwen2moe", "softmax", False), ("qwen3moe", "softmax", True),
        ("granitemoe", "softmax", True), ("gpt-oss", "softmax_chosen", False),
        ("deepseek2", "softmax", False), ("glm4moe", "sigmoid", False),
    ],
)  # fmt: skip
def test_the_choice_of_experts(architecture: str, gating: str, normalize: bool) -> None:
    """The family's default, and what the file overrides."""
    needs: dict[str, Any] = {"latent": LATENT, "sliding_window": 4, "rope_dim": 4}
    route: Route = only(made(architecture, **needs), Route)
    assert (route.gating, route.normalize, route.scale) == (gating, normalize, 1.0)
    assert (route.num_experts, route.per_token, route.bias) == (8, 3, "")
    said = replace(
        EXPERTS, gating="sigmoid", normalize=not normalize, scale=2.5, num_groups=4, groups_used=2
    )
    decoder = made(architecture, "exp_probs_b.bias", **(needs | {"experts": said}))
    route = only(decoder, Route)
    assert (route.gating, route.normalize, route.scale) == ("sigmoid", not normalize, 2.5)
    assert (route.num_groups, route.groups_used, route.group_best) == (4, 2, 2)
    assert decoder.tensors()["blk.1.exp_probs_b.bias"] == (8,)


def test_groups_go_by_their_best_expert_in_deepseek_v2_and_by_two_in_v3() -> None:
    grouped = replace(EXPERTS, num_groups=4, groups_used=2)
    for gating, best in (("", 1), ("softmax", 1), ("sigmoid", 2)):
        experts = replace(grouped, gating=gating)  # type: ignore[arg-type]
        route = only(made("deepseek2", latent=LATENT, rope_dim=4, experts=experts), Route)
        assert route.group_best == best


def test_the_width_of_an_expert() -> None:
    """The file's width, else the family's, else an error that names the key."""
    unsaid = replace(EXPERTS, intermediate_size=0)
    for architecture, size in (("llama", 172), ("granitemoe", 172), ("qwen2moe", 57)):
        assert only(made(architecture), ExpertGated).width == 32
        assert only(made(architecture, experts=unsaid), ExpertGated).width == size
    names = {"token_embd.weight": (512, 64)}
    for architecture in ("gpt-oss", "deepseek2"):
        config = replace(
            CONFIG, architecture=architecture, experts=unsaid, sliding_window=4, latent=LATENT,
            rope_dim=4,
        )  # fmt: skip
        with pytest.raises(
            ConfigError, match=rf"x\.gguf: {architecture}\.expert_feed_forward_length, .* missing"
        ):
            decoder_of(config, names, names.__getitem__, "x.gguf")


def test_tensors_of_experts() -> None:
    gate, down = (o for o in made("llama").layers[0] if isinstance(o, ExpertLinear))
    assert gate.weights() == {"ffn_gate_exps": (8, 32, 64), "ffn_up_exps": (8, 32, 64)}
    assert down.weights() == {"ffn_down_exps": (8, 64, 32)}
    fused = only_first(made("llama", "ffn_gate_up_exps.weight"))
    assert fused.weights() == {"ffn_gate_up_exps": (8, 64, 64)}
    assert [product.first for product in fused.products] == [0, 32]
    old = made("llama", "ffn_gate.0.weight", "ffn_up.0.weight", "ffn_down.0.weight").tensors()
    assert old["blk.1.ffn_gate.7.weight"] == (32, 64)
    assert old["blk.0.ffn_down.0.weight"] == (64, 32)
    assert "blk.0.ffn_gate.weight" not in old


def only_first(decoder: Decoder) -> ExpertLinear:
    """Return the first layer's first linear of experts."""
    return next(o for o in decoder.layers[0] if isinstance(o, ExpertLinear))


def test_an_expert_that_every_token_takes() -> None:
    shared = replace(EXPERTS, shared_intermediate_size=48)
    for architecture in ("granitemoe", "deepseek2"):
        decoder = made(architecture, experts=shared, latent=LATENT, rope_dim=4)
        assert decoder.tensors()["blk.1.ffn_down_shexp.weight"] == (64, 48)
        assert not any(isinstance(o, GatedAdd) for o in decoder.layers[1])
        without = made(architecture, latent=LATENT, rope_dim=4).tensors()
        assert not any("shexp" in name for name in without)
    gated = made("qwen2moe", experts=shared)
    assert gated.tensors()["blk.0.ffn_gate_inp_shexp.weight"] == (1, 64)
    assert only(gated, GatedAdd).width == 64
    assert made("qwen2moe").tensors()["blk.0.ffn_up_shexp.weight"] == (172, 64)


def test_granite_scales_what_branches_add() -> None:
    decoder = made("granitemoe", residual_scale=0.25, attention_scale=0.5,
                   experts=replace(EXPERTS, shared_intermediate_size=8, scale=2.0))  # fmt: skip
    outputs = [o for o in decoder.layers[0] if isinstance(o, Linear) and o.add]
    assert [linear.scale for linear in outputs] == [0.25, 0.25]
    assert only(decoder, Route).scale == 0.5
    assert only(decoder, Attention).scale == 0.5
    assert only(made("granitemoe", rope_finetuned=False), Rope).rotation is None


def test_gpt_oss_has_sinks_and_a_window_in_every_second_layer() -> None:
    decoder = made("gpt-oss", sliding_window=4, num_layers=4)
    assert [attention.window for attention in decoder.attention] == [4, 0, 4, 0]
    assert decoder.tensors()["blk.3.attn_sinks.weight"] == (8,)


def test_latent_attention_keeps_its_values_alone() -> None:
    """Current files have one head: the latent values and the rotated ones, also used as values."""
    decoder = made("deepseek2", latent=LATENT, rope_dim=64, experts=None)
    rope, attention = only(decoder, Rope), only(decoder, Attention)
    assert (rope.num_kv_heads, rope.head_dim, rope.first, rope.value, rope.value_dim) == (
        1, 80, 16, "k", 16,
    )  # fmt: skip
    assert attention.scale == 1 / math.sqrt(192)
    first, second = (o for o in decoder.layers[0] if isinstance(o, HeadLinear))
    assert first.weights() == {"attn_k_b": (8, 16, 128)}
    assert second.weights() == {"attn_v_b": (8, 6, 16)}
    assert only(decoder, Copy).x_first == 128
    older = made("deepseek2", "attn_kv_b.weight", latent=LATENT, rope_dim=64, experts=None)
    assert older.tensors()["blk.0.attn_kv_b.weight"] == (8 * (128 + 6), 16)
    assert only(older, Attention).num_kv_heads == 8


def test_queries_by_way_of_fewer_values() -> None:
    latent = replace(LATENT, q_lora_rank=24)
    found = made("deepseek2", latent=latent, rope_dim=64, experts=None).tensors()
    assert found["blk.0.attn_q_a.weight"] == (24, 64)
    assert found["blk.0.attn_q_b.weight"] == (8 * 192, 24)
    assert "blk.0.attn_q.weight" not in found


def test_yarn_of_deepseek_is_in_the_scores() -> None:
    """DeepSeek V2: mscale and mscale_all_dim 0.707, factor 40, heads of 192: 0.1147."""
    decoder = made("deepseek2", latent=LATENT, rope_dim=64, rope_scaling=YARN, experts=None)
    growth = 1 + 0.1 * 0.707 * math.log(40)
    assert only(decoder, Attention).scale == pytest.approx(growth**2 / math.sqrt(192))
    assert only(decoder, Attention).scale == pytest.approx(0.114721, abs=1e-6)
    (rotation,) = decoder.rotations
    table = RopeTable(rotation, 1, None)
    table.reach(1)
    assert table.values[0, :32].tolist() == [1.0] * 32  # cosines of position 0


@pytest.mark.parametrize(("multiplier", "magnitude"), [(0.0, 1 + 0.1 * math.log(40)), (1.0, 1.0)])
def test_yarn_of_other_families_is_in_the_rotation(multiplier: float, magnitude: float) -> None:
    scaling = replace(YARN, yarn_log_multiplier=multiplier)
    (rotation,) = made("mistral3", rope_scaling=scaling).rotations
    table = RopeTable(rotation, 1, None)
    table.reach(1)
    assert table.values[0, :4] == pytest.approx([magnitude] * 4)


PATTERN = (True, True, False, True, True, False)


def gemma4(*names: str, **changes: Any) -> Decoder:
    """Return six layers, every third one with full attention."""
    values: dict[str, Any] = {
        "num_layers": 6, "sliding_window": 4, "sliding_window_pattern": PATTERN, "experts": None,
        "head_dim": 16, "rope_dim": 16, "head_dim_swa": 8, "rope_dim_swa": 8, "rope_theta": 1e6,
        "rope_theta_swa": 1e4, "layer_kv_heads": (4, 4, 2, 4, 4, 2),
    }  # fmt: skip
    return made("gemma4", *names, **(values | changes))


def test_two_kinds_of_layers_of_gemma_4() -> None:
    decoder = gemma4("attn_v.weight")
    assert [(a.head_dim, a.num_kv_heads, a.window, a.scale) for a in decoder.attention] == [
        (8, 4, 4, 1.0),
        (8, 4, 4, 1.0),
        (16, 2, 0, 1.0),
    ] * 2
    windowed, full = decoder.rotations
    assert (windowed.theta, windowed.dim, windowed.factors) == (1e4, 8, "")
    assert (full.theta, full.dim, full.factors) == (1e6, 16, "rope_freqs.weight")
    norms = [o for o in decoder.layers[0] if isinstance(o, Norm) and o.x in "qkv"]
    assert [(norm.x, norm.weight) for norm in norms] == [
        ("k", "attn_k_norm"),
        ("v", ""),
        ("q", "attn_q_norm"),
    ]


def test_values_are_keys_where_they_have_no_weight() -> None:
    assert not any(isinstance(o, Copy) for o in gemma4("attn_v.weight").layers[0])
    copied = only(gemma4(), Copy)
    assert (copied.x, copied.out, copied.width) == ("k", "v", 32)


def test_layers_that_share_keys_and_values() -> None:
    decoder = gemma4("attn_v.weight", shared_kv_layers=3)
    assert [a.cache_of for a in decoder.attention] == [None, None, None, 1, 1, 2]
    assert "blk.2.attn_k.weight" in decoder.tensors()
    assert not {"blk.3.attn_k.weight", "blk.3.attn_k_norm.weight"} & decoder.tensors().keys()
    for shared in (4, 5, 6):  # then no full layer is left
        with pytest.raises(ConfigError, match=rf"shared_kv_layers is {shared}: layer \d of 6"):
            gemma4(shared_kv_layers=shared)


def test_an_embedding_for_each_layer() -> None:
    decoder = gemma4("attn_v.weight", per_layer_input_size=8)
    found = decoder.tensors()
    assert found["per_layer_token_embd.weight"] == (512, 48)
    assert found["per_layer_model_proj.weight"] == (48, 64)
    assert found["per_layer_proj_norm.weight"] == (8,)
    assert found["blk.5.proj.weight"] == (64, 8)
    assert decoder.widths["layer_inputs"] == 48
    assert not gemma4().prologue


def test_experts_of_gemma_4_have_a_router_of_their_own() -> None:
    found = gemma4("ffn_gate_up_exps.weight", "layer_output_scale.weight", experts=EXPERTS)
    needed = found.tensors()
    assert needed["blk.0.ffn_gate_inp.scale"] == (64,)
    assert needed["blk.0.pre_ffw_norm_2.weight"] == (64,)
    assert found.optional_tensors()["blk.0.ffn_down_exps.scale"] == (8,)
    assert only(found, Scale).weight == "layer_output_scale"


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"sliding_window": 0}, "attention.sliding_window"),
        ({"sliding_window_pattern": 0}, "attention.sliding_window_pattern"),
    ],
)
def test_what_gemma_4_cannot_do_without(changes: dict[str, Any], key: str) -> None:
    values: dict[str, Any] = {"sliding_window": 4, "sliding_window_pattern": (True, False)}
    config: ModelConfig = replace(CONFIG, architecture="gemma4", **(values | changes))
    with pytest.raises(ConfigError, match=rf"x\.gguf: gemma4\.{key} .* is missing or 0"):
        decoder_of(config, (), lambda name: (), "x.gguf")
