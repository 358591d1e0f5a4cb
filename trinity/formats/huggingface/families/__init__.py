"""Families of Hugging Face's classes, a file each; its ``FAMILIES`` are all its registration."""

from __future__ import annotations

import importlib
import pkgutil

from trinity.formats.huggingface.family import Family


def _discover() -> tuple[Family, ...]:
    modules = [
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
    ]
    return tuple(family for module in modules for family in module.FAMILIES)


FAMILIES: tuple[Family, ...] = _discover()
