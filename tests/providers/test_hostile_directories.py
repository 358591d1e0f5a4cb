"""Randomly changed directories give a model or a TrinityError."""

from __future__ import annotations

import json
import random
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.tools.golden_models import model_directory
from trinity.errors import TrinityError
from trinity.models import decoder_of
from trinity.providers import open_weights

INDEX = "model.safetensors.index.json"
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 2**31, 2**63, 2**70, 1e-300, 1e308, 0.5, "", "x", "../x",
    "/etc/passwd", "\udc80", [], [None], [[]], [1, 2, 3], {}, {"a": 1}, "F32", "sliding_attention",
)  # fmt: skip


def changed(value: Any, rng: random.Random, depth: int = 0) -> Any:
    """Return a JSON value with one place changed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        kind = rng.random()
        if kind < 0.15:
            return {k: v for k, v in value.items() if k != key}
        if kind < 0.25:
            return {**value, key + rng.choice(["", "x", "\0"]): rng.choice(VALUES)}
        return {**value, key: changed(value[key], rng, depth + 1)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], changed(value[at], rng, depth + 1), *value[at + 1 :]]
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.5:
        return value + rng.choice([-1, 1, 8, -8, value, 2**32])
    return rng.choice(VALUES)


def spoil(directory: Path, name: str, rng: random.Random) -> None:
    """Change one file: a value of its JSON or header, or a few bytes."""
    path = directory / name
    raw = bytearray(path.read_bytes())
    start, end = (
        (8, 8 + int.from_bytes(raw[:8], "little")) if name.endswith("tensors") else (0, len(raw))
    )
    if rng.random() < 0.75:
        value = json.loads(raw[start:end])
        for _ in range(rng.choice([1, 1, 2])):
            value = changed(value, rng)
        text = json.dumps(value).encode("utf-8", "surrogatepass")
        head = len(text).to_bytes(8, "little") if start else b""
        path.write_bytes(head + text + bytes(raw[end:]))
        return
    for _ in range(rng.choice([1, 3, 10])):
        raw[rng.randrange(end)] = rng.randrange(256)
    path.write_bytes(bytes(raw[: rng.choice([end, len(raw)])]))


def read(directory: Path, *, with_tokenizer: bool) -> None:
    """Read everything that precedes loading a model, and its weights."""
    with closing(open_weights(directory)) as provider:
        names = provider.tensor_names()
        config = provider.config
        decoder_of(config, names, lambda name: provider.tensor(name).shape, provider.path)
        for name in names:
            assert provider.tensor(name).dequantize().shape == provider.tensor(name).shape
        _ = provider.defaults, provider.notes, provider.metadata.get("general.name")
        if with_tokenizer:
            assert list(provider.metadata)


def refusal(directory: Path, *, with_tokenizer: bool) -> str | None:
    """Return the message of a TrinityError, or None."""
    try:
        read(directory, with_tokenizer=with_tokenizer)
    except TrinityError as error:
        return str(error)
    return None


@pytest.fixture(scope="module", params=["llama-sharded", "bitnet-packed"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_directory(request.param, tmp_path_factory.mktemp("whole"))


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["config", "weights", "index", "generation"])
def test_changed_files(kind: str, whole: Path, tmp_path: Path) -> None:
    names = {
        "config": ["config.json"],
        "weights": [path.name for path in whole.glob("*.safetensors")],
        "index": [path.name for path in whole.glob(INDEX)] or ["config.json"],
        "generation": ["generation_config.json"],
    }[kind]
    outcomes: list[str | None] = []
    for seed in range(120):
        rng = random.Random(f"{kind} {seed}")
        directory = tmp_path / str(seed)
        shutil.copytree(whole, directory)
        if not (directory / "generation_config.json").exists():
            (directory / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
        spoil(directory, rng.choice(names), rng)
        outcomes.append(refusal(directory, with_tokenizer=False))
        assert outcomes[-1] is None or str(tmp_path) in outcomes[-1], seed
        shutil.rmtree(directory)
    assert any(outcomes)


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [0, 1])
def test_changed_tokenizers(number: int, whole: Path, tmp_path: Path) -> None:
    names = sorted(path.name for path in whole.glob("tokenizer*.json"))
    for seed in range(4):
        directory = tmp_path / str(seed)
        shutil.copytree(whole, directory)
        rng = random.Random(f"{number} {seed}")
        spoil(directory, names[number % len(names)], rng)
        assert refusal(directory, with_tokenizer=True) != ""
