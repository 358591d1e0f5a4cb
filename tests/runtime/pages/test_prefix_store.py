"""Prefixes stored in a folder, from which later models continue."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.tiny_models import write_tiny_model
from trinity import InputError
from trinity.model import Model
from trinity.runtime.generation import Completion
from trinity.runtime.pages.prefix_store import HEAD, PrefixStore
from trinity_kernels.ops.kv_layout import PAGE

LIMIT = 64 << 20
PAGES = 4


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(path, arch="bitnet", type="TQ2_0", hidden_size=256, context_length=1024)
    return path


@contextmanager
def loaded(path: Path, folder: Path, limit: int = LIMIT, **options: object) -> Iterator[Model]:
    with trinity.load(path, threads=1, **options) as model:  # type: ignore[arg-type]
        model.keep_prefixes(folder, limit)
        yield model


def prompt_of(seed: int) -> list[int]:
    chance = random.Random(seed)
    return [chance.randrange(3, 250) for _ in range(PAGES * PAGE + 9)]


def answered(model: Model, seed: int = 0) -> Completion:
    return model.generate(prompt_of(seed), temperature=0, max_tokens=8, ignore_eos=True)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.page"))


def test_a_later_model_begins_with_what_was_evaluated(path: Path, tmp_path: Path) -> None:
    with trinity.load(path, threads=1) as model:
        expected = answered(model)
    with loaded(path, tmp_path) as model:
        first = answered(model)
        assert (first.token_ids, first.timings.cached_tokens) == (expected.token_ids, 0)
    assert len(files(tmp_path)) == PAGES
    with loaded(path, tmp_path) as model:
        again = answered(model)
        assert (again.token_ids, again.timings.cached_tokens) == (expected.token_ids, PAGES * PAGE)
        other = model.generate(
            [*prompt_of(0)[: PAGE + 5], *prompt_of(1)], temperature=0, max_tokens=2
        )
        assert other.timings.cached_tokens == PAGE + 5
        assert answered(model, 7).timings.cached_tokens == 0
        alone = model.generate(
            prompt_of(0), temperature=0, max_tokens=8, ignore_eos=True, cache_prompt=False
        )
        assert alone.timings.cached_tokens == 0


@pytest.mark.full
def test_a_damaged_or_truncated_file_is_removed_and_not_used(path: Path, tmp_path: Path) -> None:
    with loaded(path, tmp_path) as model:
        expected = answered(model).token_ids
    chance = random.Random(2)
    for round in range(12):
        file = chance.choice(files(tmp_path))
        data = bytearray(file.read_bytes())
        if round % 3:
            data[chance.randrange(HEAD if round % 3 == 1 else len(data))] ^= 1 << chance.randrange(
                8
            )
        else:
            del data[chance.randrange(len(data)) :]
        file.write_bytes(data)
        with loaded(path, tmp_path) as model:
            found = answered(model)
        assert found.token_ids == expected
        assert found.timings.cached_tokens < PAGES * PAGE
        assert len(files(tmp_path)) == PAGES  # it was written anew


@pytest.mark.full
def test_files_of_other_pages_models_and_types_are_not_used(path: Path, tmp_path: Path) -> None:
    with loaded(path, tmp_path) as model:
        expected = answered(model).token_ids
    one, two, *_ = files(tmp_path)
    first = one.read_bytes()
    one.write_bytes(two.read_bytes())  # a whole file under a wrong name
    with loaded(path, tmp_path) as model:
        assert answered(model).token_ids == expected
    assert one.read_bytes() == first
    for kv_type in ("f32", "q8_0"):
        with loaded(path, tmp_path, kv_type=kv_type) as model:
            assert answered(model).timings.cached_tokens == 0
    other = tmp_path / "other.gguf"
    write_tiny_model(
        other, arch="bitnet", type="TQ2_0", hidden_size=256, context_length=1024, seed=1
    )
    with loaded(other, tmp_path) as model:
        assert answered(model).timings.cached_tokens == 0


def test_the_limit_holds_and_the_oldest_go_first(path: Path, tmp_path: Path) -> None:
    with loaded(path, tmp_path / "a") as model:
        answered(model)
    size = files(tmp_path / "a")[0].stat().st_size
    limit = 6 * size + size // 2
    with loaded(path, tmp_path / "b", limit) as model:
        for seed in range(4):
            answered(model, seed)
    found = files(tmp_path / "b")
    assert sum(one.stat().st_size for one in found) <= limit
    with loaded(path, tmp_path / "b", limit) as model:
        assert answered(model, 3).timings.cached_tokens == PAGES * PAGE
        assert answered(model, 0).timings.cached_tokens == 0
    with loaded(path, tmp_path / "b", 2 * size):  # less than before, and nothing is written
        assert len(files(tmp_path / "b")) == 2
    with loaded(path, tmp_path / "c", size - 1) as model:
        answered(model)
    assert not files(tmp_path / "c")


def use(path: Path, folder: Path, seed: int) -> tuple[list[int], int]:
    with loaded(path, folder) as model:
        found = answered(model, seed)
        return found.token_ids, found.timings.cached_tokens


@pytest.mark.full
def test_several_processes_share_a_folder(path: Path, tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        first = pool.starmap(use, [(path, tmp_path, seed % 2) for seed in range(4)])
        assert len(files(tmp_path)) == 2 * PAGES
        again = pool.starmap(use, [(path, tmp_path, seed % 2) for seed in range(4)])
    assert [ids for ids, _ in first] == [ids for ids, _ in again]
    assert [cached for _, cached in again] == [PAGES * PAGE] * 4


def test_little_memory_for_pages_is_enough(path: Path, tmp_path: Path) -> None:
    with loaded(path, tmp_path) as model:
        expected = [answered(model, seed).token_ids for seed in range(3)]
        size = model.engine.pool.sizes[model.engine.kv_type].full
    with loaded(path, tmp_path, kv_memory=8 * size) as model:
        for seed in (0, 1, 2, 0):
            assert answered(model, seed).token_ids == expected[seed]


# Some layers see a window or all of them (phi3), and those with a recurrent state.
FAMILIES = (
    "gemma3", "gpt_oss", "phi3",
    "falcon_h1", "granitehybrid", "lfm2_moe", "nemotron_h_moe", "qwen3_5", "qwen3_next",
)  # fmt: skip


def said(model: Model, prompt: list[int]) -> tuple[list[int], list[float], int]:
    """Tokens, their logarithms of probabilities, and how many of the prompt were there."""
    size = model.config.vocab_size
    found = model.generate(
        [token % (size - 10) + 10 for token in prompt],
        temperature=0,
        max_tokens=6,
        ignore_eos=True,
        logprobs=0,
    )
    numbers = [one.logprob for one in found.logprobs or ()]
    assert len(numbers) == 6
    return found.token_ids, numbers, found.timings.cached_tokens


@pytest.mark.few(1)
@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
@pytest.mark.parametrize("family", FAMILIES)
def test_windows_and_states_are_there_again_to_the_bit(
    shared_data: Path, tmp_path: Path, family: str, kv_type: str
) -> None:
    path = shared_data / "architectures" / family / "model.gguf"
    options = {"context_length": 1024, "batch_invariant": True, "kv_type": kv_type}
    longer, third = ([*prompt_of(0)[: 3 * PAGE + 40], *prompt_of(seed)[:90]] for seed in (1, 2))
    fourth, fifth = ([*longer[: 3 * PAGE], *prompt_of(seed)[:150]] for seed in (3, 4))
    with trinity.load(path, threads=1, **options) as model:  # type: ignore[arg-type]
        texts = (prompt_of(0), longer, third, fifth)
        expected, other, parted, last = (said(model, one)[:2] for one in texts)
        has_full_parts = model.engine.pool.sizes[model.engine.kv_type].full > 0
    with loaded(path, tmp_path, **options) as model:
        assert said(model, prompt_of(0)) == (*expected, 0)
    kept = files(tmp_path)
    with loaded(path, tmp_path, **options) as model:
        assert said(model, prompt_of(0)) == (*expected, PAGES * PAGE)
        assert said(model, longer)[:2] == other
    with loaded(path, tmp_path, **options) as model:
        assert said(model, longer) == (*other, PAGES * PAGE)
        assert said(model, third)[:2] == parted
    with loaded(path, tmp_path, **options) as model:
        assert said(model, third) == (*parted, PAGES * PAGE)
    with loaded(path, tmp_path, **options) as model:
        said(model, fourth)
    with loaded(path, tmp_path, **options) as model:  # from where texts parted
        assert said(model, fifth) == (*last, 3 * PAGE if has_full_parts else 0)
    chance = random.Random(3)
    for round in range(4):
        file = chance.choice(kept)
        data = bytearray(file.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.write_bytes(data if round % 2 else data[: chance.randrange(len(data))])
        with loaded(path, tmp_path, **options) as model:
            *again, cached = said(model, prompt_of(0))
            assert tuple(again) == expected
            assert cached < PAGES * PAGE
            assert model.engine.pool.claimed == 0
    size = sum(model.engine.pool.sizes[model.engine.kv_type])
    with loaded(path, tmp_path, kv_memory=10 * size, **options) as model:
        for text, wanted in ((prompt_of(0), expected), (longer, other), (prompt_of(0), expected)):
            assert said(model, text)[:2] == wanted


def test_parts_of_a_page_under_each_others_names_are_not_used(tmp_path: Path) -> None:
    store = PrefixStore(tmp_path, LIMIT, "")
    parts, to = {b"page": 1, store.windowed(b"page"): 2}, np.zeros(64, np.uint8)
    for name, value in parts.items():
        store.save(name, [1] * PAGE, np.full(64, value, np.uint8))
    store.close()
    for name, value in parts.items():
        assert store.read(name, [1] * PAGE, to)
        assert (to == value).all()
    one, two = files(tmp_path)
    one.write_bytes(two.read_bytes())
    assert [store.read(name, [1] * PAGE, to) for name in parts].count(True) == 1


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="no prefixes can be stored"):
        PrefixStore(tmp_path / "file", LIMIT, "")
    store = PrefixStore(tmp_path / "store", LIMIT, "")
    assert not store.read(b"x", [1], np.zeros(3, np.uint8))
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700
