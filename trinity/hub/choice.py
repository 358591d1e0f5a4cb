"""Select the GGUF files of a repository that a name refers to.

Sources: llama.cpp, common/download.cpp, for the default order and for files that are not models;
the names of quantizations are those of published files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trinity.errors import FormatError, InputError
from trinity.hub.name import HubName

USUAL = ("Q4_K_M", "Q8_0")  # the defaults, in this order
# Names of auxiliary files contain one of these.
_BESIDE = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE | re.DOTALL)
_TOWER = re.compile(r"mmproj[^/]*\.gguf$", re.IGNORECASE)
_SEPARATORS = re.compile(r"[-_. ]+")
# Patterns for the first word of a quantization and for the words that follow: Q4_K_M, Q4_0_8_8.
_BEGINS = re.compile(r"I?Q[1-8]|TQ[12]|I2|B?F16|F32|FP(?:16|32)|MXFP[468]|NVFP4", re.IGNORECASE)
_GOES_ON = {"0", "1", "4", "8", "K", "S", "M", "L", "XS", "XL", "XXS", "NL", "BN", "MOE"}
_MOST_SHOWN = 30


@dataclass(frozen=True, slots=True)
class GGUFModel:
    """A GGUF file of a repository, or all parts of a split one; the first part is opened."""

    files: tuple[str, ...]

    @property
    def tokens(self) -> list[str]:
        """The words of the name in capitals, without the part number."""
        first = self.files[0]
        part = _PART.fullmatch(first)
        stem = part[1] if part else first[: -len(".gguf")]
        return tokens_of(stem)

    @property
    def quantization(self) -> str | None:
        """The last quantization in the name, such as ``Q4_K_M``."""
        words = self.tokens
        spans = quantizations(words)
        return "_".join(words[slice(*spans[-1])]) if spans else None


def tokens_of(text: str) -> list[str]:
    """Split a name into its words, in capitals, and the slashes between folders."""
    return [word.upper() for word in _SEPARATORS.split(text.replace("/", " / ")) if word]


def quantizations(words: Sequence[str]) -> list[tuple[int, int]]:
    """Start and end of each quantization among the words of a name."""
    spans, place = [], 0
    while place < len(words):
        first = place
        place += 1
        if _BEGINS.fullmatch(words[first]):
            while place < len(words) and words[place] in _GOES_ON:
                place += 1
            spans.append((first, place))
    return spans


def gguf_models(files: Iterable[str]) -> list[GGUFModel]:
    """Group files into models; parts of a split model form one, even if some are missing."""
    parts: dict[object, list[str]] = {}
    for file in sorted(files):
        base = file.rpartition("/")[2].lower()
        if base.endswith(".gguf") and not any(mark in base for mark in _BESIDE):
            part = _PART.fullmatch(file)
            parts.setdefault((part[1], part[3]) if part else file, []).append(file)
    return [GGUFModel(tuple(files_of_model)) for files_of_model in parts.values()]


def tower_of(files: Iterable[str]) -> str | None:
    """The vision tower (mmproj file) of a repository's GGUF models; in F16 if there are several."""
    towers = [file for file in sorted(files) if _TOWER.search(file)]
    return min(towers, key=lambda file: "F16" not in tokens_of(file[: -len(".gguf")]), default=None)


def missing_parts(model: GGUFModel) -> list[str]:
    """Up to three missing parts of a split model."""
    part = _PART.fullmatch(model.files[0])
    if part is None or int(part[3]) == len(model.files):
        return []
    names = (f"{part[1]}-{i:05}-of-{part[3]}.gguf" for i in range(1, len(model.files) + 2))
    return [name for name in names if name not in model.files][:3]


def choose(name: HubName, files: Iterable[str]) -> tuple[GGUFModel, list[GGUFModel]]:
    """Return the model that a name selects among a repository's files, and the other models.

    Raises InputError, which lists the models, if the name matches none or several, and FormatError
    if parts are missing.
    """
    listed = list(files)
    models = gguf_models(listed)
    if name.wanted is None:
        matching = models if len(models) == 1 else _usual(models)
    elif name.wanted.lower().endswith(".gguf"):
        matching = [model for model in models if name.wanted in model.files]
        if not matching and name.wanted in listed:
            raise InputError(
                f"{name.typed}: this file belongs to a model but is not one; {_there_is(models)}"
            )
    else:
        matching = _quantized(models, name.wanted)
    if not matching:
        raise InputError(f"{name.typed}: there is no {name.wanted!r}; {_there_is(models)}")
    if len(matching) > 1:
        among = ", ".join(model.files[0] for model in matching[:_MOST_SHOWN])
        raise InputError(f"{name.typed}: several files fit: {among}; give one after a colon")
    missing = missing_parts(matching[0])
    if missing:
        raise FormatError(
            f"{name.typed}: {matching[0].files[0]} is a part of a split model, of which "
            f"{', '.join(missing)} and perhaps more are missing; choose another file"
        )
    return matching[0], [model for model in models if model is not matching[0]]


def shown(models: Sequence[GGUFModel]) -> str:
    """List models by quantization, or by file name if quantizations do not tell them apart."""
    names = [model.quantization for model in models]
    texts = [
        quantization if quantization and names.count(quantization) == 1 else model.files[0]
        for model, quantization in zip(models, names, strict=True)
    ]
    more = f" and {len(texts) - _MOST_SHOWN} more" if len(texts) > _MOST_SHOWN else ""
    return ", ".join(texts[:_MOST_SHOWN]) + more


def _there_is(models: Sequence[GGUFModel]) -> str:
    return f"there is: {shown(models)}" if models else "the repository has no GGUF model"


def _usual(models: Sequence[GGUFModel]) -> list[GGUFModel]:
    for quantization in USUAL:
        matching = _quantized(models, quantization)
        if matching:
            return matching
    return list(models[:1])


def _quantized(models: Sequence[GGUFModel], wanted: str) -> list[GGUFModel]:
    """Return the models whose names contain ``wanted`` as a complete quantization.

    Q4_K does not match Q4_K_M. A plain quantization is preferred to one with a prefix (UD-Q4_K_XL).
    """
    words = tokens_of(wanted)
    matching = [model for model in models if _has(model.tokens, words)]
    plain = [model for model in matching if not _has(model.tokens, ["UD", *words])]
    return plain or matching


def _has(tokens: list[str], words: list[str]) -> bool:
    spans = quantizations(tokens)
    inside = {place for first, end in spans for place in range(first + 1, end)}
    length = len(words)
    return length > 0 and any(
        tokens[i : i + length] == words and i not in inside and i + length not in inside
        for i in range(len(tokens) - length + 1)
    )
