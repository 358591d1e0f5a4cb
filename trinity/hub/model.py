"""A model on the hub, brought to this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from trinity.errors import FormatError, InputError, TrinityError
from trinity.formats.checkpoint import INDEX, SINGLE, weight_map
from trinity.formats.huggingface.files import CONFIG, NAMES
from trinity.hub.choice import choose, gguf_models, shown
from trinity.hub.client import Revision, revision_of
from trinity.hub.download import Progress, bring, remember
from trinity.hub.name import HubName

Notice = Callable[[str], None]
DIRECTORY = "safetensors"  # asks for the directory where there are GGUF files, too


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model in the cache: ``path`` is its directory or its (first) GGUF file.

    ``name`` is the one that means exactly this file again.
    """

    name: str
    path: str


def fetch(name: HubName, notice: Notice, progress: Progress) -> HubModel:
    """Download what is missing of the model that a name means.

    ``notice`` takes lines that the user should see: which file is taken where the name leaves it
    open, and that the server could not be asked. Raises InputError, FormatError or UnsupportedError
    that begins with the name.
    """
    revision = revision_of(name)
    if revision.reason is not None:
        notice(f"{name.typed}: {revision.reason}; taking what the cache has")
    try:
        model = _fetched(revision, notice, progress)
    except (InputError, FormatError) as error:
        if revision.reason is None or revision.reason in str(error):
            raise
        raise type(error)(f"{error}; that is what the cache has: {revision.reason}") from error
    remember(revision)
    return model


def _fetched(revision: Revision, notice: Notice, progress: Progress) -> HubModel:
    name = revision.name
    if _is_directory(revision):
        bring(revision, _directory_files(revision, progress), progress)
        file = DIRECTORY if gguf_models(revision.files) else None
        return HubModel(name.of_file(file), os.path.dirname(revision.path(CONFIG)))
    model, others = choose(name, revision.files)
    if name.wanted is None and others:
        notice(f"{name.typed}: taking {model.files[0]}; there is also: {shown(others)}")
    bring(revision, model.files, progress)
    return HubModel(name.of_file(model.files[0]), revision.path(model.files[0]))


def _is_directory(revision: Revision) -> bool:
    """Whether the model is the directory. Raises InputError where there is no model at all."""
    name, files = revision.name, revision.files
    has_weights = SINGLE in files or INDEX in files
    if name.wanted is not None and name.wanted.lower() != DIRECTORY:
        return False
    if name.wanted is None and gguf_models(files):
        return False
    if CONFIG in files and has_weights:
        return True
    there = ", ".join(sorted(files)[:8]) or "nothing"
    lacks = "no safetensors with their index" if CONFIG in files else f"no {CONFIG}"
    raise InputError(
        f"{name.typed}: no model that trinity reads: no GGUF file, and {lacks}; there is {there}"
    )


def _directory_files(revision: Revision, progress: Progress) -> list[str]:
    """The files that a directory needs, its weights last."""
    described = [name for name in NAMES if name in revision.files]
    if SINGLE in revision.files:
        return [*described, SINGLE]
    bring(revision, [*described, INDEX], progress)
    path = revision.path(INDEX)
    try:
        shards = sorted(set(weight_map(path).values()))
    except TrinityError as error:
        raise type(error)(f"{revision.name.typed}: {error}") from error
    missing = [shard for shard in shards if shard not in revision.files]
    if missing:
        raise FormatError(
            f"{revision.name.typed}: {INDEX} names {missing[0]}, which is not there; "
            f"{len(missing)} of {len(shards)} files are missing"
        )
    return shards
