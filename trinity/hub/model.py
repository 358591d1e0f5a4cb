"""Download a model from the hub."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TypeVar

from trinity.errors import FormatError, InputError, TrinityError
from trinity.formats.checkpoint import INDEX, SINGLE, weight_map
from trinity.formats.gguf_head import GGUFHead
from trinity.formats.huggingface.files import CONFIG, NAMES
from trinity.hub.choice import GGUFModel, choose, gguf_models, shown, tower_of
from trinity.hub.client import Revision, revision_of
from trinity.hub.download import Progress, bring, file_part, file_size, remember
from trinity.hub.name import HubName

Notice = Callable[[str], None]
_Found = TypeVar("_Found")
DIRECTORY = "safetensors"  # selects the directory if the repository also has GGUF files


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model in the cache: ``path`` is its directory or its (first) GGUF file.

    ``name`` selects exactly this file. ``mmproj`` is the path of its vision tower.
    """

    name: str
    path: str
    mmproj: str | None = None


def fetch(name: HubName, notice: Notice, progress: Progress) -> HubModel:
    """Download the missing files of the model that a name selects.

    ``notice`` is called with lines for the user: which file is used if the name does not say it,
    and that the server did not answer. Raises InputError, FormatError or UnsupportedError; the
    messages begin with the name.
    """
    return _of_revision(name, notice, lambda revision: _fetched(revision, notice, progress))


def describe(name: HubName, notice: Notice, progress: Progress) -> HubModel | GGUFHead:
    """As ``fetch``, without the weights, to describe the model.

    For a directory these are all files but the weights. For a GGUF file that is not in the cache it
    is the beginning of the file, which is not kept: its hash cannot be verified.
    """
    return _of_revision(name, notice, lambda revision: _described(revision, notice, progress))


def _of_revision(name: HubName, notice: Notice, find: Callable[[Revision], _Found]) -> _Found:
    revision = revision_of(name)
    if revision.reason is not None:
        notice(f"{name.typed}: {revision.reason}; using the cache")
    try:
        return find(revision)
    except (InputError, FormatError) as error:
        if revision.reason is None or revision.reason in str(error):
            raise
        raise type(error)(f"{error}; the cache has only these: {revision.reason}") from error


def _fetched(revision: Revision, notice: Notice, progress: Progress) -> HubModel:
    name = revision.name
    if _is_directory(revision, with_weights=True):
        bring(revision, _directory_files(revision, progress), progress)
        model = _directory(revision)
    else:
        chosen = _chosen(revision, notice)
        # Without Pillow no images are read.
        tower = tower_of(revision.files) if find_spec("PIL") else None
        bring(revision, [*chosen.files, *filter(None, (tower,))], progress)
        path = revision.path(chosen.files[0])
        mmproj = None if tower is None else revision.path(tower)
        model = HubModel(name.of_file(chosen.files[0]), path, mmproj)
    remember(revision)
    return model


def _described(revision: Revision, notice: Notice, progress: Progress) -> HubModel | GGUFHead:
    name = revision.name
    if _is_directory(revision, with_weights=False):
        bring(revision, _describing(revision), progress)
        remember(revision)
        return _directory(revision)
    files = _chosen(revision, notice).files
    if all(os.path.isfile(revision.path(file)) for file in files):
        return HubModel(name.of_file(files[0]), revision.path(files[0]))
    read = partial(file_part, revision, files[0])
    size = file_size(revision, files[0])
    head = GGUFHead(f"{name.typed}: {files[0]}", size, read)
    notice(
        f"{name.typed}: read the first {head.nbytes / 1e6:,.1f} of {size / 1e6:,.1f} MB of "
        f"{files[0]}; they are not stored"
    )
    return head


def _directory(revision: Revision) -> HubModel:
    file = DIRECTORY if gguf_models(revision.files) else None
    return HubModel(revision.name.of_file(file), os.path.dirname(revision.path(CONFIG)))


def _chosen(revision: Revision, notice: Notice) -> GGUFModel:
    """Return the GGUF file that the name selects."""
    name = revision.name
    model, others = choose(name, revision.files)
    if name.wanted is None and others:
        notice(f"{name.typed}: using {model.files[0]}; also available: {shown(others)}")
    return model


def _is_directory(revision: Revision, *, with_weights: bool) -> bool:
    """Whether the model is the directory. Raises InputError if there is no model."""
    name, files = revision.name, revision.files
    has_weights = SINGLE in files or INDEX in files or not with_weights
    if name.wanted is not None and name.wanted.lower() != DIRECTORY:
        return False
    if name.wanted is None and gguf_models(files):
        return False
    if CONFIG in files and has_weights:
        return True
    there = ", ".join(sorted(files)[:8]) or "nothing"
    lacks = "no safetensors with their index" if CONFIG in files else f"no {CONFIG}"
    raise InputError(
        f"{name.typed}: the repository has no model that trinity supports: no GGUF file, and "
        f"{lacks}; it contains {there}"
    )


def _describing(revision: Revision) -> list[str]:
    return [name for name in NAMES if name in revision.files]


def _directory_files(revision: Revision, progress: Progress) -> list[str]:
    """Return the files that a directory needs; weights are last."""
    if SINGLE in revision.files:
        return [*_describing(revision), SINGLE]
    bring(revision, [*_describing(revision), INDEX], progress)
    path = revision.path(INDEX)
    try:
        shards = sorted(set(weight_map(path).values()))
    except TrinityError as error:
        raise type(error)(f"{revision.name.typed}: {error}") from error
    missing = [shard for shard in shards if shard not in revision.files]
    if missing:
        raise FormatError(
            f"{revision.name.typed}: {INDEX} names {missing[0]}, which is missing; {len(missing)} "
            f"of {len(shards)} files are missing"
        )
    return shards
