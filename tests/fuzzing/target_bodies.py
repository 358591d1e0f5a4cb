"""Targets: request bodies that are compressed, and requests that download models."""

from __future__ import annotations

import json
import random
import zlib

from tests.fuzzing import target_hub, values
from tests.fuzzing.case import Case
from tests.fuzzing.live_server import live, request
from tests.fuzzing.target_requests import injure
from trinity.server.served import Served
from trinity.server.transport.compressed import codings, zstd_library

_CODINGS = (
    *[name.decode() for name in codings()] * 4, "GZIP", " gzip ", "identity", "gzip, gzip",
    "br", "compress", "", ",", "gzip;q=1", "deflate, identity", "\x0bgzip", "x" * 3000,
)  # fmt: skip
_JSON = {"Content-Type": "application/json"}


def compressed(case: Case) -> None:
    """A JSON body that is compressed well, badly, twice, or not at all."""
    rng = case.rng
    body = json.dumps({"content": "some words " * rng.choice((0, 1, 20, 2000, 20_000))}).encode()
    case.num_bytes += len(body)
    bits = rng.choice((15, 31, -15, 9, 25, -9, 0))
    raw = bytearray(_packed(body, bits, rng))
    if rng.random() < 0.1:
        raw = bytearray(_packed(bytes(raw), bits, rng))
    if rng.random() < 0.1:
        raw += rng.choice((b"\0", bytes(raw), rng.randbytes(5)))
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        injure(rng, raw, (b"\0\0\xff\xff", b"\x1f\x8b\x08", b"\x78\x9c", b"\0"))
    coding = rng.choice(_CODINGS)
    if rng.random() < 0.7:  # a coding whose data these may be
        coding = "gzip" if bits > 15 else "deflate" if bits else "zstd"
    headers = _JSON | {"Content-Encoding": coding}
    # After a malformed header the server closes the connection, even if bytes are still to come.
    http = coding.isprintable()
    if rng.random() < 0.3:
        headers |= {"Transfer-Encoding": "chunked"}
        pieces = _chunks(bytes(raw), rng)
        whole = request("/tokenize", headers, b"").replace(b"Content-Length: 0\r\n", b"")
        case.attempt("read", live().exchange, case, [whole, *pieces], http=http)
        return
    whole = request("/tokenize", headers, bytes(raw))
    case.attempt("read", live().exchange, case, [whole], http=http)


def _packed(body: bytes, bits: int, rng: random.Random) -> bytes:
    """Compress in one or several flushed parts, with zstd if ``bits`` is 0."""
    if not bits:
        return _zstd(body, rng)
    packer = zlib.compressobj(rng.choice((0, 1, 9)), zlib.DEFLATED, bits)
    size = max(1, len(body) // rng.choice((1, 1, 3)))
    parts = []
    for start in range(0, len(body), size):
        parts.append(packer.compress(body[start : start + size]))
        parts.append(packer.flush(rng.choice((zlib.Z_NO_FLUSH, zlib.Z_SYNC_FLUSH))))
    return b"".join(parts) + (packer.flush() if rng.random() < 0.95 else b"")


def _zstd(body: bytes, rng: random.Random) -> bytes:
    library = zstd_library()
    parameter = library.CompressionParameter
    packer = library.ZstdCompressor(options={
        parameter.compression_level: rng.choice((-5, 1, 19)),
        parameter.window_log: rng.choice((10, 20, 23, 27)),
        parameter.checksum_flag: rng.choice((0, 1)),
    })  # fmt: skip
    size = max(1, len(body) // rng.choice((1, 1, 3)))
    parts = [
        packer.compress(body[start : start + size], rng.choice((0, 1, 2)))
        for start in range(0, len(body), size)
    ]
    return b"".join(parts) + (packer.flush() if rng.random() < 0.95 else b"")


def _chunks(raw: bytes, rng: random.Random) -> list[bytes]:
    size = rng.choice((1, 7, 1000, 1 << 16)) if len(raw) < 2000 else 1000
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    return [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces] + [b"0\r\n\r\n"]


def pull(case: Case) -> None:
    """A request to download a model from a hub that answers rightly or wrongly."""
    rng, models = case.rng, live().models
    name = rng.choice(target_hub.NAMES).replace("hf:", rng.choice(("hf.co/", "hf:", "")))
    if rng.random() < 0.3:
        name = rng.choice((values.text(rng), name + rng.choice((":latest", "/", "@", "\0"))))
    body: dict[str, object] = {"model": name, "stream": rng.random() < 0.5}
    if rng.random() < 0.2:
        key = rng.choice(("model", "name", "stream", "insecure", "username", "x"))
        body[key] = rng.choice((None, 1, "", [], {}, True, name))
    hub = target_hub.Hub(rng)
    case.num_bytes += sum(map(len, hub.files.values()))
    home, before = case.folder / "hub", set(models.served)
    models.of_ref = lambda name, ref: Served(name, ref, models.first.load)
    whole = request("/api/pull", _JSON, json.dumps(body).encode())
    try:
        with target_hub.answered_by(hub, home):
            case.attempt("opened", live().exchange, case, [whole], may_fail=b"cannot be downloaded")
    finally:
        models.of_ref = None
        for added in set(models.served) - before:
            del models.served[added], models._by_name[added]
    target_hub.check_places(case.folder, home)
