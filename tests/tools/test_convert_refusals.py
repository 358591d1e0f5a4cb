"""Unsupported models are refused before a byte is written; no partial file remains."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.formats.raw_safetensors import bfloat16, write_safetensors
from tests.tools.golden_models import FOLDER, edit_json, model_directory
from trinity.errors import (
    ConfigError,
    FormatError,
    InputError,
    TokenizerError,
    TrinityError,
    UnsupportedError,
)
from trinity.formats.safetensors import SafeTensorsFile
from trinity.tools.convert import conversion, convert

Tensors = dict[str, np.ndarray]
Change = Callable[[Path], object]


def arrays_of(path: Path) -> Tensors:
    """The tensors of a file of BF16 and U8, as write_safetensors takes them."""
    with SafeTensorsFile(path) as file:
        tensors = [file.tensor(name) for name in file.names()]
        return {
            t.name: t.data.reshape(t.shape).copy() if t.dtype == "U8" else bfloat16(t.all_floats())
            for t in tensors
        }


def with_tensors(change: Callable[[Tensors], object]) -> Change:
    """A change of the tensors of model.safetensors."""

    def apply(directory: Path) -> None:
        path = directory / "model.safetensors"
        tensors = arrays_of(path)
        change(tensors)
        write_safetensors(path, tensors)

    return apply


def with_json(name: str, **changes: object) -> Change:
    return lambda directory: edit_json(directory / name, **changes)


def without(*names: str) -> Change:
    def apply(directory: Path) -> None:
        for name in names:
            (directory / name).unlink()

    return apply


def put(name: str, value: object) -> Change:
    """A tensor with a new value."""
    return with_tensors(lambda tensors: tensors.__setitem__(name, np.asarray(value)))


def drop(name: str) -> Change:
    return with_tensors(lambda tensors: tensors.pop(name))


def cut(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def code_three(tensors: Tensors) -> None:
    tensors[Q][3, 5] |= 0b11 << 4  # the third block of 64 rows


Q = "model.layers.0.self_attn.q_proj.weight"
NORM = "model.layers.1.mlp.ffn_sub_norm.weight"
ONES = np.ones(256, np.uint16) * 0x3F80
FLOAT_MODEL: dict[str, object] = {"quantization_config": None}

# Name of the golden model, change, --outtype, the error's class and what it says.
REFUSED: dict[str, tuple[str, Change, str, type[TrinityError], str]] = {
    "no config": ("bitnet-packed", without("config.json"), "i2_s", InputError, "no config.json"),
    "no weights": (
        "bitnet-packed", without("model.safetensors"), "i2_s", InputError, "neither model.safet",
    ),
    "no tokenizer": (
        "bitnet-packed", without("tokenizer.json"), "i2_s", InputError, "neither tokenizer.json",
    ),
    "truncated weights": ("bitnet-packed", cut, "i2_s", FormatError, "but the file has"),
    "unknown class": (
        "bitnet-packed", with_json("config.json", architectures=["BloomForCausalLM"]), "f16",
        UnsupportedError, "'BloomForCausalLM'; trinity reads Afmoe",
    ),
    "another activation": (
        "bitnet-packed", with_json("config.json", hidden_act="gelu"), "i2_s", UnsupportedError,
        "hidden_act is 'gelu'",
    ),
    "missing tensor": (
        "bitnet-packed", drop(NORM), "i2_s", FormatError, f"1 tensors .* missing.*{NORM}",
    ),
    "missing scale": (
        "bitnet-packed", drop(f"{Q}_scale"), "i2_s", FormatError, f"missing.*{Q}_scale",
    ),
    "leftover tensor": (
        "bitnet-packed", put("model.layers.0.extra.weight", ONES), "i2_s", FormatError,
        "1 tensors are not used.*extra",
    ),
    "leftover layer": (
        "bitnet-packed", with_json("config.json", num_hidden_layers=1), "i2_s", FormatError,
        "tensors are not used.*layers.1",
    ),
    "layer too many": (
        "bitnet-packed", with_json("config.json", num_hidden_layers=3), "i2_s", FormatError,
        r"18 tensors .* missing.*layers\.2",
    ),
    "wrong hidden size": (
        "bitnet-packed", with_json("config.json", hidden_size=128, num_attention_heads=2),
        "i2_s", FormatError, r"has shape \(283, 256\), but config.json implies \(283, 128\)",
    ),
    "wrong FFN size": (
        "bitnet-packed", with_json("config.json", intermediate_size=512), "i2_s", FormatError,
        "config.json implies",
    ),
    "wrong vocabulary size": (
        "bitnet-packed", with_json("config.json", vocab_size=300), "i2_s", FormatError,
        r"config.json implies \(300, 256\)",
    ),
    "head_dim that does not fit sub-norms": (
        "bitnet-packed", with_json("config.json", head_dim=32), "i2_s", ConfigError,
        "is not hidden_size",
    ),
    "packed weights without quantization_config": (
        "llama-packed", with_json("config.json", **FLOAT_MODEL), "f16", FormatError,
        "not used.*weight_scale tensors need a quantization_config",
    ),
    "master weights said to be packed": (
        "bitnet-masters",
        with_json("config.json", quantization_config={"quant_method": "bitnet"}),
        "i2_s", FormatError, "weight_scale",
    ),
    "floats where packed codes should be": (
        "bitnet-packed", put(Q, np.zeros((256, 256), np.uint16)), "i2_s", FormatError,
        "expected the packed form, U8",
    ),
    "packed codes where floats should be": (
        "bitnet-packed", put("model.norm.weight", np.zeros(256, np.uint8)), "i2_s", FormatError,
        "stored as U8",
    ),
    "integers where floats should be": (
        "bitnet-packed", put("model.norm.weight", np.zeros(256, np.int32)), "i2_s",
        UnsupportedError, "stored as I32",
    ),
    "code 3": (
        "bitnet-packed", with_tensors(code_three), "i2_s", FormatError,
        r"row 131, column 5 has the code 3",
    ),
    "scale of zero": (
        "bitnet-packed", put(f"{Q}_scale", np.zeros(1, np.float32)), "i2_s", FormatError,
        "expected a finite number above 0",
    ),
    "scale that is not a number": (
        "bitnet-packed", put(f"{Q}_scale", np.full(1, np.nan, np.float32)), "i2_s", FormatError,
        "nan; expected a finite number above 0",
    ),
    "scale of each row": (
        "bitnet-packed", put(f"{Q}_scale", np.ones(256, np.float32)), "i2_s", FormatError,
        "one scale for the whole weight",
    ),
    "masters that are not finite": (
        "bitnet-masters", put(Q, np.full((256, 256), 0x7F80, np.uint16)), "i2_s", FormatError,
        "not finite",
    ),
    "norm that is not finite": (
        "bitnet-packed", put("model.norm.weight", np.full(256, 0x7FC0, np.uint16)), "i2_s",
        FormatError, "not finite",
    ),
    "embedding beyond half precision": (
        "llama-grouped",
        put("model.embed_tokens.weight", np.full((283, 32), 0x4800, np.uint16)), "f16",
        InputError, "beyond the range of half precision; use --outtype bf16",
    ),
    "ternary type for a plain llama": (
        "llama-grouped", lambda directory: None, "i2_s", UnsupportedError, "is not a BitNet model",
    ),
    "rows that TQ cannot hold": (
        "bitnet-odd", lambda directory: None, "tq1_0", UnsupportedError,
        "TQ1_0 needs rows of a multiple of 256.*i2_s supports it",
    ),
    "tied, but another output": (
        "llama-grouped", put("lm_head.weight", np.zeros((283, 32), np.uint16)), "f16", ConfigError,
        "tie_word_embeddings is true, but lm_head.weight differs",
    ),
    "untied without an output": (
        "llama-grouped", with_json("config.json", tie_word_embeddings=False), "f16", FormatError,
        "missing.*lm_head",
    ),
    "biases that are not there": (
        "llama-grouped", with_json("config.json", mlp_bias=True), "f16", FormatError,
        "missing.*bias",
    ),
    "malformed config": (
        "bitnet-packed", lambda d: (d / "config.json").write_text("{"), "i2_s", FormatError,
        "not valid JSON",
    ),
    "malformed tokenizer": (
        "bitnet-packed", lambda d: (d / "tokenizer.json").write_text("[]"), "i2_s", FormatError,
        "expected a JSON object",
    ),
    "malformed generation config": (
        "bitnet-packed", lambda d: (d / "generation_config.json").write_text("["), "i2_s",
        FormatError, "generation_config.json",
    ),
    "more tokens than the embedding": (
        "bitnet-packed",
        lambda d: shutil.copy(d.parent / "bigger.json", d / "tokenizer.json"), "i2_s",
        ConfigError, "284 tokens, but vocab_size",
    ),
    "no tokens": (
        "bitnet-packed",
        lambda d: edit_json(d / "tokenizer.json", model={"type": "BPE", "merges": []}),
        "i2_s", TokenizerError, "tokenizers library cannot read it|model.vocab is missing",
    ),
}  # fmt: skip


@pytest.fixture
def untouched(tmp_path: Path) -> Path:
    """An older file under the name of the result."""
    path = tmp_path / "out" / "model.gguf"
    path.parent.mkdir()
    path.write_bytes(b"older")
    return path


@pytest.mark.few(12)
@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, tmp_path: Path, untouched: Path) -> None:
    name, change, outtype, kind, message = REFUSED[case]
    directory = model_directory(name, tmp_path)
    tokenizer = json.loads((FOLDER / "bitnet-packed" / "tokenizer.json").read_text("utf-8"))
    more = {"id": 283, "content": "<more>"}
    tokenizer["added_tokens"].append(tokenizer["added_tokens"][-1] | more)
    (tmp_path / "bigger.json").write_text(json.dumps(tokenizer))
    change(directory)
    with pytest.raises(kind, match=message) as caught:
        convert(directory, untouched, outtype, overwrite=True)
    assert directory.name in str(caught.value) or case == "rows that TQ cannot hold"
    assert untouched.read_bytes() == b"older"
    assert os.listdir(untouched.parent) == ["model.gguf"]


def test_truncated_shard(tmp_path: Path, untouched: Path) -> None:
    directory = model_directory("llama-sharded", tmp_path)
    shard = directory / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(FormatError, match=f"{shard.name}.*but the file has"):
        convert(directory, untouched, "f32", overwrite=True)
    assert untouched.read_bytes() == b"older"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"outtype": "q4_0"}, "outtype is 'q4_0'; it must be one of i2_s"),
        ({"outtype": "i2_s", "weight_scale": "both"}, "weight_scale is 'both'"),
    ],
)
def test_bad_arguments(arguments: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        convert(tmp_path, tmp_path / "a.gguf", **arguments)  # type: ignore[arg-type]


def test_weight_scale_is_for_packed_models(tmp_path: Path) -> None:
    directory = model_directory("bitnet-masters", tmp_path)
    with pytest.raises(InputError, match="for packed ternary weights"):
        convert(directory, tmp_path / "a.gguf", "i2_s", weight_scale="divide")


def test_where_the_file_cannot_be(tmp_path: Path) -> None:
    directory = model_directory("llama-sharded", tmp_path)
    with pytest.raises(InputError, match="a directory"):
        convert(directory, tmp_path, "f32")
    with pytest.raises(InputError, match="no folder"):
        convert(directory, tmp_path / "none" / "a.gguf", "f32")
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    for name in ("tokenizer.model", "model-00001-of-00002.safetensors"):
        with pytest.raises(InputError, match="one of the model's own files"):
            convert(directory, directory / name, "f32")
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left"), MemoryError])
@pytest.mark.parametrize("at", [0, 3, 20])
def test_interrupted_in_the_middle(
    error: BaseException, at: int, tmp_path: Path, untouched: Path
) -> None:
    """Ctrl-C, a full disk or no memory at any tensor leave the older file and no other."""
    seen = []

    def progress(done: int, total: int, name: str) -> None:
        seen.append(name)
        if len(seen) > at:
            raise error

    expected = InputError if isinstance(error, OSError) else error
    directory = model_directory("bitnet-packed", tmp_path)
    with pytest.raises(expected):  # type: ignore[arg-type]
        convert(directory, untouched, "i2_s", progress=progress, overwrite=True)
    assert len(seen) == at + 1
    assert untouched.read_bytes() == b"older"
    assert os.listdir(untouched.parent) == ["model.gguf"]


def test_checkpoint_cut_while_it_is_read(tmp_path: Path, untouched: Path) -> None:
    """A file that shrinks during the conversion causes an error, not a crash."""
    directory = model_directory("bitnet-masters", tmp_path)

    def progress(done: int, total: int, name: str) -> None:
        if name.startswith("blk.0"):
            os.truncate(directory / "model.safetensors", 5000)

    with pytest.raises(FormatError, match="truncated from"):
        convert(directory, untouched, "i2_s", progress=progress, overwrite=True)
    assert untouched.read_bytes() == b"older"


def test_only_one_tensor_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor's data are computed when it is written, not when it is planned."""
    alive = []
    real = conversion.tensor_data

    def counting(planned, *rest):  # type: ignore[no-untyped-def]
        make = real(planned, *rest)

        def chunks():  # type: ignore[no-untyped-def]
            alive.append(planned.name)
            yield from make()
            alive.remove(planned.name)

        assert alive == []
        return chunks

    monkeypatch.setattr(conversion, "tensor_data", counting)
    convert(model_directory("bitnet-packed", tmp_path), tmp_path / "a.gguf", "i2_s")
    assert alive == []
