"""Models that are split into several files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.formats import raw_gguf as raw
from trinity.errors import FormatError, InputError
from trinity.formats import GGUFProvider


def part(
    folder: Path,
    no: int,
    count: int,
    names: list[str],
    *,
    total: int | None = 3,
    declared_no: int | None = None,
    declared_count: int | None = None,
    stem: str = "m",
) -> Path:
    no_value = no if declared_no is None else declared_no
    keys = [
        raw.key_value("general.architecture", raw.STRING, raw.string(f"from {no}")),
        raw.key_value("split.no", raw.U16, struct.pack("<H", no_value)),
        raw.key_value("split.count", raw.U16, struct.pack("<H", declared_count or count)),
    ]
    if total is not None:
        keys.append(raw.key_value("split.tensors.count", raw.I32, struct.pack("<i", total)))
    infos = [raw.info(name, [2], 24, 32 * i) for i, name in enumerate(names)]
    data = b"".join(bytes([no, i]) + bytes(30) for i in range(len(names)))
    path = folder / f"{stem}-{no + 1:05d}-of-{count:05d}.gguf"
    path.write_bytes(raw.gguf(keys, infos, data))
    return path


def test_three_parts_are_one_model(tmp_path: Path) -> None:
    first = part(tmp_path, 0, 3, [])
    part(tmp_path, 1, 3, ["a", "b"])
    third = part(tmp_path, 2, 3, ["c"])
    with GGUFProvider(first) as model:
        assert model.tensor_names() == ["a", "b", "c"]
        assert model.tensor("c").data.tolist() == [2, 0]
        assert model.tensor("b").data.tolist() == [1, 1]
        assert model.tensor("c").source == str(third)
        assert model.metadata["general.architecture"] == "from 0"
        assert model.paths[0] == str(first)
        assert len(model.paths) == 3
        assert model.size_bytes == sum(Path(path).stat().st_size for path in model.paths)
    with pytest.raises(InputError, match="closed"):
        model.tensor("c")


def test_a_count_of_one_is_no_split(tmp_path: Path) -> None:
    path = part(tmp_path, 0, 1, ["a"], total=1).rename(tmp_path / "renamed.gguf")
    assert GGUFProvider(path).tensor_names() == ["a"]


def test_a_later_part_names_the_first(tmp_path: Path) -> None:
    first = part(tmp_path, 0, 2, ["a"])
    second = part(tmp_path, 1, 2, ["b", "c"])
    with pytest.raises(FormatError, match="part 2 of 2 of a split model") as caught:
        GGUFProvider(second)
    assert str(first) in str(caught.value)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    first = part(tmp_path, 0, 3, ["a"])
    part(tmp_path, 2, 3, ["c"])
    with pytest.raises(InputError, match=r"m-00002-of-00003\.gguf is missing"):
        GGUFProvider(first)


def test_renamed_parts(tmp_path: Path) -> None:
    path = part(tmp_path, 0, 2, ["a"]).rename(tmp_path / "model.gguf")
    with pytest.raises(FormatError, match=r"must end in -00001-of-00002\.gguf"):
        GGUFProvider(path)


def test_wrong_number_in_a_part(tmp_path: Path) -> None:
    first = part(tmp_path, 0, 3, ["a"])
    part(tmp_path, 1, 3, ["b"], declared_no=2)
    part(tmp_path, 2, 3, ["c"])
    with pytest.raises(FormatError, match=r"split\.no is 2; expected 1"):
        GGUFProvider(first)


def test_another_count_in_a_part(tmp_path: Path) -> None:
    first = part(tmp_path, 0, 2, ["a"])
    part(tmp_path, 1, 2, ["b", "c"], declared_count=5)
    with pytest.raises(FormatError, match=r"split\.count is 5; expected 2"):
        GGUFProvider(first)


def test_a_part_without_split_keys(tmp_path: Path) -> None:
    first = part(tmp_path, 0, 2, ["a"])
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(raw.gguf())
    with pytest.raises(FormatError, match=r"split\.no is None; expected 1"):
        GGUFProvider(first)


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    first = part(tmp_path, 0, 2, ["a"])
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(b"GGUF")
    with pytest.raises(FormatError, match=r"m-00002-of-00002\.gguf: .*left"):
        GGUFProvider(first)


def test_the_same_tensor_in_two_parts(tmp_path: Path) -> None:
    first = part(tmp_path, 0, 2, ["a", "b"])
    part(tmp_path, 1, 2, ["b"])
    with pytest.raises(FormatError, match="tensor 'b' is also in"):
        GGUFProvider(first)


def test_wrong_total(tmp_path: Path) -> None:
    first = part(tmp_path, 0, 2, ["a"])
    part(tmp_path, 1, 2, ["b"])
    with pytest.raises(FormatError, match=r"split\.tensors\.count is 3, but the 2 parts hold 2"):
        GGUFProvider(first)


@pytest.mark.parametrize(
    ("type_id", "payload", "message"),
    [
        (raw.U64, raw.u64(2**63), "more than the limit of 1024"),
        (raw.I32, struct.pack("<i", -5), "must end in"),
        (raw.STRING, raw.string("2"), "type string; expected an integer"),
        (raw.ARRAY, raw.array(raw.U8, 1, b"\2"), r"type array\[uint8\]; expected an integer"),
    ],
)
def test_hostile_counts(tmp_path: Path, type_id: int, payload: bytes, message: str) -> None:
    keys = [
        raw.key_value("split.count", type_id, payload),
        raw.key_value("split.no", raw.U8, b"\0"),
    ]
    path = tmp_path / "m-00001-of-00002.gguf"
    path.write_bytes(raw.gguf(keys))
    with pytest.raises(FormatError, match=message):
        GGUFProvider(path)
