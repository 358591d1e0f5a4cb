"""OpenAI's files and batches with its client: responses, errors, killed processes."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from tests.server.conftest import LIMIT, MakeApp, socket_server, wait_for
from tests.server.test_process import process
from trinity.runtime.scheduling.sequence import LAST
from trinity.server.batches import batch_rows, batches
from trinity.server.batches.batch_queue import BatchQueue
from trinity.server.batches.batch_store import BatchObject
from trinity.server.caller import Caller
from trinity.server.ignored import Ignored

URL = "/v1/chat/completions"
ENDED = ("completed", "failed", "cancelled", "expired")


def row(number: int, **body: object) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"Say {number}."}]
    return {
        "custom_id": f"r{number}",
        "method": "POST",
        "url": URL,
        "body": {"model": "demo", "messages": messages, "max_tokens": 4, "seed": 1, **body},
    }


def lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in rows)


@pytest.fixture
def served(make: MakeApp, tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(make(state=tmp_path), base_url="http://localhost") as client:
        yield client


def upload(client: Any, content: bytes) -> str:
    files = {"file": ("in.jsonl", content)}
    answer = client.post("/v1/files", files=files, data={"purpose": "batch"})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def begin(client: Any, file_id: str, url: str = URL) -> str:
    body = {"input_file_id": file_id, "endpoint": url, "completion_window": "24h"}
    answer = client.post("/v1/batches", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def ended(client: Any, batch: str, seconds: float = 60) -> dict[str, Any]:
    limit = time.monotonic() + seconds
    while True:
        found: dict[str, Any] = client.get(f"/v1/batches/{batch}").json()
        if found["status"] in ENDED:
            return found
        assert time.monotonic() < limit, found
        time.sleep(0.05)


def answers(client: Any, file_id: str) -> list[dict[str, Any]]:
    content = client.get(f"/v1/files/{file_id}/content")
    assert content.status_code == 200
    return [json.loads(line) for line in content.text.splitlines()]


def test_rows_are_answered_and_errors_lie_apart(served: TestClient) -> None:
    rows = [row(i) for i in range(12)]
    rows[7]["body"]["max_tokens"] = "many"
    file_id = upload(served, lines(rows))
    told = served.get(f"/v1/files/{file_id}").json()
    assert (told["filename"], told["purpose"], told["object"]) == ("in.jsonl", "batch", "file")
    batch = ended(served, begin(served, file_id))
    assert batch["status"] == "completed", batch
    assert batch["request_counts"] == {"total": 12, "completed": 11, "failed": 1}
    assert batch["created_at"] <= batch["in_progress_at"] <= batch["completed_at"]
    found = answers(served, batch["output_file_id"])
    assert sorted(one["custom_id"] for one in found) == sorted(
        one["custom_id"] for one in rows if one is not rows[7]
    )
    for one in found:
        number = int(one["custom_id"][1:])
        alone = served.post(URL, json=rows[number]["body"]).json()
        body = one["response"]["body"]
        assert body["choices"] == alone["choices"]
        assert one["error"] is None
    (wrong,) = answers(served, batch["error_file_id"])
    assert (wrong["custom_id"], wrong["response"]["status_code"]) == ("r7", 400)
    names = [one["id"] for one in served.get("/v1/files").json()["data"]]
    assert set(names) == {file_id, batch["output_file_id"], batch["error_file_id"]}
    assert served.get("/v1/batches").json()["data"] == [batch]


@pytest.mark.parametrize(
    ("url", "body"),
    [
        ("/v1/responses", {"input": "Who was Pierre?", "max_output_tokens": 4, "temperature": 0}),
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": "Who?"}], "max_tokens": 4, "temperature": 0},
        ),
    ],
)
def test_other_apis_have_batches(served: TestClient, url: str, body: dict[str, Any]) -> None:
    rows = [{"custom_id": "a", "method": "POST", "url": url, "body": {"model": "demo", **body}}]
    batch = ended(served, begin(served, upload(served, lines(rows)), url))
    assert batch["status"] == "completed", batch
    (found,) = answers(served, batch["output_file_id"])
    alone = served.post(url, json=rows[0]["body"]).json()
    name = "output" if "output" in alone else "content"
    parts = [one[name][0] for one in (found["response"]["body"], alone)]
    texts = [(part["content"][0] if "content" in part else part)["text"] for part in parts]
    assert texts[0] == texts[1]
    if url == "/v1/responses":  # a batch does not take the place of clients' stored responses
        stored = served.get(f"{url}/{found['response']['body']['id']}")
        assert stored.status_code == 404


@pytest.mark.parametrize("asked", [-1000, 0, 1000])
def test_a_row_goes_after_all_others(asked: int) -> None:
    assert Caller(of_batch=True).priority(Ignored(), asked) == LAST


WRONG: list[tuple[str, Callable[[list[dict[str, Any]]], bytes], str]] = [
    ("json", lambda rows: lines(rows) + b"{\n", "line 4 is not valid JSON"),
    ("twice", lambda rows: lines([*rows, rows[0]]), "line 4: custom_id 'r0' occurs twice"),
    ("url", lambda rows: lines([*rows, row(9) | {"url": "/v1/x"}]), "line 4: url is '/v1/x'"),
    ("other", lambda rows: lines([*rows, row(9) | {"url": "/v1/embeddings"}]), "line 4: url is"),
    ("method", lambda rows: lines([row(9) | {"method": "GET"}]), "line 1: method is 'GET'"),
    ("empty", lambda rows: b"\n\n", "the file has no rows"),
]


@pytest.mark.parametrize(
    ("content", "words"), [one[1:] for one in WRONG], ids=[w[0] for w in WRONG]
)
def test_files_that_are_no_batch(
    served: TestClient, content: Callable[[list[dict[str, Any]]], bytes], words: str
) -> None:
    batch = ended(served, begin(served, upload(served, content([row(i) for i in range(3)]))))
    assert batch["status"] == "failed"
    (error,) = batch["errors"]["data"]
    assert words in error["message"]
    assert "/" not in error["message"].partition(":")[0]  # no path of the server's
    if "line" in words:
        assert error["line"] == int(words.split("line ")[1].split(":")[0].split(" ")[0])


@pytest.mark.parametrize(("line", "count", "rests"), [(b"{}\n", 200, 3), (b"x" * 70_000, 5, 5)])
def test_a_thread_that_reads_many_lines_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes, count: int, rests: int
) -> None:
    path, rested = tmp_path / "rows", list[float]()
    path.write_bytes((line.strip() + b"\n") * count)
    monkeypatch.setattr(batch_rows, "time", SimpleNamespace(sleep=rested.append))
    assert len(list(batch_rows.lines_of(path, 1 << 20))) == count
    assert rested == [batch_rows.REST_SECONDS] * rests


def test_requests_that_are_refused(served: TestClient, client: TestClient) -> None:
    assert client.get("/v1/files").status_code == 501
    assert "--state" in client.get("/v1/batches").json()["error"]["message"]
    for path in ("/v1/files/file-x", "/v1/files/..%2fx/content", "/v1/batches/batch_1"):
        assert served.get(path).status_code == 404
    none = f"file-{'0' * 24}"
    assert served.get(f"/v1/files/{none}/content").status_code == 404
    assert served.delete(f"/v1/files/{none}").status_code == 404
    body = {"input_file_id": none, "endpoint": URL, "completion_window": "24h"}
    assert served.post("/v1/batches", json=body).status_code == 404
    file_id = upload(served, lines([row(1)]))
    for wrong in ({"endpoint": "/v1/x"}, {"completion_window": "1h"}, {"metadata": {"a": 1}}):
        answer = served.post("/v1/batches", json=body | {"input_file_id": file_id} | wrong)
        assert answer.status_code == 400, wrong
    other = served.post("/v1/files", files={"file": b"x"}, data={"purpose": "fine-tune"})
    assert other.status_code == 400


def test_ceilings(make: MakeApp, tmp_path: Path) -> None:
    with TestClient(
        make(state=tmp_path, max_file=2000, max_files=1500), base_url="http://localhost"
    ) as client:
        first = upload(client, b"x" * 1000)
        files = {"file": ("in.jsonl", b"x" * 1000)}
        answer = client.post("/v1/files", files=files, data={"purpose": "batch"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "storage_full")
        assert client.delete(f"/v1/files/{first}").json()["deleted"] is True
        upload(client, b"x" * 1000)
        files = {"file": ("in.jsonl", b"x" * 3000)}
        answer = client.post("/v1/files", files=files, data={"purpose": "batch"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_long")
    assert len(list((tmp_path / "files").iterdir())) == 2


def test_a_batch_that_is_cancelled(served: TestClient) -> None:
    file_id = upload(served, lines([row(i, max_tokens=200) for i in range(40)]))
    batch = begin(served, file_id)
    assert served.delete(f"/v1/files/{file_id}").status_code == 409
    # One that has not begun would be cancelled at once.
    wait_for(lambda: served.get(f"/v1/batches/{batch}").json()["status"] == "in_progress")
    assert served.post(f"/v1/batches/{batch}/cancel").json()["status"] == "cancelling"
    found = ended(served, batch)
    assert found["status"] == "cancelled"
    counts = found["request_counts"]
    assert counts["completed"] < 40
    if found["output_file_id"]:
        assert len(answers(served, found["output_file_id"])) == counts["completed"]
    assert served.delete(f"/v1/files/{file_id}").status_code == 200


async def _answered(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await asyncio.sleep(0.02)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


def _two(folder: Path, count: int) -> tuple[BatchQueue, BatchQueue, BatchObject]:
    """Return two servers that share a folder, and a batch of theirs."""
    one, two = (BatchQueue(folder, 1 << 20, ("",)) for _ in range(2))
    file = one.of("").files.add("a", "batch", lines([row(i) for i in range(count)]))
    return one, two, one.of("").store.add(file.id, URL, None)


def test_what_another_server_has_answered_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, batch = _two(tmp_path, 3)
    done = asyncio.Event()

    async def late(call: Any, *args: Any) -> Any:
        found = call(*args)
        if call is batches._checked and asyncio.current_task() is second:
            await done.wait()  # since it has read what the batch is
        return found

    async def run() -> None:
        nonlocal second
        monkeypatch.setattr(asyncio, "to_thread", late)
        second = asyncio.create_task(two.run({URL: _answered}))
        first = asyncio.create_task(one.run({URL: _answered}))
        while one.of("").store.get(batch.id).status not in ENDED:
            await asyncio.sleep(0.01)
        done.set()
        await asyncio.sleep(0.3)
        first.cancel()
        second.cancel()

    second: Any = None
    asyncio.run(run())
    found = one.of("").store.get(batch.id)
    assert (found.status, found.errors) == ("completed", None)
    assert found.output_file_id is not None
    assert len(one.of("").files.path(found.output_file_id).read_bytes().splitlines()) == 3
    assert len(list(one.of("").files.all())) == 2
    assert [path.suffix for path in (tmp_path / "batches").iterdir()] == [".json"]


def test_another_server_can_cancel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "SAVE_SECONDS", 0.05)
    one, two, batch = _two(tmp_path, 400)

    async def run() -> None:
        task = asyncio.create_task(one.run({URL: _answered}))
        while one.of("").get(batch.id).request_counts.completed == 0:
            await asyncio.sleep(0.01)
        assert two.of("").cancel(batch.id).status == "cancelling"
        while one.of("").store.get(batch.id).status not in ENDED:
            assert two.of("").get(batch.id).status in ("cancelling", "cancelled")
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(run())
    found = one.of("").store.get(batch.id)
    assert found.status == "cancelled"
    assert 0 < found.request_counts.completed < 400


def test_the_official_client(make: MakeApp, tmp_path: Path) -> None:
    openai = pytest.importorskip("openai")
    with socket_server(make(state=tmp_path)) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="x")
        made = client.files.create(file=("a.jsonl", lines([row(1), row(2)])), purpose="batch")
        batch = client.batches.create(
            input_file_id=made.id, endpoint=URL, completion_window="24h", metadata={"a": "b"}
        )
        limit = time.monotonic() + 60
        while client.batches.retrieve(batch.id).status not in ENDED:
            assert time.monotonic() < limit
            time.sleep(0.05)
        done = client.batches.retrieve(batch.id)
        assert (done.status, done.request_counts.completed) == ("completed", 2)
        text = client.files.content(done.output_file_id).text
        assert {json.loads(line)["custom_id"] for line in text.splitlines()} == {"r1", "r2"}
        assert [one.id for one in client.batches.list()] == [batch.id]
        assert made.id in [one.id for one in client.files.list(purpose="batch")]
        assert client.files.delete(made.id).deleted


@pytest.mark.full
def test_kill_minus_nine_leaves_every_row_once(tmp_path: Path) -> None:
    rows = [row(i, max_tokens=8) for i in range(40)]
    state = ("--state", str(tmp_path))
    with process(*state) as (one, url), httpx.Client(base_url=url, timeout=LIMIT) as client:
        batch = begin(client, upload(client, lines(rows)))
        seen = wait_for_more(client, batch, 0)
        one.send_signal(signal.SIGKILL)
    with process(*state) as (two, url), httpx.Client(base_url=url, timeout=LIMIT) as client:
        seen = wait_for_more(client, batch, seen)
        two.send_signal(signal.SIGKILL)
    with process(*state) as (_, url), httpx.Client(base_url=url, timeout=LIMIT) as client:
        found = ended(client, batch)
        assert found["request_counts"] == {"total": 40, "completed": 40, "failed": 0}
        got = [one["custom_id"] for one in answers(client, found["output_file_id"])]
    assert sorted(got) == sorted(one["custom_id"] for one in rows)


def wait_for_more(client: httpx.Client, batch: str, seen: int) -> int:
    """Return the number of completed rows once it exceeds ``seen``."""
    limit = time.monotonic() + 60
    while True:
        found = client.get(f"/v1/batches/{batch}").json()
        done = int(found["request_counts"]["completed"])
        if done > seen or found["status"] in ENDED:
            return done
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_the_disk_never_holds_the_event_loop(
    served: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads flush files, however a batch ends: a disk may take a fraction of a second."""
    sync, on_loop, count = os.fsync, list[str](), itertools.count()

    def watched(file: int) -> None:
        next(count)
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            on_loop.append("".join(traceback.format_stack(limit=6)))
        sync(file)

    monkeypatch.setattr(os, "fsync", watched)
    whole, wrong = upload(served, lines([row(1), row(2)])), upload(served, b"{")
    assert ended(served, begin(served, whole))["status"] == "completed"
    assert ended(served, begin(served, wrong))["status"] == "failed"
    endless = begin(served, upload(served, lines([row(i, max_tokens=400) for i in range(50)])))
    served.post(f"/v1/batches/{endless}/cancel")
    assert ended(served, endless)["status"] == "cancelled"
    assert on_loop == []
    assert next(count) > 10
