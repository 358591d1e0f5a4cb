"""Generated directories load, and their weights have the expected size."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

import trinity
from scripts.models.make_directory import main


def test_a_directory_of_bfloat16(tmp_path: Path) -> None:
    assert main(["tiny", str(tmp_path / "d")]) == 0
    with closing(trinity.open_weights(tmp_path / "d")) as provider:
        tensor = provider.tensor("blk.0.ffn_down.weight")
        assert tensor.type == "BF16"
        rms = float(np.sqrt(np.mean(tensor.dequantize() ** 2)))
        assert abs(rms * np.sqrt(tensor.shape[1]) - 1) < 0.02
    with trinity.load(tmp_path / "d", threads=1) as model:
        assert len(model.generate("a", max_tokens=2, ignore_eos=True).token_ids) == 2
