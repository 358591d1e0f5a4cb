"""Quantized files: bytes compared with the gguf package, keys, sizes, unchanged tensors."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from tests.tiny_models import write_tiny_model
from trinity.errors import InputError
from trinity.formats import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter
from trinity.formats.imatrix import Imatrix, ImatrixEntry, write_imatrix
from trinity.quantization import quantize, rows

GOLDENS = Path(__file__).resolve().parents[1] / "data" / "quantize_types.json"


def content(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    with GGUFProvider(path) as model:
        tensors = [model.tensor(name) for name in model.tensor_names()]
        return {t.name: (t.type, t.shape, bytes(t.data)) for t in tensors}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A model of 8 layers in F32 with rows of 64 and 128 weights."""
    path = tmp_path / "source.gguf"
    write_tiny_model(path, num_layers=8, tied=False, bias=True, qk_norm=False)
    return path


@pytest.mark.few(3)
@pytest.mark.parametrize("type_name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16", "F16"])
def test_the_bytes_are_those_of_the_gguf_package(
    type_name: str, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.gguf"
    quantize(source, out, type_name, pure=True)
    given = {t.name: t for t in gguf.GGUFReader(source).tensors}
    kind = gguf.GGMLQuantizationType[type_name]
    made = gguf.GGUFReader(out).tensors
    assert {t.name for t in made} == set(given)
    for tensor in made:
        values = given[tensor.name].data
        if values.ndim == 1:
            assert tensor.tensor_type == gguf.GGMLQuantizationType.F32
            assert np.array_equal(tensor.data, values)
        else:
            assert tensor.tensor_type == kind
            expected = gguf.quants.quantize(values, kind)
            assert np.array_equal(tensor.data.view(np.uint8), expected.view(np.uint8))


def test_the_files_are_those_of_llama_cpp(shared_data: Path, tmp_path: Path) -> None:
    """The bytes are equal; llama.cpp wrote the references (tests/goldens/quantize_goldens.py)."""
    files = json.loads(GOLDENS.read_text("utf-8"))["files"]
    assert len(files) > 1
    for name, digests in files.items():
        for type_name, digest in digests.items():
            out = tmp_path / f"{type_name}.gguf"
            quantize(shared_data / "models" / name, out, type_name)
            assert hashlib.sha256(out.read_bytes()).hexdigest() == digest, (name, type_name)
            out.unlink()


@pytest.mark.full
def test_steps_and_threads_change_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = set()
    for step, threads in ((1 << 19, 1), (1 << 19, 3), (1000, 2), (1, 4)):
        monkeypatch.setattr(rows, "STEP_WEIGHTS", step)
        out = tmp_path / "out.gguf"
        quantize(source, out, "Q5_1", threads=threads, overwrite=True)
        digests.add(out.read_bytes())
    assert len(digests) == 1


def test_keys_are_copied_as_they_are(tmp_path: Path) -> None:
    source, out = tmp_path / "source.gguf", tmp_path / "out.gguf"
    extra = {
        "general.file_type": 1,
        "x.int8": np.int8(-3),
        "x.float64": np.float64(0.1),
        "x.bools": [True, False],
        "x.nested": [[1, 2], [3]],
        "x.text": "caf\u00e9 \u4f60",
        "x.uint16s": np.array([1, 65535], np.uint16),
    }
    write_tiny_model(source, metadata=extra)
    quantize(source, out, "Q8_0")
    with GGUFProvider(source) as given, GGUFProvider(out) as made:
        ours = ["general.quantization_version", "general.file_type"]
        assert [*made.metadata] == [key for key in given.metadata if key not in ours] + ours
        for key in given.metadata:
            if key not in ours:
                assert made.metadata.encoded(key) == given.metadata.encoded(key), key
        assert made.metadata["general.file_type"] == 7
        assert made.metadata["general.quantization_version"] == 2
        assert {made.metadata.value_type(key) for key in ours} == {"uint32"}


@pytest.mark.parametrize("alignment", [32, 256])
def test_the_alignment_is_kept(alignment: int, source: Path, tmp_path: Path) -> None:
    aligned, out = tmp_path / "aligned.gguf", tmp_path / "out.gguf"
    with GGUFProvider(source) as given, GGUFWriter(aligned, alignment=alignment) as writer:
        for key in given.metadata:
            writer.add_encoded(key, given.metadata.encoded(key))
        for name in given.tensor_names():
            tensor = given.tensor(name)
            writer.add_tensor(name, tensor.shape, tensor.type, tensor.data)
    done = quantize(aligned, out, "Q4_0")
    with GGUFProvider(out) as made:
        assert made.alignment == alignment
    assert done.num_bytes == out.stat().st_size


def split(source: Path, stem: Path) -> Path:
    """Write the model in two files; return the first."""
    with GGUFProvider(source) as given:
        names = given.tensor_names()
        parts = (names[:5], names[5:])
        for no, part in enumerate(parts):
            path = Path(f"{stem}-{no + 1:05d}-of-00002.gguf")
            with GGUFWriter(path) as writer:
                for key in given.metadata if no == 0 else ():
                    writer.add_encoded(key, given.metadata.encoded(key))
                writer.add("split.no", no, "uint16")
                writer.add("split.count", 2, "uint16")
                writer.add("split.tensors.count", len(names), "int32")
                for name in part:
                    tensor = given.tensor(name)
                    writer.add_tensor(name, tensor.shape, tensor.type, tensor.data)
    return Path(f"{stem}-00001-of-00002.gguf")


def test_parts_become_one_file(source: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.gguf", tmp_path / "two.gguf"
    quantize(source, one, "Q4_0")
    quantize(split(source, tmp_path / "part"), two, "Q4_0")
    assert one.read_bytes() == two.read_bytes()


def test_a_dry_run_tells_what_would_be(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    would = quantize(source, out, "q4_0", dry_run=True)
    assert os.listdir(tmp_path) == ["source.gguf"]
    done = quantize(source, out, "q4_0")
    assert would == done
    assert done.num_bytes == out.stat().st_size
    assert done.source_bytes == source.stat().st_size
    made = content(out)
    assert {t.name: (t.type, t.shape, t.nbytes) for t in done.tensors} == {
        name: (kind, shape, len(data)) for name, (kind, shape, data) in made.items()
    }
    weights = sum(int(np.prod(shape)) for _, shape, _ in made.values())
    bits = 8 * sum(len(data) for *_, data in made.values())
    assert done.bits_per_weight == pytest.approx(bits / weights)
    assert (done.type, done.architecture, done.path) == ("Q4_0", "llama", str(out))


def test_options_decide(source: Path, tmp_path: Path) -> None:
    done = quantize(
        source,
        tmp_path / "out.gguf",
        "Q8_0",
        token_embedding_type="f16",
        output_tensor_type="bf16",
        tensor_types=[(r"blk\.[01]\.ffn_DOWN", "q4_1"), ("ffn_down", "q5_0")],
    )
    types = {tensor.name: tensor.type for tensor in done.tensors}
    assert types["token_embd.weight"] == "F16"
    assert types["output.weight"] == "BF16"
    assert types["blk.0.attn_q.weight"] == "Q8_0"
    assert [types[f"blk.{i}.ffn_down.weight"] for i in range(4)] == ["Q4_1", "Q4_1", "Q5_0", "Q5_0"]


def test_what_has_its_type_already_is_copied(tmp_path: Path) -> None:
    source, out = tmp_path / "source.gguf", tmp_path / "out.gguf"
    write_tiny_model(source, type="Q8_0", embedding_type="F16")
    done = quantize(source, out, "Q8_0")  # needs no leave: no quantized tensor changes
    given, made = content(source), content(out)
    changed = {name for name in given if given[name] != made[name]}
    assert changed == {"token_embd.weight"}
    assert {t.name: t.source_type for t in done.tensors}["token_embd.weight"] == "F16"


def test_quantizing_twice_needs_leave(tmp_path: Path) -> None:
    source, out = tmp_path / "source.gguf", tmp_path / "out.gguf"
    write_tiny_model(source, type="Q8_0")
    with pytest.raises(InputError, match=r"15 tensors are quantized already, such as .*Q8_0") as e:
        quantize(source, out, "Q4_0", pure=True)
    assert "--allow-requantize" in str(e.value)
    assert not out.exists()
    quantize(source, out, "Q4_0", pure=True, allow_requantize=True)
    first = "blk.0.attn_q.weight"
    values = gguf.quants.dequantize(
        np.frombuffer(content(source)[first][2], np.uint8).reshape(64, -1),
        gguf.GGMLQuantizationType.Q8_0,
    )
    expected = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q4_0)
    assert content(out)[first][2] == expected.tobytes()


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, float | None]]:
    """Counts the calls of the row quantizer by type and first importance."""
    calls: Counter[tuple[str, float | None]] = Counter()
    real = rows.quantize_rows

    def counted(name: str, values: NDArray[np.float32], columns: NDArray[np.float32] | None):  # type: ignore[no-untyped-def]
        calls[name, None if columns is None else float(columns[0])] += 1
        return real(name, values, None)

    monkeypatch.setattr(rows, "quantize_rows", counted)
    return calls


