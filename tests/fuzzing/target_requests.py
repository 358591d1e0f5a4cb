"""Target: requests to a server: forms, Content-Types, framing, selected fields, slots."""

from __future__ import annotations

import json
import random
from urllib.parse import quote

from tests.fuzzing import values
from tests.fuzzing.case import Case
from tests.fuzzing.live_server import live, request

_FORMS = ("/v1/audio/transcriptions", "/v1/audio/translations", "/v1/files")
_FIELDS = (
    "file", "model", "purpose", "language", "prompt", "response_format", "temperature", "stream",
    "timestamp_granularities[]", "filename", "include[]", "", "a" * 300, "expires_after[seconds]",
)  # fmt: skip
_CONTENTS = (
    b"", b"batch", b"whisper-1", b"json", b"srt", b"verbose_json", b"0.5", b"true", b"en", b"word",
    b"NaN", b"\xff\xfe", b'{"custom_id": "a"}\n', b"RIFF\0\0\0\0WAVE", b"\r\n", b"-", b"1e999",
)  # fmt: skip
_CHARSETS = (
    "utf-8", "latin-1", "UTF-7", "idna", "punycode", "no-such", "", "undefined", "base64", "rot13",
    "utf-16", "unicode_escape", "mbcs", "raw_unicode_escape", "a" * 2000, "zlib", "\0",
)  # fmt: skip


def multipart(case: Case) -> None:
    """A form that is sound, odd or injured."""
    rng = case.rng
    if rng.random() < 0.3:
        upload(case)
        return
    boundary = rng.choice(("b", "-", "--", "a" * 70, "x y", "'()+_,-./:=?", "a" * 71, "b;c"))
    body = form(rng, boundary.encode())
    for _ in range(rng.choice((0, 0, 1, 1, 3))):
        injure(rng, body, (b"\r\n", b"--", b"--" + boundary.encode(), b"\r\n\r\n", b"\n", b"\0"))
    said = boundary if rng.random() < 0.9 else rng.choice(("", "c", boundary + " ", boundary[1:]))
    quoted = f'"{said}"' if rng.random() < 0.7 else said
    kind = {"Content-Type": f"multipart/form-data; boundary={quoted}"}
    send(case, request(rng.choice(_FORMS), kind, bytes(body)))


def upload(case: Case) -> None:
    """A file as a client sends it; at times a byte or two of the form are injured."""
    rng = case.rng
    name = rng.choice(("a.jsonl", "a b.jsonl", "é", quote(values.text(rng)[:60])))
    parts = (
        b'name="purpose"\r\n\r\nbatch',
        f'name="file"; filename="{name}"\r\n\r\n'.encode() + rng.choice(_CONTENTS),
    )
    body = bytearray()
    for part in rng.sample(parts, 2):
        body += b"--b\r\nContent-Disposition: form-data; " + part + b"\r\n"
    body += b"--b--\r\n"
    if rng.random() < 0.3:
        injure(rng, body, (b"\r\n", b"--b", b"\0"))
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    send(case, request("/v1/files", kind, bytes(body)))


def form(rng: random.Random, boundary: bytes) -> bytearray:
    """Parts with headers of several forms."""
    body = bytearray(rng.choice((b"", b"", b"preamble\r\n")))
    number = rng.choice((0, 1, 2, 3, 3, 4, 63, 64, 65)) if rng.random() < 0.3 else 2
    for _ in range(number):
        body += b"--" + boundary + b"\r\n" + part_head(rng) + b"\r\n\r\n"
        content = rng.choice(_CONTENTS)
        body += (content * rng.choice((1, 1, 1, 1000))) + b"\r\n"
    return body + b"--" + boundary + rng.choice((b"--\r\n", b"--", b"", b"--\r\nepilogue"))


def part_head(rng: random.Random) -> bytes:
    """The headers of a part."""
    name = rng.choice(_FIELDS)
    quote_ = rng.choice(('"', '"', '"', "", "'"))
    text = f"Content-Disposition: form-data; name={quote_}{name}{quote_}"
    kind = rng.random()
    if kind < 0.3:
        text += f'; filename="{rng.choice(("x.wav", "", "../../x", "a" * 500, values.text(rng)))}"'
    elif kind < 0.6:
        text += f"; filename*={rng.choice(_CHARSETS)}'{rng.choice(('', 'en'))}'{quote('é x')}%zz"
    elif kind < 0.7:
        text += "".join(f"; filename*{i}*=%4{i % 10}" for i in rng.sample(range(30), 12))
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        extra = ("Content-Type: audio/wav", "Content-Transfer-Encoding: base64", "X:", ":", "x",
                 "Content-Disposition: form-data; name=file", "X: " + "y" * 9000,
                 " folded")  # fmt: skip
        line = rng.choice(extra)
        text = f"{line}\r\n{text}" if rng.random() < 0.4 else f"{text}\r\n{line}"
    return text.encode("utf-8", "surrogatepass")


