"""Names of models on the hub: ``hf:USER/REPO[@REVISION][:FILE-OR-QUANT]``.

The revision's position is the same as in the library's ``hf://`` addresses.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from trinity.errors import InputError

PREFIX = "hf:"
MAIN = "main"
FORM = f"{PREFIX}USER/REPO[@REVISION][:FILE-OR-QUANT]"
_PARTS = r"([^@:]*)(?:@([^:]*))?(?::(.*))?"
# Source: huggingface_hub, utils/_validators.py, validate_repo_id.
_WORD = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_REVISION = r"[A-Za-z0-9_](?:[A-Za-z0-9_./+-]{0,198}[A-Za-z0-9_+-])?"


class HubName(NamedTuple):
    """A parsed name; ``typed`` is the input, ``wanted`` its file or quantization."""

    typed: str
    repository: str
    revision: str
    wanted: str | None

    def of_file(self, file: str | None) -> str:
        """The name of one file of the repository, or of the directory if None."""
        revision = "" if self.revision == MAIN else f"@{self.revision}"
        return f"{PREFIX}{self.repository}{revision}" + ("" if file is None else f":{file}")


def parse_name(typed: str) -> HubName:
    """Parse a name with or without the prefix. Raises InputError."""
    match = re.fullmatch(_PARTS, typed.removeprefix(PREFIX), re.DOTALL)
    repository, revision, wanted = match.groups() if match else ("", None, None)
    problem = _problem(repository, revision, wanted)
    if problem is not None:
        raise InputError(f"{typed}: {problem}; expected {FORM}")
    return HubName(typed, repository, MAIN if revision is None else revision, wanted)


def _problem(repository: str, revision: str | None, wanted: str | None) -> str | None:
    words = repository.split("/")
    if len(words) > 2:
        return (
            f"{repository[:120]!r} has more parts than a user and a repository; put a file name "
            "after a colon"
        )
    if len(words) < 2 or not all(map(is_word, words)):
        return f"{repository[:120]!r} is not the name of a repository"
    if revision is not None and not is_revision(revision):
        return f"{revision[:120]!r} is not a branch, a tag or a commit"
    if wanted is not None and (not wanted or not wanted.isprintable() or len(wanted) > 500):
        return f"{wanted[:120]!r} is neither a file nor a quantization"
    return None


def is_revision(text: str) -> bool:
    """Whether this is a valid name of a branch, tag or commit."""
    return bool(re.fullmatch(_REVISION, text)) and ".." not in text and "//" not in text


def is_word(text: str) -> bool:
    """Whether this is a valid name of a user or repository."""
    return bool(re.fullmatch(_WORD, text)) and "--" not in text and ".." not in text
