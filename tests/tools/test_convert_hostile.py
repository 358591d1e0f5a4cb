"""Directories with any of their JSON values replaced: a conversion, or a TrinityError."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import some
from tests.tools.golden_models import model_directory
from trinity.errors import TrinityError
from trinity.formats import open_weights
from trinity.tools.convert import convert

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 3, 2**31, 2**64, 1.5, -0.0, 1e308, "", "x", "\u2581", "\0", [], {},
    [1, 2], ["a"], {"a": 1}, [[]], {"type": "BPE"}, {"content": 5}, "silu", "llama3", 283, 256,
]  # fmt: skip
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")


def places(value: object) -> list[tuple[Any, Any]]:
    """Every container with a key or an index into it; of long ones some."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        keys: list[Any] = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    else:
        return found
    for key in keys[:3] + keys[-3:] if len(keys) > 40 else keys:
        found.append((value, key))
        found += places(value[key])
    return found


@pytest.mark.parametrize("seed", some(range(6), [0]))
@pytest.mark.parametrize("name", some(["bitnet-packed", "llama-grouped"], ["bitnet-packed"]))
def test_values_replaced(name: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"{name}{seed}")
    directory = model_directory(name, tmp_path)
    whole = {file: (directory / file).read_text("utf-8") for file in FILES}
    path = tmp_path / "out" / "model.gguf"
    path.parent.mkdir()
    outtype = "i2_s" if name.startswith("bitnet") else "q8_0"
    refused = 0
    for _ in range(40):
        file = rng.choice(FILES)
        values = json.loads(whole[file])
        for _ in range(rng.randint(1, 2)):
            container, key = rng.choice(places(values))
            if rng.random() < 0.2 and isinstance(container, dict):
                container.pop(key, None)
            elif isinstance(container, dict) or key < len(container):
                container[key] = rng.choice(VALUES)
        (directory / file).write_text(json.dumps(values), "utf-8")
        try:
            convert(directory, path, outtype, overwrite=True)
        except TrinityError:
            refused += 1
            assert not path.exists()
        else:
            open_weights(path).config  # noqa: B018 - it must be readable
            path.unlink()
        assert os.listdir(path.parent) == []
        (directory / file).write_text(whole[file], "utf-8")
    assert 5 < refused < 40
