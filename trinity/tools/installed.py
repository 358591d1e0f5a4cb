"""The models that lie on this machine, in the places where models are kept.

Those are trinity's own cache, with what was quantized while loading, huggingface_hub's cache and
Ollama's stores. Headers are read, weights never.
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
from trinity.formats.ollama.store import stores
from trinity.hub.cache import CachedRepository, cached_repositories
from trinity.hub.choice import gguf_models, missing_parts
from trinity.hub.download import UNFINISHED
from trinity.hub.model import DIRECTORY
from trinity.hub.name import PREFIX as HUB
from trinity.hub.name import HubName, parse_name
from trinity.providers import open_weights
from trinity.tools.file_type import file_type

MOST_LISTED = 2000  # of each place
Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Installed:
    """A model that lies somewhere.

    ``name`` is what --model takes; ``place`` the folder of models that it lies in, ``kept_by``
    whose that is; ``type`` as ``file_type`` has it, ``family`` its architecture, ``num_bytes`` all
    of its files. ``problem`` says why it cannot be opened; the others may then be None.
    """

    name: str
    kept_by: str
    place: str
    num_bytes: int | None = None
    type: str | None = None
    family: str | None = None
    problem: str | None = None


def installed(notice: Notice = lambda line: None) -> Iterator[Installed]:
    """Every model, place by place; ``notice`` is told of a place that is not looked at."""
    yield from islice(_own(), MOST_LISTED)
    yield from islice(_hub(notice), MOST_LISTED)
    yield from islice(_ollama(), MOST_LISTED)


def own_file(name: str) -> str:
    """The file of trinity's own that ``name`` means: its path, or its name in the cache.

    Raises InputError for every other name; for models of other programs it says how these remove
    them.
    """
    if name.startswith(HUB):
        repository = parse_name(name).repository
        raise InputError(
            f"{name}: kept by huggingface_hub; `hf cache rm model/{repository}` removes it"
        )
    if name.startswith(OLLAMA):
        model = name.removeprefix(OLLAMA)
        raise InputError(f"{name}: kept by Ollama; `ollama rm {model}` removes it")
    folder = str(cache_folder("weights"))
    above, base = os.path.split(name)
    path = os.path.join(folder, base)
    inside = not above or os.path.realpath(above) == os.path.realpath(folder)
    if not inside and os.path.lexists(name):
        raise InputError(
            f"{name}: not among the files that trinity keeps, which lie in {folder}; remove it as "
            "any other file"
        )
    if not inside or not base.endswith(".gguf") or not os.path.isfile(path):
        raise InputError(
            f"{name}: trinity keeps no such model in {folder}; `python -m trinity list` shows "
            "what there is"
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
        notice("huggingface_hub is not installed, so its cache is not looked at")
        return
    for cached in cached_repositories(os.path.abspath(HF_HUB_CACHE)):
        for commit, called in cached.commits():
            yield from _snapshot(cached, commit, called)
        unfinished = _unfinished(cached)
        if unfinished:
            yield Installed(
                HUB + cached.repository, "huggingface_hub", cached.root, unfinished,
                problem="an unfinished download; pull it again, and it goes on",
            )  # fmt: skip


def _snapshot(cached: CachedRepository, commit: str, called: str) -> Iterator[Installed]:
    """The models of one commit: GGUF files, and the directory where it is one."""
    name = HubName("", cached.repository, called, None)
    folder = cached.snapshot(commit)
    files = cached.files(commit)
    models = gguf_models(files)
    found = [(model.files[0], model.files, missing_parts(model)) for model in models]
    if CONFIG in files and (SINGLE in files or INDEX in files):
        found.append((DIRECTORY if models else "", tuple(files), []))
    for file, parts, missing in found:
        typed = name.of_file(file or None)
        gone = [one for one in parts if not os.path.isfile(os.path.join(folder, one))] + missing
        if gone:
            yield Installed(
                typed,
                "huggingface_hub",
                cached.root,
                problem=f"{gone[0]} is missing; `python -m trinity pull` downloads it",
            )
        else:
            path = os.path.join(folder, file) if file.lower().endswith(".gguf") else folder
            yield _opened(typed, "huggingface_hub", cached.root, path)


def _unfinished(cached: CachedRepository) -> int:
    """Bytes of our downloads that have not ended."""
    sizes = 0
    for name in _listed(cached.blobs, UNFINISHED):
        with suppress(OSError):
            sizes += os.path.getsize(os.path.join(cached.blobs, name))
    return sizes


def _ollama() -> Iterator[Installed]:
    seen: set[str] = set()
    for store in stores():
        for name in store.names():
            if name not in seen:
                seen.add(name)
                yield _opened(OLLAMA + name, "Ollama", store.root, OLLAMA + name)


def _listed(folder: str, ending: str) -> list[str]:
    """Names in a folder, which need not exist, with this ending."""
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.name.endswith(ending))
    return []


def _opened(name: str, kept_by: str, place: str, path: str) -> Installed:
    """What the headers of the model at ``path`` say, or why it cannot be opened."""
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
