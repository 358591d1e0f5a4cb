"""The chat page and the files that it is made of: GET / and /page/{name}.

Each file has a line in the table, so nothing else of the package can be asked for.
"""

from __future__ import annotations

from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from starlette.responses import Response

from trinity.server.endpoint import ASGI, Call, Endpoint

FOLDER = Path(__file__).parents[1] / "page"
INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain; charset=utf-8",
}
# The page shows text of models, so it may load and run only its own files.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    # A browser asks whether its copy is still right; a new version shows at once.
    "Cache-Control": "no-cache",
}


@cache
def content(name: str) -> tuple[bytes, str]:
    """A file's bytes and its ETag."""
    data = (FOLDER / name).read_bytes()
    return data, f'"{sha256(data).hexdigest()[:32]}"'


async def page(name: str, call: Call[Any]) -> ASGI:
    """The file, or 304 where the browser has it."""
    data, tag = content(name)
    headers = {**HEADERS, "ETag": tag}
    known = call.request.headers.get("if-none-match", "")
    if tag in {known_tag.strip().removeprefix("W/") for known_tag in known.split(",")}:
        return Response(status_code=304, headers=headers)
    return Response(data, headers={**headers, "Content-Type": TYPES[Path(name).suffix]})


def endpoint(path: str, name: str, summary: str) -> Endpoint:
    """The line of a file; it needs no key, which the page asks for."""
    return Endpoint(
        "GET", path, partial(page, name), summary,
        media_type=TYPES[Path(name).suffix].partition(";")[0], open=True,
    )  # fmt: skip


ENDPOINTS = (
    endpoint("/", INDEX, "A page to chat with the models."),
    *(
        endpoint(f"/page/{name}", name, "A file of the page.")
        for name in sorted(file.name for file in FOLDER.iterdir())
        if name != INDEX
    ),
)
