"""Batches whose folder is damaged, full or missing: errors are reported, other rows go on."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.batches.test_batches import URL, answers, begin, ended, lines, row, served, upload
from tests.server.conftest import MakeApp
from trinity.server.batches import batch_output, batch_rows, batches
from trinity.server.batches.batch_store import BatchObject, BatchStore
from trinity.server.batches.batches import Batches

__all__ = ["served"]
NAME = "a" * 24


def foreign(folder: Path, name: str, content: bytes) -> None:
    (folder / f"{name}.json").write_bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        b'{"id": "../../x", "bytes": 1, "created_at": 1, "filename": "x", "purpose": "batch"}',
        b'{"x": ' + b"[" * 100_000,
        b"\xff",
    ],
    ids=["another's id", "deep", "no JSON"],
)
def test_foreign_descriptions_are_no_files(
    served: TestClient, tmp_path: Path, content: bytes
) -> None:
    own = upload(served, b"x")
    foreign(tmp_path / "files", f"file-{NAME}", content)
    foreign(tmp_path / "batches", f"batch_{NAME}", content)
    assert served.get(f"/v1/files/file-{NAME}").status_code == 404
    assert served.get(f"/v1/batches/batch_{NAME}").status_code == 404
    assert [one["id"] for one in served.get("/v1/files").json()["data"]] == [own]
    assert served.get("/v1/batches").json()["data"] == []


def test_a_batch_under_anothers_name_is_none(served: TestClient, tmp_path: Path) -> None:
    batch = ended(served, begin(served, upload(served, lines([row(1)]))))
    foreign(tmp_path / "batches", f"batch_{NAME}", json.dumps(batch).encode())
    assert served.get(f"/v1/batches/batch_{NAME}").status_code == 404


def test_a_batch_that_has_ended_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = BatchStore(tmp_path)
    first, second = (store.add("file-x", URL, None) for _ in range(2))
    first.become("cancelled")
    store.save(first)
    assert [batch.id for batch in store.unfinished()] == [second.id]
    read: list[str] = []
    real = store.get
    monkeypatch.setattr(store, "get", lambda name: read.append(name) or real(name))
    assert [batch.id for batch in store.unfinished()] == [second.id]
    assert read == [second.id]
    second.become("completed")
    store.save(second)
    assert list(store.unfinished()) == []
    assert list(store.unfinished()) == []
    assert read == [second.id] * 2
    assert {batch.id for batch in store.all()} == {first.id, second.id}


def test_what_is_gone_is_told(served: TestClient, tmp_path: Path) -> None:
    file_id = upload(served, b"x")
    (tmp_path / "files" / f"{file_id}.data").unlink()
    assert served.get(f"/v1/files/{file_id}/content").status_code == 404
    shutil.rmtree(tmp_path)
    assert served.get("/v1/files").status_code == 503
    files = {"file": ("in.jsonl", b"x")}
    assert served.post("/v1/files", files=files, data={"purpose": "batch"}).status_code == 503


def test_a_batch_that_vanishes_stops_no_other(
    served: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Batches._advance
    file_id, wrong = upload(served, lines([row(1)])), upload(served, b"{")

    async def advance(self: Batches, batch: BatchObject, endpoints: Any) -> None:
        if batch.metadata == {"vanishes": "yes"}:
            (tmp_path / "batches" / f"{batch.id}.json").unlink()
        await real(self, batch, endpoints)

    monkeypatch.setattr(Batches, "_advance", advance)
    body = {"input_file_id": wrong, "endpoint": URL, "metadata": {"vanishes": "yes"}}
    assert served.post("/v1/batches", json=body).status_code == 200
    assert ended(served, begin(served, file_id))["status"] == "completed"


def test_what_has_not_begun_is_cancelled_at_once(
    served: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_id, other = upload(served, lines([row(1)])), upload(served, lines([row(2)]))

    async def forever(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(batches.Batches, "_answer", forever)
    first = begin(served, file_id)
    waiting = begin(served, other)
    told = served.post(f"/v1/batches/{waiting}/cancel").json()
    assert told["status"] == "cancelled"
    assert told["cancelled_at"] >= told["cancelling_at"]
    assert served.delete(f"/v1/files/{other}").status_code == 200
    assert served.get(f"/v1/batches/{first}").json()["status"] in ("validating", "in_progress")


def test_answers_may_be_longer_than_rows(
    served: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row(1, max_tokens=40, ignore_eos=True)]
    monkeypatch.setattr(batch_rows, "LONGEST_LINE", len(lines(rows)))
    batch = ended(served, begin(served, upload(served, lines(rows))))
    assert batch["status"] == "completed", batch
    (answer,) = answers(served, batch["output_file_id"])
    assert len(json.dumps(answer)) > len(lines(rows))


def test_a_disk_that_fails_keeps_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    first = batch_output.BatchOutput(tmp_path / "out", {"a"})
    first.add("a", 1, 200, {})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(OSError, match="Input/output"):
            first.close()
    second = batch_output.BatchOutput(tmp_path / "out", {"a"})
    assert second.done == {"a"}
    second.close()


def test_a_cancellation_on_a_full_disk_is_told(
    served: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def forever(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(batches.Batches, "_answer", forever)
    batch = begin(served, upload(served, lines([row(1)])))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "touch", full)
        assert served.post(f"/v1/batches/{batch}/cancel").status_code == 507


def test_a_name_in_the_form_of_rfc_2231(make: MakeApp, tmp_path: Path) -> None:
    form = (
        b'--B\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b"--B\r\nContent-Disposition: form-data; name=\"file\"; filename*=utf-8''f%C3%BCr.jsonl"
        b"\r\n\r\nx\r\n--B--\r\n"
    )
    with TestClient(make(state=tmp_path), base_url="http://localhost") as client:
        headers = {"content-type": "multipart/form-data; boundary=B"}
        told = client.post("/v1/files", content=form, headers=headers).json()
    assert told["filename"] == "f\u00fcr.jsonl"


def test_metadata_has_openais_bounds(served: TestClient) -> None:
    file_id = upload(served, lines([row(1)]))
    for metadata in ({"k" * 65: "v"}, {"k": "v" * 513}):
        body = {"input_file_id": file_id, "endpoint": URL, "metadata": metadata}
        assert served.post("/v1/batches", json=body).status_code == 400
