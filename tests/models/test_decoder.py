"""What follows from a family's operations: shapes of tensors and buffers, refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from trinity.config import ModelConfig
from trinity.errors import ConfigError, TrinityError, UnsupportedError
from trinity.models import ARCHITECTURES, decoder_of
from trinity.models.decoder import Decoder
from trinity.models.operations import Linear, Norm

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
    """The decoder of a file with these tensors."""
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
    with pytest.raises(UnsupportedError, match=r"reads tensor 'blk\.1\.attn_sinks\.weight'"):
        checked(LLAMA | {"blk.1.attn_sinks.weight": (8,)})
    checked(LLAMA | {"blk.1.attn_rot_embd.weight": (4,), "another.weight": (1,)})


def test_one_weight_for_q_k_and_v() -> None:
    fused = {
        name: shape
        for name, shape in LLAMA.items()
        if not any(f".attn_{part}.weight" in name for part in "qkv") and ".bias" not in name
    } | {f"blk.{layer}.attn_qkv.weight": (128, 64) for layer in range(2)}
    checked(fused)
    with pytest.raises(ConfigError, match=r"\(127, 64\), but the metadata implies \(128, 64\)"):
        checked(fused | {"blk.1.attn_qkv.weight": (127, 64)})


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_family_states_its_tensors(name: str) -> None:
    config = replace(CONFIG, architecture=name, sliding_window=16, tie_word_embeddings=True)
    decoder = Decoder(ARCHITECTURES[name], config, {"blk.0.attn_q_norm.weight"})
    needed = decoder.tensors()
    assert {"token_embd.weight", "output_norm.weight", "blk.1.ffn_down.weight"} <= needed.keys()
    assert len(decoder.attention) == 2
    for layer in decoder.layers:
        written = {"x"}
        for operation in layer:
            if isinstance(operation, Norm | Linear):
                assert operation.x in written, operation
            written.update(operation.buffers())
    with pytest.raises(TrinityError):
        decoder.check(lambda name: (), "x.gguf")


def test_what_a_family_cannot_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    needy = replace(ARCHITECTURES["llama"], needs=(("sliding_window", "attention.sliding_window"),))
    monkeypatch.setitem(ARCHITECTURES, "llama", needy)
    checked(LLAMA, replace(CONFIG, sliding_window=4))
    with pytest.raises(
        ConfigError, match=r"x\.gguf: llama\.attention\.sliding_window .* is missing"
    ):
        checked(LLAMA)


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


@pytest.mark.parametrize("pattern", [3, (True, True, False, True, True, False)])
def test_windowed_layers(pattern: int | tuple[bool, ...]) -> None:
    config = replace(
        CONFIG, architecture="gemma3", num_layers=6, sliding_window=16,
        sliding_window_pattern=pattern, rope_theta=1e6,
    )  # fmt: skip
    decoder = Decoder(ARCHITECTURES["gemma3"], config, ())
    assert [attention.window for attention in decoder.attention] == [16, 16, 0, 16, 16, 0]
    assert sorted(rotation.theta for rotation in decoder.rotations) == [10000.0, 1e6]
