"""The rows of a batch: a file of requests, one a line, in the form of OpenAI's batches.

A row is `{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}`.
Source: platform.openai.com/docs/api-reference/batch, the request input and output objects.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trinity.errors import InputError
from trinity.server.errors import ApiError
from trinity.server.schemas import check_values

URLS = (
    "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages",
)  # fmt: skip
LONGEST_LINE = (4 << 20) + (64 << 10)  # bytes: a body of the usual --max-body, and its id
LONGEST_ANSWER = 1 << 30  # bytes of the line of an answer, such as the vectors of many texts
LONGEST_ID = 512  # characters
# After this many lines or bytes, whose JSON takes a thread about 1 ms, it rests.
REST_LINES, REST_BYTES, REST_SECONDS = 64, 64 << 10, 0.001


@dataclass(frozen=True, slots=True)
class Row:
    """A request of a batch; ``number`` is its line number, from 1."""

    number: int
    custom_id: str
    url: str
    body: dict[str, Any]


def rows_of(path: Path) -> Iterator[Row]:
    """The rows of a file, one line in memory at a time; blank lines are skipped.

    Raises: InputError that names the line, for one that is no row, or an id that was there before.
    """
    return rows_of_lines(path, lines_of(path, LONGEST_LINE), URLS)


def rows_of_lines(
    path: Path, lines: Iterable[bytes], urls: Collection[str], word: str = "line"
) -> Iterator[Row]:
    """The rows of lines of a file, which errors call ``word``. Raises: InputError."""
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}: {word} {number}"
        row = _row(where, number, line, urls)
        if row.custom_id in seen:
            raise InputError(
                f"{where}: custom_id {row.custom_id!r:.80} occurs twice; give each row its own"
            )
        seen.add(row.custom_id)
        yield row


def lines_of(path: Path, longest: int) -> Iterator[bytes]:
    """The lines of a file, of ``longest`` bytes at most. Raises: InputError.

    It rests between them: reading 50,000 rows takes half a second of the interpreter's lock.
    """
    try:
        with path.open("rb") as file:
            number, rested = 0, 0
            while line := file.readline(longest + 1):
                number += 1
                if number % REST_LINES == 0 or file.tell() - rested >= REST_BYTES:
                    time.sleep(REST_SECONDS)
                    rested = file.tell()
                if len(line) > longest:
                    raise InputError(
                        f"{path}: line {number} has more than {longest} bytes, the limit for a row"
                    )
                yield line
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); give a file with one JSON request per line"
        ) from error


def _row(where: str, number: int, line: bytes, urls: Collection[str]) -> Row:
    try:
        check_values(line)
        row = json.loads(line)
    except ApiError as error:
        raise InputError(f"{where}: {error}") from None
    except (ValueError, RecursionError) as error:
        fault = error.msg if isinstance(error, json.JSONDecodeError) else error
        raise InputError(
            f"{where} is not valid JSON ({fault}): {line[:40]!r}; correct or remove the line"
        ) from error
    if not isinstance(row, dict):
        raise InputError(f"{where} is not a JSON object: {line[:40]!r}")
    custom_id, url, body = row.get("custom_id"), row.get("url"), row.get("body")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= LONGEST_ID:
        raise InputError(
            f"{where}: custom_id is {custom_id!r:.40}; it must be a text of at most {LONGEST_ID} "
            "characters"
        )
    if row.get("method", "POST") != "POST":
        raise InputError(f"{where}: method is {row['method']!r:.40}; it must be POST")
    if not isinstance(url, str) or url not in urls:
        raise InputError(f"{where}: url is {url!r:.80}; it must be one of {', '.join(urls)}")
    if not isinstance(body, dict):
        raise InputError(f"{where}: body is {body!r:.40}; it must be an object")
    if body.get("stream"):
        raise InputError(f"{where}: body.stream is true; batches do not stream")
    return Row(number, custom_id, url, body)
