"""Find the models on this machine, in all places where models are kept.

These are trinity's own cache of models quantized while loading, huggingface_hub's cache and
Ollama's stores. Only headers are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice

from trinity.cache.cache_folder import cache_folder
from trinity.errors import InputError, TrinityError
from trinity.formats.checkpoint import INDEX, SINGLE
from trinity.formats.huggingface.files import CONFIG
from trinity.formats.ollama.manifest import PREFIX as OLLAMA
from trinity.formats.ollama.store import own_store, stores
from trinity.hub.cache import CachedRepository, cached_repositories
from trinity.hub.choice import gguf_models, missing_parts
from trinity.hub.download import UNFINISHED
from trinity.hub.model import DIRECTORY
from trinity.hub.name import PREFIX as HUB
from trinity.hub.name import HubName, parse_name
from trinity.providers import open_weights
from trinity.tools.file_type import file_type

MOST_LISTED = 2000  # per place
Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Installed:
    """A model on this machine."""

    name: str  # for --model
    kept_by: str  # the program that owns the folder; "" for a folder that the user names
    place: str  # the folder of models that contains it
    num_bytes: int | None = None  # of all its files
    type: str | None = None  # see ``file_type``
    family: str | None = None  # its architecture
    problem: str | None = None  # why it cannot be opened; other fields may then be None


def installed(notice: Notice = lambda line: None) -> Iterator[Installed]:
    """Yield every model, place by place; ``notice`` is called for a place that is skipped."""
    yield from islice(_own(), MOST_LISTED)
    yield from islice(_hub(notice), MOST_LISTED)
    yield from islice(_ollama(), MOST_LISTED)


def in_folder(folder: str) -> Iterator[Installed]:
    """Yield the models of a folder and its subfolders; a name is a path.

    They are GGUF files, of a split model the first part, and directories in Hugging Face's format.
    Raises InputError if there is no such folder.
    """
    if not os.path.isdir(folder):
        raise InputError(f"{folder}: this is not a folder; give the folder that contains models")
    inside = [entry for entry in _listed(folder) if os.path.isdir(os.path.join(folder, entry))]
    files = [*_listed(folder)]
    for name in inside:
        files += [os.path.join(name, file) for file in _listed(os.path.join(folder, name))]
    for model in gguf_models(files):
        path = os.path.join(folder, model.files[0])
        if os.path.isfile(path):
            yield _opened(path, "", folder, path)
    for name in inside:
        there = os.path.join(name, CONFIG) in files
        if there and any(os.path.join(name, weights) in files for weights in (SINGLE, INDEX)):
            path = os.path.join(folder, name)
            yield _opened(path, "", folder, path)


def own_file(name: str) -> str:
    """Return the file of trinity's own cache that ``name`` means: its path, or its file name.

    Raises InputError for every other name; for models of other programs it says how to remove them.
    """
    if name.startswith(HUB):
        repository = parse_name(name).repository
        raise InputError(
            f"{name}: this model is kept by huggingface_hub; `hf cache rm model/{repository}` "
            "removes it"
        )
    if name.startswith(OLLAMA):
        model = name.removeprefix(OLLAMA)
        raise InputError(
            f"{name}: this model is kept by Ollama; `ollama rm {model}` removes it. A model that "
            "`trinity serve --allow-create` made is removed by DELETE /api/delete"
        )
    folder = str(cache_folder("weights"))
    above, base = os.path.split(name)
    path = os.path.join(folder, base)
    inside = not above or os.path.realpath(above) == os.path.realpath(folder)
    if not (inside and os.path.lexists(path)) and os.path.lexists(name):
        raise InputError(
            f"{name}: this file is not in {folder}, where trinity keeps its files; remove it like "
            "any other file"
        )
    if not inside or not base.endswith(".gguf") or not os.path.isfile(path):
        raise InputError(
            f"{name}: there is no such model in {folder}; `trinity list` shows those that exist"
        )
    return path


def own_files() -> list[str]:
    """The paths of all files that trinity keeps."""
    folder = str(cache_folder("weights"))
    paths = (os.path.join(folder, name) for name in _listed(folder, ".gguf"))
    return [path for path in paths if os.path.isfile(path)]


def _own() -> Iterator[Installed]:
    folder = str(cache_folder("weights"))
    for path in own_files():
        yield _opened(path, "trinity", folder, path)


def _hub(notice: Notice) -> Iterator[Installed]:
    try:
        from huggingface_hub.constants import HF_HUB_CACHE
    except ImportError:
        notice("huggingface_hub is not installed, so its cache is skipped")
        return
    for cached in cached_repositories(os.path.abspath(HF_HUB_CACHE)):
        for commit, called in cached.commits():
            yield from _snapshot(cached, commit, called)
        unfinished = _unfinished(cached)
        if unfinished:
            yield Installed(
                HUB + cached.repository, "huggingface_hub", cached.root, unfinished,
                problem="an unfinished download; `trinity pull` continues it",
            )  # fmt: skip


def _snapshot(cached: CachedRepository, commit: str, called: str) -> Iterator[Installed]:
    """Yield the models of one commit: GGUF files, and the directory if it is one."""
    name = HubName("", cached.repository, called, None)
    folder = cached.snapshot(commit)
    files = cached.files(commit)
    models = gguf_models(files)
    models_found = [(model.files[0], model.files, missing_parts(model)) for model in models]
    if CONFIG in files and (SINGLE in files or INDEX in files):
        models_found.append((DIRECTORY if models else "", tuple(files), []))
    for file, parts, missing in models_found:
        typed = name.of_file(file or None)
        gone = [part for part in parts if not os.path.isfile(os.path.join(folder, part))] + missing
        if gone:
            yield Installed(
                typed,
                "huggingface_hub",
                cached.root,
                problem=f"{gone[0]} is missing; `trinity pull` downloads it",
            )
        else:
            path = os.path.join(folder, file) if file.lower().endswith(".gguf") else folder
            yield _opened(typed, "huggingface_hub", cached.root, path)


def _unfinished(cached: CachedRepository) -> int:
    """Return the bytes of unfinished downloads."""
    sizes = 0
    for name in _listed(cached.blobs, UNFINISHED):
        with suppress(OSError):
            sizes += os.path.getsize(os.path.join(cached.blobs, name))
    return sizes


def _ollama() -> Iterator[Installed]:
    seen: set[str] = set()
    for store in stores():
        kept_by = "trinity's server" if store == own_store() else "Ollama"
        for name in store.names():
            if name not in seen:
                seen.add(name)
                yield _opened(OLLAMA + name, kept_by, store.root, OLLAMA + name)


def _listed(folder: str, ending: str = "") -> list[str]:
    """Return the names in a folder with this ending; it need not exist."""
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.name.endswith(ending))
    return []


def _opened(name: str, kept_by: str, place: str, path: str) -> Installed:
    """Return what the headers of the model at ``path`` contain, or why it cannot be opened."""
    try:
        with closing(open_weights(path)) as provider:
            family = provider.metadata.get("general.architecture")
            return Installed(
                name,
                kept_by,
                place,
                sum(map(os.path.getsize, provider.paths)),
                file_type(provider),
                family if isinstance(family, str) else None,
            )
    except (TrinityError, OSError) as error:
        nbytes = os.path.getsize(path) if os.path.isfile(path) else None
        problem = str(error).removeprefix(f"{name}: ")
        return Installed(name, kept_by, place, nbytes, problem=problem)
