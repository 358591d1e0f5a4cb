"""Building an engine: what is refused, what is told, and that weights are not copied."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.tiny_models import write_tiny_model
from trinity.errors import (
    ConfigError,
    InputError,
    KernelError,
    TrinityError,
    UnsupportedError,
)
from trinity.providers import open_weights
from trinity.runtime.engine_building import load_engine
from trinity.runtime.memory import mapped, zeros
from trinity_kernels.cores import default_threads
from trinity_kernels.isa import LEVELS, available_levels

HOST_LEVELS = available_levels()


def test_memory_that_the_system_does_not_give(tmp_path: Path) -> None:
    metadata = {"llama.context_length": 2**31 - 1}
    with pytest.raises(TrinityError, match="EB of memory"):
        zeros(2**62, "f4", "a test")
    with pytest.raises(TrinityError, match="EB of memory"):
        mapped(2**62, "a test")
    write_tiny_model(tmp_path / "long.gguf", metadata=metadata)
    with pytest.raises(InputError, match="context_length is"):
        load_engine(open_weights(tmp_path / "long.gguf"), context_length=2**31)


def test_threads_that_the_system_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny_model(tmp_path / "m.gguf")
    start = threading.Thread.start
    before = threading.active_count()

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "trinity-2":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(TrinityError, match="only 2 of 4 threads could be started"):
        load_engine(open_weights(tmp_path / "m.gguf"), threads=4)
    monkeypatch.undo()
    deadline = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)  # the thread that fills page tables
    assert threading.active_count() == before


def test_refused_options(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "m.gguf")
    provider = open_weights(tmp_path / "m.gguf")
    with pytest.raises(InputError, match="kv_type"):
        load_engine(provider, kv_type="q4")
    with pytest.raises(InputError, match="threads"):
        load_engine(provider, threads=0)
    with pytest.raises(InputError, match="context_length"):
        load_engine(provider, context_length=0)
    with pytest.raises(KernelError, match="unknown"):
        load_engine(provider, isa="sse9")
    lacking = [level for level in LEVELS if level not in HOST_LEVELS]
    with pytest.raises(KernelError, match="available are"):
        load_engine(provider, isa=lacking[0])


def test_unknown_architecture_and_missing_tensors(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "m.gguf", arch="arwkv7")
    with pytest.raises(UnsupportedError, match="arwkv7"):
        load_engine(open_weights(tmp_path / "m.gguf"))
    # A llama file that claims to be BitNet lacks the sub-norms.
    write_tiny_model(tmp_path / "n.gguf", arch="llama", type="I2_S")
    data = (tmp_path / "n.gguf").read_bytes()
    swapped = data.replace(b"blk.1.attn_q", b"blk.1.attn_z")
    (tmp_path / "n.gguf").write_bytes(swapped)
    with pytest.raises(ConfigError, match=r"blk\.1\.attn_q\.weight"):
        load_engine(open_weights(tmp_path / "n.gguf"))


def test_weights_are_not_copied(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "m.gguf", type="Q4_0", hidden_size=128)
    provider = open_weights(tmp_path / "m.gguf")
    engine = load_engine(provider)
    for name, weight in engine.linears():
        assert weight.data.base is not None, name
        assert np.shares_memory(weight.data, provider.tensor(f"{name}.weight").data), name
    engine.close()


def test_not_finite_scale_is_refused(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "m.gguf", arch="bitnet-b1.58", type="I2_S")
    provider = open_weights(tmp_path / "m.gguf")
    tensor = provider.tensor("blk.0.attn_q.weight")
    data = bytearray((tmp_path / "m.gguf").read_bytes())
    at = data.find(tensor.data.tobytes())
    assert at > 0
    data[at + tensor.nbytes - 32 : at + tensor.nbytes - 28] = np.float32(np.nan).tobytes()
    (tmp_path / "bad.gguf").write_bytes(data)
    with pytest.raises(TrinityError, match="scale nan"):
        load_engine(open_weights(tmp_path / "bad.gguf"))


def test_what_does_no_good_is_told(tmp_path: Path) -> None:
    """Warnings about too many threads or too large a context need an explicit option."""
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path, context_length=64)
    cores = default_threads()
    for threads, context, expected in (
        (None, None, []), (cores, 64, []),
        (cores + 1, 65, [f"{cores + 1} threads, but", "a context of 65 tokens, but the model was"]),
    ):  # fmt: skip
        lines: list[str] = []
        with closing(open_weights(path)) as provider:
            load_engine(
                provider, threads=threads, context_length=context, progress=lines.append
            ).close()
        told = [line for line in lines if line.startswith("warning: ")]
        assert len(told) == len(expected)
        assert all(part in line for part, line in zip(expected, told, strict=True))
