"""A server with the parts of the hub's protocol that huggingface_hub needs for downloads.

Source: huggingface_hub, hf_api.py (model_info), file_download.py (get_hf_file_metadata, http_get)
and utils/_http.py (hf_raise_for_status). Large files are LFS files, which ``resolve`` redirects to
``/cdn``.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_right"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repository:
    """A repository; files of at least ``large`` bytes are LFS files.

    ``refusal``: status, X-Error-Code and X-Error-Message of every response to clients without
    TOKEN. ``cut``: the connection ends after so many bytes of a large file, once for each number.
    ``pause``: seconds after each 64 KiB. ``info`` overrides fields of the repository's description.
    """

    files: dict[str, bytes]
    commit: str = COMMIT
    revisions: tuple[str, ...] = ("main",)
    large: int = 1000
    refusal: tuple[int, str, str] | None = None
    cut: list[int] = field(default_factory=list)
    pause: float = 0.0
    info: dict[str, Any] = field(default_factory=dict)
    served: dict[str, bytes] = field(default_factory=dict)  # replaces the bytes of large files
    ranges: bool = True
    says_sizes: bool = True  # in the listing, on request
    etag: str | None = None  # replaces the right one of small files


class HubServer(ThreadingHTTPServer):
    """The server; ``requests`` are (method, path, headers) in order."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.is_down = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def cdn(self) -> str:
        """Another origin, which must not receive the token."""
        return f"http://localhost:{self.server_address[1]}"

    def asked(self, method: str, part: str) -> list[dict[str, str]]:
        """Return the headers of the requests with ``part`` in their path."""
        return [headers for how, path, headers in self.requests if how == method and part in path]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of clients that disconnect."""


@contextmanager
def running() -> Iterator[HubServer]:
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the tests read ``requests``."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        split = urlsplit(self.path)
        path = unquote(split.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append((self.command, path, headers))
        if self.server.is_down:
            self.close_connection = True
            self._error(503, "")
        elif path.startswith("/api/models/"):
            self._info(path.removeprefix("/api/models/"), parse_qs(split.query))
        elif path.startswith("/cdn/"):
            self._content(path)
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.*)", path):
            self._resolve(*found.groups())
        else:
            self._error(404, "")

    def _error(self, status: int, code: str, message: str = "") -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        self._send(status, b"", {name: value for name, value in headers.items() if value})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.close_connection:  # otherwise the client sends its next request here
            self.send_header("Connection", "close")
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _repository(self, name: str) -> Repository | None:
        """Return the repository, or send the refusal and return None."""
        found = self.server.repositories.get(name)
        has_token = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if found is None:
            # The hub's response, without a token, for what does not exist or is private.
            status, code, message = (404, "RepoNotFound", "") if has_token else (401, "", "")
        elif found.refusal is not None and not has_token:
            status, code, message = found.refusal
        else:
            return found
        self._error(status, code, message)
        return None

    def _info(self, rest: str, query: dict[str, list[str]]) -> None:
        name, _, revision = rest.partition("/revision/")
        found = self._repository(name)
        if found is None:
            return
        if revision and revision not in (*found.revisions, found.commit):
            self._error(404, "RevisionNotFound")
            return
        blobs = found.says_sizes and query.get("blobs", [""])[0].lower() == "true"
        siblings = [
            _sibling(name, content, found.large, blobs) for name, content in found.files.items()
        ]
        info = {"id": name, "sha": found.commit, "siblings": siblings, **found.info}
        self._send(200, json.dumps(info).encode(), {"Content-Type": "application/json"})

    def _resolve(self, name: str, revision: str, file: str) -> None:
        found = self._repository(name)
        if found is None:
            return
        if revision not in (*found.revisions, found.commit):
            self._error(404, "RevisionNotFound")
        elif file not in found.files:
            self._error(404, "EntryNotFound")
        else:
            content = found.files[file]
            headers = {"X-Repo-Commit": found.commit, "Accept-Ranges": "bytes"}
            if len(content) < found.large:
                self._send(
                    200, content, {**headers, "ETag": f'"{found.etag or git_hash(content)}"'}
                )
                return
            digest = hashlib.sha256(content).hexdigest()
            headers |= {
                "X-Linked-Size": str(len(content)),
                "X-Linked-Etag": f'"{digest}"',
                "Location": f"{self.server.cdn}/cdn/{name}/{digest}",
            }
            self._send(302, b"", headers)

    def _content(self, path: str) -> None:
        """Send a large file from the offset that the client requests."""
        _, _, user, repository, digest = path.split("/")
        found = self.server.repositories[f"{user}/{repository}"]
        name = next(n for n, c in found.files.items() if hashlib.sha256(c).hexdigest() == digest)
        content = found.served.get(name, found.files[name])
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, stop, status = 0, len(content), 200
        if wanted and found.ranges:
            status, start = 206, int(wanted[1])
            stop = min(stop, int(wanted[2]) + 1) if wanted[2] else stop
        headers = {"Content-Length": str(stop - start)}
        if status == 206:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
        end = min(found.cut.pop(0) if found.cut else stop, stop)
        self._send(status, b"", headers)
        for place in range(start, end, 1 << 16):
            self.wfile.write(content[place : min(place + (1 << 16), end)])
            time.sleep(found.pause)
        self.close_connection = end < stop


def _sibling(name: str, content: bytes, large: int, blobs: bool) -> dict[str, Any]:
    """Return a file's entry in the listing."""
    if not blobs:
        return {"rfilename": name}
    listed: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": git_hash(content)}
    if len(content) >= large:
        digest = hashlib.sha256(content).hexdigest()
        listed["lfs"] = {"size": len(content), "sha256": digest, "pointerSize": 135}
    return listed


def git_hash(content: bytes) -> str:
    """Git's hash of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
