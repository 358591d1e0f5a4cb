"""A sketch of the output head gives the tokens and logits of the full product."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from tests.tiny_models import write_tiny_model
from trinity.errors import InputError
from trinity.providers import open_weights
from trinity.runtime import engine_building
from trinity.runtime.engine import CPUEngine
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Best, Rows
from trinity.runtime.sampling.distribution import best
from trinity.runtime.sketch import head_sketch, sketched_head
from trinity.runtime.sketch.head_sketch import HeadSketch, deviations
from trinity.runtime.sketch.sketch_making import Sketch, make_sketch
from trinity.runtime.sketch.sketched_head import SketchedHead
from trinity.runtime.step import Step
from trinity.runtime.weights import Weight
from trinity_kernels.isa import available_levels
from trinity_kernels.ops import sketch as op
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.quants import TYPES
from trinity_kernels.record import float_bits
from trinity_kernels.selftest.activation_forms import form_of
from trinity_kernels.selftest.comparing import at, run_kernel

VOCABULARY = 4096
LEVELS = [level for level in available_levels() if level != "portable"]
NONE = np.empty(0, np.int64)
pytestmark = pytest.mark.skipif(not LEVELS, reason="no level of this machine has sketches")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sketch")


def model_of(folder: Path, kind: str = "Q8_0", **options: Any) -> Path:
    path = folder / f"{kind}-{'-'.join(options)}.gguf"
    if not path.exists():
        write_tiny_model(
            path, type="Q8_0", embedding_type=kind, hidden_size=256, num_layers=1,
            vocab_size=VOCABULARY, **options,
        )  # fmt: skip
    return path


@contextmanager
def engine_of(path: Path, mode: str, level: str | None = None) -> Iterator[CPUEngine]:
    provider = open_weights(path)
    engine = load_engine(provider, threads=2, head_sketch=mode, isa=level)
    try:
        yield engine
    finally:
        engine.close()
        provider.close()


def sketched(engine: CPUEngine) -> SketchedHead:
    head = engine._parts.sketched_head
    assert head is not None
    return head


def assert_same(
    path: Path, engine: CPUEngine, level: str | None, needs: list[Best], steps: int = 4
) -> NDArray[np.bool_]:
    """Compare steps of a row for each of ``needs``; which logits were computed."""
    numbers = np.random.default_rng(5)
    with engine_of(path, "off", level) as full:
        ours, theirs = ([e.new_cache() for _ in needs] for e in (engine, full))
        for _ in range(steps):
            tokens = numbers.integers(3, VOCABULARY, len(needs)).tolist()
            found = engine.step(
                [Rows(c, [t], best=n) for c, t, n in zip(ours, tokens, needs, strict=True)]
            )
            expected = full.step([Rows(c, [t]) for c, t in zip(theirs, tokens, strict=True)])
            computed = found > -np.inf
            assert np.array_equal(found[computed].view("i4"), expected[computed].view("i4"))
            for row, need in enumerate(needs):
                assert computed[row, need.also].all()
                ours_left, theirs_left = found[row].copy(), expected[row].copy()
                ours_left[need.also] = theirs_left[need.also] = -np.inf
                assert np.array_equal(
                    best(ours_left, need.count), best(theirs_left, need.count)
                )  # fmt: skip
    return computed


@pytest.mark.few(1)
@pytest.mark.parametrize("rows", [1, 3, 5, 16])
@pytest.mark.parametrize("kind", ["Q8_0", "F16", "BF16", "F32", "Q4_K", "Q6_K"])
@pytest.mark.parametrize("level", LEVELS)
def test_logits_have_the_bits_of_the_full_product(
    level: str, kind: str, rows: int, folder: Path
) -> None:
    path = model_of(folder, kind)
    needs = [Best(1 + row // 2, np.arange(row) * 100) for row in range(rows)]
    with engine_of(path, "on", level) as engine:
        computed = assert_same(path, engine, level, needs)
        assert engine.other_bytes == VOCABULARY * 256 * 4.25 / 8
    assert not computed.all()


def test_speculated_rows_have_the_bits_of_single_rows(folder: Path) -> None:
    path, tokens = model_of(folder), [5, 900, 17, 2000, 8]
    results = []
    for mode in ("on", "off"):
        with engine_of(path, mode) as engine:
            rows = Rows(engine.new_cache(), tokens, logits=5, revocable=True, best=Best(3, NONE))
            results.append(engine.step([rows], exact=True))
    computed = results[0] > -np.inf
    assert computed.sum(axis=1).min() >= 3
    assert not computed.all()
    assert np.array_equal(results[0][computed], results[1][computed])


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of logits of each step that used a sketch."""
    found, run = list[int](), HeadSketch.run

    def noted(self: HeadSketch, walk: Any, plan: Any, first: int, out: Any, needs: Any) -> bool:
        found.append(len(out))
        return run(self, walk, plan, first, out, needs)

    monkeypatch.setattr(HeadSketch, "run", noted)
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": 0.8},
        {"temperature": 2.0, "top_k": 100, "top_p": 1.0, "min_p": 0.0},
        {"temperature": 1.5, "repetition_penalty": 1.5, "frequency_penalty": 0.5},
        {"temperature": 0, "repetition_penalty": 0.5},
        {"temperature": 0, "logit_bias": {7: 3.0, 3000: 4.0, 9: -100.0}},
        {"temperature": 0.8, "min_tokens": 20, "stop_tokens": list(range(0, 4096, 3))},
        {"temperature": 0, "speculative": 4},
    ],
    ids=lambda options: "-".join(options),
)
def test_completions_are_the_same(options: dict[str, Any], folder: Path, used: list[int]) -> None:
    found = completions(folder, "on", options)
    assert used
    used.clear()
    assert found == completions(folder, "off", options)
    assert not used


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.8, "top_k": 0},
        {"temperature": 0.8, "top_k": 1000},
        {"temperature": 0, "logprobs": 2},
        {"temperature": 0, "repetition_penalty": 0.5, "penalty_last_n": -1},
        {"temperature": 0.8, "grammar": trinity.Grammar.regex("[a-z ]{30}")},
    ],
    ids=lambda options: "-".join(options),
)
def test_what_needs_all_logits_uses_no_sketch(
    options: dict[str, Any], folder: Path, used: list[int]
) -> None:
    assert completions(folder, "on", options) == completions(folder, "off", options)
    assert not used