def imatrix_file(folder: Path, means: dict[str, NDArray[np.float32]]) -> Path:
    """An importance matrix of 1024 tokens."""
    path = folder / "x.imatrix"
    count = np.array([1024])
    entries = {name: ImatrixEntry(1024 * mean[None], count) for name, mean in means.items()}
    write_imatrix(path, Imatrix(entries, 512, ("war.txt", "peace.txt")))
    return path


def test_importance_reaches_the_quantizer(
    source: Path, tmp_path: Path, used: Counter[tuple[str, float | None]]
) -> None:
    names = [name for name in content(source) if name.startswith("blk.") and "norm" not in name]
    means = {
        name: np.full(128 if "ffn_down" in name else 64, 3, np.float32)
        for name in names
        if name.endswith("weight") and not name.startswith("blk.7.ffn_")
    }
    means["token_embd.weight"] = np.ones(5, np.float32)  # of no use, whatever its length
    path, out = imatrix_file(tmp_path, means), tmp_path / "out.gguf"
    done = quantize(source, out, "Q4_0", imatrix=path)
    # Q4_1 for ffn_down of the first eighth of the layers: llama.cpp's rule with an imatrix.
    assert used["Q4_1", 0.75] == 1
    assert used["Q4_0", 0.75] == 7 * 7 + 4 - 1
    assert used["Q4_0", None] == 1 + 3
    assert (
        f"{path} has no entry for 3 of 56 tensors, which are quantized without: "
        "blk.7.ffn_down.weight, ..."
    ) in done.notes
    with GGUFProvider(out) as made:
        theirs = {k: v for k, v in made.metadata.items() if k.startswith("quantize.")}
        assert theirs == {
            "quantize.imatrix.file": str(path),
            "quantize.imatrix.dataset": "war.txt",
            "quantize.imatrix.entries_count": 54,
            "quantize.imatrix.chunks_count": 2,
        }
    again = tmp_path / "again.gguf"
    quantize(out, again, "Q8_0", imatrix=path, allow_requantize=True)
    with GGUFProvider(out) as made, GGUFProvider(again) as twice:
        assert [*twice.metadata] == [*made.metadata]


