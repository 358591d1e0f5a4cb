"""Errors about a model name the file, however it is opened."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import trinity
from tests.matrix import parts
from tests.tiny_models import write_tiny_model
from tests.tools.golden_models import edit_json, model_directory
from trinity.cli.application import application
from trinity.errors import InputError, TrinityError, UnsupportedError, about
from trinity.formats import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter

CHANGES: tuple[object, ...] = (None, 0, -1, 2**31, 1.5, float("nan"), "", "x", True, [], ["a"], [1])
PROMPT = "ab"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "whole.gguf"
    write_tiny_model(path)
    return path


def changed(path: Path, keys: Mapping[str, object], without: str = "-") -> None:
    """Copy the model with some keys changed or removed (None), and without some tensors."""
    source = path.parent / "whole.gguf"
    with GGUFProvider(source) as model, GGUFWriter(path) as writer:
        for key, value in {**dict(model.metadata), **keys}.items():
            if value is not None:
                writer.add(key, value)
        for name in model.tensor_names():
            if not name.startswith(without):
                tensor = model.tensor(name)
                writer.add_tensor(name, tensor.shape, tensor.type, tensor.data)


def damaged(whole: Path, folder: Path, draw: random.Random) -> Iterator[Path]:
    """Write copies with another value of a key, changed bytes in the header, or cut off."""
    shutil.copy(whole, folder / "whole.gguf")
    with GGUFProvider(whole) as model:
        keys = list(model.metadata)
    raw = whole.read_bytes()
    for number in range(60):
        path = folder / f"damaged-{number}.gguf"
        kind = draw.randrange(3)
        if kind == 0:
            value = draw.choice(CHANGES)
            changed(path, {draw.choice(keys): value}) if value != [] else path.write_bytes(b"GGUF")
        elif kind == 1:
            copy = bytearray(raw)
            for _ in range(draw.randint(1, 3)):
                copy[draw.randrange(8000)] = draw.randrange(256)
            path.write_bytes(copy)
        else:
            path.write_bytes(raw[: draw.randrange(len(raw))])
        yield path


def error_of(path: Path) -> str | None:
    """Return the error of opening, loading or generating a token."""
    try:
        with trinity.load(path, threads=1, context_length=32) as model:
            model.generate(PROMPT, max_tokens=1)
    except TrinityError as error:
        return str(error)
    return None


@pytest.mark.parametrize("part", parts(6))
def test_damaged_gguf_files(whole: Path, part: int, tmp_path: Path) -> None:
    said = [(path, error_of(path)) for path in damaged(whole, tmp_path, random.Random(part))]
    errors = [(path, error) for path, error in said if error is not None]
    assert len(errors) > 20
    for path, error in errors:
        assert str(path) in error


@pytest.mark.full
def test_commands_name_the_file(whole: Path, tmp_path: Path) -> None:
    shutil.copy(whole, tmp_path / "whole.gguf")
    path = tmp_path / "damaged.gguf"
    cases: list[dict[str, Any]] = [
        {"tokenizer.ggml.scores": None},
        {"tokenizer.ggml.model": "zzz"},
        {"llama.block_count": None},
        {"general.architecture": "clip"},
        {"tokenizer.chat_template": 5},
    ]
    for keys in cases:
        path.unlink(missing_ok=True)
        changed(path, keys)
        for arguments in (
            ["generate", "-m", str(path), PROMPT],
            ["tokenize", "-m", str(path), PROMPT],
            ["serve", "-m", str(path), "--port", "0"],
        ):
            done = CliRunner().invoke(application(), arguments)
            if arguments[0] == "tokenize" and done.exit_code == 0:
                continue  # which needs no more than the vocabulary
            assert done.exit_code, (keys, arguments)
            assert str(path) in str(done.exception) + done.output, (keys, arguments)


def test_a_broken_chat_template_names_the_file(whole: Path, tmp_path: Path) -> None:
    """An error that a template raises for a conversation does not name the file."""
    shutil.copy(whole, tmp_path / "whole.gguf")
    path = tmp_path / "template.gguf"
    for text, message in (
        ("{% if %}", f"{path}: the chat template is broken at line 1"),
        ("{{ 'a' * 10**10 }}", f"{path}: the chat template was stopped"),
        ("{{ raise_exception('no') }}", "the chat template refuses these messages: no"),
    ):
        path.unlink(missing_ok=True)
        changed(path, {"tokenizer.chat_template": text})
        with trinity.load(path, threads=1) as model:
            with pytest.raises(TrinityError) as caught:
                model.chat_prompt([{"role": "user", "content": "Hi"}])
            assert str(caught.value).startswith(message)


def test_damaged_directories(tmp_path: Path) -> None:
    """Each file is emptied, cut or changed; errors of the tokenizer come at its first use."""
    draw = random.Random(0)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        for number in range(4):
            folder = tmp_path / f"{name}-{number}"
            folder.mkdir()
            directory = model_directory("llama-grouped", folder)
            path = directory / name
            raw = path.read_bytes()
            path.write_bytes((b"", raw[: len(raw) // 2], b"[]", b"\xff" + raw)[number])
            error = error_of(directory)
            assert error is not None
            assert str(directory) in error, error
    for number, key in enumerate(
        ("hidden_size", "num_hidden_layers", "architectures", "vocab_size")
    ):
        directory = model_directory("llama-grouped", tmp_path / f"v{number}")
        edit_json(directory / "config.json", **{key: draw.choice([-1, "x", [], {}])})
        error = error_of(directory)
        assert error is not None
        assert str(directory) in error


OTHERS: dict[str, tuple[dict[str, object], str]] = {
    "projector": ({"general.architecture": "clip", "general.type": "mmproj"}, "projector"),
    "flux": ({"general.architecture": "flux"}, "a diffusion model"),
    "wan": ({"general.architecture": "wan"}, "a diffusion model"),
    "text to speech": ({"general.architecture": "wavtokenizer-dec"}, "text-to-speech"),
    "diffusion of text": ({"general.architecture": "dream"}, "a diffusion language model"),
    "T5": ({"general.architecture": "t5encoder"}, "an encoder-decoder"),
    "no vocabulary": ({"general.architecture": "zzz"}, "architecture 'zzz' is not supported"),
    "matrix": ({"general.type": "imatrix", "general.architecture": None}, "an importance matrix"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_no_language_model(case: str, tmp_path: Path) -> None:
    """Such files are recognized before a tokenizer is read, because they have none."""
    keys, message = OTHERS[case]
    path = tmp_path / "other.gguf"
    with GGUFWriter(path) as writer:
        for key, value in keys.items():
            if value is not None:
                writer.add(key, value)
        writer.add_tensor("a.weight", (2, 2), "F32", np.zeros((2, 2), np.float32))
    with pytest.raises(UnsupportedError, match=message) as caught:
        trinity.load(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("tensor", "message"),
    [("model.diffusion_model.out.0.weight", "a diffusion model"), ("v.blk.0.ln1.weight", "projec")],
)
def test_files_without_an_architecture(tensor: str, message: str, tmp_path: Path) -> None:
    """stable-diffusion.cpp writes such files."""
    path = tmp_path / "other.gguf"
    with GGUFWriter(path) as writer:
        writer.add_tensor(tensor, (2, 2), "F32", np.zeros((2, 2), np.float32))
    with pytest.raises(UnsupportedError, match=message):
        trinity.load(path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["CLIPModel"]}, "a projector"),
        ({"architectures": ["T5EncoderModel"]}, "an encoder-decoder"),
        ({"architectures": ["VitsModel"]}, "text-to-speech"),
        ({"_class_name": "FluxTransformer2DModel"}, "a diffusion model"),
        ({"architectures": ["ViTForImageClassification"]}, "classifies images"),
        ({"architectures": ["FooForCausalLM"]}, "trinity reads .*LlamaForCausalLM"),
    ],
)
def test_directories_of_other_models(
    config: dict[str, object], message: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(UnsupportedError, match=message) as caught:
        trinity.load(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_folder_of_diffusers(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text("{}")
    with pytest.raises(InputError, match="a folder of diffusers: a diffusion model"):
        trinity.load(tmp_path)


def test_a_file_is_named_once() -> None:
    for text in ("x: bad", "bad"):
        with pytest.raises(InputError) as caught, about("x"):
            raise InputError(text)
        assert str(caught.value) == "x: bad"
