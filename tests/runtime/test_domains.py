"""Requests share cached prompts only within a domain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Thread

import pytest

import trinity
from tests.tiny_models import write_tiny_model
from trinity.model import Model
from trinity.runtime.generation import Completion
from trinity.runtime.pages.page import Domain
from trinity_kernels.ops.kv_layout import PAGE

PROMPT = [3 + i % 200 for i in range(2 * PAGE + 40)]


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    """A tiny model that keeps what it evaluates in a folder, too."""
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path, arch="bitnet", type="TQ2_0", hidden_size=256, context_length=1024)
    with trinity.load(path, threads=1, batch_invariant=True) as model:
        model.keep_prefixes(tmp_path / "store", 64 << 20)
        yield model


def answered(model: Model, salt: str = "", slot: int | None = None) -> Completion:
    return model.generate(
        PROMPT, temperature=0, max_tokens=2, ignore_eos=True, cache_salt=salt, slot=slot
    )


def cached(model: Model, salt: str = "", slot: int | None = None) -> int:
    return answered(model, salt, slot).timings.cached_tokens


def test_a_prompt_is_cached_for_its_own_salt_alone(model: Model) -> None:
    salts = ("", "a", "b", "a ", "()", "a/b", "\ud800")
    assert [cached(model, salt) for salt in salts] == [0] * len(salts)
    assert [cached(model, salt) for salt in salts] == [len(PROMPT) - 1] * len(salts)


def test_a_salt_is_a_text(model: Model) -> None:
    with pytest.raises(trinity.InputError, match="cache_salt"):
        model.generate(PROMPT, cache_salt=3)  # type: ignore[arg-type]


def test_the_answer_does_not_depend_on_the_salt(model: Model) -> None:
    assert answered(model).token_ids == answered(model, "a").token_ids


def test_a_slot_has_a_cache_for_each_salt(model: Model) -> None:
    assert [cached(model, salt, slot) for salt in ("", "a") for slot in (None, 0, 1)] == [0] * 6
    with model.exclusive() as engine:
        engine.pool.erase(Domain(0, "a"))
    found = [cached(model, salt, slot) for salt in ("", "a") for slot in (None, 0, 1)]
    whole = len(PROMPT) - 1
    assert found == [whole, whole, whole, whole, 0, whole]


def test_so_is_what_the_folder_has(model: Model) -> None:
    cached(model, "a")
    store = model.engine.pool.store
    assert store is not None
    store.close()  # what is to be written is there
    model.engine.renew_pool()
    model.engine.pool.store = store
    assert [cached(model, salt) for salt in ("b", "", "a")] == [0, 0, 2 * PAGE]


def test_concurrent_prompts_share_within_a_domain_alone(model: Model) -> None:
    """Of two concurrent prompts one waits for the other's pages, or both compute."""

    def evaluated(*salts: str) -> int:
        found, begin = list[int](), Barrier(len(salts))

        def ask(salt: str) -> None:
            begin.wait()
            found.append(len(PROMPT) - cached(model, salt))

        threads = [Thread(target=ask, args=(salt,)) for salt in salts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(found)

    assert evaluated("a", "a") < 2 * len(PROMPT)
    assert evaluated("b", "c") == 2 * len(PROMPT)
