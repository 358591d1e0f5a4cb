"""Configurations with a missing, null, default or extreme value give transformers' logits.

The data were written by tests/fuzzing/odd_configs.py, which compares more cases with transformers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from scripts.models.make_directory import byte_tokenizer
from tests.formats.huggingface.drawn import drawn_tensor
from tests.formats.raw_safetensors import write_safetensors
from tests.fuzzing.hf_families import configuration, description, stored_tensors
from tests.fuzzing.odd_changes import changed
from tests.fuzzing.odd_configs import context_of
from trinity.errors import UnsupportedError

GOLDEN = json.loads((Path(__file__).parents[2] / "data" / "odd_configs.json").read_text("utf-8"))
CLASSES = [name for name in GOLDEN if name != "transformers"]
LARGEST_DIFFERENCE = 1e-3


@pytest.mark.few(1)
@pytest.mark.parametrize("class_name", CLASSES)
def test_odd_configurations(class_name: str, tmp_path: Path) -> None:
    golden, computed = GOLDEN[class_name], dict[tuple[str, int], NDArray[np.float32]]()
    for case in golden["cases"]:
        values = changed(golden["base"], dict.fromkeys(case["key"].split("+"), ...))
        values = changed(values, case["change"])
        described = description(values), case["form"]
        if described not in computed:
            folder = tmp_path / str(len(computed))
            computed[described] = logits(values, case["form"], golden["prompt"], folder)
        expected = golden["logits"][str(case["logits"])]
        difference = np.abs(computed[described][: len(expected)] - expected).max()
        assert difference < LARGEST_DIFFERENCE, (case["key"], case["change"])


def logits(
    values: dict[str, Any], form: int, prompt: list[int], folder: Path
) -> NDArray[np.float32]:
    """Return the logits of the prompt's last token."""
    write_drawn(values, form, folder)
    context = context_of(values, len(prompt))
    with trinity.load(folder, kv_type="f32", threads=1, context_length=context) as model:
        return model.logits(prompt)[-1]


def write_drawn(values: dict[str, Any], form: int, folder: Path) -> None:
    """Write a model with random weights."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(values), "utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()), "utf-8")
    drawn = {name: drawn_tensor(name, shape) for name, shape, _ in stored_tensors(values, form)}
    write_safetensors(folder / "model.safetensors", drawn)


@pytest.mark.parametrize(("window", "sees_others"), [(1, False), (2, True)])
def test_the_smallest_windows_to_both_sides(window: int, sees_others: bool, tmp_path: Path) -> None:
    """transformers: a token sees those at a distance of at most window // 2."""
    values = configuration("Gemma3TextModel", 288)
    values |= {"sliding_window": window, "layer_types": ["sliding_attention"] * 2}
    write_drawn(values, 0, tmp_path / "model")
    with trinity.load(tmp_path / "model", threads=1) as model:
        one, other = model.embed([[5, 6, 7], [5, 8, 9]], "cls", normalize=False)
    assert np.array_equal(one, other) is not sees_others


def test_a_window_to_both_sides_of_0(tmp_path: Path) -> None:
    values = configuration("Gemma3TextModel", 288) | {"sliding_window": 0}
    write_drawn(values | {"sliding_window": 2}, 0, tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(json.dumps(values), "utf-8")
    with pytest.raises(UnsupportedError, match="sliding_window is 0"):
        trinity.load(tmp_path / "model")
