"""Forms, Content-Types and uploads."""

from __future__ import annotations

import itertools
import time

from tests.soak.attacks.target import Target, attack

FILES, AUDIO = "/v1/files", "/v1/audio/transcriptions"
numbers = itertools.count()


def form(parts: list[tuple[str, bytes]], boundary: str = "b") -> bytes:
    """A body of multipart/form-data: the headers' text and the content of each part."""
    found = b"".join(
        f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + data + b"\r\n"
        for head, data in parts
    )
    return found + f"--{boundary}--\r\n".encode()


def kind(boundary: str = "b") -> dict[str, str]:
    """The header that such a body needs."""
    return {"Content-Type": f"multipart/form-data; boundary={boundary}"}


@attack()
def content_types_of_semicolons(target: Target) -> None:
    """A Content-Type of a form with 60,000 semicolons."""
    headers = {"Content-Type": "multipart/form-data" + ";" * 60_000}
    target.again(lambda: target.ask(AUDIO, b"x", headers), 8)


@attack()
def content_types_of_quotes(target: Target) -> None:
    """A Content-Type of a form with 15,000 quoted parameters."""
    given = "".join(f';{i:x}*0="' for i in range(9_000))
    headers = {"Content-Type": "multipart/form-data" + given[:60_000]}
    target.again(lambda: target.ask(AUDIO, b"x", headers), 8)


@attack()
def dispositions_of_semicolons(target: Target) -> None:
    """Parts of a form whose headers have 8 KB of semicolons each."""
    body = form([("name=x" + ";" * 8000, b"x")] * 60)
    target.again(lambda: target.ask(AUDIO, body, kind()), 8)


@attack()
def forms_of_many_parts(target: Target) -> None:
    """A form of 500,000 parts."""
    body = form([(f"name=a{i}", b"") for i in range(500_000)])
    target.again(lambda: target.ask(AUDIO, body[: 30 << 20], kind()), 2)


@attack()
def forms_of_almost_boundaries(target: Target) -> None:
    """20 MB in which each line begins like the boundary."""
    boundary = "a" * 69 + "b"
    body = form([("name=file; filename=x", (b"\r\n--" + b"a" * 69) * 280_000)], boundary)
    target.again(lambda: target.ask(AUDIO, body, kind(boundary)), 2)


@attack()
def file_names_of_odd_charsets(target: Target) -> None:
    """Files whose names are in charsets that are none, or that take long to decode."""
    charsets = ("no-such", "idna", "punycode", "utf-7", "x" * 4000, "undefined", "")

    def upload() -> None:
        name = f"name=file; filename*={charsets[next(numbers) % len(charsets)]}''" + "%41-" * 1000
        target.ask(FILES, form([("name=purpose", b"batch"), (name, b"{}" * 1000)]), kind())

    target.again(upload, 8)


@attack()
def unfinished_uploads(target: Target) -> None:
    """20 files of 20 MB whose last byte never comes."""
    body = form([("name=purpose", b"batch"), ("name=file; filename=x", b"x" * (20 << 20))])
    whole = target.request(FILES, body, kind())
    target.once(lambda: target.send(whole[:-1]), 20)


@attack()
def file_churn(target: Target) -> None:
    """Small files added and deleted, and listed."""

    def churn() -> None:
        body = form([("name=purpose", b"batch"), ("name=file; filename=x", b"{}\n")])
        found = target.ask(FILES, body, kind())
        name = found.partition(b'"id":"')[2].partition(b'"')[0].decode()
        target.ask(FILES)
        if name:
            target.ask(f"{FILES}/{name}", method="DELETE")

    target.again(churn, 8)


def batch(target: Target, content: bytes) -> bytes:
    """Upload a file, begin a batch of it, return the batch's name."""
    body = form([("name=purpose", b"batch"), ("name=file; filename=x", content)])
    found = target.ask(FILES, body, kind())
    name = found.partition(b'"id":"')[2].partition(b'"')[0].decode()
    begun = target.ask(
        "/v1/batches",
        {"input_file_id": name, "endpoint": "/v1/chat/completions", "completion_window": "24h"},
    )
    return begun.partition(b'"id":"')[2].partition(b'"')[0]


