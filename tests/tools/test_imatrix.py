"""Importance matrices compared with an independent forward pass; merging, stopping, resuming."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.expert_models import EXPERTS, LAYERS, PER_TOKEN, Layout, write_expert_model
from tests.naive import float_tensors, naive_logits
from tests.runtime.likelihoods.test_perplexity import expected_nlls
from tests.tiny_models import write_tiny_model
from trinity.errors import ContextLengthError, InputError, TrinityError
from trinity.formats.imatrix import Imatrix, read_imatrix, write_imatrix
from trinity.loading import load
from trinity.model import Model
from trinity.providers import open_weights
from trinity.tools.imatrix import ImatrixProgress, gather_imatrix

TEXT = "Once upon a time the hen and the sheep were on the hill. " * 4
CHUNK = 33
GOLDEN = Path(__file__).resolve().parents[1] / "data" / "imatrix_stories260K.npz"
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"arch": "llama", "type": "F32", "tied": False, "bias": True, "qk_norm": True},
    "bitnet": {"arch": "bitnet-b1.58", "type": "F32"},
    # Activations are rounded to int8: this seed has none so near a tie that float32 rounds it
    # otherwise than float64, which would show in all that comes after.
    "ternary": {"arch": "bitnet-b1.58", "type": "I2_S", "tied": False, "seed": 1},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("imatrix")
    for name, options in MODELS.items():
        write_tiny_model(path / f"{name}.gguf", **options)
    return path


@pytest.fixture(scope="module")
def llama(folder: Path) -> Iterator[Model]:
    with load(folder / "llama.gguf", threads=2, context_length=64, isa="portable") as model:
        yield model


def same(a: Imatrix, b: Imatrix) -> bool:
    return a.entries.keys() == b.entries.keys() and all(
        np.array_equal(a.entries[name].sums, b.entries[name].sums)
        and np.array_equal(a.entries[name].counts, b.entries[name].counts)
        for name in a.entries
    )


def windows(model: Model) -> NDArray[np.int32]:
    ids = model.tokenize(TEXT)
    cut = np.array(ids[: len(ids) // CHUNK * CHUNK], np.int32).reshape(-1, CHUNK)
    cut[:, 0] = 1  # BOS
    return cut


@pytest.mark.parametrize("head", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_sums_are_those_of_the_naive_forward_pass(folder: Path, name: str, head: bool) -> None:
    path = folder / f"{name}.gguf"
    with open_weights(path) as provider:  # type: ignore[attr-defined]
        tensors, config = float_tensors(provider), provider.config
    tied = "output.weight" not in tensors
    seen: list[ImatrixProgress] = []
    with load(path, threads=2, context_length=64, kv_type="f32") as model:
        cut = windows(model)
        options: dict[str, Any] = {"chunk_size": CHUNK, "process_output": head}
        if tied and head:
            with pytest.raises(InputError, match=r"no separate output.weight"):
                gather_imatrix(model, TEXT, **options)
            return
        found = gather_imatrix(model, TEXT, **options, progress=seen.append)
    expected: dict[str, NDArray[np.float64]] = {}
    nlls = []
    for window in cut:
        inputs: dict[str, NDArray[np.float64]] = {}
        logits = naive_logits(
            tensors, config, window.tolist(), arch=MODELS[name]["arch"],
            int8_activations=name == "ternary", inputs=inputs,
        )  # fmt: skip
        nlls.append(expected_nlls(logits, window))
        for weight, x in inputs.items():
            expected[weight] = expected.get(weight, 0) + (x**2).sum(axis=0)
    if not head:
        del expected["output.weight"]
    assert found.entries.keys() == expected.keys()
    assert len(expected) == 14 + head
    for weight, sums in expected.items():
        entry = found.entries[weight]
        assert entry.counts.tolist() == [cut.size]
        assert entry.sums.shape == (1, len(sums))
        np.testing.assert_allclose(entry.sums[0], sums, rtol=1e-4, err_msg=weight)
        mean = found.mean(weight)
        assert mean is not None
        np.testing.assert_allclose(mean[0], entry.sums[0] / cut.size, rtol=1e-6)
    assert (found.chunk_count, found.chunk_size) == (len(cut), CHUNK)
    assert [(p.done, p.total) for p in seen] == [(i + 1, len(cut)) for i in range(len(cut))]
    assert seen[-1].perplexity == pytest.approx(math.exp(np.concatenate(nlls).mean()), rel=1e-4)


@pytest.mark.parametrize("layout", ["stacked", "fused", "each"])
def test_sums_of_experts_are_of_their_own_tokens(layout: Layout, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_expert_model(path)
    with open_weights(path) as provider:  # type: ignore[attr-defined]
        tensors, config = float_tensors(provider), provider.config
    write_expert_model(path, layout=layout)
    with load(path, threads=2, context_length=64, kv_type="f32") as model:
        cut = windows(model)[:3]
        found = gather_imatrix(model, TEXT, chunk_size=CHUNK, chunks=3)
        again = gather_imatrix(model, TEXT, chunk_size=CHUNK, chunks=1, from_chunk=2, start=(
            gather_imatrix(model, TEXT, chunk_size=CHUNK, chunks=2)
        ))  # fmt: skip
    inputs: dict[str, NDArray[np.float64]] = {}
    for window in cut:
        naive_logits(
            tensors, config, window.tolist(), arch="llama", int8_activations=False, inputs=inputs
        )
    names = {
        "fused": ("gate_up_exps", "down_exps"),
        "stacked": ("gate_exps", "up_exps", "down_exps"),
    }.get(layout, ())
    compared = 0
    for name, x in inputs.items():
        match = re.fullmatch(r"(blk\.\d)\.ffn_(gate|up|down)\.(\d)\.weight", name)
        if match is None:
            continue
        entry, expert = found.entries.get(name), 0
        if names:
            stack = next(n for n in names if match[2] in n)
            entry, expert = found.entries[f"{match[1]}.ffn_{stack}.weight"], int(match[3])
        assert entry is not None
        assert entry.counts[expert] == len(x)
        np.testing.assert_allclose(entry.sums[expert], (x**2).sum(axis=0), rtol=1e-4)
        compared += 1
    assert compared > 3 * LAYERS * EXPERTS // 2
    experts = [entry for name, entry in found.entries.items() if "_exps" in name]
    assert all(entry.counts.sum() == PER_TOKEN * cut.size for entry in experts)
    assert again.entries.keys() == found.entries.keys()
    for name, entry in again.entries.items():
        assert np.array_equal(entry.counts, found.entries[name].counts)
        np.testing.assert_allclose(entry.sums, found.entries[name].sums, rtol=1e-6)


def test_sums_are_llama_cpps(shared_data: Path) -> None:
    """tests/goldens/llama_cpp_imatrix.py wrote tests/data/imatrix_stories260K.npz."""
    with np.load(GOLDEN) as file:
        golden = dict(file)
    tokens = golden["tokens"]
    path = shared_data / "models" / "stories260K.gguf"
    with load(path, threads=2, context_length=64, kv_type="f32") as model:
        found = gather_imatrix(
            model, tokens.reshape(-1).tolist(), chunk_size=tokens.shape[1], process_output=True
        )
    assert {*found.entries, "tokens"} == set(golden)
    for name, entry in found.entries.items():
        assert entry.counts.tolist() == [tokens.size]
        largest = golden[name].max()
        np.testing.assert_allclose(entry.sums[0], golden[name], rtol=0, atol=2e-3 * largest)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", MODELS)
def test_threads_levels_and_perplexity_leave_the_bits_alone(
    folder: Path, name: str, levels: tuple[str, ...]
) -> None:
    """AMX is excluded: its tiles split plain numbers into bfloat16 parts."""
    results = []
    for isa in levels:
        for threads in (1, 2):
            for perplexity in (True, False):
                with load(
                    folder / f"{name}.gguf", threads=threads, context_length=64, isa=isa
                ) as model:
                    found = gather_imatrix(
                        model, TEXT, chunk_size=CHUNK, perplexity=perplexity, chunks=2
                    )
                if name == "llama" and isa == "amx":
                    continue
                results.append(found)
    assert all(same(found, results[0]) for found in results)


@pytest.mark.full
def test_gathering_ends_with_the_call(folder: Path) -> None:
    """Logits before, during and after are equal, and nothing is added afterwards."""
    with load(folder / "llama.gguf", threads=1, context_length=64, isa="portable") as model:
        before = model.logits(range(3, 40))
        found = gather_imatrix(model, TEXT, chunk_size=CHUNK)
        assert np.array_equal(model.logits(range(3, 40)), before)
        assert same(gather_imatrix(model, TEXT, chunk_size=CHUNK), found)


def test_chunks_are_chosen(llama: Model) -> None:
    ids = windows(llama)
    found = gather_imatrix(llama, TEXT, chunk_size=CHUNK, from_chunk=1, chunks=2)
    alone = gather_imatrix(llama, ids[1:3].reshape(-1).tolist(), chunk_size=CHUNK)
    assert same(found, alone)
    assert found.chunk_count == 2


def test_start_is_added_to(llama: Model, tmp_path: Path) -> None:
    """Two halves give the sum of the whole, up to float32 rounding."""
    whole = gather_imatrix(llama, TEXT, chunk_size=CHUNK, dataset="b")
    first = gather_imatrix(llama, TEXT, chunk_size=CHUNK, dataset="a", chunks=2)
    both = gather_imatrix(llama, TEXT, chunk_size=CHUNK, dataset="b", from_chunk=2, start=first)
    assert both.datasets == ("a", "b")
    assert both.chunk_count == whole.chunk_count
    for name, entry in whole.entries.items():
        np.testing.assert_allclose(both.entries[name].sums, entry.sums, rtol=2.0**-22)


def test_cancelled_run_goes_on(llama: Model, tmp_path: Path) -> None:
    """The run is cancelled within a chunk: whole chunks are kept, and the rest follows."""
    whole = gather_imatrix(llama, TEXT, chunk_size=CHUNK, dataset="a")
    path = tmp_path / "imatrix.gguf"
    looks = iter([False] * 5 + [True])  # each chunk looks before each of its two steps

    class Cancel:
        def is_set(self) -> bool:
            return next(looks)

    part = gather_imatrix(
        llama, TEXT, chunk_size=CHUNK, dataset="a", cancel=Cancel(),
        save=lambda matrix: write_imatrix(path, matrix),
    )  # fmt: skip
    assert part.chunk_count == 2
    again = read_imatrix(path)
    assert same(again, part)
    assert again.position == part.position
    found = gather_imatrix(llama, TEXT, chunk_size=CHUNK, dataset="a", resume=again)
    assert found.datasets == ("a",)
    for name, entry in whole.entries.items():
        assert found.entries[name].counts.tolist() == entry.counts.tolist()
        np.testing.assert_allclose(found.entries[name].sums, entry.sums, rtol=2.0**-22)
    assert gather_imatrix(llama, TEXT, chunk_size=CHUNK, resume=found) is found


def test_resuming_leaves_chunks_out_too(llama: Model) -> None:
    part = gather_imatrix(llama, TEXT, chunk_size=16, chunks=1)
    told: list[ImatrixProgress] = []
    found = gather_imatrix(
        llama, TEXT, chunk_size=16, from_chunk=3, chunks=2, resume=part, progress=told.append
    )
    assert [(now.done, now.total) for now in told] == [(1, 2), (2, 2)]
    assert found.chunk_count == 3
    assert found.position is not None
    assert found.position.next_chunk == 5


def test_what_resuming_refuses(llama: Model) -> None:
    part = gather_imatrix(llama, TEXT, chunk_size=CHUNK, chunks=1)
    for text, options, message in (
        (TEXT.upper(), {"chunk_size": CHUNK}, "another text"),
        (TEXT, {"chunk_size": CHUNK - 1}, "another text"),
        (TEXT, {"chunk_size": CHUNK, "process_output": True}, "without --process-output"),
    ):
        with pytest.raises(InputError, match=message):
            gather_imatrix(llama, text, resume=part, **options)  # type: ignore[arg-type]
    foreign = Imatrix(part.entries, CHUNK, source="other.gguf")
    with pytest.raises(InputError, match=r"other.gguf: it does not say where its run stopped"):
        gather_imatrix(llama, TEXT, chunk_size=CHUNK, resume=foreign)


def test_saved_every_few_chunks(llama: Model) -> None:
    saved: list[Imatrix] = []
    found = gather_imatrix(llama, TEXT, chunk_size=16, save=saved.append, save_frequency=3)
    counts = [matrix.chunk_count for matrix in saved]
    assert counts == [*range(3, found.chunk_count, 3), found.chunk_count]
    assert same(saved[-1], found)


def test_other_models_are_refused(llama: Model, tmp_path: Path) -> None:
    matrix = gather_imatrix(llama, TEXT, chunk_size=CHUNK, chunks=1)
    for sizes in ({"num_layers": 1}, {"num_layers": 3}, {"intermediate_size": 96}):
        write_tiny_model(tmp_path / "other.gguf", **sizes)  # type: ignore[arg-type]
        with (
            load(tmp_path / "other.gguf", threads=1, context_length=64, isa="portable") as other,
            pytest.raises(InputError, match="different models"),
        ):
            gather_imatrix(other, TEXT, chunk_size=CHUNK, start=matrix)


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        ("short", {}, InputError, "5 tokens, less than one chunk of 33"),
        (TEXT, {"chunk_size": 65}, ContextLengthError, "65 tokens"),
        (TEXT, {"chunk_size": 3}, InputError, "chunk_size"),
        (TEXT, {"chunks": 0}, InputError, "chunks"),
        (TEXT, {"from_chunk": 99}, InputError, "no chunk 99"),
        (TEXT, {"save_frequency": 0}, InputError, "save_frequency"),
        ([10**6] * 64, {}, InputError, "1000000"),
        ([[1, 2]], {}, InputError, "tokens"),
    ],
)
def test_bad_arguments(
    llama: Model, text: str, options: dict[str, Any], error: type[TrinityError], message: str
) -> None:
    with pytest.raises(error, match=message):
        gather_imatrix(llama, text, **{"chunk_size": CHUNK, **options})


def test_cancelled_at_once(llama: Model) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(InputError, match="before the first chunk"):
        gather_imatrix(llama, TEXT, chunk_size=CHUNK, cancel=cancel)


def test_activations_that_are_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    write_tiny_model(path)
    data = bytearray(path.read_bytes())
    with open_weights(path) as provider:  # type: ignore[attr-defined]
        place = data.index(provider.tensor("blk.1.attn_norm.weight").data.tobytes())
    data[place : place + 4] = np.float32(np.inf).tobytes()
    path.write_bytes(data)
    with (
        load(path, threads=1, context_length=64, isa="portable") as model,
        pytest.raises(TrinityError, match=r"blk.1.attn_q.weight are not finite"),
    ):
        gather_imatrix(model, TEXT, chunk_size=CHUNK, perplexity=False)
