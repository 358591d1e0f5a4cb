"""Models from a hub, downloaded with huggingface_hub from a server on this machine."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trinity
from tests.hub_client import Client, Opened, environment
from tests.hub_server import COMMIT, TOKEN, HubServer, Repository, running
from tests.tiny_models import write_tiny_model
from tests.tools.golden_models import model_directory
from trinity.errors import InputError, TrinityError
from trinity.hub.name import parse_name

pytest.importorskip("huggingface_hub")


class Hub:
    """The server, a client of it, and the client's cache."""

    def __init__(self, server: HubServer, home: Path) -> None:
        self.server, self.home = server, home
        self.client = Client(environment(server.url, home))

    def folder(self, repository: str) -> Path:
        return self.home / "hub" / f"models--{repository.replace('/', '--')}"

    def put(self, repository: str, files: dict[str, bytes], **more: Any) -> Repository:
        """A repository on the server, which has not been asked anything."""
        self.server.repositories[repository] = Repository(files, **more)
        self.server.requests.clear()
        self.server.is_down = False
        return self.server.repositories[repository]

    def open(self, name: str, **variables: str) -> Opened:
        return self._checked(name, self.client.open(name, **variables))

    def load_tokenizer(self, name: str, **variables: str) -> Opened:
        return self._checked(name, self.client.load_tokenizer(name, **variables))

    def _checked(self, name: str, found: Opened) -> Opened:
        if found.error:
            assert found.kind in ("InputError", "FormatError", "UnsupportedError"), found.error
            assert found.error.startswith(f"{name}: "), found.error
        return found


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running() as server:
        found = Hub(server, tmp_path_factory.mktemp("home"))
        yield found
        found.client.close()


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    write_tiny_model(path)
    return path.read_bytes()


def directory(name: str, tmp_path: Path) -> dict[str, bytes]:
    """The files of a golden directory."""
    top = model_directory(name, tmp_path)
    return {path.name: path.read_bytes() for path in top.iterdir()}


@pytest.mark.full
def test_model_comes_once_and_the_choice_is_said(hub: Hub, gguf: bytes) -> None:
    files = {"README.md": b"x", "m-Q4_K_M.gguf": gguf, "m-Q8_0.gguf": gguf + b"\0" * 32}
    hub.put("u/once", files)
    found = hub.open("hf:u/once")
    snapshot = hub.folder("u/once") / "snapshots" / COMMIT
    assert found.path == str(snapshot / "m-Q4_K_M.gguf")
    assert Path(found.path).read_bytes() == gguf
    assert "blk.0.attn_q.weight" in found.tensors
    assert "hf:u/once: using m-Q4_K_M.gguf; also available: Q8_0" in found.said
    assert found.said[-1].startswith("downloading m-Q4_K_M.gguf: 100% of 0.4 MB")
    assert len(hub.server.asked("GET", "/cdn/")) == 1
    assert not hub.server.asked("GET", "README.md")
    assert os.listdir(snapshot) == ["m-Q4_K_M.gguf"]
    hub.server.requests.clear()
    assert hub.open("hf:u/once:q4_k_m").path == found.path
    assert [path for _, path, _ in hub.server.requests] == ["/api/models/u/once/revision/main"]
    assert hub.open("hf:u/once:m-Q8_0.gguf").path == str(snapshot / "m-Q8_0.gguf")


def test_a_vision_tower_comes_with_its_model(hub: Hub, gguf: bytes) -> None:
    repository = hub.put("u/vision", {"m-Q8_0.gguf": gguf, "mmproj-m-F16.gguf": b"tower"})
    found = hub.open("hf:u/vision")
    assert not found.error
    snapshot = hub.folder("u/vision") / "snapshots" / repository.commit
    assert sorted(os.listdir(snapshot)) == ["m-Q8_0.gguf", "mmproj-m-F16.gguf"]


