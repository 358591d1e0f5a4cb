"""Model sizes compared with llama.cpp's published ones, and the recommendation."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod
from pathlib import Path

import pytest

from tests.expert_models import EXPERTS, LAYERS, PER_TOKEN, write_expert_model
from tests.tiny_models import write_tiny_model
from trinity.errors import InputError, UnsupportedError
from trinity.formats.speech_config import speech_config
from trinity.providers import open_weights
from trinity.tools.amounts import count_text, size_text
from trinity.tools.recommend import (
    BY_QUALITY,
    EFFICIENCY,
    of_file,
    of_size,
    parse_count,
    recommend,
    usable_memory,
)

# GiB of Llama 2 7B: llama.cpp, the table that its quantize tool prints for --help.
LLAMA_2_7B = {
    "Q3_K_S": 2.75, "Q3_K_M": 3.07, "Q3_K_L": 3.35, "Q4_0": 3.56, "Q4_K_S": 3.59,
    "Q4_K_M": 3.80, "Q5_K_S": 4.33, "Q5_K_M": 4.45, "Q6_K": 5.15, "Q8_0": 6.67, "F16": 12.55,
}  # fmt: skip


@pytest.mark.parametrize("name", LLAMA_2_7B)
def test_sizes_are_those_that_llama_cpp_publishes(name: str) -> None:
    found = recommend(of_size(7_000_000_000), ram=10**12, bandwidth=3e10)
    row = next(row for row in found.rows if row.type == name)
    assert row.file_bytes / 2**30 == pytest.approx(LLAMA_2_7B[name], rel=0.01)


def test_grouped_queries_change_the_mix() -> None:
    # The same table for Llama 3 8B; the one of Llama 2 is from before Q2_K's rules changed.
    found = recommend(of_size(8_000_000_000), ram=10**12, bandwidth=3e10)
    sizes = {row.type: row.file_bytes / 2**30 for row in found.rows}
    assert sizes["Q2_K"] == pytest.approx(2.96, rel=0.01)
    assert sizes["Q4_K_M"] == pytest.approx(4.58, rel=0.01)
    assert sizes["Q6_K"] == pytest.approx(6.14, rel=0.01)


def test_memory_counts_the_cache_of_the_context() -> None:
    subject = of_size(8_000_000_000)
    found = recommend(subject, ram=16 * 10**9, bandwidth=3e10, context=8192)
    # Keys and values of 32 layers, 8 heads of 128, in half precision: 1 GiB for 8,192 tokens.
    assert found.kv_cache_bytes == 2**30
    for row in found.rows:
        assert row.memory_bytes > row.file_bytes + found.kv_cache_bytes
        assert row.fits == (row.memory_bytes <= found.usable_bytes)


def test_speed_is_bandwidth_over_what_a_token_reads() -> None:
    found = recommend(of_size(7_000_000_000), ram=10**12, bandwidth=3e10)
    row = next(row for row in found.rows if row.type == "F16")
    # All of 6.74e9 weights but the embedding of 32,000 x 4,096.
    read = 2 * (6.738e9 - 32_000 * 4096)
    assert row.tokens_per_second == pytest.approx(EFFICIENCY * 3e10 / read, rel=0.01)


@pytest.mark.parametrize(
    ("purpose", "size", "ram", "expected"),
    [
        ("balanced", 7e9, 16e9, "Q4_K_M"),
        ("quality", 7e9, 16e9, "Q8_0"),
        ("speed", 7e9, 16e9, "Q4_K_S"),
        ("balanced", 1.2e9, 16e9, "Q6_K"),
        ("balanced", 7e9, 6e9, "Q3_K_M"),
        ("quality", 7e9, 8.5e9, "Q6_K"),
        ("balanced", 70e9, 16e9, None),
    ],
)
def test_choice(purpose: str, size: float, ram: float, expected: str | None) -> None:
    found = recommend(of_size(int(size)), ram=int(ram), bandwidth=3e10, purpose=purpose)  # type: ignore[arg-type]
    assert found.take == expected
    if expected is None:
        assert "does not fit" in found.reason
    else:
        assert found.reason.startswith(f"take {expected}: ")


def test_what_cannot_fit_is_told_what_could() -> None:
    large = recommend(of_size(70_000_000_000), ram=16 * 10**9, bandwidth=3e10)
    assert "models of up to" in large.reason
    long = recommend(of_size(7_000_000_000), ram=4 * 10**9, bandwidth=3e10, context=32_768)
    shorter = int(long.reason.partition("--ctx ")[2].split()[0])
    again = recommend(of_size(7_000_000_000), ram=4 * 10**9, bandwidth=3e10, context=shorter)
    assert again.take == "Q2_K"


def test_a_file_is_measured_by_its_own_tensors(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path, hidden_size=256, intermediate_size=512)
    provider = open_weights(path)
    subject = of_file(provider)
    found = recommend(subject, ram=10**9, bandwidth=3e10)
    assert {row.type for row in found.rows} == set(BY_QUALITY)
    sizes = [row.file_bytes for row in found.rows]
    assert sizes == sorted(sizes, reverse=True)
    assert found.context == provider.config.context_length
    f16 = next(row for row in found.rows if row.type == "F16")
    norms = sum(t.nbytes for t in map(provider.tensor, provider.tensor_names()) if len(t.shape) < 2)
    assert f16.file_bytes == 2 * (subject.parameters - norms // 4) + norms
    with pytest.raises(InputError, match="context of"):
        recommend(subject, ram=10**9, bandwidth=3e10, context=10**6)


@pytest.mark.full
def test_of_experts_a_token_reads_those_that_it_takes(tmp_path: Path) -> None:
    rows = []
    for layout in ("stacked", "fused", "each"):
        write_expert_model(tmp_path / layout, hidden=256, size=512, layout=layout)  # type: ignore[arg-type]
        provider = open_weights(tmp_path / layout)
        subject = of_file(provider)
        tensors = [provider.tensor(name) for name in provider.tensor_names()]
        experts = LAYERS * EXPERTS * 3 * 256 * 512
        assert subject.parameters == sum(prod(t.shape) for t in tensors)
        left = experts * PER_TOKEN // EXPERTS
        assert subject.active_parameters == subject.parameters - experts + left
        found = recommend(subject, ram=10**9, bandwidth=3e10)
        assert found.active_parameters == subject.active_parameters
        rows.append(next(row for row in found.rows if row.type == "Q8_0"))
    assert len({row.file_bytes for row in rows}) == 1
    vectors = sum(t.nbytes for t in tensors if len(t.shape) == 1 or "gate_inp" in t.name)
    read = (subject.active_parameters - vectors // 4) * 34 / 32 + vectors
    assert rows[0].tokens_per_second == pytest.approx(EFFICIENCY * 3e10 / read)
    speeds = [row.tokens_per_second for row in rows]
    assert speeds == pytest.approx([speeds[0]] * len(rows))


def test_ternary_models_get_ternary_types(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path, arch="bitnet-b1.58", type="I2_S", hidden_size=256, intermediate_size=512)
    found = recommend(of_file(open_weights(path)), ram=10**9, bandwidth=3e10)
    assert found.take == "I2_S"
    assert {"TQ1_0", "TQ2_0"} < {row.type for row in found.rows}


@pytest.mark.full
def test_between_known_sizes_everything_grows() -> None:
    found = [
        recommend(of_size(int(size)), ram=10**12, bandwidth=3e10, context=1024)
        for size in (5e8, 2e9, 5e9, 2e10, 5e10, 2e11)
    ]
    sizes = [[row.memory_bytes for row in one.rows] for one in found]
    for smaller, larger in pairwise(sizes):
        assert all(a < b for a, b in zip(smaller, larger, strict=True))
    assert replace(found[0], rows=[]).parameters == pytest.approx(5e8, rel=0.01)


@pytest.mark.parametrize(
    ("text", "expected"), [("7B", 7e9), ("7e9", 7e9), ("350M", 3.5e8), (" 1.5b ", 1.5e9)]
)
def test_counts(text: str, expected: float) -> None:
    assert parse_count(text) == expected


@pytest.mark.parametrize("text", ["", "B", "seven", "-7B", "7 GB", "0", "1e40", "nan", "7BB"])
def test_bad_counts(text: str) -> None:
    with pytest.raises(InputError, match="--params"):
        parse_count(text)


def test_llama_models_with_ternary_weights_get_ternary_types(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path, type="TQ2_0", hidden_size=256, intermediate_size=512)
    assert recommend(of_file(open_weights(path)), ram=10**9, bandwidth=3e10).take == "I2_S"


def test_what_is_quantized_already_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path, type="Q4_0", hidden_size=256, intermediate_size=512)
    found = recommend(of_file(open_weights(path)), ram=10**9, bandwidth=3e10)
    assert "this file is Q4_0" in found.reason
    write_tiny_model(path, type="F16", hidden_size=256, intermediate_size=512)
    found = recommend(of_file(open_weights(path)), ram=10**9, bandwidth=3e10)
    assert "this file" not in found.reason


def test_a_model_that_does_not_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path, arch="arwkv7", hidden_size=256, intermediate_size=512)
    with pytest.raises(UnsupportedError, match="arwkv7"):
        of_file(open_weights(path))


def test_whisper_reads_the_decoder_and_what_it_keeps_of_a_window(shared_data: Path) -> None:
    provider = open_weights(shared_data / "encoders" / "whisper" / "hf")
    config = speech_config(provider.metadata, provider.path)
    subject = of_file(provider)
    found = recommend(subject, ram=10**9, bandwidth=3e10)
    # float32 keys and values, of the window's positions and of the text's.
    layer = 2 * 4 * config.width * config.decoder.layers
    positions = config.encoder.positions + config.decoder.positions
    assert (found.context, found.kv_cache_bytes) == (config.decoder.positions, layer * positions)
    shapes = {name: provider.tensor(name).shape for name in provider.tensor_names()}
    assert found.parameters == sum(map(prod, shapes.values()))
    tokens = [n for n in shapes if n.startswith(("dec.blk", "dec.output", "token_embd"))]
    assert found.active_parameters == sum(prod(shapes[name]) for name in tokens)
    row = next(row for row in found.rows if row.type == "F16")
    read = EFFICIENCY * 3e10 / row.tokens_per_second - layer * config.encoder.positions
    assert 2 * found.active_parameters <= read <= 2.2 * found.active_parameters


def test_what_holds_no_model_is_not_told_of_models_of_no_parameters(tmp_path: Path) -> None:
    found = recommend(of_size(135_000_000), ram=200_000_000, bandwidth=3e10)
    assert found.take is None
    assert "too little for any model" in found.reason


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [(7e9, "7B"), (6.738e9, "6.74B"), (5e8, "500M"), (1e13, "10T"), (1e5, "100K"), (1e12, "1T")],
)
def test_parameters_are_named_as_models_are(parameters: float, expected: str) -> None:
    assert count_text(parameters) == expected
    assert parse_count(expected) == pytest.approx(parameters, rel=0.01)


def test_small_sizes_are_not_zero() -> None:
    assert size_text(4_080_000_000) == "4.08 GB"
    assert size_text(520_000) == "0.52 MB"


# GB of Llama 3.2 1B and 3B: the sizes that llama.cpp's files of them have on the hub, of which the
# vocabulary of 128,256 tokens takes 8 MB.
LLAMA_3_2 = {
    ("1B", "F16"): 2.48, ("1B", "Q8_0"): 1.32, ("1B", "Q6_K"): 1.02, ("1B", "Q5_K_M"): 0.91,
    ("1B", "Q5_K_S"): 0.89, ("1B", "Q4_K_M"): 0.81, ("1B", "Q4_K_S"): 0.78, ("3B", "F16"): 6.43,
    ("3B", "Q8_0"): 3.42, ("3B", "Q6_K"): 2.64, ("3B", "Q5_K_M"): 2.32, ("3B", "Q4_K_M"): 2.02,
}  # fmt: skip


@pytest.mark.parametrize(("size", "type"), LLAMA_3_2)
def test_what_is_called_1b_and_3b_is_larger(size: str, type: str) -> None:
    found = recommend(of_size(parse_count(size)), ram=10**12, bandwidth=3e10)
    row = next(row for row in found.rows if row.type == type)
    assert row.file_bytes / 1e9 == pytest.approx(LLAMA_3_2[size, type] - 0.008, abs=0.006)


def test_the_type_is_the_mix_that_the_file_says(tmp_path: Path) -> None:
    """The largest tensor is Q6_K, and most tensors are Q4_K."""
    path = tmp_path / "tiny.gguf"
    write_tiny_model(
        path, type="Q4_K", embedding_type="Q6_K", hidden_size=256, intermediate_size=256,
        metadata={"general.file_type": 15},
    )  # fmt: skip
    subject = of_file(open_weights(path))
    largest = max(subject.entries, key=lambda entry: prod(entry.shape))
    assert (largest.type, subject.quantized) == ("Q6_K", "Q4_K_M")


def test_a_part_of_the_memory_is_for_others() -> None:
    assert usable_memory(16 * 10**9) == 14 * 10**9
    assert usable_memory(64 * 10**9) == 62 * 10**9
    assert usable_memory(4 * 10**9) == 3 * 10**9
