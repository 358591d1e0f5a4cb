"""`trinity batch` writes each row exactly once, however a run ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from trinity.loading import chat_model

ROWS = 60


def row(number: int, **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"Who is Pierre? {number}"}]
    body = {"model": "any", "messages": messages, "max_tokens": 8, "seed": number, **body}
    url = "/v1/chat/completions"
    return {"custom_id": f"r{number}", "method": "POST", "url": url, "body": body}


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def answers(path: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {one["custom_id"]: one["response"] for one in lines}
    assert len(found) == len(lines)
    return found


def texts(path: Path) -> dict[str, Any]:
    found = answers(path)
    return {key: one["body"]["choices"][0]["message"]["content"] for key, one in found.items()}


def arguments(source: Path, out: Path) -> list[str]:
    return ["batch", str(source), str(out), "--model", chat_model(), "--threads", "1"]


def test_rows_are_answered(run: Run, tmp_path: Path) -> None:
    completion = {
        "custom_id": "c",
        "url": "/v1/completions",
        "body": {"prompt": "Prince", "max_tokens": 3},
    }
    source = write(tmp_path / "in.jsonl", [row(1), completion])
    result = run(*arguments(source, tmp_path / "out.jsonl"))
    assert result.exit_code == 0, result.stderr
    assert "2 of 2 rows" in result.stderr
    found = answers(tmp_path / "out.jsonl")
    assert {one["status_code"] for one in found.values()} == {200}
    assert found["r1"]["body"]["choices"][0]["message"]["content"]
    assert found["c"]["body"]["usage"]["completion_tokens"] == 3
    # All is there: no model is loaded.
    again = run("batch", str(source), str(tmp_path / "out.jsonl"), "--model", "nowhere.gguf")
    assert again.exit_code == 0
    assert "2 of 2 rows have results already" in again.stderr


def test_a_wrong_request_is_a_row_of_its_own(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [row(1, max_tokens=-2), row(2)])
    result = run(*arguments(source, tmp_path / "out.jsonl"))
    assert result.exit_code == 1
    assert "1 responses are errors" in result.stderr
    found = answers(tmp_path / "out.jsonl")
    assert found["r1"]["status_code"] == 400
    assert "max_tokens" in found["r1"]["body"]["error"]["message"]
    assert found["r2"]["status_code"] == 200


@pytest.mark.full
@pytest.mark.skipif(os.name != "posix", reason="kills by a signal")
def test_every_row_once_whatever_kills_it(run: Run, tmp_path: Path) -> None:
    source, out = write(tmp_path / "in.jsonl", [row(i) for i in range(ROWS)]), tmp_path / "out"
    expected = tmp_path / "whole"
    assert run(*arguments(source, expected)).exit_code == 0
    kills = 0
    for lines in (1, 20, 40):
        command = [sys.executable, "-m", "trinity", *arguments(source, out), "--at-once", "2"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        limit = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < limit:
            if out.exists() and out.read_bytes().count(b"\n") >= lines:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.001)
        kills += process.wait() == -signal.SIGKILL
        with out.open("ab") as file:
            file.write(b'{"id": "batch_req_5", "custom_id": "r5')  # as if it had been in mid-line
    assert kills
    assert run(*arguments(source, out)).exit_code == 0
    assert texts(out) == texts(expected)


WRONG: list[tuple[Any, str]] = [
    ("{", r"line 1 is not valid JSON"),
    ([1], r"line 1 is not a JSON object"),
    ({**row(1), "custom_id": 5}, "custom_id is 5; it must be a text"),
    ({**row(1), "method": "GET"}, "method is 'GET'; it must be POST"),
    ({**row(1), "url": "/v1/models"}, "url is '/v1/models'; it must be one of"),
    ({**row(1), "body": []}, r"body is \[\]; it must be an object"),
    (row(1, stream=True), "body.stream is true"),
]


@pytest.mark.parametrize(("line", "message"), WRONG)
def test_wrong_rows_are_told_before_the_first_answer(
    run: Run, tmp_path: Path, line: Any, message: str
) -> None:
    text = line if isinstance(line, str) else json.dumps(line)
    (tmp_path / "in.jsonl").write_text(text + "\n")
    result = run("batch", str(tmp_path / "in.jsonl"), str(tmp_path / "out"), "--model", "none")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {tmp_path / 'in.jsonl'}: line 1")
    assert re.search(message, result.stderr)
    assert not (tmp_path / "out").exists()


def test_wrong_files(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [row(1), row(1)])
    assert "line 2: custom_id 'r1' occurs twice" in run(*arguments(source, source)).stderr
    empty = write(tmp_path / "empty", [])
    assert "the file has no rows" in run(*arguments(empty, tmp_path / "out")).stderr
    assert "cannot be read" in run(*arguments(tmp_path / "no", tmp_path / "out")).stderr
    source = write(tmp_path / "in.jsonl", [row(1)])
    result = run(*arguments(source, source))
    assert "is not a result of a batch; give another file" in result.stderr
    source.write_text(json.dumps(row(1)))  # one line, without an end
    result = run(*arguments(source, source))
    assert "line 1 is not a result of a batch" in result.stderr
    assert json.loads(source.read_text()) == row(1)
    write(source, [row(1)])
    assert "cannot be written" in run(*arguments(source, tmp_path / "no" / "out")).stderr
    assert "is not a file" in run(*arguments(source, Path(os.devnull))).stderr
    other = write(tmp_path / "out", [{"custom_id": "x", "response": {"status_code": 200}}])
    assert "custom_id 'x' belongs to no row of this batch" in run(*arguments(source, other)).stderr
    assert json.loads(other.read_text())["custom_id"] == "x"
    assert source.read_text().count("\n") == 1
