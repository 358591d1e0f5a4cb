"""Reference ids by the library that a tokenizer's file was made for, in a confined process.

The libraries are Rust and C++ code that trusts its input: a file can make them abort, recurse,
match for hours or fill the memory. So they run only in a `Confined` process.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trinity.errors import ConfinedError, ConfinedUnavailableError, TokenizerError
from trinity.processes.confined import Confined

_MODULE = "trinity.tokenizers.huggingface.file_library"
# Limits in addition to the file's size; a vocabulary of 9 MB takes 250 MB and 2 s.
_MEMORY, _MEMORY_PER_BYTE = 200_000_000, 40
_SECONDS, _BYTES_PER_SECOND = 2.0, 2_000_000
# Sections that do not change the ids of one text, but the cost of a padded one.
_UNUSED_SECTIONS = ("padding", "truncation")


@dataclass(frozen=True, slots=True)
class Reference:
    """Ids of each text asked for, without special tokens; ids put before and after a text.

    ``added``: the ids of the tokens asked for.
    """

    ids: Mapping[str, list[int]]
    prefix: list[int] = field(default_factory=list)
    suffix: list[int] = field(default_factory=list)
    added: Mapping[str, int | None] = field(default_factory=dict)


def json_reference(
    values: Mapping[str, object], path: str, texts: Sequence[str], added: Sequence[str] = ()
) -> Reference:
    """Return the `tokenizers` library's ids for a tokenizer.json with the object ``values``.

    ``added`` are tokens whose ids are also returned. Raises TokenizerError if the library rejects
    the file, fails or exceeds its limits.
    """
    kept = {key: value for key, value in values.items() if key not in _UNUSED_SECTIONS}
    text = json.dumps(kept, ensure_ascii=False)
    request = {"json": text, "added": list(added)}
    reply = _asked(request, len(text), texts, path, "tokenizers")
    ids, ids_of_added = reply["ids"], reply.pop("added")
    return Reference(dict(zip(texts, ids, strict=True)), *_ends(**reply), ids_of_added)


def model_reference(raw: bytes, path: str, texts: Sequence[str]) -> Reference:
    """Return the `sentencepiece` library's ids for a tokenizer.model, as ``json_reference``."""
    request = {"model": base64.b64encode(raw).decode()}
    reply = _asked(request, len(raw), texts, path, "sentencepiece")
    return Reference(dict(zip(texts, reply["ids"], strict=True)))


def _asked(
    request: dict[str, Any], size: int, texts: Sequence[str], path: str, library: str
) -> dict[str, Any]:
    confined = Confined(
        _MODULE,
        memory_bytes=_MEMORY + _MEMORY_PER_BYTE * size,
        seconds=_SECONDS + size / _BYTES_PER_SECOND,
    )
    try:
        reply: dict[str, Any] = confined.call({**request, "texts": list(texts)})
    except ConfinedUnavailableError:
        raise
    except ConfinedError as error:
        raise TokenizerError(
            f"{path}: the {library} library cannot read it: {error.reason}"
        ) from error
    finally:
        confined.close()
    return reply


def _ends(ids: object, plain: list[int], full: list[int]) -> tuple[list[int], list[int]]:
    """Return the ids before and after those of a text."""
    for start in range(len(full) - len(plain) + 1):
        if full[start : start + len(plain)] == plain:
            return full[:start], full[start + len(plain) :]
    return [], []