@pytest.fixture(scope="module")
def long_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 6 MB whose keys take more than 2."""
    path = tmp_path_factory.mktemp("long") / "m.gguf"
    write_tiny_model(path, metadata={"general.description": "x" * (2 << 20)})
    with path.open("ab") as file:
        file.write(b"\0" * ((6 << 20) - file.tell()))
    return path


def first_tokens(path: Path) -> list[str]:
    tokenizer = trinity.load_tokenizer(path)
    return [tokenizer.token_text(i) for i in range(8)]


HEAD = ["bytes=0-1048575", "bytes=1048576-4194303"]


def test_tokenizer_of_a_gguf_file_is_read_from_its_beginning(hub: Hub, long_gguf: Path) -> None:
    hub.put("u/head", {"m-Q8_0.gguf": long_gguf.read_bytes(), "m-Q2_K.gguf": b"x" * 5000})
    found = hub.load_tokenizer("hf:u/head")
    assert (found.error, found.tensors) == ("", first_tokens(long_gguf))
    assert found.said == [
        "hf:u/head: using m-Q8_0.gguf; also available: Q2_K",
        "hf:u/head: read the first 4.2 of 6.3 MB of m-Q8_0.gguf; they are not stored",
    ]
    assert [one["range"] for one in hub.server.asked("GET", "/cdn/")] == HEAD
    assert not hub.folder("u/head").exists()
    assert not hub.open("hf:u/head:Q8_0").error
    hub.server.requests.clear()
    assert hub.load_tokenizer("hf:u/head:Q8_0").tensors == found.tensors
    assert not hub.server.asked("GET", "/cdn/")


@pytest.mark.parametrize(
    "more",
    [{"ranges": False}, {"cut": [300_000, 1_500_000]}, {"large": 1 << 30}, {"says_sizes": False}],
    ids=str,
)
def test_beginning_of_a_file_from_a_poor_server(
    hub: Hub, long_gguf: Path, more: dict[str, Any]
) -> None:
    hub.put("u/poor", {"m.gguf": long_gguf.read_bytes()}, **more)
    found = hub.load_tokenizer("hf:u/poor")
    assert (found.error, found.tensors) == ("", first_tokens(long_gguf))


def test_tokenizer_of_a_split_model(hub: Hub, tmp_path: Path) -> None:
    """The first part contains the tokenizer."""
    write_tiny_model(tmp_path / "whole.gguf")
    parts = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    write_tiny_model(tmp_path / "m.gguf", metadata={"split.count": 2, "split.no": 0})
    first = (tmp_path / "m.gguf").read_bytes()
    hub.put("u/parts", {parts[0]: first, parts[1]: b"x" * len(first)})
    assert hub.load_tokenizer("hf:u/parts").tensors == first_tokens(tmp_path / "whole.gguf")


def test_beginnings_that_are_none(hub: Hub, gguf: bytes) -> None:
    hub.put("u/none", {"m.gguf": b"no model" * 500_000})
    assert "m.gguf: not a GGUF file" in hub.load_tokenizer("hf:u/none").error
    assert len(hub.server.asked("GET", "/cdn/")) == 1
    hub.put("u/ends", {"m.gguf": gguf[:3000]})
    assert (
        "which does not fit into the remaining 2310 bytes" in hub.load_tokenizer("hf:u/ends").error
    )
    hub.put("u/empty", {"m.gguf": b""})
    assert "the file is empty" in hub.load_tokenizer("hf:u/empty").error
    hub.server.is_down = True
    assert "status 503" in hub.load_tokenizer("hf:u/none").error


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["llama-grouped", "llama-sharded"])
def test_tokenizer_of_a_directory(hub: Hub, name: str, tmp_path: Path) -> None:
    """The weights stay on the hub, and may be missing."""
    files = directory(name, tmp_path / "whole")
    described = {name: content for name, content in files.items() if "safetensors" not in name}
    for repository in (files, described):
        hub.put("u/words", repository)
        shutil.rmtree(hub.folder("u/words"), ignore_errors=True)
        found = hub.load_tokenizer("hf:u/words")
        assert found.error == ""
        snapshot = hub.folder("u/words") / "snapshots" / COMMIT
        assert {path.name for path in snapshot.iterdir()} == set(described)
        assert found.tensors == first_tokens(snapshot)
    assert "no safetensors with their index" in hub.open("hf:u/words").error


def test_split_model(hub: Hub, tmp_path: Path) -> None:
    from tests.formats.test_gguf_split import part

    parts = [part(tmp_path, number, 2, [name], total=2) for number, name in enumerate("ab")]
    files = {f"Q8_0/{path.name}": path.read_bytes() for path in parts}
    hub.put("u/split", files, large=10)
    found = hub.open("hf:u/split:Q8_0")
    assert found.path.endswith("/Q8_0/m-00001-of-00002.gguf")
    assert found.tensors == ["a", "b"]


@pytest.mark.parametrize("name", ["llama-grouped", "llama-sharded"])
def test_directory(hub: Hub, name: str, tmp_path: Path) -> None:
    """Only the needed files are downloaded, small and large; links stay within the repository."""
    files = directory(name, tmp_path)
    more = {"README.md": b"x", "pytorch_model.bin": b"x" * 5000, "original/a.pth": b"x" * 5000,
            "onnx/model.onnx": b"x" * 5000, "flax_model.msgpack": b"x"}  # fmt: skip
    hub.put(f"u/{name}", {**files, **more})
    found = hub.open(f"hf:u/{name}")
    snapshot = hub.folder(f"u/{name}") / "snapshots" / COMMIT
    assert found.path == str(snapshot)
    assert {path.name for path in snapshot.iterdir()} == set(files)
    assert all((snapshot / name).read_bytes() == content for name, content in files.items())
    assert found.tensors


def test_directory_beside_gguf_files(hub: Hub, gguf: bytes, tmp_path: Path) -> None:
    hub.put("u/both", {**directory("llama-grouped", tmp_path), "m.gguf": gguf})
    assert hub.open("hf:u/both").path.endswith("m.gguf")
    assert hub.open("hf:u/both:safetensors").path.endswith(COMMIT)


def test_links_out_of_the_repository_are_not_followed(hub: Hub, tmp_path: Path) -> None:
    files = directory("llama-grouped", tmp_path)
    hub.put("u/link", files)
    snapshot = Path(hub.open("hf:u/link").path)
    elsewhere = hub.home / "elsewhere.json"
    shutil.copy(snapshot / "config.json", elsewhere)
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(elsewhere)
    assert "outside of the directory" in hub.client.open("hf:u/link").error


def test_blobs_that_repositories_share(hub: Hub, tmp_path: Path) -> None:
    """The library's store of several repositories, which it marks as shared."""
    hub.put("u/shared", directory("llama-grouped", tmp_path))
    snapshot = Path(hub.open("hf:u/shared").path)
    blob = (snapshot / "model.safetensors").resolve()
    shared = hub.home / "hub" / "blobs" / "ab" / ("ab" + "0" * 62)
    shared.parent.mkdir(parents=True)
    blob.rename(shared)
    blob.symlink_to(shared)
    assert "outside of the directory" in hub.client.open("hf:u/shared").error
    (hub.home / "hub" / "blobs" / ".huggingface-shared-blobs").write_text("1\n")
    assert hub.open("hf:u/shared").path == str(snapshot)


