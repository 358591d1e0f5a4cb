"""bench_server.py runs; its measurements depend on the machine and are not tested."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import trinity
from scripts.bench.bench_server import PARTS, main, rows_schema, texts_schema
from scripts.bench.raw_http import Reply

ROOT = Path(__file__).resolve().parents[3]
QUICK = [
    "--model", trinity.demo_model(), "-t", "1", "--ctx", "512", "-r", "1", "--clients", "3",
    "--tokens", "6", "--system", "40", "--beside", "150", "--prompts", "10", "--kv-memory", "8M",
    "--grammar-tokens", "20", "--memory-tokens", "30",
]  # fmt: skip
# What each part prints.
LINES = {
    "load": [
        r"serve: \d+\.\d tokens/s of 3 clients",
        r"without HTTP: \d+\.\d tokens/s of 3 clients; the server has \d+\.\d\d of it",
        r"llama-server: \d+\.\d tokens/s of 3 clients; the server has \d+\.\d\d of it",
        r"/health under load, \d+ times: median \d+\.\d ms, 99% below \d+\.\d ms, longest .+ ms",
    ],
    "gap": [r"a stream while a prompt of 150 tokens .+: longest gap \d+ ms, median \d+ ms"],
    "memory": [r"memory with --kv-memory 8M: \d+ MiB before, then .* prompts \d+ MiB;.*"],
    "grammar": [
        r"8 streams, no schema: \d+\.\d tokens/s, 1\.00 of those without",
        r"8 streams, a schema of rows: \d+\.\d tokens/s, \d+\.\d\d of those without",
        r"8 streams, a schema of texts: \d+\.\d tokens/s, \d+\.\d\d of those without",
    ],
}


def measured(
    folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[list[str], Any]:
    report = folder / "report.json"
    assert main([*QUICK, "--json", str(report), *arguments]) == 0
    return capsys.readouterr().out.splitlines(), json.loads(report.read_text("utf-8"))


@pytest.mark.full
def test_the_load_beside_peers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """trinity's own server, with llama-server's options, takes the role of the peer."""
    peer = tmp_path / "llama-server"
    peer.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT}/scripts/llama_server.py "$@"\n')
    peer.chmod(0o755)
    lines, report = measured(tmp_path, capsys, "--only", "load", "--llama-server", str(peer))
    assert len(lines) == len(LINES["load"])
    assert all(map(re.fullmatch, LINES["load"], lines))
    assert 35 <= report["load"]["system_tokens"] <= 40
    assert [len(rates) for rates in report["load"]["rates"].values()] == [1, 1, 1]


@pytest.mark.few(1)
@pytest.mark.parametrize("part", [part for part in PARTS if part != "load"])
def test_each_part(part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, report = measured(tmp_path, capsys, "--only", part)
    assert len(lines) == len(LINES[part])
    assert all(map(re.fullmatch, LINES[part], lines)), lines
    assert list(report) == [part]


def test_schemas_do_not_end_early() -> None:
    """A shorter completion would have less to do."""
    for schema in (rows_schema(128), texts_schema(128)):
        assert schema["minItems"] == 128
        trinity.Grammar.json_schema(schema)


def test_what_comes_of_a_stream() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    pieces = [
        head + b'data: {"choices":[{"delta":{"role":"assistant","content":null}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"a \\"b\\""}}]}\n\n',
        b'data: {"choices":[{"delta":{"content": "c"}}]}\n\n'
        b'data: {"usage":{"completion_tokens":5}}\n\n',
        b"data: [DONE]\n\n",
    ]
    reply = Reply(0.0, [1.0, 2.0, 3.0, 4.0], pieces)
    assert reply.content_times() == [2.0, 3.0]
    assert reply.first_content() == 'a "b"'
    assert reply.tokens() == 5
    assert reply.ended == 4.0
    refused = Reply(0.0, [1.0], [b"HTTP/1.1 400 Bad Request\r\n\r\nno"])
    with pytest.raises(SystemExit, match="status 400: no"):
        refused.tokens()
    with pytest.raises(SystemExit, match="without its usage"):
        Reply(0.0, [1.0], [head + b"data: [DONE]\n\n"]).tokens()
