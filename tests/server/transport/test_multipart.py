"""Forms are parsed as Python's email package does, in chunks of any size, within limits."""

from __future__ import annotations

import random
import re
from email.parser import BytesParser
from email.policy import HTTP

import pytest

from tests.processor_time import within
from trinity.server.errors import ApiError
from trinity.server.transport import multipart
from trinity.server.transport.multipart import form_fields

KIND = "multipart/form-data; boundary=bound"
NAMED = b'Content-Disposition: form-data; name="file"; filename="a"'


def form(*parts: tuple[bytes, bytes]) -> bytes:
    """Return headers and content of each part."""
    made = (b"--bound\r\n%b\r\n\r\n%b\r\n" % one for one in parts)
    return b"".join(made) + b"--bound--\r\n"


def reference(body: bytes) -> dict[str, bytes]:
    """Return names and contents as parsed by the standard library."""
    whole = BytesParser(policy=HTTP).parsebytes(f"Content-Type: {KIND}\r\n\r\n".encode() + body)
    found = {}
    for part in whole.iter_parts():
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        found[str(part.get_param("name", header="content-disposition"))] = content
    return found


def refused(body: bytes, kind: str) -> None:
    with pytest.raises(ApiError) as caught:
        form_fields(body, kind)
    assert caught.value.status == 400


def test_contents_are_those_of_the_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    likely = [b"\r\n", b"\r\n--", b"--bound", b"\r\n--boun", b"\r", b"x", b"\r\n\r\n", b"-"]
    for _ in range(300):
        contents = [b"".join(rng.choices(likely, k=rng.randrange(12))) for _ in range(3)]
        contents = [one for one in contents if b"\r\n--bound" not in b"\r\n" + one]
        parts = [(NAMED.replace(b'"file"', b'"f%d"' % i), one) for i, one in enumerate(contents)]
        body = form(*parts)
        monkeypatch.setattr(multipart, "_PIECE", rng.randrange(1, 60))
        found = form_fields(body, KIND)
        assert found == {f"f{i}": one for i, one in enumerate(contents)}
        if contents and not re.search(rb"\r(?!\n)", b"".join(contents)):
            assert found == reference(body)  # which takes a bare CR for the end of a line


@pytest.mark.parametrize(
    "kind",
    [
        KIND + "; " + "a=b; " * 60_000,
        "multipart/form-data" + ";" * 60_000 + "boundary=bound",
        "multipart/form-data" + ';a="' * 60_000,
        KIND + "a" * 60_000,
    ],
)
def test_a_long_content_type_takes_no_time(kind: str) -> None:
    within(0.05, lambda: refused(form((NAMED, b"x")), kind))


@pytest.mark.parametrize(
    "headers",
    [
        NAMED + b";a" * 3000, NAMED + b";" * 3000, NAMED + b";a" * 60_000, b"A: b\r\n" * 64 + NAMED,
        b"a" * 9000, b"A:" + b" " * 9000,
    ],
)  # fmt: skip
def test_long_headers_of_a_part_are_refused(headers: bytes) -> None:
    within(0.05, lambda: refused(form((headers, b"x")), KIND))


def test_marks_in_a_content_are_refused_before_they_are_parsed() -> None:
    body = form((NAMED, b"\r\n--boundQ" * 500_000))
    within(0.5, lambda: refused(body, KIND))


@pytest.mark.parametrize(
    ("option", "name"),
    [
        (b"filename*=utf-8''f%C3%BCr.jsonl", "für.jsonl"),
        (b"filename*=UTF-8'en'a%20b", "a b"),
        (b"filename*=iso-8859-1''f%FCr", "für"),
        (b"filename=\"plain\"; filename*=utf-8''better", "better"),
        (b"filename*=utf-8''%ff%fe", "\ufffd\ufffd"),
        (b"filename*=utf-8''%ED%A0%80", "\ufffd\ufffd\ufffd"),
        (b'filename="f\xc3\xbcr"', "für"),
        (b"filename=bare", "bare"),
    ],
)
def test_names_of_files(option: bytes, name: str) -> None:
    headers = b'Content-Disposition: form-data; name="file"; ' + option
    assert form_fields(form((headers, b"x")), KIND, with_filename=True)["filename"] == name


@pytest.mark.parametrize(
    "charset", [b"hex", b"rot13", b"utf-7", b"undefined", b"idna", b"", b"no-such", b"utf-16"]
)
def test_a_name_in_another_charset_is_refused(charset: bytes) -> None:
    headers = b"Content-Disposition: form-data; name=\"file\"; filename*=%b''%%41" % charset
    with pytest.raises(ApiError) as caught:
        form_fields(form((headers, b"x")), KIND, with_filename=True)
    assert caught.value.status == 400
    assert "UTF-8" in caught.value.message
