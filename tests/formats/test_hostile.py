"""Damaged files give a model or a TrinityError, never another exception, a crash or a hang."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.formats import raw_gguf as raw
from tests.matrix import parts, some
from tests.processor_time import within
from trinity.errors import TrinityError
from trinity.formats import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter

NUM_FILES, PARTS = 20_000, 16
SECONDS_PER_FILE = 2.0  # generous: it takes some milliseconds
EDGES_64 = [
    *(0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 31, 32, 33, 63, 64, 255, 256, 65535, 65536),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**61, 2**62, 2**63 - 3, 2**63 - 1, 2**63),
    *(2**63 + 1, 2**64 - 32, 2**64 - 9, 2**64 - 8, 2**64 - 1),
]
EDGES_32 = [*range(45), 133, 135, 142, 2**16, 2**31 - 1, 2**31, 2**32 - 1]


def base_file(folder: Path) -> bytes:
    """Build a small model with every value type, ambiguous tensor types and a configuration."""
    path = folder / "base.gguf"
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "llama")
        writer.add("general.name", "tiny")
        writer.add("general.alignment", 32)
        writer.add("llama.embedding_length", 8)
        writer.add("llama.feed_forward_length", 16)
        writer.add("llama.block_count", 1)
        writer.add("llama.attention.head_count", [4])
        writer.add("llama.attention.head_count_kv", 2)
        writer.add("llama.context_length", 32)
        writer.add("llama.attention.layer_norm_rms_epsilon", 1e-5)
        writer.add("llama.rope.scaling.type", "yarn")
        writer.add("llama.rope.scaling.factor", 2.0)
        writer.add("split.count", 1, "uint16")
        writer.add("tokenizer.ggml.tokens", ["<s>", "a", "b", "ab", "▁"])
        writer.add("tokenizer.ggml.scores", [0.0, 1.0, 2.0, 3.0, 4.0])
        writer.add("tokenizer.ggml.token_type", [3, 1, 1, 1, 1])
        for number, kind in enumerate(
            ("uint8", "int8", "int16", "uint64", "int64", "float64", "bool")
        ):
            writer.add(f"k{number}", number == 3 if kind == "bool" else number, kind)
            writer.add(f"a{number}", [kind == "int8"] if kind == "bool" else [number], kind)
        writer.add("nested", [[1, 2], ["x"], [[0.5]]])
        writer.add_tensor("token_embd.weight", (5, 8), "F32", np.ones((5, 8), np.float32))
        writer.add_tensor("blk.0.attn_q.weight", (8, 8), "F16", np.ones((8, 8), np.float16))
        writer.add_tensor("w.i2_s", (8, 128), "I2_S", bytes(288))
        writer.add_tensor("w.mxfp4", (2, 64), "MXFP4", bytes(68))
        writer.add_tensor("w.q4_0", (2, 32), "Q4_0", bytes(36))
    return path.read_bytes()


def exercise(path: Path) -> str:
    """Open a file, decode everything, read every tensor; return the outcome."""
    try:
        with GGUFProvider(path) as model:
            outcome = "opened"
            for key in model.metadata:
                try:
                    model.metadata[key]
                except TrinityError:
                    outcome = "undecodable"
            for name in model.tensor_names():
                tensor = model.tensor(name)
                assert tensor.data.nbytes == tensor.nbytes
                int(tensor.data.sum())
            try:
                _ = model.config
            except TrinityError:
                return f"{outcome}, no configuration"
            return outcome
    except TrinityError as error:
        if not str(error).startswith(str(path)):
            raise RuntimeError("the message names no file") from error
        return "refused"


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Damage a file in one to three places."""
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        kind = rng.randrange(7)
        # Injuries go to the structure more often than to the tensors' contents.
        at = rng.randrange(max(1, min(len(damaged), 1500 if rng.random() < 0.9 else 1 << 30)))
        if kind == 0:
            damaged[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1 and damaged:
            damaged[min(at, len(damaged) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 2:
            damaged[at : at + 8] = struct.pack("<Q", rng.choice(EDGES_64))
        elif kind == 3:
            damaged[at : at + 4] = struct.pack("<I", rng.choice(EDGES_32))
        elif kind == 4:
            del damaged[at:]
        elif kind == 5:
            damaged[at:at] = rng.randbytes(rng.randrange(1, 17))
        else:
            start = rng.randrange(len(damaged) + 1)
            damaged[at:at] = damaged[start : start + rng.randrange(1, 200)]
    return bytes(damaged)


def fields(content: bytes) -> list[int]:
    """Return the likely places of 8-byte fields: small numbers with zeros above."""
    return [
        at for at in range(8, len(content) - 8) if content[at] and not any(content[at + 2 : at + 8])
    ]


@pytest.mark.few(1)
@pytest.mark.parametrize("part", parts(PARTS))
def test_damaged_files(tmp_path: Path, part: int) -> None:
    content = base_file(tmp_path)
    rng = random.Random(part)
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)
    assert exercise(path) == "opened"
    outcomes: dict[str, int] = {}
    for number in range(NUM_FILES // PARTS):
        damaged = mutate(content, rng)
        path.write_bytes(damaged)
        try:
            outcome = within(SECONDS_PER_FILE, lambda: exercise(path))
        except Exception as error:
            error.add_note(f"file {number} of part {part}: {damaged.hex()}")
            raise
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert outcomes["refused"] > 2000 / PARTS, outcomes
    assert outcomes["opened"] > 400 / PARTS, outcomes
    assert outcomes["opened, no configuration"] > 80 / PARTS, outcomes


@pytest.mark.full
def test_every_field_with_every_edge_value_in_bounded_memory(tmp_path: Path) -> None:
    content = base_file(tmp_path)
    path = tmp_path / "damaged.gguf"
    tracemalloc.start()
    try:
        for at in fields(content)[::2]:
            for value in random.Random(at).sample(EDGES_64, 3):
                path.write_bytes(content[:at] + struct.pack("<Q", value) + content[at + 8 :])
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                exercise(path)
                assert tracemalloc.get_traced_memory()[1] - before < 300_000
    finally:
        tracemalloc.stop()


@pytest.mark.few(1)
@pytest.mark.parametrize("part", some(range(4), [0]))
def test_every_truncation(tmp_path: Path, part: int) -> None:
    content = base_file(tmp_path)
    path = tmp_path / "cut.gguf"
    # The last tensor's padding may be missing; everything before it may not.
    for length in range(part, len(content) - 28, 4):
        path.write_bytes(content[:length])
        assert exercise(path) == "refused", length


VALUES = st.one_of(
    st.tuples(st.integers(0, 14), st.binary(max_size=24)),
    st.builds(
        lambda element, count, payload: (raw.ARRAY, raw.array(element, count, payload)),
        st.integers(0, 14),
        st.sampled_from(EDGES_64) | st.integers(0, 8),
        st.binary(max_size=64),
    ),
)
CONFIG_KEYS = [
    "general.architecture",
    "general.alignment",
    "split.count",
    "split.no",
    "x.embedding_length",
    "x.block_count",
    "x.attention.head_count",
    "x.rope.scaling.type",
    "x.rope.scaling.factor",
    "tokenizer.ggml.tokens",
]
KEYS = st.lists(
    st.builds(
        lambda key, value: raw.key_value(key, *value),
        st.sampled_from(CONFIG_KEYS) | st.text(max_size=6),
        VALUES,
    ),
    max_size=6,
)
ARCHITECTURE = raw.key_value("general.architecture", raw.STRING, raw.string("x"))
INFOS = st.lists(
    st.builds(
        raw.info,
        st.sampled_from(["token_embd.weight", "a", "blk.0.attn_q.weight"]) | st.text(max_size=5),
        st.lists(st.sampled_from(EDGES_64), max_size=5),
        st.sampled_from(EDGES_32),
        st.sampled_from(EDGES_64),
    ),
    max_size=4,
)


@pytest.mark.full
@pytest.mark.parametrize("part", parts(5))
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    keys=KEYS,
    named=st.booleans(),
    infos=INFOS,
    data=st.binary(max_size=200),
    version=st.sampled_from([2, 3, 3, 3]),
    alignment=st.sampled_from([1, 8, 32]),
)
def test_any_structure(
    tmp_path: Path,
    keys: list[bytes],
    named: bool,
    infos: list[bytes],
    data: bytes,
    version: int,
    alignment: int,
    part: int,
) -> None:
    path = tmp_path / "any.gguf"
    all_keys = [ARCHITECTURE, *keys] if named else keys
    path.write_bytes(raw.gguf(all_keys, infos, data, version=version, alignment=alignment))
    exercise(path)


@pytest.mark.full
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=st.binary(max_size=300), with_magic=st.booleans())
def test_any_bytes(tmp_path: Path, content: bytes, with_magic: bool) -> None:
    path = tmp_path / "any.gguf"
    path.write_bytes((b"GGUF\x03\0\0\0" if with_magic else b"") + content)
    exercise(path)
