"""MLX's directories run as they are, with the answers of mlx-lm in float32."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.providers.test_directory import check_answers
from trinity.providers import open_weights
from trinity_kernels.isa import available_levels
from trinity_kernels.quants import dequantize

NAMES = (
    "gemma3-text-b4g32", "llama-affine-b2g64", "llama-affine-b3g64", "llama-affine-b4g32",
    "llama-affine-b4g64", "llama-affine-b4g64-f16", "llama-affine-b6g64", "llama-affine-b8g64",
    "llama-mixed-custom", "llama-mxfp4", "llama-mxfp8", "llama-nvfp4", "qwen2-bias-b4g64",
    "qwen3-moe-b4g64", "qwen3-tied-b4g64",
)  # fmt: skip


@pytest.mark.few(4)
@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize("name", NAMES)
def test_logits_and_greedy_tokens(name: str, level: str, shared_data: Path) -> None:
    check_answers(shared_data / "formats" / "mlx" / name, level)


@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_mlx_bit_for_bit(name: str, shared_data: Path) -> None:
    folder = shared_data / "formats" / "mlx" / name
    answers = json.loads((folder / "golden.json").read_text("utf-8"))
    assert answers["dequant"]
    with closing(open_weights(folder)) as provider:
        tensors = {t.origin: t for t in map(provider.tensor, provider.tensor_names())}
        for answer in answers["dequant"]:
            tensor, expected = tensors[answer["tensor"]], np.load(folder / answer["file"])
            values = dequantize(tensor.type, tensor.data, tensor.shape)
            part = values[tuple(slice(n) for n in expected.shape)]
            assert part.tobytes() == expected.tobytes(), answer["tensor"]
