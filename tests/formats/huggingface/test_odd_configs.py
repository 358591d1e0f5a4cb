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
from tests.fuzzing.hf_families import description, stored_tensors
from tests.fuzzing.odd_changes import changed
from tests.fuzzing.odd_configs import context_of

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
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(values), "utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()), "utf-8")
    drawn = {name: drawn_tensor(name, shape) for name, shape, _ in stored_tensors(values, form)}
    write_safetensors(folder / "model.safetensors", drawn)
    context = context_of(values, len(prompt))
    with trinity.load(folder, kv_type="f32", threads=1, context_length=context) as model:
        return model.logits(prompt)[-1]
