"""The rows of `trinity batch`: those of the server's batches, also ranking and speech, and Parquet.

A row of speech has the path of a recording as ``file``, which a server would not read.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trinity.errors import InputError
from trinity.server.batches.batch_rows import LONGEST_LINE, URLS, Row, lines_of, rows_of_lines

SPEECH_URLS = ("/v1/audio/transcriptions", "/v1/audio/translations")
OFFLINE_URLS = (*URLS, "/v1/rerank", *SPEECH_URLS)
# The URL of a row of a Parquet file without one, by the column that it has.
URL_BY_COLUMN = {
    "messages": "/v1/chat/completions", "prompt": "/v1/completions", "input": "/v1/embeddings",
    "query": "/v1/rerank", "file": "/v1/audio/transcriptions",
}  # fmt: skip
REQUEST = ("custom_id", "method", "url")  # columns that are not of the body
AT_ONCE = 256  # rows of a Parquet file in memory


def offline_rows(path: Path) -> Iterator[Row]:
    """The rows of a file of JSON lines, or of a Parquet file. Raises: as ``rows_of``."""
    is_parquet = path.suffix == ".parquet"
    lines = parquet_lines(path) if is_parquet else lines_of(path, LONGEST_LINE)
    return rows_of_lines(path, lines, OFFLINE_URLS, "row" if is_parquet else "line")


def parquet_lines(path: Path) -> Iterator[bytes]:
    """The rows of a Parquet file as lines of JSON. Raises: InputError."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ModuleNotFoundError:
        raise InputError(f"{path}: Parquet needs pyarrow: pip install pyarrow") from None
    try:
        with ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(AT_ONCE):
                for row in batch.to_pylist():
                    number += 1
                    yield json.dumps(request_of(f"{path}: row {number}", number, row)).encode()
    except (OSError, ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet: {error}") from error
    except TypeError as error:
        raise InputError(f"{path}: row {number}: {error}; give texts and numbers") from None


def request_of(where: str, number: int, row: dict[str, Any]) -> dict[str, Any]:
    """Return the request of a row.

    Without ``body``, the columns are its fields. Without ``url``, the column decides. Without
    ``custom_id``, it is the row's number.
    """
    row = without_nulls(row)
    body = row.pop("body", None)
    request = {name: row.pop(name) for name in REQUEST if name in row}
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError:
            raise InputError(f"{where}: body is not valid JSON: {body[:40]!r}") from None
    request["body"] = row if body is None else body
    request["custom_id"] = str(request.get("custom_id", f"row-{number}"))
    if "url" not in request:
        urls = [URL_BY_COLUMN[name] for name in URL_BY_COLUMN if name in request["body"]]
        if len(urls) != 1:
            raise InputError(
                f"{where}: give the column url, or one of the columns {', '.join(URL_BY_COLUMN)}"
            )
        request["url"] = urls[0]
    return request


def without_nulls(value: Any) -> Any:
    """Return a value without the fields of its objects that are null: a column has all fields."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [without_nulls(one) for one in value]
    return value


def form_of(body: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return the content type and the bytes of the form that a row of speech becomes.

    Raises: OSError if its file cannot be read; InputError if it names none.
    """
    given = dict(body)
    path = given.pop("file", None)
    if not isinstance(path, str):
        raise InputError(f"file is {path!r:.40}; give the path of a recording")
    content = Path(path).read_bytes()
    boundary = secrets.token_hex(16)
    parts = [(f'name="file"; filename="{Path(path).suffix}"', content)]
    for name, value in given.items():
        for one in value if isinstance(value, list) else [value]:
            text = one if isinstance(one, str) else json.dumps(one)
            brackets = "[]" if isinstance(value, list) else ""
            parts.append((f'name="{name}{brackets}"', text.encode()))
    lines = [
        f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + data + b"\r\n"
        for head, data in parts
    ]
    return f"multipart/form-data; boundary={boundary}".encode(), (
        b"".join(lines) + f"--{boundary}--\r\n".encode()
    )
