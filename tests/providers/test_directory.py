"""Hugging Face directories run as they are and give transformers' results."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.formats.raw_safetensors import bfloat16, write_safetensors
from tests.matrix import some
from tests.tools.golden_models import edit_json, golden, model_directory
from tests.tools.test_convert_families import FOLDERS
from trinity.errors import ConfigError, FormatError, InputError, TokenizerError
from trinity.formats.made_tensor import MadeTensor
from trinity.formats.safetensors import SafeTensorsFile
from trinity.providers import open_weights
from trinity_kernels.isa import available_levels

PLAIN = ("llama-bf16", "llama-rope3-f16-sharded", "qwen3-moe-bf16", "qwen3-tied-bf16")
# Of the golden models in tests/data, whose logits differ by the order of float sums alone.
SMALL = (("bitnet-packed", 2e-3), ("bitnet-masters", 2e-3), ("bitnet-odd", 2e-3),
         ("llama-packed", 2e-3), ("llama-grouped", 1e-3), ("llama-sharded", 1e-3))  # fmt: skip


@pytest.mark.few(2)
@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize("name", PLAIN)
def test_logits_and_greedy_tokens(name: str, level: str, shared_data: Path) -> None:
    check_answers(shared_data / "formats" / "hf" / name, level)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", some(FOLDERS, ("gemma3", "gpt_oss", "granitemoe", "qwen2")))
def test_families(name: str, shared_data: Path) -> None:
    """Settings that GGUF lacks are used: mistral's window, the truncation of gpt-oss's YaRN."""
    check_answers(shared_data / "architectures" / name, None)


def check_answers(folder: Path, level: str | None, name: str | None = None) -> None:
    """Check that the model in the folder, or of that ``name``, gives the stored results."""
    answers = json.loads((folder / "golden.json").read_text("utf-8"))
    prompt, greedy = answers["prompt_ids"], answers["greedy_ids"]
    directory = folder / "hf" if (folder / "hf").is_dir() else folder
    context = len(prompt) + len(greedy)
    with trinity.load(name or directory, isa=level, kv_type="f32", context_length=context) as model:
        found = model.logits(prompt)
        options = {"temperature": 0.0, "ignore_eos": True, "repetition_penalty": 1.0}
        answer = model.generate(prompt, max_tokens=len(greedy), **options)  # type: ignore[arg-type]
    np.testing.assert_allclose(found, np.load(folder / "logits.npy"), rtol=0, atol=1e-3)
    assert answer.token_ids == greedy


@pytest.mark.parametrize("name", PLAIN)
def test_tokens_and_chat_format(name: str, shared_data: Path) -> None:
    folder = shared_data / "formats" / "hf" / name
    answers = json.loads((folder / "golden.json").read_text("utf-8"))["tokenizer"]
    with trinity.load(folder, context_length=8) as model:
        for case in answers["encode"]:
            assert model.tokenize(case["text"]) == case["ids"]
        chat = answers["chat"]
        assert model.apply_chat_template(chat["messages"]) == chat["ids"]
        ends = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
        assert {*([ends] if isinstance(ends, int) else ends)} <= model.tokenizer.eog_ids


@pytest.mark.parametrize(("name", "tolerance"), SMALL)
def test_small_models(name: str, tolerance: float, tmp_path: Path) -> None:
    expected = golden(name)
    with trinity.load(model_directory(name, tmp_path)) as model:
        logits = model.logits(expected.tokens)
        assert model.tokenize(expected.text) == expected.text_ids
    np.testing.assert_allclose(logits, expected.logits, rtol=0, atol=tolerance)


def test_weights_are_views_of_the_files(tmp_path: Path) -> None:
    with closing(open_weights(model_directory("llama-sharded", tmp_path))) as provider:
        tensors = [provider.tensor(name) for name in provider.tensor_names()]
        assert not [tensor.name for tensor in tensors if isinstance(tensor, MadeTensor)]
        assert not [tensor.name for tensor in tensors if tensor.data.flags.owndata]
        del tensors


def test_what_is_made_anew_is_small(shared_data: Path) -> None:
    """For Gemma only the norms are copied, to add 1."""
    with closing(open_weights(shared_data / "architectures" / "gemma3" / "hf")) as provider:
        for name in provider.tensor_names():
            made = isinstance(provider.tensor(name), MadeTensor)
            assert made == name.endswith("_norm.weight"), name


def test_rows_in_the_middle_of_bytes(tmp_path: Path) -> None:
    """A header may have any length; data at an odd address are copied."""
    directory = model_directory("llama-grouped", tmp_path)
    raw = (directory / "model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    odd = length + 1
    shifted = odd.to_bytes(8, "little") + raw[8 : 8 + length] + b" " + raw[8 + length :]
    (directory / "model.safetensors").write_bytes(shifted)
    expected = golden("llama-grouped")
    with trinity.load(directory) as model:
        logits = model.logits(expected.tokens)
    np.testing.assert_allclose(logits, expected.logits, rtol=0, atol=1e-3)


@pytest.mark.full
def test_one_file_beside_its_configuration(tmp_path: Path) -> None:
    directory = model_directory("llama-grouped", tmp_path)
    (directory / "model.safetensors").rename(directory / "weights.safetensors")
    expected = golden("llama-grouped")
    with trinity.load(directory / "weights.safetensors") as model:
        np.testing.assert_allclose(model.logits(expected.tokens), expected.logits, atol=1e-3)
    (directory / "config.json").unlink()
    with pytest.raises(InputError, match=r"there is no config\.json in its folder"):
        trinity.load(directory / "weights.safetensors")


@pytest.mark.parametrize(
    ("values", "options", "ends"),
    [
        ({"eos_token_id": [3, 5], "temperature": 0.25, "top_k": 7, "top_p": 0.5},
         {"temperature": 0.25, "top_k": 7, "top_p": 0.5}, (3, 5)),
        ({"eos_token_id": 7, "do_sample": False, "temperature": 0.25, "repetition_penalty": 1.25},
         {"repetition_penalty": 1.25}, (7,)),
        ({"eos_token_id": None, "temperature": None}, {}, None),
    ],
)  # fmt: skip
def test_generation_config(
    values: dict[str, object],
    options: dict[str, object],
    ends: tuple[int, ...] | None,
    tmp_path: Path,
) -> None:
    directory = model_directory("llama-grouped", tmp_path)
    edit_json(directory / "config.json", eos_token_id=[2, 9])
    (directory / "generation_config.json").write_text(json.dumps(values))
    with closing(open_weights(directory)) as provider:
        assert provider.defaults.options == options
        expected = (2, 9) if ends is None else ends
        assert provider.defaults.end_ids == expected
    assert {*expected} <= trinity.load_tokenizer(directory).eog_ids


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"eos_token_id": "x"}, r"generation_config\.json: eos_token_id is 'x'"),
        ({"eos_token_id": [True]}, "eos_token_id is"),
        ({"temperature": "hot"}, r"generation_config\.json: temperature is 'hot'"),
        ({"top_p": 3}, r"generation_config\.json: top_p is 3"),
    ],
)
def test_generation_config_is_checked(
    values: dict[str, object], message: str, tmp_path: Path
) -> None:
    directory = model_directory("llama-grouped", tmp_path)
    (directory / "generation_config.json").write_text(json.dumps(values))
    with pytest.raises(ConfigError, match=message):
        trinity.load(directory)


def test_directory_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json and no \.gguf file"):
        open_weights(tmp_path)
    (tmp_path / "a.gguf").touch()
    with pytest.raises(InputError, match=r"give one of its files: a\.gguf"):
        open_weights(tmp_path)


def test_without_a_tokenizer(tmp_path: Path) -> None:
    """The weights can be inspected, but the model cannot run."""
    directory = model_directory("llama-grouped", tmp_path)
    for path in directory.glob("tokenizer*"):
        path.unlink()
    with closing(open_weights(directory)) as provider:
        assert provider.config.num_layers
    with pytest.raises((InputError, TokenizerError), match=r"neither tokenizer\.json"):
        trinity.load(directory)


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no links here")
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_links_out_of_the_directory_are_refused(name: str, tmp_path: Path) -> None:
    directory = model_directory("llama-grouped", tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.move(directory / name, elsewhere / name)
    (directory / name).symlink_to(elsewhere / name)
    with pytest.raises(InputError, match=r"a link to .*elsewhere.*, outside of the directory"):
        trinity.load(directory)


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no links here")
def test_links_of_the_hubs_cache_are_followed(tmp_path: Path) -> None:
    directory = model_directory("llama-sharded", tmp_path)
    store = tmp_path / "models--someone--Tiny"
    snapshot = store / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (store / "blobs").mkdir()
    for number, path in enumerate(sorted(directory.iterdir())):
        shutil.move(path, store / "blobs" / str(number))
        (snapshot / path.name).symlink_to(Path("../../blobs") / str(number))
    expected = golden("llama-sharded")
    with trinity.load(snapshot) as model:
        np.testing.assert_allclose(model.logits(expected.tokens), expected.logits, atol=1e-3)
        assert model.config.name == "Tiny"


@pytest.mark.parametrize("shard", ["../x.safetensors", "/etc/passwd", "..", ".", "", "a/b"])
def test_shards_elsewhere_are_refused(shard: str, tmp_path: Path) -> None:
    directory = model_directory("llama-sharded", tmp_path)
    index = directory / "model.safetensors.index.json"
    values = json.loads(index.read_text())
    values["weight_map"][next(iter(values["weight_map"]))] = shard
    index.write_text(json.dumps(values))
    with pytest.raises(FormatError, match="expected the name of a file in the same folder"):
        open_weights(directory)


def test_floats_of_64_bits_become_float32(tmp_path: Path) -> None:
    directory = model_directory("llama-grouped", tmp_path)
    with SafeTensorsFile(directory / "model.safetensors") as file:
        wide = {name: file.tensor(name).all_floats() for name in file.names()}
    norm = "model.norm.weight"
    arrays = {name: bfloat16(values) for name, values in wide.items()}
    write_safetensors(
        directory / "model.safetensors", {**arrays, norm: wide[norm].astype(np.float64)}
    )
    with closing(open_weights(directory)) as provider:
        tensor = provider.tensor("output_norm.weight")
        assert tensor.type == "F32"
        np.testing.assert_array_equal(tensor.dequantize(), wide[norm])


@pytest.mark.full
def test_scale_rule_of_packed_weights(tmp_path: Path) -> None:
    directory = model_directory("bitnet-packed", tmp_path)
    edit_json(directory / "config.json", quantization_config={"quant_method": "bitnet"})
    expected = golden("bitnet-packed")
    lines: list[str] = []
    with trinity.load(directory, progress=lines.append):
        assert any("look inverted" in line for line in lines)
    with trinity.load(directory, weight_scale="multiply") as model:
        np.testing.assert_allclose(model.logits(expected.tokens), expected.logits, atol=2e-3)
    with pytest.raises(InputError, match="for packed ternary weights"):
        trinity.load(model_directory("llama-grouped", tmp_path), weight_scale="divide")
