"""Models quantized by MLX, as directories and in Ollama's store, give the reference logits."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.providers.test_directory import check_answers
from tests.tools.golden_models import edit_json
from trinity.errors import ConfigError, InputError
from trinity.providers import open_weights
from trinity.tools.convert import convert
from trinity_kernels.isa import available_levels
from trinity_kernels.quants import dequantize

NAMES = (
    "gemma3-text-b4g32", "llama-affine-b2g64", "llama-affine-b3g64", "llama-affine-b4g32",
    "llama-affine-b4g64", "llama-affine-b4g64-f16", "llama-affine-b6g64", "llama-affine-b8g64",
    "llama-mixed-custom", "llama-mxfp4", "llama-mxfp8", "llama-nvfp4", "qwen2-bias-b4g64",
    "qwen3-moe-b4g64", "qwen3-tied-b4g64",
)  # fmt: skip
STORE = "formats/ollama/tensor-store"
# Folders of the answers, of which golden.json names the model.
BLOBS = ("int4g64", "moe-seedform", "nvglobal", "q4", "qnv")


@pytest.mark.full
@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize("name", NAMES)
def test_logits_and_greedy_tokens(name: str, level: str, shared_data: Path) -> None:
    check_answers(shared_data / "formats" / "mlx" / name, level)


@pytest.mark.few(2)
@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize("label", BLOBS)
def test_tensor_blobs(
    label: str, level: str, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(shared_data / STORE))
    folder = shared_data / f"{STORE}.golden" / label
    check_answers(folder, level, f"ollama:{answers_of(folder)['model']}")


@pytest.mark.parametrize("name", NAMES)
def test_values_of_directories(name: str, shared_data: Path) -> None:
    folder = shared_data / "formats" / "mlx" / name
    check_values(str(folder), folder)


@pytest.mark.parametrize("label", BLOBS)
def test_values_of_tensor_blobs(
    label: str, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(shared_data / STORE))
    folder = shared_data / f"{STORE}.golden" / label
    check_values(f"ollama:{answers_of(folder)['model']}", folder)


def answers_of(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "golden.json").read_text("utf-8"))
    return found


def check_values(model: str, folder: Path) -> None:
    """Check that weights equal MLX's dequantized values bit by bit."""
    answers = answers_of(folder)["dequant"]
    assert isinstance(answers, list)
    assert answers
    with closing(open_weights(model)) as provider:
        names = provider.tensor_names()
        tensors = {t.origin: t for t in map(provider.tensor, names) if t.name.endswith("weight")}
        for answer in answers:
            tensor, expected = tensors[answer["tensor"]], np.load(folder / answer["file"])
            values = dequantize(tensor.type, tensor.data, tensor.shape)
            scale = f"{tensor.name.removesuffix('weight')}scale"
            if scale in names:
                values *= provider.tensor(scale).dequantize()
            part = values[tuple(slice(n) for n in expected.shape)]
            np.testing.assert_array_equal(part, expected)


def test_settings_that_contradict_the_tensors(tmp_path: Path, shared_data: Path) -> None:
    source = shared_data / "formats/mlx/llama-affine-b4g64"
    for file in source.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    head = {"lm_head": {"bits": 8, "group_size": 64}}
    edit_json(tmp_path / "config.json", quantization={"bits": 4, "group_size": 64, **head})
    with pytest.raises(ConfigError, match=r"config\.json: quantization says of 'lm_head' 8 bits"):
        open_weights(tmp_path)
    # What is true of no tensor by its name is the business of nobody.
    edit_json(tmp_path / "config.json", quantization={"bits": 4, "x": head["lm_head"]})
    open_weights(tmp_path).close()


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("llama-mxfp4", {"MXFP4", "F32"}),
        ("llama-nvfp4", {"NVFP4", "F32"}),
        ("llama-affine-b4g64", {"F32"}),
    ],
)
def test_converted_without_loss(
    name: str, types: set[str], tmp_path: Path, shared_data: Path
) -> None:
    source, path = shared_data / "formats/mlx" / name, tmp_path / "m.gguf"
    convert(source, path, "f32")
    with closing(open_weights(path)) as provider:
        assert {provider.tensor(n).type for n in provider.tensor_names()} == types
    prompt = answers_of(source)["prompt_ids"]
    with trinity.load(path, kv_type="f32", context_length=32) as model:
        found = model.logits(prompt)  # type: ignore[arg-type]
    np.testing.assert_allclose(found, np.load(source / "logits.npy"), rtol=0, atol=1e-3)


def test_quantizing_twice_takes_leave(tmp_path: Path, shared_data: Path) -> None:
    source, path = shared_data / "formats/mlx/llama-affine-b4g64", tmp_path / "m.gguf"
    with pytest.raises(InputError, match=r"AFFINE4_BF16 and would become Q8_0.*--allow-requantize"):
        convert(source, path, "q8_0")
    assert not path.exists()
    convert(source, path, "q8_0", allow_requantize=True)
    with closing(open_weights(path)) as provider:
        assert {provider.tensor(n).type for n in provider.tensor_names()} == {"Q8_0", "F32"}