@pytest.mark.full
def test_cut_connection_is_taken_up(hub: Hub, gguf: bytes) -> None:
    hub.put("u/cut", {"m.gguf": gguf}, cut=[100_000, 250_000])
    assert Path(hub.open("hf:u/cut").path).read_bytes() == gguf
    first, *later = hub.server.asked("GET", "/cdn/")
    assert "range" not in first
    starts = [int(one["range"].removeprefix("bytes=").rstrip("-")) for one in later]
    assert len(starts) == 2
    assert 0 < starts[0] < starts[1] <= 250_000


@pytest.mark.full
def test_server_without_ranges_sends_all_again(hub: Hub, gguf: bytes) -> None:
    hub.put("u/whole", {"m.gguf": gguf}, cut=[100_000], ranges=False)
    assert Path(hub.open("hf:u/whole").path).read_bytes() == gguf


def test_unfinished_file_of_an_earlier_process(hub: Hub, gguf: bytes) -> None:
    hub.put("u/later", {"m.gguf": gguf})
    blobs = hub.folder("u/later") / "blobs"
    blobs.mkdir(parents=True)
    name = hashlib.sha256(gguf).hexdigest()
    (blobs / f"{name}.trinity.incomplete").write_bytes(gguf[:12345])
    assert Path(hub.open("hf:u/later").path).read_bytes() == gguf
    assert [one.get("range") for one in hub.server.asked("GET", "/cdn/")] == ["bytes=12345-"]
    assert os.listdir(blobs) == [name]