def injure(rng: random.Random, raw: bytearray, pieces: tuple[bytes, ...]) -> None:
    """Cut, repeat or replace some bytes."""
    at = rng.randrange(len(raw) + 1)
    kind = rng.randrange(4)
    if kind == 0:
        del raw[at:]
    elif kind == 1:
        del raw[at : at + rng.choice((1, 2, 10))]
    elif kind == 2:
        raw[at:at] = raw[at : at + rng.choice((1, 30, 300))]
    else:
        raw[at : at + rng.choice((0, 1, 2))] = rng.choice((*pieces, rng.randbytes(3)))


_KINDS = (
    "multipart/form-data", "application/json", "text/plain", "", "*/*", "multipart",
    "MULTIPART/Form-Data", "application/x-www-form-urlencoded", "/", "a/b/c",
)  # fmt: skip
_PARAMETERS = (
    "boundary", "boundary*", "boundary*0", "boundary*0*", "BOUNDARY", "charset", "q", "",
    "boundary*1", "boundary**",
)  # fmt: skip
_VALUES = (
    "b", '"b"', '"b', 'b"', "'b'", "utf-8''b", "no-such''%62", '"\\"b"', "", '"b;c"', "b=c",
    "a" * 71, '"' + "\\" * 50,
)  # fmt: skip


def content_type(case: Case) -> None:
    """A Content-Type of any form before a body of JSON or of a form."""
    rng = case.rng
    parts = [rng.choice(_KINDS)]
    for _ in range(rng.choice((0, 1, 1, 2, 5, 40))):
        name, value = rng.choice(_PARAMETERS), rng.choice((*_VALUES, values.text(rng)[:60]))
        parts.append(rng.choice((f"{name}={value}", name, value, f" {name} = {value} ")))
    text = rng.choice((";", "; ", ";;", ",", " ")).join(parts) * rng.choice((1, 1, 1, 20))
    raw = text.encode("utf-8", "surrogatepass")
    for byte in (b"\r", b"\n", b"\0"):
        raw = raw.replace(byte, b"" if rng.random() < 0.95 else byte)
    if rng.random() < 0.5:
        body, path = bytes(form(rng, b"b")), rng.choice(_FORMS)
    else:
        body, path = b'{"content": "x"}', "/tokenize"
    send(case, request(path, {"Content-Type": raw}, body), http=False)


_SIZES = ("-1", "0x1", "", "g", "f" * 17, "1" * 5000, " 1", "1_0", "+1")
_ENDS = (
    b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"0\r\n", b"", b"00\r\n\r\n",
    b"0\r\n" + b"X: y\r\n" * 3000 + b"\r\n",
)  # fmt: skip
_FRAMES = (
    *["Transfer-Encoding: chunked"] * 4, "Transfer-Encoding: gzip, chunked",
    "transfer-encoding: CHUNKED", "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding:\x0bchunked", "Content-Length: 5", "Content-Length: +5",
    "Content-Length: 5, 5", "Content-Length: 99999999999999999999", "Content-Length: -1",
)  # fmt: skip
_HEADERS = (
    "Content-Length: 3", "Expect: 100-continue", "Trailer: X", "TE: x", "X: y\r\n folded",
    "Transfer-Encoding: identity", "Upgrade: h2c", "Connection: keep-alive",
    "Content-Encoding: gzip",
)  # fmt: skip


