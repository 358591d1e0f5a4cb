"""Bodies of multipart/form-data (RFC 7578): fields by name, files as bytes."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from mmap import mmap
from urllib.parse import unquote

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from trinity.server.errors import ApiError

# It warns of every damaged form; the client gets an error already.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
_MOST_PARTS = 64
_MOST_HEADERS = 16  # of a part
_MOST_HEADER = 8 << 10  # bytes of one
_MOST_OPTIONS = 32  # of a header, which are after semicolons
_TEXT = 64 << 10  # bytes of a field that is no file
_PIECE = 1 << 20  # bytes that are parsed together
# A file's name in the form of RFC 8187, which is not allowed in forms, but sent.
_EXTENDED = re.compile(r";\s*filename\*\s*=\s*(?P<charset>[\w-]*)'[^';]*'(?P<name>[^;\s]*)", re.I)
_CHARSETS = {"utf-8": "utf-8", "iso-8859-1": "latin-1", "us-ascii": "ascii"}


@dataclass(slots=True)
class _FormPart:
    """A part: its headers, and the range of its content in the body, in bytes."""

    headers: list[tuple[bytearray, bytearray]] = field(default_factory=list)
    start: int = 0
    length: int = 0


def form_fields(
    body: bytes | mmap, content_type: str, *, with_filename: bool = False
) -> dict[str, object]:
    """Each field's text; of a file its bytes; of a name that ends with "[]" the list of all texts.

    A part with a filename is a file, and so is the part "file" without one. Names are without "[]".
    ``with_filename``: the field "filename" is the name of the first file, whose bytes are a view of
    ``body``, if that is mapped.
    Raises: ApiError 415 for a body of another type, 400 for a damaged one.
    """
    fields: dict[str, object] = {}
    view = memoryview(body)
    for part in _parts(body, _boundary(content_type)):
        name, filename = _disposition(part)
        data = view[part.start : part.start + part.length]
        if filename is not None or name == "file":
            value: object = data if with_filename and isinstance(body, mmap) else bytes(data)
            if with_filename and filename is not None:
                fields.setdefault("filename", filename)
        elif len(data) > _TEXT:
            raise ApiError(400, f"{name} has {len(data)} bytes; at most {_TEXT} are allowed", name)
        else:
            try:
                value = bytes(data).decode()
            except UnicodeDecodeError:
                raise ApiError(400, f"{name} is not valid UTF-8", name) from None
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
    kind, options = _options(content_type, "Content-Type")
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not boundary:
        raise ApiError(
            415, "the body must be multipart/form-data with a boundary, as forms send files"
        )
    if not re.fullmatch(rb"[ -~]{1,70}", boundary):
        raise ApiError(400, "the boundary of the form must have 1 to 70 characters of ASCII")
    return boundary


def _options(header: str, name: str) -> tuple[bytes, dict[bytes, bytes]]:
    """A header's value and its options. Raises: ApiError 400 for one that is too long to split."""
    if len(header) > _MOST_HEADER or header.count(";") > _MOST_OPTIONS:
        raise ApiError(
            400, f"the header {name} has more than {_MOST_HEADER} bytes or {_MOST_OPTIONS} options"
        )
    return parse_options_header(header)


def _parts(body: bytes | mmap, boundary: bytes) -> list[_FormPart]:
    """The parts of a form. Raises: ApiError 400 for a damaged one."""
    mark, begin = b"--" + boundary, 0
    if body[: len(mark)] != mark:
        begin = body.find(b"\r\n" + mark) + 2
        if begin < 2:
            raise ApiError(400, "the form does not have the boundary that its Content-Type names")
    reader = _FormReader(boundary)
    marks = 0
    try:
        for start in range(begin, len(body), _PIECE):
            piece = body[start : start + _PIECE]
            marks += piece.count(b"\r\n" + mark)  # RFC 2046: the content of a part has none
            if marks > _MOST_PARTS:
                raise ApiError(400, f"the form has more than {_MOST_PARTS} parts")
            if reader.read(start, piece):
                return reader.parts
    except FormParserError as error:
        raise ApiError(400, f"the form is damaged: {error}") from None
    raise ApiError(400, "the form is cut or damaged: a part of it does not end")


class _FormReader:
    """Finds parts in a body that is read in pieces."""

    def __init__(self, boundary: bytes) -> None:
        self.parts: list[_FormPart] = []
        self._ended = False
        self._piece, self._place = b"", 0
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": lambda: self.parts.append(_FormPart()),
                "on_header_begin": self._header,
                "on_header_field": self._name,
                "on_header_value": self._value,
                "on_part_data": self._content,
                "on_end": self._end,
            },
            max_header_count=_MOST_HEADERS,
            max_header_size=_MOST_HEADER,
        )

    def read(self, place: int, piece: bytes) -> bool:
        """Parse the bytes of the body that start at ``place``; return whether the form ended.

        Raises: FormParserError.
        """
        self._piece, self._place = piece, place
        self._parser.write(piece)
        return self._ended

    def _header(self) -> None:
        self.parts[-1].headers.append((bytearray(), bytearray()))

    def _name(self, data: bytes, start: int, end: int) -> None:
        self.parts[-1].headers[-1][0].extend(data[start:end])

    def _value(self, data: bytes, start: int, end: int) -> None:
        self.parts[-1].headers[-1][1].extend(data[start:end])

    def _content(self, data: bytes, start: int, end: int) -> None:
        part = self.parts[-1]
        if not part.length:
            # Other data repeats the end of the piece before, which could have been a boundary.
            part.start = self._place + (start if data is self._piece else start - end)
        part.length += end - start

    def _end(self) -> None:
        self._ended = True


def _disposition(part: _FormPart) -> tuple[str, str | None]:
    """The name of a part, and that of the file where it is one. Raises: ApiError 400."""
    for name, value in part.headers:
        if name.lower() == b"content-disposition":
            text = value.decode("utf-8", "replace")
            # The library takes Latin-1.
            _, options = _options(text.encode().decode("latin-1"), "Content-Disposition")
            given = options.get(b"name")
            if given is not None:
                return given.decode(), _filename(text, options.get(b"filename"))
    raise ApiError(400, "a part of the form has no name")


def _filename(header: str, plain: bytes | None) -> str | None:
    extended = _EXTENDED.search(header)
    if extended is None:
        return None if plain is None else plain.decode()
    charset = _CHARSETS.get(extended["charset"].lower())
    if charset is None:
        raise ApiError(
            400,
            f"filename* is in {extended['charset']!r:.40}; it must be in UTF-8 (RFC 8187)",
            "file",
        )
    return unquote(extended["name"], charset, "replace")