@pytest.mark.full
def test_listing_without_sizes(hub: Hub, gguf: bytes) -> None:
    hub.put("u/bare", {"m.gguf": gguf}, says_sizes=False, cut=[100_000])
    assert Path(hub.open("hf:u/bare").path).read_bytes() == gguf
    assert [one.get("range") is None for one in hub.server.asked("GET", "/cdn/")] == [True, False]
    assert os.listdir(hub.folder("u/bare") / "blobs") == [hashlib.sha256(gguf).hexdigest()]


def test_file_that_changed_meanwhile(hub: Hub, gguf: bytes) -> None:
    """Other bytes of the same length, then too many bytes; the next attempt gets the right ones."""
    repository = hub.put("u/other", {"m.gguf": gguf})
    repository.served["m.gguf"] = gguf[:-1] + bytes([gguf[-1] ^ 1])
    found = hub.open("hf:u/other")
    assert "has another hash than announced" in found.error
    repository.served["m.gguf"] = gguf + b"x"
    assert f"sends more than the {len(gguf)} bytes" in hub.open("hf:u/other").error
    repository.served.clear()
    blobs = hub.folder("u/other") / "blobs"
    assert Path(hub.open("hf:u/other").path).read_bytes() == gguf
    assert os.listdir(blobs) == [hashlib.sha256(gguf).hexdigest()]


@pytest.mark.full
def test_server_that_ends_too_early_again_and_again(hub: Hub, gguf: bytes) -> None:
    repository = hub.put("u/short", {"m.gguf": gguf}, ranges=False)
    repository.served["m.gguf"] = gguf[:1000]
    found = hub.open("hf:u/short")
    assert f"the server sent less than {len(gguf)} bytes" in found.error


def test_tokens_stay_with_the_hub(hub: Hub, gguf: bytes) -> None:
    hub.put("u/gated", {"m.gguf": gguf}, refusal=(403, "GatedRepo", ""))
    found = hub.open("hf:u/gated")
    page = f"{hub.server.url}/u/gated"
    assert f"access is restricted; accept the licence at {page}, then log in" in found.error
    assert "HF_TOKEN" in found.error
    hub.server.requests.clear()
    assert hub.open("hf:u/gated", HF_TOKEN=TOKEN).path.endswith("m.gguf")
    assert hub.server.asked("GET", "/resolve/")[0]["authorization"] == f"Bearer {TOKEN}"
    assert all("authorization" not in headers for headers in hub.server.asked("GET", "/cdn/"))


@pytest.mark.parametrize(
    ("status", "code", "message", "what"),
    [
        (401, "GatedRepo", "", "access is restricted; accept the licence"),
        (403, "", "", "access is restricted; accept the licence"),
        (404, "RepoNotFound", "", "has no such repository, or it is private; check the name"),
        (401, "", "", "has no such repository, or it is private; check the name"),
        (401, "", "Invalid credentials in Authorization header", "rejects the token"),
        (429, "", "", "limits the number of requests"),
        (500, "", "", "the server answered with status 500"),
    ],
)
def test_refusals(hub: Hub, status: int, code: str, message: str, what: str) -> None:
    hub.put("u/refused", {}, refusal=(status, code, message))
    assert what in hub.open("hf:u/refused").error


def test_no_such_repository(hub: Hub) -> None:
    assert "has no such repository, or it is private" in hub.open("hf:u/nothing").error


