"""Target: model names on the hub, and the server's responses: listings, redirects, sizes, hashes.

huggingface_hub makes the requests, and a transport in the process answers them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import random
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import trinity
from tests.fuzzing import models, values
from tests.fuzzing.case import Case, Finding
from tests.fuzzing.target_huggingface import replace_one, tokenizer_json
from trinity.hub.name import parse_name

_COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAMES = (
    "hf:u/r", "hf:u/r:Q4_0", "hf:u/r:m-Q4_0.gguf", "hf:u/r:safetensors", "hf:u/r@main",
    "hf:u/r@v1:Q8_0", f"hf:u/r@{_COMMIT}", "hf:u/r:part",
)  # fmt: skip
_MODEL_FILES = ("m-Q4_0.gguf", "m-Q8_0.gguf", "part-00001-of-00002.gguf", "Q6_K/m.gguf")
_EVIL = (
    "../../../evil.gguf", "/evil.gguf", "a/../../../../evil.gguf", "a\\..\\evil.gguf", "a//b.gguf",
    "C:evil.gguf", "a\0.gguf", ".", "..", "", "config.json/x.gguf", "x" * 300 + ".gguf",
    "\u202egguf.m", "m-Q4_0.gguf/", "snapshots/../m.gguf", "mmproj-m.gguf",
)  # fmt: skip
_LOCATIONS = (
    "http://hub.test/cdn/other", "file:///etc/passwd", "//hub.test/cdn/other", "/loop",
    "http://[", "ftp://hub.test/x", "http://hub.test:99999/", "", "\u20ac",
)  # fmt: skip
_LONGEST_SLEEP = 600.0  # seconds that waiting between attempts may take in all
_SMALL = 400  # bytes from which a file is a large one


def hub(case: Case) -> None:
    """One repository and one name, right or wrong, opened or asked for its tokenizer."""
    rng = case.rng
    name = rng.choice(NAMES)
    if rng.random() < 0.25:
        name = wrong_name(rng, name)
        case.attempt("read", parse_name, name)
    server = Hub(rng)
    case.num_bytes += sum(map(len, server.files.values()))
    home = case.folder / "a" / "b" / "c" / "hub"
    with answered_by(server, home):
        wants = rng.random()
        for _ in range(rng.choice((1, 1, 2))):
            if wants < 0.6:
                provider = case.attempt("opened", trinity.open_weights, name)
                if provider is not None:
                    provider.close()
            else:
                tokenizer = case.attempt("opened", trinity.load_tokenizer, name)
                if tokenizer is not None:
                    case.attempt("tokenized", tokenizer.encode, values.prose(rng))
            server.is_down = rng.random() < 0.3
    check_places(case.folder, home)


def wrong_name(rng: random.Random, name: str) -> str:
    """Damage a name."""
    kind = rng.randrange(4)
    if kind == 0:
        return "hf:" + values.text(rng)
    at = rng.randrange(3, len(name) + 1)
    piece = rng.choice(("..", "/", "@", ":", "--", "\0", "\n", "%2e", "~", "x" * 200, "\u20ac"))
    return name[:at] + piece + name[at + rng.choice((0, 1)) :]


class Hub:
    """The files and responses of a hub with one repository."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.is_down = False
        self.files = _files(rng)
        self.spoiled = rng.random() < 0.5
        self.ranges = rng.random() < 0.8
        listing: dict[str, Any] = {"id": "u/r", "sha": _COMMIT, "siblings": self._siblings()}
        if self.spoiled:
            for _ in range(rng.choice((0, 1, 1, 2))):
                replace_one(rng, listing)
        self.listing = json.dumps(listing).encode("utf-8", "surrogatepass")
        if rng.random() < 0.03:
            self.listing = rng.choice((b"", b"[]", b"null", b"{", b'{"sha":1e999}', b"\xff\xfe"))

    def _siblings(self) -> list[dict[str, Any]]:
        rng, found = self.rng, []
        for file, content in self.files.items():
            said: dict[str, Any] = {"rfilename": file, "size": len(content)}
            if len(content) >= _SMALL:
                digest = hashlib.sha256(content).hexdigest()
                said["lfs"] = {"size": len(content), "sha256": digest, "pointerSize": 130}
            if rng.random() < 0.05:
                del said["size"]
                said.pop("lfs", None)
            elif rng.random() < 0.03 and "lfs" in said:
                said["lfs"]["size"] = rng.choice((0, 1, len(content) - 1, len(content) + 5, -1))
            elif rng.random() < 0.02 and "lfs" in said:
                said["lfs"]["sha256"] = rng.choice(("", "../../evil", "0" * 64, "g" * 64, None))
            found.append(said)
        return found

    def answer(self, http: Any, request: Any) -> Any:
        """Return the response to a request of the client."""
        rng, path = self.rng, request.url.path
        if self.is_down or rng.random() < 0.01:
            return self._failure(http, request)
        if path.startswith("/api/models/"):
            return http.Response(200, content=self.listing)
        found = re.fullmatch(r"/u/r/resolve/[^/]+/(.*)", path)
        if found and found[1] in self.files:
            return self._resolved(http, request, found[1], self.files[found[1]])
        if path == "/loop":
            return http.Response(302, headers={"Location": "/loop"})
        if path.startswith("/cdn/"):
            name = next((f for f in self.files if _digest(self.files[f]) in path), None)
            content = rng.randbytes(50) if name is None else self.files[name]
            return self._content(http, request, content, {})
        return http.Response(404, headers={"X-Error-Code": "EntryNotFound"})

    def _failure(self, http: Any, request: Any) -> Any:
        rng = self.rng
        if rng.random() < 0.3:
            raise http.ConnectError("refused", request=request)
        codes = ("", "GatedRepo", "RepoNotFound", "RevisionNotFound", "EntryNotFound", "x" * 5000)
        return http.Response(
            rng.choice((400, 401, 403, 404, 410, 416, 429, 500, 503)),
            headers={"X-Error-Code": rng.choice(codes), "X-Error-Message": rng.choice(codes)},
            content=rng.choice((b"", b'{"error":"x"}', b"<html>", b'{"error":' + b"[" * 2000)),
        )

    def _resolved(self, http: Any, request: Any, file: str, content: bytes) -> Any:
        rng = self.rng
        commit = _COMMIT if rng.random() < 0.97 else rng.choice(("", "../x", "0" * 40, "x" * 500))
        headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if len(content) < _SMALL:
            tag = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            if rng.random() < 0.02:
                tag = rng.choice(("", "../../evil", "/etc/x", "x" * 300, "a/b", "."))
            return self._content(http, request, content, {**headers, "ETag": f'"{tag}"'})
        digest = _digest(content)
        linked = digest if rng.random() < 0.97 else rng.choice(("../evil", "", "x" * 300))
        size = len(content) if rng.random() < 0.98 else rng.choice((0, 7, 1 << 60))
        headers |= {
            "X-Linked-Size": str(size),
            "X-Linked-Etag": f'"{linked}"',
            "Location": f"http://cdn.test/cdn/{digest}",
        }
        if rng.random() < 0.02:
            headers["Location"] = rng.choice(_LOCATIONS)
        return http.Response(302, headers=[(k, v.encode()) for k, v in headers.items()])

    def _content(self, http: Any, request: Any, content: bytes, headers: dict[str, str]) -> Any:
        rng, status = self.rng, 200
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", ""))
        if wanted and self.ranges:
            status, first = 206, int(wanted[1])
            end = int(wanted[2]) + 1 if wanted[2] else len(content)
            content = content[first:end]
            if not content:
                return http.Response(416)
        if rng.random() < 0.03:
            at = rng.randrange(len(content) + 1)
            content = rng.choice((content[:at], content + b"x" * 9, content[:at] + b"?"))
        if request.method == "HEAD":
            length = {"Content-Length": str(len(content))}
            return http.Response(status, headers={**headers, **length})
        return http.Response(status, headers=headers, content=content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _files(rng: random.Random) -> dict[str, bytes]:
    """Return a repository's files by name."""
    found: dict[str, bytes] = {}
    if rng.random() < 0.6:
        raw = bytes(models.model(rng, 0.0).encode()[0])
        for name in rng.sample(_MODEL_FILES, k=rng.choice((1, 1, 2, 3))):
            found[name] = raw if rng.random() < 0.9 else raw[: rng.randrange(len(raw))]
    if rng.random() < 0.6:
        config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 32}
        found["config.json"] = json.dumps(config).encode()
        found["tokenizer.json"] = json.dumps(tokenizer_json(rng)).encode()
        weights = {f"t{i}": f"model-{i}.safetensors" for i in range(rng.choice((1, 2)))}
        if rng.random() < 0.2:
            weights["t0"] = rng.choice(_EVIL)
        if rng.random() < 0.5:
            index = json.dumps({"weight_map": weights}).encode()
            found["model.safetensors.index.json"] = index
            found |= dict.fromkeys(weights.values(), b"\x02" + bytes(7) + b"{}" + bytes(500))
        else:
            found["model.safetensors"] = b"\x02" + bytes(7) + b"{}" + bytes(500)
    for _ in range(rng.choice((0, 0, 0, 1))):
        found[rng.choice(_EVIL)] = rng.randbytes(rng.choice((0, 5, 1000)))
    return found


