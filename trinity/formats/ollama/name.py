"""Model names in Ollama's syntax: ``[host/][namespace/]model[:tag]``.

Source: Ollama, types/model/name.go, ParseName and IsValid.
"""

from __future__ import annotations

import re
from typing import NamedTuple

HOST, NAMESPACE, TAG, SCHEME = "registry.ollama.ai", "library", "latest", "https"
_MISSING = "!MISSING!"  # marks a part that a separator announces but is empty; never valid
_FIRST = "[A-Za-z0-9_]"
_PARTS = {
    "host": _FIRST + r"[A-Za-z0-9_\-.:]{0,349}",
    "namespace": _FIRST + r"[A-Za-z0-9_\-]{0,79}",
    "model": _FIRST + r"[A-Za-z0-9_\-.]{0,79}",
    "tag": _FIRST + r"[A-Za-z0-9_\-.]{0,79}",
}


class Name(NamedTuple):
    """A name with its defaults filled in; it is invalid if ``problem`` is not None."""

    host: str
    namespace: str
    model: str
    tag: str
    scheme: str = SCHEME

    @property
    def parts(self) -> tuple[str, str, str, str]:
        """The folders and the file of the manifest, below ``manifests``."""
        return self.host, self.namespace, self.model, self.tag

    @property
    def problem(self) -> str | None:
        """Return what is wrong with the name, or None if it is valid."""
        for kind, part in zip(_PARTS, self.parts, strict=True):
            if not re.fullmatch(_PARTS[kind], part):
                shown = "missing" if part in ("", _MISSING) else f"{part[:80]!r}"
                return f"its {kind} is {shown}"
        return None

    @property
    def shortest(self) -> str:
        """The name without host and namespace if these are the defaults."""
        short = f"{self.model}:{self.tag}"
        if self.host.lower() != HOST:
            return f"{self.host}/{self.namespace}/{short}"
        return short if self.namespace.lower() == NAMESPACE else f"{self.namespace}/{short}"


def parse_name(text: str) -> Name:
    """Parse a name; the result may be invalid."""
    tag = ""
    if text.rfind(":") > text.rfind("/"):
        text, tag = _cut(text, ":")
    host = namespace = scheme = ""
    if "/" not in text:
        model = text
    else:
        text, model = _cut(text, "/")
        if "/" not in text:
            namespace = text
        else:
            text, namespace = _cut(text, "/")
            scheme, separator, host = text.partition("://")
            if not separator:
                scheme, host = "", text
    return Name(host or HOST, namespace or NAMESPACE, model, tag or TAG, scheme or SCHEME)


def without_source(text: str) -> tuple[str, bool]:
    """Return the name without ``:local`` or ``:cloud``, and whether it is on Ollama's servers.

    Source: Ollama, internal/modelref/modelref.go, ParseRef.
    """
    text = text.strip()
    base, _, last = text.rpartition(":")
    source = last.strip().lower()
    if base and source in ("local", "cloud"):
        return base, source == "cloud"
    return text, bool(base) and "/" not in source and source.endswith("-cloud")


def _cut(text: str, separator: str) -> tuple[str, str]:
    before, _, after = text.rpartition(separator)
    return before or _MISSING, after or _MISSING
