"""Hugging Face directories, and a .safetensors file within one."""

from __future__ import annotations

import os
from contextlib import suppress

from trinity.errors import InputError
from trinity.formats.foreign import is_safetensors
from trinity.formats.huggingface.files import CONFIG, files_of_directory, model_name
from trinity.formats.mapping import directory_refusal
from trinity.formats.provider import WeightProvider
from trinity.options.load_options import LoadOptions
from trinity.providers.kind import Described, Kind, Notice
from trinity.providers.near import near

_HEAD_BYTES = 16
_MENTIONED_COPY = 1 << 24  # in bytes; norms are far smaller


def _open_directory(name: str, options: LoadOptions, notice: Notice) -> WeightProvider:
    _check_directory(name)
    return _opened(name, name, None, options, notice)


def describe_directory(name: str, notice: Notice) -> Described:
    """Describe the model in directory ``name``; its weights may be missing."""
    from trinity.formats.huggingface.whisper import is_whisper
    from trinity.providers.huggingface_description import HuggingFaceDescription
    from trinity.providers.whisper import WhisperDescription

    _check_directory(name)
    files = files_of_directory(name)
    if is_whisper(files):
        return WhisperDescription(name, name, files, name=model_name(name))
    return HuggingFaceDescription(name, files, name=model_name(name))


def _check_directory(name: str) -> None:
    if not os.path.lexists(os.path.join(name, CONFIG)):
        raise InputError(directory_refusal(name))


def _open_file(name: str, options: LoadOptions, notice: Notice) -> WeightProvider:
    directory = os.path.dirname(name) or "."
    if not os.path.lexists(os.path.join(directory, CONFIG)):
        raise InputError(
            f"{name}: a safetensors file contains only weights, and there is no {CONFIG} in its "
            "folder; put it into the directory of the whole model"
        )
    return _opened(name, directory, os.path.basename(name), options, notice)


def _opened(
    path: str, directory: str, single: str | None, options: LoadOptions, notice: Notice
) -> WeightProvider:
    from trinity.formats.checkpoint import Checkpoint
    from trinity.formats.huggingface.whisper import is_whisper
    from trinity.providers.huggingface import HuggingFaceProvider
    from trinity.providers.whisper import WhisperDescription, WhisperProvider

    files = files_of_directory(directory)
    checkpoint = Checkpoint(directory, single)
    try:
        if is_whisper(files):
            described = WhisperDescription(path, directory, files, name=model_name(directory))
            return WhisperProvider(described, checkpoint)
        provider = HuggingFaceProvider(
            path, files, checkpoint, name=model_name(directory), weight_scale=options.weight_scale
        )
    except BaseException:
        checkpoint.close()
        raise
    for note in provider.weight_notes:
        notice(f"note: {note}")
    if provider.copied_bytes > _MENTIONED_COPY:
        notice(
            f"note: {provider.copied_bytes / 1e6:,.0f} MB of weights are stored in a form that "
            "has to be converted: running the model needs that much memory in addition to its "
            "files"
        )
    return provider


def _is_safetensors(name: str) -> bool:
    with suppress(OSError, ValueError):
        if os.path.isfile(name):
            with open(name, "rb") as file:
                head = file.read(_HEAD_BYTES)
            return name.endswith(".safetensors") or is_safetensors(head, os.path.getsize(name))
    return False


def _near_directories(name: str) -> list[str]:
    """Return sibling directories with a model and a name similar to one that does not exist."""
    folder, last = os.path.split(name.rstrip(os.sep))
    names: list[str] = []
    with suppress(OSError, ValueError), os.scandir(folder or ".") as entries:
        names = [e.name for e in entries if os.path.isfile(os.path.join(e.path, CONFIG))]
    return [os.path.join(folder, match) for match in near(last, names)]


DIRECTORY = Kind(
    "a Hugging Face directory",
    os.path.isdir,
    _open_directory,
    describe_directory,
    _near_directories,
)
SAFETENSORS_FILE = Kind("a .safetensors file next to its config.json", _is_safetensors, _open_file)
