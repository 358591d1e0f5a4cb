"""Known attacks on GGUF parsers end in an error, fast and with little memory."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.formats import raw_gguf as raw
from tests.processor_time import within
from trinity.errors import FormatError, TrinityError, UnsupportedError
from trinity.formats import GGUFProvider

Refused = Callable[..., None]
HUGE = [2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


@pytest.fixture
def refused(tmp_path: Path) -> Refused:
    """Check that opening these bytes raises this error, fast and with little memory."""

    def check(content: bytes, message: str, kind: type[TrinityError] = FormatError) -> None:
        path = tmp_path / "attack.gguf"
        path.write_bytes(content)

        def test() -> None:
            with pytest.raises(kind, match=message) as caught:
                GGUFProvider(path)
            assert str(path) in str(caught.value)

        tracemalloc.start()
        try:
            within(1.0, test)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 300_000 + 20 * len(content)

    return check


@pytest.mark.parametrize("count", HUGE)
def test_key_count_beyond_the_file(refused: Refused, count: int) -> None:
    refused(raw.gguf(num_keys=count), "the number of keys is")


@pytest.mark.parametrize("count", HUGE)
def test_tensor_count_beyond_the_file(refused: Refused, count: int) -> None:
    refused(raw.gguf(num_tensors=count), "the number of tensors is")


@pytest.mark.parametrize("element", [raw.U8, raw.F64, raw.STRING, raw.ARRAY])
def test_array_count_of_2_63_in_49_bytes(refused: Refused, element: int) -> None:
    content = raw.gguf([raw.key_value("k", raw.ARRAY, raw.array(element, 2**63))], alignment=1)
    assert len(content) == 49
    refused(
        content, f"the element count in .*is {2**63}, which does not fit into the remaining 0 bytes"
    )


@pytest.mark.parametrize("count", HUGE)
def test_array_size_that_wraps(refused: Refused, count: int) -> None:
    payload = raw.array(raw.U64, count, bytes(800))
    refused(raw.gguf([raw.key_value("k", raw.ARRAY, payload)]), "the element count in")


@pytest.mark.parametrize("length", HUGE)
def test_string_length_beyond_the_file(refused: Refused, length: int) -> None:
    refused(raw.gguf([raw.key_value("k", raw.STRING, raw.u64(length))]), "the value of 'k' needs")


@pytest.mark.parametrize("length", HUGE)
def test_string_in_an_array_beyond_the_file(refused: Refused, length: int) -> None:
    for payload in (
        raw.string("x") + raw.u64(length),
        raw.u64(length) + raw.string("x"),
    ):
        content = raw.gguf([raw.key_value("k", raw.ARRAY, raw.array(raw.STRING, 2, payload))])
        refused(content, "a string in the value of 'k' reaches past the end")


def test_string_lengths_that_wrap_back_into_the_file(refused: Refused) -> None:
    payload = raw.array(raw.STRING, 3, raw.u64(2**64 - 8) + bytes(64))
    refused(raw.gguf([raw.key_value("k", raw.ARRAY, payload)]), "reaches past the end")


@pytest.mark.parametrize("depth", [4, 5000])
def test_arrays_nested_too_deep(refused: Refused, depth: int) -> None:
    payload = raw.array(raw.ARRAY, 1) * depth + raw.array(raw.U8, 0)
    refused(raw.gguf([raw.key_value("k", raw.ARRAY, payload)]), "nests arrays more than 4 deep")


def test_arrays_nested_four_deep_are_read(tmp_path: Path) -> None:
    path = tmp_path / "deep.gguf"
    payload = raw.array(raw.ARRAY, 1) * 3 + raw.strings("x")
    path.write_bytes(raw.gguf([raw.key_value("k", raw.ARRAY, payload)]))
    assert GGUFProvider(path).metadata["k"] == [[[["x"]]]]


@pytest.mark.parametrize("type_id", [13, 255, 2**32 - 1])
def test_unknown_value_type(refused: Refused, type_id: int) -> None:
    refused(raw.gguf([raw.key_value("k", type_id, bytes(8))]), f"value type of 'k' is {type_id}")
    content = raw.gguf([raw.key_value("k", raw.ARRAY, raw.array(type_id, 0))])
    refused(content, f"element type in the value of 'k' is {type_id}")


def test_empty_key(refused: Refused) -> None:
    refused(raw.gguf([raw.key_value("", raw.U8, b"\0")]), "key is empty")


def test_key_too_long(refused: Refused) -> None:
    refused(raw.gguf([raw.key_value("k" * 65536, raw.U8, b"\0")]), "a key is 65536 bytes long")


def test_duplicate_key(refused: Refused) -> None:
    refused(raw.gguf([raw.key_value("k", raw.U8, b"\0")] * 2), "'k' occurs twice")


def test_invalid_utf8(refused: Refused, tmp_path: Path) -> None:
    refused(raw.gguf([raw.key_value(b"\xff", raw.U8, b"\0")]), "a key is not UTF-8")
    refused(raw.gguf((), [raw.info(b"\xc3", [1])], bytes(4)), "a tensor name is not UTF-8")
    path = tmp_path / "values.gguf"
    values = [
        raw.key_value("one", raw.STRING, raw.string(b"\xed\xa0\x80")),
        raw.key_value("many", raw.ARRAY, raw.strings("ok", b"\xfe")),
        raw.key_value("good", raw.STRING, raw.string("yes")),
    ]
    path.write_bytes(raw.gguf(values))
    metadata = GGUFProvider(path).metadata
    assert metadata["good"] == "yes"
    with pytest.raises(FormatError, match="value of 'one' is not UTF-8"):
        metadata["one"]
    with pytest.raises(FormatError, match="string 1 in the value of 'many' is not UTF-8"):
        metadata["many"]


@pytest.mark.parametrize("alignment", [0, 3, 33, 2**22, 2**31, 2**32 - 1])
def test_alignment_not_a_sane_power_of_two(refused: Refused, alignment: int) -> None:
    key = raw.key_value("general.alignment", raw.U32, raw.u32(alignment))
    refused(raw.gguf([key], [raw.info("a", [1])], bytes(4)), "not a power of two")


@pytest.mark.parametrize(
    ("type_id", "payload"),
    [(raw.U64, raw.u64(32)), (raw.I32, raw.u32(32)), (raw.STRING, raw.string("32"))],
)
def test_alignment_of_another_type(refused: Refused, type_id: int, payload: bytes) -> None:
    key = raw.key_value("general.alignment", type_id, payload)
    refused(raw.gguf([key]), "instead of uint32")


def test_empty_and_long_tensor_names(refused: Refused) -> None:
    refused(raw.gguf((), [raw.info("", [1])], bytes(4)), "tensor name is empty")
    refused(raw.gguf((), [raw.info("n" * 64, [1])], bytes(4)), "tensor name is 64 bytes long")


def test_duplicate_tensor(refused: Refused) -> None:
    infos = [raw.info("a", [1]), raw.info("a", [1], 0, 32)]
    refused(raw.gguf((), infos, bytes(64)), "'a' occurs twice")


@pytest.mark.parametrize("num_dims", [5, 2**16, 2**32 - 1])
def test_too_many_dims(refused: Refused, num_dims: int) -> None:
    content = raw.gguf((), [raw.info("a", [1] * 5, num_dims=num_dims)], bytes(64))
    refused(content, f"has {num_dims} dims")


@pytest.mark.parametrize(
    "dims", [[0], [4, 0], [0, 4], [2**63], [2**64 - 1], [2**32, 2**32], [2**63 - 3, 2**63 - 3]]
)
def test_zero_and_huge_dims(refused: Refused, dims: list[int]) -> None:
    refused(raw.gguf((), [raw.info("a", dims)], bytes(64)), "impossible dims")


@pytest.mark.parametrize("dims", [[17], [2**61], [2**31, 2**31], [4, 5], [2**62 + 4]])
def test_tensor_larger_than_the_data(refused: Refused, dims: list[int]) -> None:
    refused(raw.gguf((), [raw.info("a", dims)], bytes(64)), r"takes \d+ bytes .* only 64")


@pytest.mark.parametrize("offset", [64, 96, 2**63, 2**64 - 32])
def test_offset_past_the_end(refused: Refused, offset: int) -> None:
    refused(raw.gguf((), [raw.info("a", [1], 0, offset)], bytes(64)), "which has only 64 bytes")


def test_offset_not_aligned(refused: Refused) -> None:
    refused(
        raw.gguf((), [raw.info("a", [1], 0, 4)], bytes(64)), "not a multiple of the alignment 32"
    )


def test_data_missing_altogether(refused: Refused) -> None:
    refused(raw.gguf((), [raw.info("a", [1])]), "which has only 0 bytes")
    refused(raw.gguf((), [raw.info("a", [1])], alignment=1), "which has only 0 bytes")


@pytest.mark.parametrize("offset", [0, 32])
def test_overlapping_tensors(refused: Refused, offset: int) -> None:
    infos = [raw.info("a", [16]), raw.info("b", [1], 0, offset)]
    refused(raw.gguf((), infos, bytes(64)), "tensors '[ab]' and '[ab]' overlap")


def test_row_length_that_the_type_cannot_hold(refused: Refused) -> None:
    content = raw.gguf((), [raw.info("a", [31, 32], 2)], bytes(1024))
    refused(content, "rows of 31 elements, which is not a multiple of Q4_0's block of 32")


@pytest.mark.parametrize(
    ("type_id", "message"),
    [
        (4, "Q4_2.*removed"),
        (5, "Q4_3.*removed"),
        (31, "Q4_0_4_4.*removed.*again"),
        (37, "IQ4_NL_4_8"),
        (135, "IQ2_BN of ik_llama"),
        (77, "not a type of ggml"),
        (2**32 - 1, "not a type of ggml"),
    ],
)
def test_removed_foreign_and_unknown_types(refused: Refused, type_id: int, message: str) -> None:
    content = raw.gguf((), [raw.info("a", [256], type_id)], bytes(1024))
    refused(content, f"type .*{message}", UnsupportedError)


def test_infos_cut_short(refused: Refused) -> None:
    whole = raw.gguf([raw.key_value("k", raw.U8, b"\0")], [raw.info("abc", [4, 4])], alignment=1)
    for length in range(24, len(whole)):
        refused(whole[:length], "near byte")


def test_tokens_that_are_no_strings_leave_the_tensors_readable(tmp_path: Path) -> None:
    tokens = raw.array(raw.I8, 3, b"abc")
    keys = [
        raw.key_value("general.architecture", raw.STRING, raw.string("llama")),
        raw.key_value("tokenizer.ggml.tokens", raw.ARRAY, tokens),
    ]
    path = tmp_path / "tokens.gguf"
    path.write_bytes(raw.gguf(keys, [raw.info("a", [1])], struct.pack("<f", 2)))
    model = GGUFProvider(path)
    assert model.tensor("a").data.view("<f4")[0] == 2
    with pytest.raises(TrinityError):
        _ = model.config
