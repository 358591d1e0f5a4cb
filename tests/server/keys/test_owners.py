"""What each of several keys owns: across restarts, in batches, and its share of limits."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.server.conftest import MakeApp, socket_server
from tests.server.keys.attempts import (
    BATCHES,
    CACHED,
    COMPLETIONS,
    FILES,
    PROMPT,
    SLOT,
    TALK,
    begin,
    cache,
    fill_slot,
    respond,
    stream,
    weigh,
)
from tests.server.keys.conftest import Serve
from tests.server.keys.two_keys import Server
from trinity.model import Model
from trinity.server.batches.batch_store import ENDED
from trinity.server.caller import Keys, folder_of, part_of
from trinity.server.endpoints import ENDPOINTS

ONE = {"A": "the-only-key", "B": "the-only-key"}


def test_keys_have_owners_where_there_are_several() -> None:
    none, one, two = Keys(()), Keys(["first-key", "first-key"]), Keys(["first-key", "second-key"])
    assert (none.owners, one.owners, len(set(two.owners))) == (("",), ("",), 2)
    assert not none
    assert (one.owner_of("first-key"), one.owner_of("second-key")) == ("", None)
    assert [two.owner_of(key) for key in ("first-key", "second-key", "x")] == [*two.owners, None]
    assert Keys(["third-key", "first-key"]).owner_of("first-key") == two.owners[0]
    assert not any(key in name for name in two.owners for key in ("first", "second"))


def test_and_whose_files_and_batches(serve: Serve, tmp_path: Path) -> None:
    with serve(begin, folder=tmp_path) as first:
        keys = first.keys
    with serve(keys=dict(reversed(keys.items())), folder=tmp_path) as second:
        counts = [
            len(second.ask(key, "GET", path)[1]["data"])
            for key in "AB"
            for path in (FILES, BATCHES)
        ]
    assert counts == [1, 1, 0, 0]


def test_one_key_owns_what_there_was_before_keys(serve: Serve, tmp_path: Path) -> None:
    with serve(begin, keys=ONE, folder=tmp_path) as one:
        assert len(one.ask("B", "GET", FILES)[1]["data"]) == 1
    assert len(list((tmp_path / "files").glob("*.json"))) == 1
    assert not (tmp_path / "keys").exists()
    with serve(folder=tmp_path) as two:
        assert [two.ask(key, "GET", FILES)[1]["data"] for key in "AB"] == [[], []]


def test_prompts_of_one_key_are_cached_as_without_keys(serve: Serve, adapted: Model) -> None:
    prompt = [211, *PROMPT]
    with serve(keys=ONE) as server:
        server.made("POST", COMPLETIONS, {"prompt": prompt, "max_tokens": 1})
        answer = adapted.generate(prompt, max_tokens=1)
        assert answer.timings.cached_tokens == len(prompt) - 1


def test_a_batch_belongs_to_the_key_that_began_it(serve: Serve) -> None:
    row = {"custom_id": "a", "url": COMPLETIONS, "body": {"prompt": PROMPT, "max_tokens": 1}}

    def answered(server: Server) -> None:
        cache(server)
        files = {"file": ("in.jsonl", json.dumps(row).encode())}
        made = server.made("POST", FILES, files=files, data={"purpose": "batch"})
        body = {"input_file_id": made["id"], "endpoint": COMPLETIONS}
        server.names["BATCH"] = server.made("POST", BATCHES, body)["id"]

    with serve(answered, answers=True) as server:
        limit = time.monotonic() + 60
        path = f"{BATCHES}/{server.names['BATCH']}"
        while (found := server.made("GET", path))["status"] not in ENDED:
            assert time.monotonic() < limit
            time.sleep(0.01)
        output = f"{FILES}/{found['output_file_id']}/content"
        assert server.ask("B", "GET", output)[0] == 404
        assert server.ask("B", "GET", FILES)[1]["data"] == []
        status, answer = server.ask("A", "GET", output)
        usage = answer["response"]["body"]["usage"]
        assert (status, usage["prompt_tokens_details"]["cached_tokens"]) == (200, len(PROMPT) - 1)


def test_each_key_may_fill_its_part_of_the_files(serve: Serve) -> None:
    with serve(max_files=60_000) as server:
        files = {"file": ("a", b"x" * 20_000)}

        def status(key: str) -> Any:
            given = {"purpose": "batch"}
            return server.ask(key, "POST", FILES, files=dict(files), data=given)[0]

        assert [status(key) for key in "AAB"] == [200, 413, 200]


@pytest.mark.parametrize(
    ("most", "owners", "least", "part"),
    [(64, 1, 4, 64), (64, 2, 4, 32), (64, 100, 4, 4), (2, 1, 4, 2), (2, 9, 4, 2)],
)
def test_a_part_of_a_limit(most: int, owners: int, least: int, part: int) -> None:
    assert part_of(most, owners, least) == part


def test_shared_prompts_are_an_option_and_slots_are_not(serve: Serve) -> None:
    with serve(cache, share_prefix_cache=True) as server:
        usage = CACHED(server, "B")[1]["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == len(PROMPT) - 1
        fill_slot(server)
        assert server.ask("B", "POST", "/completion", SLOT)[1]["timings"]["cache_n"] == 0


def test_no_endpoint_tells_another_key_of_a_prompt(serve: Serve) -> None:
    """Every endpoint is read, with the ids that key A received."""

    def all_made(server: Server) -> None:
        for make in (begin, stream, respond, fill_slot, weigh):
            make(server)

    def telling(server: Server, key: str) -> set[str]:
        found, headers = set[str](), {"Authorization": f"Bearer {server.keys[key]}"}
        for endpoint in ENDPOINTS:
            path = endpoint.path
            for place, name in (("file_id", "FILE"), ("batch_id", "BATCH"), ("response", "REPLY")):
                path = path.replace(f"{{{place}}}", server.names[name])
            if endpoint.method == "GET" and path != "/models/sse":  # which does not end
                query = {"conv_id": "talk::1"}
                text = server.client.get(path, params=query, headers=headers).text
                if any(told in text.replace(path, "") for told in secret(server, path)):
                    found.add(endpoint.path)
        return found

    def secret(server: Server, path: str) -> list[str]:
        return ["swordfish", *(name for name in server.names.values() if name not in path)]

    with serve(all_made) as server:
        server.made("POST", "/v1/chat/completions", {"messages": TALK, "max_tokens": 1})
        assert telling(server, "B") == set()
        assert telling(server, "A") == {
            FILES,
            f"{FILES}/{{file_id}}/content",
            BATCHES,
            f"{BATCHES}/{{batch_id}}",
            *(f"{root}/responses/{{response}}/input_items" for root in ("", "/v1")),
        }


def test_the_folders_of_a_key_are_for_the_server_alone(serve: Serve, tmp_path: Path) -> None:
    with serve(begin, folder=tmp_path):
        folders = list((tmp_path / "keys").iterdir())
        assert len(folders) == 2
        inner = [one for folder in folders for one in folder.iterdir()]
        assert {one.name for one in inner} == {"files", "batches", "responses"}
        assert all(one.stat().st_mode & 0o077 == 0 for one in inner)
        assert folder_of(tmp_path, folders[0].name) == folders[0]


def test_requests_of_one_connection_have_their_own_keys(make: MakeApp, tmp_path: Path) -> None:
    """A pipelined request begins where the first one ends."""
    keys = ["the-key-of-one", "the-key-of-another"]
    with socket_server(make(api_key=keys, state=tmp_path)) as url:
        files, given = {"file": ("a.jsonl", b"x")}, {"purpose": "batch"}
        headers = {"Authorization": f"Bearer {keys[0]}"}
        made = httpx.post(f"{url}/v1/files", files=files, data=given, headers=headers, timeout=60)
        place = f"/v1/files/{made.json()['id']}"
        order = [keys[0], keys[1], "none", keys[0]]
        requests = "".join(
            f"GET {place} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n"
            for key in order
        )
        address = urlsplit(url)
        with socket.create_connection((address.hostname, address.port), 60) as client:
            client.sendall(requests.encode())
            found = b""
            while found.count(b"HTTP/1.1 ") < len(order) and (piece := client.recv(65536)):
                found += piece
        statuses = [int(one[:3]) for one in found.split(b"HTTP/1.1 ")[1:]]
        assert statuses == [200, 404, 401, 200]