@functools.cache
def _http_library() -> Any:
    """Return the library with which huggingface_hub makes its requests."""
    from huggingface_hub.utils import get_session

    return sys.modules[type(get_session()).__module__.partition(".")[0]]


@contextlib.contextmanager
def answered_by(server: Hub, home: Path) -> Iterator[None]:
    """Let the library ask this server and keep its cache at ``home``."""
    import huggingface_hub
    from huggingface_hub import constants
    from huggingface_hub.utils import _http as own

    http = _http_library()
    transport = http.MockTransport(lambda request: server.answer(http, request))
    slept = [0.0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds
        if slept[0] > _LONGEST_SLEEP:
            raise Finding("sleep", f"{slept[0]:.0f} s of waiting between attempts")

    factory = own._GLOBAL_CLIENT_FACTORY
    huggingface_hub.set_client_factory(
        lambda: http.Client(transport=transport, follow_redirects=True, trust_env=False)
    )
    try:
        with (
            patch.object(constants, "HF_HUB_CACHE", str(home)),
            patch.object(constants, "ENDPOINT", "http://hub.test"),
            patch.object(time, "sleep", sleep),
        ):
            yield
    finally:
        huggingface_hub.set_client_factory(factory)


def check_places(folder: Path, home: Path) -> None:
    """Raise Finding for a file outside the cache, or a link that leads out of it."""
    inside = os.path.realpath(home)
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if not os.path.realpath(path).startswith(inside + os.sep):
                raise Finding("place", f"{os.path.relpath(path, folder)} lies outside of the cache")