@attack()
def batches_of_huge_rows(target: Target) -> None:
    """Batches whose rows are of 31 MB: JSON of short values."""
    row = (
        b'{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"messages":['
        + b'{"role":"user","content":"x"},' * ((30 << 20) // 30)
        + b'{"role":"user","content":"x"}]}}\n'
    )
    batch(target, row)
    target.again(lambda: batch(target, row), 1, 0.2)


@attack()
def batches_of_many_rows(target: Target) -> None:
    """A batch of 100,000 rows that are answered with an error each."""
    head = '{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":{"messages":1}}\n'
    content = "".join(head % i for i in range(100_000)).encode()
    batch(target, content)
    while target.going():
        time.sleep(0.05)


@attack()
def batch_loops(target: Target) -> None:
    """Batches begun, cancelled and listed by four clients."""
    row = (
        b'{"custom_id":"a","method":"POST","url":"/v1/chat/completions",'
        b'"body":{"messages":[{"role":"user","content":"x"}],"max_tokens":200}}\n'
    )

    def loop() -> None:
        name = batch(target, row).decode()
        target.ask("/v1/batches")
        target.ask(f"/v1/batches/{name}/cancel", b"", method="POST")

    target.again(loop, 4)


@attack()
def batches_of_one_row(target: Target) -> None:
    """As many batches as possible, each of one row."""
    row = (
        b'{"custom_id":"a","method":"POST","url":"/v1/chat/completions",'
        b'"body":{"messages":[{"role":"user","content":"x"}],"max_tokens":1}}\n'
    )
    target.again(lambda: batch(target, row), 16)


@attack()
def downloads(target: Target) -> None:
    """A file of 20 MB, read as a whole and in 100 ranges, by 32 clients."""
    body = form([("name=purpose", b"batch"), ("name=file; filename=x", b"x" * (20 << 20))])
    found = target.ask(FILES, body, kind())
    name = found.partition(b'"id":"')[2].partition(b'"')[0].decode()
    ranges = ",".join(f"{i * 1000}-{i * 1000 + 1}" for i in range(100))
    wanted = itertools.cycle(({}, {"Range": f"bytes={ranges}"}))
    target.again(lambda: target.ask(f"{FILES}/{name}/content", headers=next(wanted)), 32)


@attack()
def batches_that_fail_at_their_last_row(target: Target) -> None:
    """Batches of 20,000 rows, of which the last is no JSON."""
    head = '{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":{"messages":1}}\n'
    content = "".join(head % i for i in range(20_000)).encode() + b"{"
    target.again(lambda: batch(target, content), 2)


@attack()
def descriptions_of_many_files(target: Target) -> None:
    """200 files, which are listed and described by 16 clients."""
    body = form([("name=purpose", b"batch"), ("name=file; filename=x", b"{}\n")])
    names = []
    for _ in range(200):
        found = target.ask(FILES, body, kind())
        names.append(found.partition(b'"id":"')[2].partition(b'"')[0].decode())
    wanted = itertools.cycle([f"{FILES}?limit=200", *(f"{FILES}/{name}" for name in names[:5])])
    target.again(lambda: target.ask(next(wanted)), 16)


@attack()
def uploads_of_20_mb(target: Target) -> None:
    """Files of 20 MB that are stored and removed by four clients."""
    body = form([("name=purpose", b"batch"), ("name=file; filename=x", b"x" * (20 << 20))])

    def upload() -> None:
        found = target.ask(FILES, body, kind())
        name = found.partition(b'"id":"')[2].partition(b'"')[0].decode()
        target.ask(f"{FILES}/{name}", method="DELETE")

    target.again(upload, 4)
