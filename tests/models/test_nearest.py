"""The hint for a model of an unsupported architecture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.models.test_decoder import CONFIG, LLAMA
from trinity.errors import UnsupportedError
from trinity.models import ARCHITECTURES, decoder_of, find_architecture
from trinity.models.nearest import nearest
from trinity.providers import open_weights

PLAIN = {name for name in LLAMA if "_q_norm" not in name}
QWEN3 = PLAIN | {f"blk.{layer}.attn_{part}_norm.weight" for layer in range(2) for part in "qk"}


def said(name: str, *more: str, without: str = "none") -> str:
    """Return the hint for a file with llama's tensors, plus some and without some."""
    names = {n for n in PLAIN if without not in n}
    return nearest(name, names | set(more), ARCHITECTURES)


def test_a_name_that_is_near() -> None:
    assert "near in name: llama," in said("Llama9")
    assert "near in name" not in said("zzz")
    assert nearest("zzz", ["token_embd.weight"], ARCHITECTURES) == ""


def test_tensors_that_a_family_reads() -> None:
    assert "nearest by its tensors: llama" in said("zzz")
    assert "may compute something else" in said("zzz")
    assert "nearest by its tensors: qwen3," in nearest("qwen4", QWEN3, ARCHITECTURES)


def test_tensors_that_no_family_reads_or_one_lacks() -> None:
    text = said(
        "zzz",
        "blk.0.unread_weight_1",
        "blk.1.unread_weight_1",
        "blk.0.unread_weight_2.bias",
        "blk.0.attn_k_b.weight",
    )
    assert text.endswith("no family of trinity reads 'unread_weight_1', 'unread_weight_2'")
    assert "llama does not read 'attn_k_b'" in text
    assert "llama needs 'attn_k'" in said("zzz", without="attn_k.")


@pytest.mark.full
def test_long_lists_and_names_are_cut() -> None:
    text = said("z" * 9999, *(f"blk.0.{'x' * 5000}{i}.weight" for i in range(1000)))
    assert len(text) < 2000
    assert "and 992 more" in text


def test_the_whole_message() -> None:
    whole = r"^x: architecture 'qwen4' .*qwen3.* runs .*llama, "
    with pytest.raises(UnsupportedError, match=whole):
        find_architecture("qwen4", "x", LLAMA)
    with pytest.raises(UnsupportedError, match="nearest by its tensors"):
        decoder_of(replace(CONFIG, architecture="qwen4"), LLAMA, LLAMA.__getitem__, "x")


@pytest.mark.parametrize("name", ["gemma2", "gemma4", "gpt_oss", "deepseek_v2", "phi2", "glm4"])
def test_a_family_is_nearest_to_itself(name: str, shared_data: Path) -> None:
    path = shared_data / "architectures" / name / "model.gguf"
    with open_weights(path) as provider:
        architecture = str(provider.metadata["general.architecture"])
        text = nearest(architecture, provider.tensor_names(), ARCHITECTURES)
    assert f"nearest by its tensors: {architecture}" in text