@pytest.mark.parametrize("size", [1e-42, 1.0, 3e38])
def test_importance_of_any_size(size: float, source: Path, tmp_path: Path) -> None:
    """Values beyond float32's range do not end the search; all-zero inputs have no effect."""
    ratios = np.linspace(0.5, 1, 64, dtype=np.float32)
    means = {"blk.0.attn_k.weight": ratios * np.float32(size)}
    means["blk.0.attn_q.weight"] = np.zeros(64, np.float32)
    out = tmp_path / "out.gguf"
    # Whatever is one of "sums / tokens" must stay a float32.
    path = tmp_path / "x.imatrix"
    entries = {name: ImatrixEntry(mean[None], np.array([1])) for name, mean in means.items()}
    write_imatrix(path, Imatrix(entries, 512))
    done = quantize(source, out, "Q4_0", imatrix=path)
    assert any("has no entry for 55 of 56 tensors" in note for note in done.notes)
    with GGUFProvider(source) as given, GGUFProvider(out) as made:
        for name in means:
            values = given.tensor(name).dequantize()
            error = made.tensor(name).dequantize() - values
            assert np.sqrt(np.square(error).mean() / np.square(values).mean()) < 0.12, name


@pytest.mark.parametrize(
    ("means", "message"),
    [
        (
            {"blk.9.attn_k.weight": np.ones(64, np.float32)},
            "has no entry for any tensor of this model, such as 'blk.0.attn_k.weight'",
        ),
        (
            {"blk.0.attn_k.weight": np.ones(63, np.float32)},
            "the entry of 'blk.0.attn_k.weight' has 63 values, but the tensor has 64 columns",
        ),
    ],
)
def test_an_imatrix_of_another_model_is_refused(
    means: dict[str, NDArray[np.float32]], message: str, source: Path, tmp_path: Path
) -> None:
    path = imatrix_file(tmp_path, means)
    with pytest.raises(InputError, match=message):
        quantize(source, tmp_path / "out.gguf", "Q4_0", imatrix=path)


def test_it_is_a_public_name(source: Path, tmp_path: Path) -> None:
    done = trinity.quantize(source, tmp_path / "out.gguf", "Q4_0", dry_run=True)
    assert isinstance(done, trinity.Quantization)
