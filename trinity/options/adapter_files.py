"""Files of LoRA adapters with their scales, as users give them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from trinity.errors import InputError
from trinity.options.checks import check_number

LARGEST_SCALE = 1e6

AdapterFile = str | os.PathLike[str] | tuple[str | os.PathLike[str], float]


def adapter_files(
    files: Sequence[AdapterFile] | None,
) -> list[tuple[str | os.PathLike[str], float]]:
    """Return each adapter's path and scale; the default scale is 1."""
    return [given if isinstance(given, tuple) else (given, 1.0) for given in files or ()]


def adapter_scales(
    scales: Sequence[float], wanted: Mapping[int, float] | None
) -> tuple[float, ...]:
    """The scales of all adapters: ``scales``, or those in ``wanted`` and 0 for the others.

    It is empty if all are 0. Raises: InputError for a number that no adapter has.
    """
    chosen = tuple(scales)
    if wanted is not None:
        unknown = [number for number in wanted if not 0 <= number < len(chosen)]
        if unknown and not chosen:
            raise InputError(
                f"lora names adapter {unknown[0]}, but the model was loaded without "
                "adapters: load it with lora=[(file, scale)] (--lora FILE)",
                "lora",
            )
        if unknown:
            raise InputError(
                f"lora names adapter {unknown[0]}, but "
                f"{len(chosen)} are loaded, numbered from 0 in the order of loading",
                "lora",
            )
        chosen = tuple(float(wanted.get(number, 0.0)) for number in range(len(chosen)))
    return chosen if any(chosen) else ()


def check_adapters(name: str, value: object) -> Sequence[AdapterFile]:
    """Check a list of adapter paths and pairs (path, scale). Raises InputError."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InputError(
            f"{name} is {value!r:.80} ({type(value).__name__}); it must be a list of files of "
            "adapters, or of pairs (file, scale)"
        )
    adapters: list[AdapterFile] = []
    for adapter in value:
        parts = adapter if isinstance(adapter, tuple | list) else (adapter, 1.0)
        if len(parts) != 2 or not isinstance(parts[0], str | os.PathLike):
            raise InputError(f"{name} has {adapter!r:.80}; expected a file or a pair (file, scale)")
        scale = check_number(f"the scale of {name}", parts[1], -LARGEST_SCALE, LARGEST_SCALE)
        adapters.append((parts[0], scale))
    return tuple(adapters)


def parse_adapters(flag: str, texts: list[str]) -> Sequence[AdapterFile]:
    """Parse texts FILE or FILE:SCALE; an existing file of that name wins. Raises InputError."""
    adapters: list[AdapterFile] = []
    for text in texts:
        path, colon, scale = text.rpartition(":")
        try:
            number = float(scale)
        except ValueError:
            if colon and os.path.isfile(path) and not os.path.lexists(text):
                raise InputError(
                    f"{flag}: {path} has the scale {scale!r:.40}; it must be a number, such as "
                    f"{path}:0.5"
                ) from None
            colon = ""
        adapters.append((path, number) if colon and path and not os.path.lexists(text) else text)
    return check_adapters(flag, adapters)