def chunking(case: Case) -> None:
    """A body in chunks, or with a wrong length, sent in pieces; at times a second request."""
    rng = case.rng
    body = json.dumps({"content": "some words " * rng.choice((0, 1, 20, 2000))}).encode()
    raw = bytearray()
    at = 0
    while at < len(body):
        size = min(rng.choice((1, 2, 16, 200, 5000)), len(body) - at)
        written = rng.choice((f"{size:x}", f"{size:X}", f"000{size:x}", f"{size:x};a=b"))
        if rng.random() < 0.03:
            odd = (f"{size + 1:x}", f"{size:x};" + "e" * 3000, f"{size:x} ", *_SIZES)
            written = rng.choice(odd)
        raw += written.encode() + b"\r\n" + body[at : at + size] + b"\r\n"
        at += size
    raw += rng.choice(_ENDS)
    head = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    fields = [rng.choice(_FRAMES)]
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        fields.append(rng.choice(_HEADERS))
    whole = bytearray(head.encode() + "\r\n".join(fields).encode() + b"\r\n\r\n" + raw)
    if rng.random() < 0.3:
        injure(rng, whole, (b"\r\n", b"\r", b"\n", b"0\r\n\r\n", b" ", b"\0"))
    if rng.random() < 0.2:
        whole.extend(bytes(whole))
    pieces, cuts = [], sorted(rng.randrange(len(whole) + 1) for _ in range(rng.choice((0, 1, 3))))
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        pieces.append(bytes(whole[begin:end]))
    case.attempt("read", live().exchange, case, pieces, http=False)


_NAMES = (
    "content", "tokens", "timings", "timings/prompt_n", "generation_settings", "model", "stop",
    "generation_settings/samplers", "prompt", "index", "truncated", "tokens/0", "timings/a/b", "",
    "/", "//", "content/", "/content", "generation_settings/lora/0/id", "id_slot", "usage",
)  # fmt: skip


def response_fields(case: Case) -> None:
    """Draw names of fields for a response of /completion."""
    rng = case.rng
    names: list[object] = []
    for _ in range(rng.choice((0, 1, 2, 5, 30, 2000))):
        kind = rng.random()
        if kind < 0.7:
            names.append(rng.choice(_NAMES))
        elif kind < 0.9:
            names.append("/".join(rng.choice(_NAMES) for _ in range(rng.choice((1, 2, 3, 500)))))
        else:
            names.append(values.text(rng))
    if rng.random() < 0.05 and names:
        names[rng.randrange(len(names))] = rng.choice((None, 1, [], {}, True))
    body = {
        "prompt": "x",
        "n_predict": rng.choice((0, 1)),
        "response_fields": names,
        "stream": rng.random() < 0.3,
    }
    raw = json.dumps(body).encode()
    send(case, request("/completion", {"Content-Type": "application/json"}, raw))


def slots(case: Case) -> None:
    """A slot is saved, its file injured, and restored; or any action with any name."""
    rng, folder = case.rng, live().slots
    for path in folder.iterdir():
        path.unlink()
    if rng.random() < 0.5:
        prompt = {"prompt": "some words " * rng.choice((1, 20)), "n_predict": 1, "id_slot": 0}
        raw = json.dumps(prompt).encode()
        send(case, request("/completion", {"Content-Type": "application/json"}, raw))
        change(case, "0", "save", {"filename": "a"})
        saved = folder / "a"
        if saved.exists():
            content = bytearray(saved.read_bytes())
            for _ in range(rng.choice((0, 1, 1, 3))):
                injure(rng, content, (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f"))
            saved.write_bytes(bytes(content))
        change(case, rng.choice(("0", "1")), "restore", {"filename": "a"})
    names = (
        "a",
        "",
        ".",
        "..",
        "../a",
        "a/b",
        "\0",
        "a" * 201,
        "CON",
        " a",
        "a ",
        values.text(rng),
    )
    for _ in range(rng.choice((1, 2, 4))):
        slot = rng.choice(("0", "1", "-1", "99", "x", "9" * 12, "%00", "1.5", "\u0663"))
        action = rng.choice(("save", "restore", "erase", "", "x"))
        body: object = {"filename": rng.choice(names)}
        if rng.random() < 0.1:
            body = rng.choice(([], {}, {"filename": 1}, {"filename": None}, None))
        change(case, slot, action, body)


def change(case: Case, slot: str, action: str, body: object) -> None:
    """Request an action on a slot."""
    raw = json.dumps(body).encode()
    path = f"/slots/{quote(slot, safe='%')}?action={action}"
    send(case, request(path, {"Content-Type": "application/json"}, raw))


def send(case: Case, whole: bytes, *, http: bool = True) -> None:
    """Send a request at once."""
    case.attempt("read", live().exchange, case, [whole], http=http)
