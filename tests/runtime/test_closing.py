"""A closed model leaves nothing behind, even without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.fuzzing.live_server import sound_whisper
from tests.server.conftest import wait_for
from trinity.errors import InputError
from trinity.server.ignored import Ignored
from trinity.server.model_refs import served_models
from trinity.server.models import Models

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")

WARM, CYCLES = 5, 25
SLACK = 8 << 20  # bytes of resident memory that all cycles together may add
Use = Callable[[Path], None]


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model that no other test of the process has open; what a first use imports is there."""
    copy = tmp_path / "demo.gguf"
    shutil.copy(trinity.demo_model(), copy)
    with trinity.load(copy, threads=1) as model:
        model.logits([1, 2])
    gc.collect()
    return copy


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def mappings() -> int:
    return Path("/proc/self/maps").read_text().count("\n")


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


def garbage() -> int:
    """Objects in cycles that nothing else refers to, which are gone then."""
    return gc.collect()


def generate(path: Path) -> None:
    with trinity.load(path, threads=2, context_length=64) as model:
        model.generate([1, 2, 3], max_tokens=3, ignore_eos=True)
        next(model.stream([1, 2, 3, 4], max_tokens=9, ignore_eos=True))


def embed(path: Path) -> None:
    with trinity.load(path, threads=2) as model:
        model.embed(["the text"])


def transcribe(path: Path) -> None:
    with trinity.SpeechModel(path, threads=2) as model:
        model.detect_language(np.zeros(16_000, np.float32))


KINDS: dict[str, tuple[str, Use]] = {
    "dense": ("models/stories260K-Q8_0.gguf", generate),
    "experts": ("architectures/qwen3_moe/model.gguf", generate),
    "windows": ("architectures/gemma3/model.gguf", generate),
    "recurrent": ("architectures/nemotron_h_moe/model.gguf", generate),
    "encoder": ("encoders/bert_mean/model.gguf", embed),
    "directory": ("architectures/qwen3/hf", generate),
    "speech": ("", transcribe),  # a random model that is written: those of the folder are large
}


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_loads_and_closes_leave_nothing(kind: str, shared_data: Path, tmp_path: Path) -> None:
    name, use = KINDS[kind]
    path = shared_data / name if name else tmp_path / "whisper.gguf"
    if not name:
        path.write_bytes(sound_whisper())
    for _ in range(WARM):
        use(path)
    garbage()
    before = descriptors(), resident()
    places = mappings()
    for _ in range(CYCLES):
        use(path)
    after = descriptors(), resident()
    assert after[0] == before[0]
    assert mappings() < places + CYCLES  # malloc's own come and go
    assert after[1] < before[1] + SLACK
    assert garbage() == 0


def test_the_file_is_unmapped_while_the_model_is_still_referred_to(path: Path) -> None:
    before = descriptors()
    model = trinity.load(path, threads=2)
    model.generate("a", max_tokens=2)
    engine, pool = model.engine, model.engine.pool
    assert is_mapped(path)
    assert pool.nbytes > 0
    model.close()
    assert not is_mapped(path)
    assert descriptors() == before
    assert pool.nbytes == 0
    assert "closed" in repr(model)
    assert engine.config is model.config
    for call in (
        lambda: engine.fingerprint, engine.new_cache, lambda: engine.bytes_per_token(1),
        lambda: model.generate("a"), lambda: model.embed("a"), lambda: model.weights.tensor("x"),  # type: ignore[union-attr]
        lambda: model.weights.tensor("output_norm.weight"),  # type: ignore[union-attr]
    ):  # fmt: skip
        with pytest.raises(trinity.TrinityError):
            call()
    with pytest.raises(InputError, match="the model is closed"):
        _ = engine.fingerprint


def test_a_tensor_that_a_caller_has_stays_valid(path: Path) -> None:
    before = descriptors()
    model = trinity.load(path, threads=2)
    assert model.weights is not None
    tensor = model.weights.tensor("output_norm.weight")
    values = tensor.data.copy()
    model.close()
    del model
    assert (tensor.data == values).all()
    assert is_mapped(path)
    del tensor
    assert not is_mapped(path)
    assert descriptors() == before


def test_a_cache_that_a_caller_has_keeps_its_pages_alone() -> None:
    model = trinity.load(trinity.demo_model(), threads=2)
    with model.exclusive() as engine:
        caches = [engine.new_cache() for _ in range(2)]
        for cache in caches:
            assert cache.reserve(1)
    pool = model.engine.pool
    one = pool.nbytes // 2
    caches.pop().release()
    model.close()
    assert pool.nbytes == one
    caches.pop().release()
    assert pool.nbytes == 0


@pytest.mark.full
def test_a_dropped_model_is_freed_without_close(path: Path) -> None:
    before = descriptors()
    model = trinity.load(path, threads=1)
    model.logits([1, 2])
    engine = model.engine
    assert is_mapped(path)
    del engine, model
    wait_for(lambda: not is_mapped(path))
    assert descriptors() == before
    assert garbage() == 0


@pytest.mark.full
def test_a_server_with_a_limit_of_memory_holds_one_of_two_models(
    shared_data: Path, tmp_path: Path
) -> None:
    """Models are requested alternately; the limit has room for one."""
    paths = [tmp_path / f"{name}.gguf" for name in "ab"]
    for path in paths:
        path.write_bytes((shared_data / "models" / "stories260K-Q8_0.gguf").read_bytes())
    loading = {"threads": 2, "context_length": 128}
    served = served_models([f"{path.stem}={path}" for path in paths], loading, print)
    with served[0].load() as one:
        limit = served[0].weigh() + one.engine.pool.limit
    models = Models(served, memory_limit=limit)

    async def ask(name: str) -> None:
        with await models.lease(Ignored(), name) as model:
            answers = await model.asubmit([[1, 2, 3]], whole=True, max_tokens=3, ignore_eos=True)
            with answers:
                async for _ in answers:
                    pass

    async def turns() -> None:
        seen = []
        for cycle in range(WARM + CYCLES):
            for path in paths:
                await ask(path.stem)
                assert [is_mapped(other) for other in paths] == [path is other for other in paths]
            if cycle >= WARM - 1:
                seen.append((descriptors(), resident()))
        await models.close()
        assert {count for count, _ in seen} == {seen[0][0]}
        assert seen[-1][1] < seen[0][1] + SLACK

    asyncio.run(turns())
    assert not any(map(is_mapped, paths))
