from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.expert_models import EXPERTS, PER_TOKEN, write_expert_model
from tests.tiny_models import write_tiny_model
from tests.toy_model import ToyEngine
from trinity.errors import InputError
from trinity.providers import open_weights
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Rows
from trinity.runtime.profile import OperationTime
from trinity.tools.bench import Bench, Measurement, Plan, Profile, Report, run_bench
from trinity.tools.bench_report import Measured, as_object, markdown, quantity, totals

MODEL = Measured(
    model="toy.gguf", name="toy", path="toy.gguf", type="Q4_K_M", nbytes=2**30 + 99,
    tensor_bytes=2**30, parameters=1_240_000_000, active=1_240_000_000,
)  # fmt: skip
OPERATIONS = (
    OperationTime("norm", "rms", 1, 0, 64, 0, 0.001),
    OperationTime("matmul", "Q4_0", 1, 128, 64, 1000, 0.002),
    OperationTime("matmul", "Q4_0", 1, 128, 64, 3000, 0.004),
)


class BatchEngine(ToyEngine):
    """Writes down what is evaluated after how many positions, and what is profiled."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.batches: list[list[int]] = []
        self.profiled: list[tuple[int, list[int]]] = []

    def step(
        self, rows: Sequence[Rows], *, exact: bool = False, out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        if len(rows) > 1:
            self.batches.append([piece.cache.length for piece in rows])
        return super().step(rows, exact=exact, out=out)

    def profile(self, rows: Sequence[Rows], *, rounds: int = 3) -> list[OperationTime]:
        tokens = sum(len(piece.tokens) for piece in rows)
        self.profiled.append((tokens, [piece.cache.length for piece in rows]))
        return list(OPERATIONS)


def test_measurement() -> None:
    found = Measurement("tg10", 10, (1.0, 2.0))
    assert found.rounds == [10, 5]
    assert found.mean == 7.5
    assert found.deviation == pytest.approx(3.5355, abs=1e-4)
    assert found.bytes_per_second is None
    assert Measurement("tg1", 1, (1.0,)).deviation == 0


def test_share_of_the_bandwidth() -> None:
    prompt, decode = Measurement("pp4", 4, (0.1,)), Measurement("tg10", 10, (1.0,), 1, 0, 50)
    batch = Measurement("tg10 b4", 40, (1.0,), 4, 0, 80)
    report = Report((prompt, decode, batch), 2, "avx2", 1000.0, None, None)
    assert [report.share(m) for m in report.measurements] == [None, 0.5, 0.8]
    text = markdown([(MODEL, [report])])
    assert "| toy | Q4_K_M | 1.00 GiB | 1.24 B | avx2 | 2 | tg10 | 10.00 ± 0.00 |" in text
    assert "50%" in text
    assert Report((decode,), 2, "avx2", None, None, None).share(decode) is None


def test_what_is_evaluated() -> None:
    engine: Any = BatchEngine(prefill_chunk=8)
    report = run_bench(engine, Plan((20,), (5,), rounds=2))
    steps = [len(step) for step in engine.evaluated]
    warm_prompt, warm_generation = [8, 8], [1] * 5
    assert steps == [*warm_prompt, *[8, 8, 4] * 2, *warm_generation, *[1] * 10]
    assert [m.test for m in report.measurements] == ["pp20", "tg5"]
    assert [m.bytes_per_step for m in report.measurements] == [None, 1002]
    assert engine.batches == []


def test_batches_and_depths() -> None:
    engine: Any = BatchEngine(prefill_chunk=8)
    report = run_bench(engine, Plan((0,), (2,), (1, 3), (0, 10), 1))
    assert [m.test for m in report.measurements] == ["tg2", "tg2 b3", "tg2 @ d10", "tg2 b3 @ d10"]
    assert [m.tokens for m in report.measurements] == [2, 6, 2, 6]
    assert [m.bytes_per_step for m in report.measurements] == [1001, 1003, 1011, 1033]
    # A warm-up and a round of two steps each: without depth, then with.
    assert engine.batches == [[p] * 3 for p in (0, 1, 0, 1, 10, 11, 10, 11)]


def test_a_batch_of_short_sequences_fits_into_a_step() -> None:
    assert Plan((0,), (2,), (1, 16)).context_length == 16
    assert Plan((0,), (20,), (1, 16)).context_length == 20


def test_filled_caches_are_kept() -> None:
    engine: Any = BatchEngine(prefill_chunk=8)
    bench = Bench(engine)
    caches = bench.fill(10, 2)
    evaluated = len(engine.evaluated)
    bench.generation(3, 10, 2)
    assert [cache.length for cache in caches] == [13, 13]
    assert bench.fill(10, 2) == caches
    assert [cache.length for cache in caches] == [10, 10]
    assert len(engine.evaluated) == evaluated + 6
    assert caches[0].address != caches[1].address


def test_speculative_test() -> None:
    engine: Any = BatchEngine(context_length=128, prefill_chunk=64)
    report = run_bench(engine, Plan((0,), (40,), rounds=2, speculate=True))
    plain, found = report.measurements
    assert (plain.test, plain.proposed) == ("tg40", None)
    assert (found.test, found.tokens, len(found.seconds)) == ("tg40 spec", 40, 2)
    assert found.proposed is not None
    assert found.accepted == found.proposed
    # The passage is evaluated once, then its last token alone.
    assert sorted(len(step) for step in engine.evaluated)[-1] == 64
    assert "tg40 spec accepted" in markdown([(MODEL, [report])])
    (model,) = cast(Any, as_object([(MODEL, [report])])["models"])
    assert model["levels"][0]["tests"][1]["proposed_tokens"] == found.proposed
    with pytest.raises(InputError, match="context_length"):
        run_bench(engine, Plan((0,), (65,), speculate=True))


@pytest.mark.parametrize(
    "options",
    [
        {"prompt_tokens": (65,)},
        {"prompt_tokens": (60,), "depths": (0, 10)},
        {"generated_tokens": (-1,)},
        {"rounds": 0},
        {"prompt_tokens": (0,), "generated_tokens": (0,)},
        {"batches": (1, 17)},
        {"batches": (0,)},
        {"depths": (-1,)},
        {"depths": (65,)},
    ],
)
def test_bad_numbers(options: dict[str, Any]) -> None:
    chosen = {"prompt_tokens": (4,), "generated_tokens": (4,), **options}
    engine: Any = BatchEngine()
    with pytest.raises(InputError):
        run_bench(engine, Plan(**chosen))


def test_profiled_steps() -> None:
    engine: Any = BatchEngine(prefill_chunk=8)
    report = run_bench(engine, Plan((20,), (2,), (1, 3), (5,), 1, profile=True))
    assert [p.test for p in report.profiles] == ["pp20 @ d5", "tg2 @ d5", "tg2 b3 @ d5"]
    assert engine.profiled == [(8, [5]), (1, [5]), (3, [5, 5, 5])]


def test_active_parameters_are_shown_where_they_are_fewer() -> None:
    report = Report((), 2, "avx2", None, None, None)
    experts = replace(MODEL, active=200_000_000)
    found: Any = as_object([(experts, [report])])
    found = found["models"][0]
    assert (found["parameters"], found["active_parameters"]) == (1_240_000_000, 200_000_000)
    assert experts.quantity == "1.24 B, 200.00 M active"
    assert MODEL.quantity == "1.24 B"


def test_profile_is_summed_by_kernel_and_shape() -> None:
    profile = Profile("tg4", 0.01, OPERATIONS)
    matmul, norm = totals(profile)
    assert (matmul.kernel, matmul.count, matmul.nbytes) == ("matmul", 2, 4000)
    assert matmul.seconds == pytest.approx(0.006)
    assert matmul.multiplications == 2 * 128 * 64
    assert (norm.kernel, norm.count) == ("norm", 1)
    report = Report((), 2, "avx2", None, None, None, (profile,))
    assert "| matmul | Q4_0 | 128 x 64 | 1 | 2 | 6.000 | 85.7% |" in markdown([(MODEL, [report])])
    found: Any = as_object([(MODEL, [report])])
    assert found["models"][0]["levels"][0]["profiles"][0]["operations"][0]["count"] == 2


def test_profile_of_experts(tmp_path: Path) -> None:
    """One token reads only its own experts, several tokens all that any of them uses."""
    path = tmp_path / "experts.gguf"
    write_expert_model(path, type="Q4_0")
    with closing(open_weights(path)) as provider:
        engine = load_engine(provider, context_length=64)
        for count in (1, 40):
            found = engine.profile([Rows(engine.new_cache(), np.arange(5, 5 + count))], rounds=1)
            products = [op for op in found if op.kernel == "expert_products"]
            assert {(op.tag, op.rows) for op in products} == {("Q4_0", count * PER_TOKEN)}
            assert sorted((op.n, op.k) for op in products) == [(64, 96)] * 2 + [(96, 64)] * 4
            for op in products:
                experts = op.nbytes / (op.n * op.k * 18 // 32)
                assert experts == PER_TOKEN if count == 1 else PER_TOKEN < experts <= EXPERTS
        weights = [op for op in engine.profile([Rows(engine.new_cache(), [5])], rounds=1)
                   if op.kernel.startswith(("matmul", "expert"))]  # fmt: skip
        assert sum(op.nbytes for op in weights) == engine.bytes_per_token(0)
        engine.close()


@pytest.mark.parametrize("type_name", ["Q4_0", "I2_S"])
def test_profile_of_the_engine(tmp_path: Path, type_name: str) -> None:
    """Every weight is counted once per step, and the step has no side effects."""
    path = tmp_path / "tiny.gguf"
    arch = "bitnet-b1.58" if type_name == "I2_S" else "llama"
    write_tiny_model(path, arch=arch, type=type_name)
    with closing(open_weights(path)) as provider:
        engine = load_engine(provider, threads=2, context_length=64)
        caches = [engine.new_cache() for _ in range(3)]
        tokens = np.arange(5, 25, dtype=np.int32)
        weights = engine.bytes_per_token(0)
        expected = engine.step([Rows(caches[0], tokens)])
        caches[0].truncate(19)
        for count, used in ((20, 1), (1, 1), (3, 3)):
            lengths = [cache.length for cache in caches]
            part = tokens[: count // used]
            found = engine.profile([Rows(cache, part) for cache in caches[:used]], rounds=1)
            assert [cache.length for cache in caches] == lengths
            matmuls = [op for op in found if op.kernel.startswith("matmul")]
            assert sum(op.nbytes for op in matmuls) == weights
            assert {op.rows for op in matmuls} == {count, 1 if count == 20 else count}
            assert all(op.seconds >= 0 for op in found)
            read = sum(op.nbytes for op in found) - weights
            positions = sum(lengths[:used]) + used
            one = engine.bytes_per_token(1) - weights
            assert read == (0 if count == 20 else one * positions)
        again = engine.step([Rows(caches[0], tokens[19:])])
        assert np.allclose(again, expected, atol=0.05)
        engine.close()


@pytest.mark.parametrize(
    ("number", "text"), [(5, "5.00"), (260_032, "260.03 K"), (2_400_000_000, "2.40 B")]
)
def test_quantity(number: int, text: str) -> None:
    assert quantity(number) == text
