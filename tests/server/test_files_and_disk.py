"""Files that clients upload and the server writes: limits, permissions, errors."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.asgi import Asked
from tests.server.conftest import LIMIT, MakeApp
from tests.server.held import Held
from trinity.errors import FormatError, InputError
from trinity.model import Model
from trinity.server import file_store
from trinity.server.app import make_app
from trinity.server.batches.batch_answer import answer_rows
from trinity.server.batches.batch_output import BatchOutput
from trinity.server.batches.batch_rows import rows_of
from trinity.server.errors import ApiError
from trinity.server.file_store import FileStore
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.settings import ServerOptions

URL = "/v1/chat/completions"


def row(name: str, more: str = "") -> str:
    body = f'{{"messages":[{{"role":"user","content":"x"}}]{more}}}'
    return f'{{"custom_id":"{name}","method":"POST","url":"{URL}","body":{body}}}\n'


def test_a_file_whose_description_fails_leaves_no_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FileStore(tmp_path, 1000)

    def fails(*_: object) -> bytes:
        raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")

    with monkeypatch.context() as patch:
        patch.setattr(file_store, "encode", fails)
        with pytest.raises(UnicodeEncodeError):
            files.add("a", "batch", b"x" * 100)
    assert list(tmp_path.iterdir()) == []


def test_everything_in_the_folder_counts(tmp_path: Path) -> None:
    files = FileStore(tmp_path, 1000)
    (tmp_path / f"{files.new_id()}.data").write_bytes(b"x" * 900)  # nobody's
    with pytest.raises(ApiError) as refused:
        files.add("a", "batch", b"x" * 200)
    assert refused.value.status == 413


def test_files_that_are_being_sent_count_together(tmp_path: Path) -> None:
    files = FileStore(tmp_path, 1000)
    with files.upload(100) as one:
        one(500)
        with files.upload(100) as other:
            with pytest.raises(ApiError) as refused:
                other(401)
            assert refused.value.status == 413
        one(400)
    with files.upload(100) as again:
        again(900)


def test_uploads_at_once_are_refused_before_they_end(make: MakeApp, tmp_path: Path) -> None:
    app = make(state=tmp_path, max_files=1_000_000)
    head = (
        b'--B\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    )
    headers = [("content-type", "multipart/form-data; boundary=B")]

    async def test() -> None:
        content = head + b"x" * 1_000_001 + b"\r\n--B--\r\n"
        refused = await Asked(app, "/v1/files", content=content, headers=headers).whole()
        assert refused.status == 413
        assert refused.json["error"]["code"] == "storage_full"
        kept = await Asked(
            app, "/v1/files", content=head + b"x\r\n--B--\r\n", headers=headers
        ).whole()
        assert kept.status == 200

    asyncio.run(test())


def test_a_saved_slot_is_its_owners(make: MakeApp, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with TestClient(make(slot_save_path=tmp_path), base_url="http://localhost") as client:
            body = {"prompt": list(range(20, 60)), "n_predict": 5, "id_slot": 1, "ignore_eos": True}
            client.post("/completion", json=body)
            (tmp_path / "old").write_bytes(b"")
            for name in ("new", "old"):
                saved = client.post("/slots/1?action=save", json={"filename": name})
                assert saved.status_code == 200, saved.text
                assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.fixture
def two(model: Model, tmp_path: Path) -> Iterator[tuple[TestClient, Path]]:
    """A server with the demo model and one whose file is missing, and another file."""
    secret = tmp_path / "models" / "secret-neighbour.gguf"
    secret.parent.mkdir()
    secret.write_bytes(b"x")
    gone = secret.with_name("secret-neighbor.gguf")

    def load() -> Model:
        raise InputError(f"{gone}: there is no such file; did you mean {secret.name}?")

    def weigh() -> int:
        raise FormatError(f"{gone}: cannot be opened")

    served = [
        Served("demo", "demo.gguf", lambda: model, model=model),
        Served("gone", str(gone), load, weigh),
    ]
    models = Models(served)

    async def nothing() -> None:
        pass

    models.close = nothing  # type: ignore[method-assign]
    app = make_app(models, ServerOptions())
    with TestClient(app, base_url="http://localhost") as client:
        yield client, gone


def test_models_that_can_be_opened_are_listed(two: tuple[TestClient, Path]) -> None:
    client, _ = two
    assert [one["name"] for one in client.get("/api/tags").json()["models"]] == ["demo"]


def test_errors_name_no_paths_and_no_neighbours(
    two: tuple[TestClient, Path], model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, gone = two
    messages = [{"role": "user", "content": "x"}]
    for path in (URL, "/v1/messages", "/api/chat", "/v1/responses"):
        body: Any = {"model": "gone", "messages": messages, "max_tokens": 1, "input": "x"}
        answer = client.post(path, json=body)
        assert answer.status_code == 503, answer.text
        assert "gone" in answer.text
        assert not re.search(r"secret|/models", answer.text)

    def fails(*_: object, **__: object) -> None:
        raise FormatError(f"{gone}: was cut short")

    monkeypatch.setattr(model, "prepared", fails)
    answer = client.post(URL, json={"model": "demo", "messages": messages})
    assert answer.status_code == 503
    assert str(gone.parent) not in answer.text


def test_large_rows_do_not_hold_the_loop(tmp_path: Path, held: Held) -> None:
    source = tmp_path / "rows"
    large = f',"metadata":{json.dumps({f"n{i}": "v" for i in range(65_000)})}'
    source.write_text("".join(row(f"r{i}", large) for i in range(4)))

    async def ask(one: Any) -> tuple[int, Any]:
        return 200, one.body

    async def written() -> None:
        pass

    async def answered(output: BatchOutput) -> None:
        async with asyncio.timeout(LIMIT):
            await answer_rows(rows_of(source), output, 3, ask, written)

    def test() -> None:
        output = BatchOutput(tmp_path / "out", {f"r{i}" for i in range(4)})
        asyncio.run(answered(output))
        output.close()
        assert output.done == {"r0", "r1", "r2", "r3"}
        (tmp_path / "out").unlink()

    held.check(test)


@pytest.mark.parametrize("more", [[[]] * 300_000, "x" * (5 << 20)], ids=["values", "bytes"])
def test_rows_that_no_request_could_be_are_refused(tmp_path: Path, more: object) -> None:
    source = tmp_path / "rows"
    source.write_text(row("a", f',"a":{json.dumps(more)}'))
    with pytest.raises(InputError, match=r"line 1.*more than"):
        list(rows_of(source))
