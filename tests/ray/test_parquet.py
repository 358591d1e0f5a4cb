"""Parquet files of requests, which need pyarrow, as Ray does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trinity.errors import InputError
from trinity.server.batches.offline_rows import offline_rows

parquet = pytest.importorskip("pyarrow.parquet")
pyarrow = pytest.importorskip("pyarrow")


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)
    return path


def test_columns_are_requests(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "Who is Pierre?"}]
    chats = [{"id": 3, "messages": talk, "seed": None}, {"id": 4, "messages": talk, "seed": 5}]
    chats = [{"custom_id": one.pop("id"), **one} for one in chats]
    found = list(offline_rows(written(tmp_path / "chats.parquet", chats)))
    assert [one.custom_id for one in found] == ["3", "4"]
    assert [one.url for one in found] == ["/v1/chat/completions"] * 2
    assert [one.body for one in found] == [{"messages": talk}, {"messages": talk, "seed": 5}]


def test_rows_have_numbers_and_bodies_may_be_json(tmp_path: Path) -> None:
    rows = [
        {"url": "/v1/embeddings", "body": json.dumps({"input": ["a"]})},
        {"url": None, "body": json.dumps({"prompt": "a", "max_tokens": 3})},
    ]
    found = list(offline_rows(written(tmp_path / "in.parquet", rows)))
    assert [one.custom_id for one in found] == ["row-1", "row-2"]
    assert [one.url for one in found] == ["/v1/embeddings", "/v1/completions"]
    assert found[1].body == {"prompt": "a", "max_tokens": 3}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "a"}, "row 1: give the column url, or one of"),
        ({"prompt": "a", "input": "b"}, "row 1: give the column url"),
        ({"url": "/v1/nothing", "prompt": "a"}, "row 1: url is '/v1/nothing'"),
        ({"prompt": b"a"}, "row 1: Object of type bytes"),
        ({"url": "/v1/embeddings", "body": "{"}, "row 1: body is not valid JSON"),
    ],
)
def test_wrong_rows_are_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(offline_rows(written(tmp_path / "in.parquet", [row])))


def test_another_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "in.parquet").write_text("{}")
    with pytest.raises(InputError, match=r"in\.parquet: cannot be read as Parquet"):
        list(offline_rows(tmp_path / "in.parquet"))
