"""Perplexity compared with plain NumPy on the logits of an independent forward pass."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.naive import float_tensors, naive_logits
from tests.tiny_models import write_tiny_model
from tests.toy_model import BOS, toy_model
from trinity.errors import ContextLengthError, InputError, TrinityError
from trinity.loading import load
from trinity.providers import open_weights
from trinity.runtime.likelihoods.perplexity import Perplexity, cut_windows, negative_log_likelihoods
from trinity.runtime.scheduling import scheduler

TEXT = "Once upon a time the hen and the sheep were on the hill. " * 8
WINDOW = 64


def expected_nlls(logits: NDArray[np.float32], window: NDArray[np.int32]) -> NDArray[np.float64]:
    """By the definition: -log softmax(logits)[target], for the targets after the middle."""
    exponentials = np.exp(logits.astype(np.longdouble))
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    places = np.arange(len(window) // 2, len(window) - 1)
    nlls: NDArray[np.float64] = -np.log(probabilities[places, window[places + 1]]).astype(float)
    return nlls


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("perplexity") / "tiny.gguf"
    write_tiny_model(path, arch="bitnet-b1.58", type="I2_S", context_length=128)
    return path


def test_figures_are_those_of_the_naive_forward_pass(tiny: Path) -> None:
    provider = open_weights(tiny)
    tensors, config = float_tensors(provider), provider.config
    seen: list[Perplexity] = []
    with load(tiny, threads=2, kv_type="f32") as model:
        ids = model.tokenize(TEXT)
        found = model.perplexity(TEXT, window=WINDOW, progress=seen.append)
        assert model.perplexity(ids, window=WINDOW) == found
    provider.close()
    count = len(ids) // WINDOW
    windows = np.array(ids[: count * WINDOW], np.int32).reshape(count, WINDOW)
    windows[:, 0] = 1  # BOS
    nlls = np.concatenate([
        expected_nlls(
            naive_logits(tensors, config, w.tolist(), arch="bitnet-b1.58", int8_activations=True),
            w,
        )
        for w in windows
    ])  # fmt: skip
    assert found.perplexity == pytest.approx(math.exp(nlls.mean()), rel=1e-4)
    # The standard error of the mean, and by the delta method that of its exponential.
    spread = nlls.std() / math.sqrt(len(nlls) - 1) * math.exp(nlls.mean())
    assert found.error == pytest.approx(spread, rel=1e-3)
    assert found.scored_tokens == len(nlls) == count * (WINDOW // 2 - 1)
    assert (found.windows, found.total_windows, found.window) == (count, count, WINDOW)
    assert seen[-1] == found
    assert [estimate.windows for estimate in seen] == list(range(1, count + 1))


@pytest.mark.few(1)
def test_every_level_and_thread_count_gives_the_same(tiny: Path, levels: tuple[str, ...]) -> None:
    """All bits are equal except with AMX, whose tiles split F16 weights into two bfloat16 parts."""
    found: dict[bool, set[float]] = {False: set(), True: set()}
    for isa in levels:
        for threads in (1, 2):
            with load(tiny, threads=threads, isa=isa) as model:
                result = model.perplexity(TEXT, window=WINDOW)
                found[isa == "amx"].add(result.perplexity)
    assert len(found[False]) == 1
    assert len(found[True]) <= 1
    assert max(found[True] | found[False]) == pytest.approx(min(found[False]), rel=5e-6)


def test_likelihoods_of_extreme_logits() -> None:
    """There is no overflow, and no loss if one logit exceeds all others by far."""
    logits = np.array([[1e4, -1e4, 0], [-3e38, 0, 0], [5, 5, 5]], np.float32)
    found = negative_log_likelihoods(logits, np.array([1, 1, 2], np.int32))
    np.testing.assert_allclose(found, [2e4, math.log(2), math.log(3)], rtol=1e-15)
    with pytest.raises(TrinityError, match="not finite"):
        negative_log_likelihoods(np.array([[np.nan, 1]], np.float32), np.zeros(1, np.int32))


def test_parts_of_a_window_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result does not depend on the step size or the limit on logits."""
    found = set()
    for chunk, limit in ((8, 1 << 30), (64, 1 << 30), (64, 3 * 259 * 4), (5, 1)):
        monkeypatch.setattr(scheduler, "LOGITS_BYTES", limit)
        model, engine = toy_model(prefill_chunk=chunk)
        found.add(model.perplexity(TEXT, window=33))
        assert max(map(len, engine.evaluated)) <= chunk
    assert len(found) == 1


@pytest.mark.parametrize("bos", [True, False])
def test_first_token_of_a_window(bos: bool) -> None:
    """It is replaced by BOS if the model wants one, and kept otherwise."""
    model, engine = toy_model(bos=bos, prefill_chunk=64)
    model.perplexity(TEXT, window=16)
    first = [step[0] for step in engine.evaluated]
    ids = model.tokenize(TEXT)
    assert first[1:4] == ([BOS] * 3 if bos else [ids[16], ids[32], ids[48]])


def test_bits_per_byte_count_the_scored_text() -> None:
    model, _ = toy_model(prefill_chunk=64)
    found = model.perplexity(TEXT, window=16)  # a token of the toy is a byte
    assert found.bits_per_byte == pytest.approx(math.log2(found.perplexity))


@pytest.mark.parametrize(
    ("text", "window", "error", "message"),
    [
        ("short", None, InputError, "at least 128 tokens, and it has 6"),
        (TEXT, 65, ContextLengthError, "65 tokens"),
        (TEXT, 3, InputError, "window"),
        (TEXT, 16.0, InputError, "window"),
        ([], 16, InputError, "it has 0;"),
        ([10**6] * 64, 16, InputError, "1000000"),
    ],
)
def test_bad_arguments(
    text: str, window: int | None, error: type[TrinityError], message: str
) -> None:
    model, _ = toy_model()
    with pytest.raises(error, match=message):
        model.perplexity(text, window=window)


def test_cancel_gives_the_estimate_so_far() -> None:
    model, _ = toy_model()
    cancel = threading.Event()
    found = model.perplexity(TEXT, window=16, progress=lambda _: cancel.set(), cancel=cancel)
    assert found.windows == 1
    assert found.total_windows == len(cut_windows(model.tokenize(TEXT), 16, None))
    with pytest.raises(InputError, match="cancelled"):
        model.perplexity(TEXT, window=16, cancel=cancel)
    assert model.generate("ab", max_tokens=1).token_ids  # nothing is left of it


def test_closed_model() -> None:
    model, _ = toy_model()
    with pytest.raises(InputError, match="closed"):
        model.perplexity(TEXT, window=16, progress=lambda _: model.close())
