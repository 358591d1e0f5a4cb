"""Anthropic's message batches, with its client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from starlette.testclient import TestClient

from tests.server.anthropic_calls import GREEDY, HELLO, PATH
from tests.server.conftest import MakeApp
from trinity.server.batches import batch_store
from trinity.server.batches.batch_store import (
    BatchError,
    BatchErrors,
    BatchObject,
    BatchStore,
    Counts,
)
from trinity.server.endpoints.anthropic.batches import PREFIX, described_as


@pytest.fixture
def served(make: MakeApp, tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(make(state=tmp_path), base_url="http://localhost") as client:
        yield client


@pytest.fixture
def batches(served: TestClient) -> Any:
    client = anthropic.Anthropic(
        base_url="http://localhost", api_key="none", max_retries=0, http_client=served
    )
    return client.messages.batches


def request(name: str, **params: Any) -> Any:
    return {"custom_id": name, "params": {"model": "demo", "messages": HELLO, **GREEDY, **params}}


def ended(batches: Any, name: str) -> Any:
    limit = time.monotonic() + 60
    while (batch := batches.retrieve(name)).processing_status != "ended":
        assert time.monotonic() < limit, batch
        assert batch.results_url is None
        time.sleep(0.05)
    return batch


def test_each_request_has_its_result(batches: Any, served: TestClient) -> None:
    created = batches.create(
        requests=[request("a"), request("b", max_tokens=3), request("c", max_tokens=0)]
    )
    assert created.id.startswith(PREFIX)
    assert (created.processing_status, created.request_counts.processing) == ("in_progress", 3)
    batch = ended(batches, created.id)
    counts = batch.request_counts
    assert (counts.succeeded, counts.errored, counts.processing) == (2, 1, 0)
    assert batch.created_at <= batch.ended_at <= batch.expires_at
    results = {one.custom_id: one.result for one in batches.results(batch.id)}
    assert set(results) == {"a", "b", "c"}
    for name, most in (("a", 12), ("b", 3)):
        alone = served.post(PATH, json=request(name, max_tokens=most)["params"]).json()
        assert results[name].message.content[0].text == alone["content"][0]["text"]
    assert results["c"].type == "errored"
    assert results["c"].error.error.type == "invalid_request_error"
    assert "max_tokens" in results["c"].error.error.message
    assert served.get("/v1/batches").json()["data"] == []  # OpenAI's


def test_pages_of_batches(batches: Any) -> None:
    names = [batches.create(requests=[request("a")]).id for _ in range(5)]
    newest = [batch.id for batch in batches.list(limit=2)]  # the client asks for all pages
    assert sorted(newest) == sorted(names)
    page = batches.list(limit=2, before_id=newest[-1])
    assert [batch.id for batch in page.data] == newest[2:4]
    assert page.has_more
    assert (page.first_id, page.last_id) == (newest[2], newest[3])


@pytest.mark.full
def test_a_batch_is_cancelled_and_removed(batches: Any, served: TestClient) -> None:
    long = [request(f"r{i}", max_tokens=500, messages=HELLO * 3) for i in range(40)]
    name = batches.create(requests=long).id
    early = served.get(f"{PATH}/batches/{name}/results")
    assert (early.status_code, early.json()["error"]["type"]) == (400, "invalid_request_error")
    with pytest.raises(anthropic.BadRequestError, match="cancel it first"):
        batches.delete(name)
    assert batches.cancel(name).cancel_initiated_at is not None
    batch = ended(batches, name)
    counts = batch.request_counts
    assert counts.canceled + counts.succeeded == 40
    assert counts.canceled
    kinds = [one.result.type for one in batches.results(name)]
    assert (kinds.count("canceled"), len(kinds)) == (counts.canceled, 40)
    assert batches.delete(name).type == "message_batch_deleted"
    with pytest.raises(anthropic.NotFoundError, match=name):
        batches.retrieve(name)
    assert served.get("/v1/files").json()["data"] == []


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ([], "requests"),
        ([request("a"), request("b"), request("a")], r"requests\[2\].custom_id is 'a'"),
        ([request("a", stream=True)], r"requests\[0\].params.stream"),
        ([{"custom_id": "a"}], "params"),
    ],
)
def test_what_is_no_batch(batches: Any, requests: Any, words: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match=words):
        batches.create(requests=requests)


def test_refused_requests_leave_no_file(
    batches: Any, served: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_store, "MOST_BATCHES", 0)
    with pytest.raises(anthropic.RateLimitError):
        batches.create(requests=[request("a")])
    assert served.get("/v1/files").json()["data"] == []


def test_only_message_batches_are_found(batches: Any, tmp_path: Path) -> None:
    other = BatchStore(tmp_path / "batches").add("file-0", "/v1/embeddings", None)
    with pytest.raises(anthropic.NotFoundError):
        batches.retrieve(other.id)
    assert list(batches.list()) == []


@pytest.mark.parametrize(
    ("status", "count"),
    [("expired", "expired"), ("cancelled", "canceled"), ("failed", "errored")],
)
def test_requests_without_an_answer_are_counted(status: Any, count: str) -> None:
    batch = BatchObject("msgbatch_0", PATH, "file-0", 1, 2, request_counts=Counts(9, 3, 1))
    batch.errors = BatchErrors([BatchError("invalid_request", "line 1")])
    batch.become(status)
    found = described_as(batch)
    assert (found.processing_status, found.request_counts.processing) == ("ended", 0)
    assert getattr(found.request_counts, count) == 5 + (count == "errored")
    assert found.request_counts.succeeded == 3
    assert found.ended_at is not None
