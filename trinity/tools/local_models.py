"""Which models a server offers if none is named: those of a folder, or of this machine's stores."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from trinity.errors import InputError
from trinity.formats.ollama.manifest import PREFIX as OLLAMA
from trinity.hub.name import PREFIX as HUB
from trinity.models import ARCHITECTURES
from trinity.tools.installed import Installed, in_folder, installed

_ENDING = re.compile(r"(-00001-of-\d{5})?\.gguf$", re.IGNORECASE)

_OTHER = re.compile(r"[^\w.:/-]")  # characters that a NAME before "=" does not have


def local_models(folder: str | None, notice: Callable[[str], None]) -> list[str]:
    """Return NAME=MODEL for each model, those that write text first.

    They are the models of ``folder``, or without one those of huggingface_hub's cache and Ollama's
    stores. ``notice`` receives a line for each model that cannot be served. Raises InputError if
    there is no such folder or no model in it.
    """
    found = installed(notice) if folder is None else in_folder(folder)
    usable: dict[str, Installed] = {}
    for model in found:
        if model.kept_by == "trinity":  # copies of other models
            continue
        name = name_of(model)
        if model.problem is not None or model.family not in ARCHITECTURES:
            why = model.problem or f"the architecture {model.family} is not supported"
            notice(f"note: {model.name} is not served: {why}")
        elif name in usable:
            notice(f"note: {model.name} is not served: {usable[name].name} has the same name")
        else:
            usable[name] = model
    if folder is not None and not usable:
        raise InputError(
            f"{folder}: there is no model in this folder that trinity can serve; put GGUF "
            "files or Hugging Face directories there"
        )
    refs = [f"{name}={model.name}" for name, model in usable.items()]
    encoders = {ref for ref, model in zip(refs, usable.values(), strict=True) if _encodes(model)}
    return sorted(refs, key=encoders.__contains__)


def name_of(model: Installed) -> str:
    """Return the name by which requests ask for a model."""
    if model.kept_by:
        name = model.name.removeprefix(HUB).removeprefix(OLLAMA).removesuffix(":latest")
    else:
        name = _ENDING.sub("", os.path.relpath(model.name, model.place))
    return _OTHER.sub("-", name)


def _encodes(model: Installed) -> bool:
    return ARCHITECTURES[model.family or ""].encodes
