"""Request paths as clients write them: a base URL with one part too many or a slash too many."""

from __future__ import annotations

import re

from starlette.types import Scope

# An absolute URL as the request's target (RFC 9112, 3.2.2): its scheme and host.
_AUTHORITY = re.compile(r"^https?://[^/]*", re.IGNORECASE)
# Matches the paths that ``usual_path`` changes, so that most requests need not call it.
UNUSUAL = re.compile(r"//|./$|/(?:v1|api|openai)/(?:v1|api)(?:/|$)")
_SLASHES = re.compile(r"/{2,}")
# Ends of other servers' base URLs, to which clients add a path of their own.
_PREFIXES = re.compile(r"^(?:/(?:v1|api|openai))+(?=/(?:v1|api)(?:/|$))")


def usual_path(path: str) -> str:
    """The path without its host, doubled and final slashes.

    ``/v1``, ``/api`` and ``/openai`` are also dropped if ``/v1`` or ``/api`` follows.
    """
    path = _SLASHES.sub("/", _AUTHORITY.sub("", path))
    return _PREFIXES.sub("", path.rstrip("/")) or "/"


def use_usual_path(scope: Scope) -> None:
    """Replace the path of a request by its usual form; the path of a mount stays."""
    root = scope.get("root_path", "")
    path = scope["path"]
    if root and path.startswith(root):
        scope["path"] = root + usual_path(path[len(root) :])
    else:
        scope["path"] = usual_path(path)