def test_revisions(hub: Hub, gguf: bytes) -> None:
    repository = hub.put("u/rev", {"m.gguf": gguf}, revisions=("main", "v1", "refs/pr/2"))
    assert "there is no revision 'v2'; see " in hub.open("hf:u/rev@v2").error
    for revision in ("v1", "refs/pr/2", COMMIT):
        assert hub.open(f"hf:u/rev@{revision}").path.endswith(f"{COMMIT}/m.gguf")
    assert (hub.folder("u/rev") / "refs" / "refs" / "pr" / "2").read_text() == COMMIT
    repository.commit = "f" * 40
    repository.files["m.gguf"] = gguf + b"\0" * 32
    assert hub.open("hf:u/rev").path.endswith(f"{'f' * 40}/m.gguf")
    hub.server.is_down = True
    assert hub.open("hf:u/rev@v1").path.endswith(f"{COMMIT}/m.gguf")
    assert hub.open("hf:u/rev").path.endswith(f"{'f' * 40}/m.gguf")


def test_server_that_is_down(hub: Hub, gguf: bytes, tmp_path: Path) -> None:
    files = directory("llama-sharded", tmp_path)
    hub.put("u/dirdown", files)
    hub.put("u/down", {"m-Q4_0.gguf": gguf, "m-Q8_0.gguf": gguf + b"\0" * 32})
    path = hub.open("hf:u/down:Q8_0").path
    snapshot = Path(hub.open("hf:u/dirdown").path)
    hub.server.is_down = True
    reason = "the server answered with status 503"
    found = hub.open("hf:u/down")
    assert (found.path, found.said) == (path, [f"hf:u/down: {reason}; using the cache"])
    error = hub.open("hf:u/down:Q4_0").error
    assert error.endswith(f"there is: Q8_0; the cache has only these: {reason}")
    assert f"{reason}; try again later" in hub.open("hf:u/never").error
    assert hub.open("hf:u/dirdown").path == str(snapshot)
    shard = next(name for name in files if name.startswith("model-"))
    (snapshot / shard).unlink()
    assert f"names {shard}, which is missing" in hub.open("hf:u/dirdown").error


@pytest.mark.parametrize(
    ("info", "what"),
    [
        ({"siblings": [{"rfilename": "../../evil.gguf"}]}, "whose name leads out of its folder"),
        ({"siblings": [{"rfilename": "/evil.gguf"}]}, "whose name leads out of its folder"),
        ({"siblings": [{"rfilename": "a/../b.gguf"}]}, "whose name leads out of its folder"),
        ({"siblings": [{"rfilename": "a\\b.gguf"}]}, "whose name leads out of its folder"),
        ({"siblings": [{"rfilename": "a\0b.gguf"}]}, "whose name leads out of its folder"),
        ({"sha": "../../x"}, "names '../../x' instead of a commit"),
        ({"sha": None}, "instead of a commit"),
        ({"siblings": [{"rfilename": "m.gguf", "size": -1}]}, "with the size -1"),
        ({"siblings": [{"rfilename": 7}]}, "it lists 7 with the size"),
        ({"siblings": "x"}, "does not respond like the hub"),
        ({"siblings": [{}]}, "does not respond like the hub"),
        ({"siblings": []}, "it contains nothing"),
        ({"siblings": [{"rfilename": "m.bin"}]}, "it contains m.bin"),
        ({"siblings": None}, "it contains nothing"),
        ({"siblings": [{"rfilename": "m.gguf", "lfs":
          {"sha256": "../../../evil", "size": 5, "pointerSize": 1}}]},
         "with the digest '../../../evil'"),
        ({"siblings": [{"rfilename": "m.gguf", "lfs":
          {"sha256": "a" * 64, "size": 1 << 60, "pointerSize": 1}}]}, "free some space"),
    ],
)  # fmt: skip
def test_hostile_answers(hub: Hub, info: dict[str, Any], what: str) -> None:
    hub.put("u/hostile", {"m.gguf": b"x"}, info=info)
    assert what in hub.open("hf:u/hostile").error
    assert not (hub.folder("u/hostile")).exists()


