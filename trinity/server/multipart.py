"""Bodies of multipart/form-data (RFC 7578): fields by name, files as bytes."""

from __future__ import annotations

import re
from email.message import Message
from email.utils import collapse_rfc2231_value
from mmap import mmap

from trinity.server.errors import ApiError

_MOST_PARTS = 64
_MOST_HEADER = 8 << 10
_TEXT = 64 << 10  # bytes of a field that is no file


def form_fields(
    body: bytes | mmap, content_type: str, *, with_filename: bool = False
) -> dict[str, object]:
    """Each field's text; of a file its bytes; of a name that ends with "[]" the list of all texts.

    Where ``body`` is a file, the bytes are a view of it. Names are without "[]".
    ``with_filename``: the field "filename" is the name of the first file.
    Raises: ApiError 415 for a body of another type, 400 for a damaged one.
    """
    fields: dict[str, object] = {}
    for name, filename, data in _parts(body, _boundary(content_type)):
        if filename is not None:
            value: object = data
            if with_filename:
                fields.setdefault("filename", filename)
        elif len(data) > _TEXT:
            raise ApiError(400, f"{name} has {len(data)} bytes; at most {_TEXT} are taken", name)
        else:
            try:
                value = bytes(data).decode()
            except UnicodeDecodeError:
                raise ApiError(400, f"{name} is no text in UTF-8", name) from None
        plain = name.removesuffix("[]")
        if plain != name:
            several = fields.setdefault(plain, [])
            if not isinstance(several, list):
                raise ApiError(400, f"{plain} is given in two forms", plain)
            several.append(value)
        elif plain in fields:
            raise ApiError(400, f"{plain} is given twice", plain)
        else:
            fields[plain] = value
    return fields


def _boundary(content_type: str) -> bytes:
    header = Message()
    header["content-type"] = content_type
    found = header.get_param("boundary")
    if header.get_content_type() != "multipart/form-data" or not isinstance(found, str):
        raise ApiError(
            415, "the body must be multipart/form-data with a boundary, as forms send files"
        )
    if not re.fullmatch(r"[ -~]{1,70}", found):
        raise ApiError(400, "the boundary of the form must have 1 to 70 characters of ASCII")
    return found.encode()


def _parts(body: bytes | mmap, boundary: bytes) -> list[tuple[str, str | None, bytes | memoryview]]:
    """Name, name of the file where it is one, and content of each part."""
    damaged = ApiError(400, "the form is cut or damaged: a part of it does not end")
    mark = b"\r\n--" + boundary
    at = len(mark) - 2 if body[: len(mark) - 2] == mark[2:] else body.find(mark) + len(mark)
    if at < len(mark) - 2:
        raise ApiError(400, "the form does not have the boundary that its Content-Type names")
    found: list[tuple[str, str | None, bytes | memoryview]] = []
    contents = body if isinstance(body, bytes) else memoryview(body)
    while body[at : at + 2] != b"--":
        if len(found) == _MOST_PARTS:
            raise ApiError(400, f"the form has more than {_MOST_PARTS} parts")
        start = body.find(b"\r\n\r\n", at, at + _MOST_HEADER)
        end = body.find(mark, max(start, at))
        if start < 0 or end < 0:
            raise damaged
        name, filename = _disposition(body[at:start])
        found.append((name, filename, contents[start + 4 : end] if start + 4 <= end else b""))
        at = end + len(mark)
    return found


def _disposition(header: bytes) -> tuple[str, str | None]:
    for line in header.decode("utf-8", "replace").split("\r\n"):
        if line.lower().startswith("content-disposition:"):
            one = Message()
            one["content-disposition"] = line.partition(":")[2].strip()
            name = one.get_param("name", header="content-disposition")
            if isinstance(name, str):
                filename = one.get_param("filename", header="content-disposition")
                return name, None if filename is None else collapse_rfc2231_value(filename)
    raise ApiError(400, "a part of the form has no name")