def completions(folder: Path, mode: str, options: dict[str, Any]) -> dict[int, tuple[int, ...]]:
    """The tokens of three completions that share steps."""
    prompts = [[1, 300, 40], [1, 9, 9, 9, 9, 10, 9, 9], [1, 2222]]
    path = model_of(folder)
    with trinity.load(path, threads=2, head_sketch=mode, context_length=128) as model:
        results = model.generate_batch(prompts, max_tokens=40, seed=3, **options)
        return {index: tuple(result.token_ids) for index, result in results}


def weight_of(values: NDArray[np.float32], kind: str) -> Weight:
    data = TYPES[kind].quantize(values)
    n, k = values.shape
    return Weight("output", kind, n, k, data, len(data) // n, 1.0, None)


def hostile(k: int) -> dict[str, NDArray[np.float32]]:
    """Activations that concentrate the errors of a sketch, or all have one sign."""
    one, two = np.zeros((2, k), np.float32)
    one[k // 2], two[[0, k - 1]] = 3, (1000, -1e-3)
    small = np.full(k, 1e-12, np.float32)
    return {
        "one": one, "two": two, "equal": np.ones(k, np.float32), "negative": -small,
        "rising": np.geomspace(1e-6, 1e6, k).astype(np.float32),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
@pytest.mark.parametrize("weights", ["normal", "extreme", "equal"])
def test_bounds_hold_for_hostile_activations(weights: str, kind: str) -> None:
    n, k, numbers = 4096, 256, np.random.default_rng(11)
    values = numbers.standard_normal((n, k)).astype(np.float32)
    if weights == "extreme":  # a large weight in each block makes all others small codes
        values[:, ::64] *= 1000
    elif weights == "equal":
        values[:] = values[:, :1]
    weight = weight_of(values, kind)
    exact = TYPES[kind].dequantize(weight.data, (n, k)).astype(np.float64)
    for name, x in hostile(k).items():
        sketch = make_sketch(weight, address)
        assert sketch is not None
        inputs = x.reshape(1, k) if kind == "F32" else form_of("q8", x.reshape(1, k))[0]
        rounded = x if kind == "F32" else form_of("q8", x.reshape(1, k))[1][0]
        low, high = (bounds(sketch, kind, inputs, n, k, m) for m in (0.0, deviations(n, k)))
        products = exact @ rounded
        assert (products <= high).all(), name
        # The worst of 4,096 errors of this size is about 3.5 deviations for normal ones.
        errors = np.abs(products - low) / np.maximum((high - low) / deviations(n, k), 1e-30)
        assert errors.max() < 6, name


def bounds(
    sketch: Sketch, kind: str, x: NDArray[Any], n: int, k: int, factor: float
) -> NDArray[np.float32]:
    """The products of a sketch and a row of activations, plus ``factor`` deviations."""
    inputs, tops = np.zeros(op.input_bytes(k), np.uint8), np.zeros(n // 16, np.float32)
    out = np.zeros(n, np.float32)
    form = "f32" if kind == "F32" else "q8"
    run_kernel(op.sketch_inputs, LEVELS[0], form, 1, {
        op.X: at(x), op.K: k, op.OUT: at(inputs), op.SHIFTS: at(sketch.shifts),
    })  # fmt: skip
    run_kernel(op.sketch_bounds, LEVELS[0], "none", 1, {
        op.X: at(inputs), op.W: at(sketch.panels), op.N: n, op.K: k, op.OUT: at(out),
        op.TOPS: at(tops), op.FACTOR: float_bits(factor),
    })  # fmt: skip
    return out


def address(kernel: Any, tag: str) -> int:
    return int(kernel.address(LEVELS[0], tag))


def test_a_sketch_that_cannot_decide_leaves_it_to_the_full_product(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model_of(folder)
    for name, value in (("_LEAST", np.inf), ("_MOST_PART", 1e9)):
        with monkeypatch.context() as patch, engine_of(path, "on") as engine:
            patch.setattr(head_sketch, name, value)
            assert assert_same(path, engine, None, [Best(1, NONE), Best(40, NONE)]).all()


@pytest.mark.parametrize(
    ("shape", "changes", "capped", "level", "message"),
    [
        ((4097, 64), {}, False, "avx2", "its shape is 4097 x 64"),
        ((4096, 96), {}, False, "avx2", "its shape is 4096 x 96"),
        ((32, 64), {}, True, "avx2", "its logits are capped"),
        ((32, 64), {"bias": np.zeros(32, np.float32)}, False, "avx2", "it has a bias"),
        ((32, 64), {"scale": -1.0}, False, "avx2", "its scale is not positive"),
        ((32, 64), {"type": "MXFP4"}, False, "avx2", "its activations have the form q19"),
        ((32, 64), {}, False, "portable", "the level portable"),
    ],
)
def test_a_head_that_can_have_no_sketch(
    shape: tuple[int, int], changes: dict[str, Any], capped: bool, level: str, message: str
) -> None:
    weight = replace(weight_of(np.ones(shape, np.float32), "F32"), **changes)
    arguments = level, matmul, address, Step(16)
    with pytest.raises(InputError, match=message):
        sketched_head.sketched_head(weight, "on", *arguments, capped=capped)
    assert sketched_head.sketched_head(weight, "auto", *arguments, capped=capped) is None


def test_weights_that_are_not_finite_have_no_sketch() -> None:
    values = np.ones((32, 128), np.float32)
    for bad in (np.inf, np.nan, 1e6):
        values[17, 70] = bad
        assert make_sketch(weight_of(values, "F32"), address) is None
    values[17, 70] = 1
    assert make_sketch(weight_of(values, "F32"), address) is not None
    assert make_sketch(weight_of(values, "F32"), address, lambda: True) is None


def test_auto_measures_before_it_uses_a_sketch(
    folder: Path, monkeypatch: pytest.MonkeyPatch, used: list[int]
) -> None:
    monkeypatch.setattr(engine_building, "SKETCHED_BYTES", 0)
    monkeypatch.setattr(sketched_head, "STEPS_BEFORE", 2)
    path = model_of(folder)
    for gain in (0.0, 1e9):
        monkeypatch.setattr(sketched_head, "GAIN", gain)
        with engine_of(path, "auto") as engine:
            head = sketched(engine)
            assert_same(path, engine, None, [Best(1, NONE)], 2)
            assert head._thread is not None
            head._thread.join()
            assert not used
            assert head.spared == 0
            assert_same(path, engine, None, [Best(1, NONE)], 2 * sketched_head.TRIALS)
            assert len(used) == sketched_head.TRIALS
            assert_same(path, engine, None, [Best(1, NONE)], 3)
            assert len(used) == sketched_head.TRIALS + (3 if gain else 0)
            assert (head.spared > 0) == (gain > 0)
            used.clear()


@pytest.mark.full
def test_auto_measures_again_after_failures(
    folder: Path, monkeypatch: pytest.MonkeyPatch, used: list[int]
) -> None:
    monkeypatch.setattr(engine_building, "SKETCHED_BYTES", 0)
    monkeypatch.setattr(sketched_head, "STEPS_BEFORE", 1)
    monkeypatch.setattr(sketched_head, "GAIN", 1e9)
    monkeypatch.setattr(head_sketch, "_LEAST", np.inf)
    path, trials = model_of(folder), sketched_head.TRIALS
    with engine_of(path, "auto") as engine:
        head = sketched(engine)
        assert_same(path, engine, None, [Best(1, NONE)], 1)
        assert head._thread is not None
        head._thread.join()
        assert_same(path, engine, None, [Best(1, NONE)], 3 * trials)
        assert len(used) == 2 * trials
        monkeypatch.setattr(sketched_head, "GAIN", 0.0)
        assert_same(path, engine, None, [Best(1, NONE)], 3 * trials)
        assert len(used) == 3 * trials


def test_auto_has_no_sketch_of_a_small_head(folder: Path) -> None:
    with engine_of(model_of(folder), "auto") as engine:
        assert engine._parts.sketched_head is None
        assert engine.other_bytes == 0


def test_closing_ends_the_making(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_building, "SKETCHED_BYTES", 0)
    monkeypatch.setattr(sketched_head, "STEPS_BEFORE", 1)
    # ``ending`` is the method is_set of an event.
    waits = lambda weight, address, ending: ending.__self__.wait() and None  # noqa: E731
    monkeypatch.setattr(sketched_head, "make_sketch", waits)
    path = model_of(folder)
    with engine_of(path, "auto") as engine:
        head = sketched(engine)
        assert_same(path, engine, None, [Best(1, NONE)], 1)
        assert head._thread is not None
        assert head._thread.is_alive()
    assert not head._thread.is_alive()