@pytest.mark.parametrize("says_sizes", [True, False])
def test_hash_that_is_a_path(hub: Hub, tmp_path: Path, says_sizes: bool) -> None:
    """The library would write a small file at the path that the ETag names."""
    evil = tmp_path / "evil"
    files = directory("llama-grouped", tmp_path)
    hub.put("u/etag", files, etag=str(evil), says_sizes=says_sizes)
    shutil.rmtree(hub.folder("u/etag"), ignore_errors=True)
    found = hub.open("hf:u/etag")
    if says_sizes:
        snapshot = Path(found.path)
        assert all((snapshot / name).read_bytes() == content for name, content in files.items())
    else:
        assert f"the hash of config.json is '{str(evil)[:40]}" in found.error
    assert not evil.exists()


def test_small_file_that_changed_meanwhile(hub: Hub, tmp_path: Path) -> None:
    files = directory("llama-grouped", tmp_path)
    siblings = [
        {"rfilename": name, "size": len(content), "blobId": "0" * 40}
        for name, content in files.items()
    ]
    hub.put("u/small", files, info={"siblings": siblings})
    assert "it was damaged in transit" in hub.open("hf:u/small").error


def test_index_that_leads_out(hub: Hub, tmp_path: Path) -> None:
    files = directory("llama-sharded", tmp_path)
    index = json.loads(files["model.safetensors.index.json"])
    index["weight_map"] = dict.fromkeys(index["weight_map"], "../../../evil.safetensors")
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    hub.put("u/index", files)
    assert "expected the name of a file in the same folder" in hub.open("hf:u/index").error


def test_index_that_names_more(hub: Hub, tmp_path: Path) -> None:
    files = directory("llama-sharded", tmp_path)
    shard = next(name for name in files if name.startswith("model-"))
    del files[shard]
    hub.put("u/less", files)
    assert f"names {shard}, which is missing" in hub.open("hf:u/less").error


@pytest.mark.full
def test_offline(hub: Hub, gguf: bytes) -> None:
    hub.put("u/off", {"m.gguf": gguf})
    path = hub.open("hf:u/off").path
    hub.server.requests.clear()
    client = Client(environment(hub.server.url, hub.home, HF_HUB_OFFLINE="1"))
    found = client.open("hf:u/off")
    assert found.path == path
    assert found.said == ["hf:u/off: HF_HUB_OFFLINE is set; using the cache"]
    error = client.open("hf:u/other-off").error
    assert error == (
        "hf:u/other-off: HF_HUB_OFFLINE is set; unset it to download what the cache lacks"
    )
    client.close()
    assert hub.server.requests == []


@pytest.mark.full
def test_no_server_at_all(hub: Hub, gguf: bytes) -> None:
    hub.put("u/gone", {"m.gguf": gguf})
    path = hub.open("hf:u/gone").path
    client = Client(environment("http://127.0.0.1:9", hub.home))  # the port of discard
    found = client.open("hf:u/gone")
    assert found.path == path
    assert "http://127.0.0.1:9 cannot be reached" in found.said[0]
    error = client.open("hf:u/never").error
    assert "http://127.0.0.1:9 cannot be reached" in error
    assert "check the network" in error
    client.close()


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    from trinity.providers import open_weights

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r'pip install "trinity-llm\[hub\]"'):
        open_weights("hf:u/r")


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (OSError(errno.ENOSPC, "No space left"), "is full; free some space, or set HF_HOME"),
        (PermissionError(errno.EACCES, "Denied", "/x"), "/x: Denied; set HF_HOME"),
        (RuntimeError("a\n  b"), r"cannot be reached \(RuntimeError: a b\)"),
        (KeyError("sha"), "does not respond like the hub: KeyError"),
    ],
)
def test_what_the_library_raises(error: Exception, what: str) -> None:
    from trinity.hub.client import explaining

    with pytest.raises(TrinityError, match=what) as info, explaining(parse_name("hf:u/r")):
        raise error
    assert str(info.value).startswith("hf:u/r: ")
