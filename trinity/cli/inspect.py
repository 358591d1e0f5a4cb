"""trinity inspect: show a model file's contents, its differences, its faults, or its kernels."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence, Sized
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

from trinity.cli import inspect_tables as tables
from trinity.cli import options
from trinity.cli.parameters import Argument, BadParameter, Exit, Flag
from trinity.cli.terminal import json_line, put, say

if TYPE_CHECKING:
    from trinity.formats import WeightProvider
    from trinity.formats.provider import Tensor
    from trinity.tools.contents import Contents

MOST_SHOWN = 4 << 20  # limit for metadata that is shown completely, in bytes
LONGEST_SHOWN = 16  # longer arrays are shown by their length


def inspect(
    model: Annotated[
        str | None, Argument(options.MODEL_HELP + ".", metavar="MODEL", show_default=False)
    ] = None,
    diff: Annotated[
        str | None,
        Flag(
            "Show the differences to this model instead; the exit code is 1 if there are any.",
            metavar="OTHER",
        ),
    ] = None,
    verify: Annotated[
        bool,
        Flag(
            "Show checksums of all tensors and damaged blocks instead; the exit code "
            "is 1 if there are any."
        ),
    ] = False,
    kernels: Annotated[
        bool,
        Flag(
            "Show which kernels multiply each type of weights, by number of tokens, instead: "
            "for this model, or, without MODEL, for all types."
        ),
    ] = False,
    tensors: Annotated[bool, Flag("Also list all tensors: shape, type and bytes.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show what a file is: a summary, its configuration and its metadata.

    LoRA adapters and importance matrices are recognized too.
    """
    from trinity.errors import TrinityError
    from trinity.loading import open_weights
    from trinity.tools.contents import contents_without_weights

    if (diff is not None) + verify + kernels > 1:
        raise BadParameter(
            "--diff, --verify and --kernels exclude each other; give only one of them"
        )
    if model is None:
        if not kernels:
            raise BadParameter("give a model, or --kernels", param_hint="MODEL")
        show_kernels(None, None, as_json)
        return
    try:
        provider = open_weights(model, notice=say)
    except TrinityError:
        known = None if diff or verify or kernels else contents_without_weights(model)
        if known is None:
            raise
        show_known(model, known, as_json)
        return
    if kernels:
        show_kernels(model, provider, as_json)
    elif diff is not None:
        show_diff((model, provider), (diff, open_weights(diff, notice=say)), as_json)
    elif verify:
        show_verification(model, provider, as_json)
    elif as_json:
        put(json_line(describe(model, provider)))
    else:
        tables.show(describe(model, provider), tensors)


def show_known(model: str, known: Contents, as_json: bool) -> None:
    """Print the description of a file that is not a model."""
    from trinity.tools.contents import files_of

    files = files_of(model)
    contents = {
        "model": model,
        "path": model,
        "kind": known.kind,
        "bytes": sum(map(os.path.getsize, files)),
        "summary": dict(known.facts),
        "header": {"files": files},
    }
    if as_json:
        put(json_line(contents))
    else:
        tables.show_known(contents)


def show_diff(
    first: tuple[str, WeightProvider], second: tuple[str, WeightProvider], as_json: bool
) -> None:
    """Compare and print; the exit code is 1 if anything differs."""
    from trinity.cli.progress_bar import bar
    from trinity.tools.diff import diff

    with bar("comparing") as progress:
        difference = diff(first[1], second[1], progress)
    if as_json:
        values = asdict(difference)
        for tensor in values["tensors_changed"]:
            tensor["rmse"] = plain(tensor["rmse"])
        named = {"model": first[0], "path": first[1].path}
        put(json_line({**named, "other": {"model": second[0], "path": second[1].path}, **values}))
    else:
        tables.show_diff(difference, first[1].path, second[1].path)
    if not difference.is_empty:
        raise Exit(1)


def show_verification(model: str, provider: WeightProvider, as_json: bool) -> None:
    """Verify and print; the exit code is 1 if anything is wrong."""
    from trinity.cli.progress_bar import bar
    from trinity.tools.verify import verify

    with bar("verifying") as progress:
        verification = verify(provider, progress)
    if as_json:
        values = asdict(verification)
        for tensor in values["tensors"]:
            tensor["bytes"] = tensor.pop("nbytes")
        put(json_line({"model": model, "path": provider.path, **values}))
    else:
        tables.show_verification(verification)
    if verification.findings:
        raise Exit(1)


def show_kernels(model: str | None, provider: WeightProvider | None, as_json: bool) -> None:
    """Print the table of kernels, for the types of a model's matrices or for all types."""
    from trinity_kernels import isa
    from trinity_kernels.ops.matmul import variants
    from trinity_kernels.ops.matmul.activations import FORMS

    types = set(FORMS)
    if provider is not None:
        tensors = [provider.tensor(name) for name in provider.tensor_names()]
        types &= {tensor.type for tensor in tensors if len(tensor.shape) > 1}
    level = isa.select_level()
    spans = [
        {
            "level": span.level,
            "tokens": [span.first, span.last],
            "types": list(span.types),
            "variant": span.variant.name,
            "kernel": span.variant.kernel.name,
            "exact": span.variant.exact,
        }
        for span in variants.spans(types=types)
    ]
    kernels = {
        "model": model,
        "path": None if provider is None else provider.path,
        "level": level,
        "available": list(isa.available_levels()),
        "kernels": spans,
    }
    if as_json:
        put(json_line(kernels))
    else:
        tables.show_kernels(kernels)


def describe(model: str, provider: WeightProvider) -> dict[str, object]:
    """Return everything that is shown, in the form of --json."""
    from trinity.errors import ConfigError, UnsupportedError
    from trinity.formats.other_models import is_speech
    from trinity.formats.speech_config import speech_config
    from trinity.tools.active import active_parameters
    from trinity.tools.contents import contents

    known = contents(provider)
    config: dict[str, object] | None = None
    config_error = experts = None
    try:
        if is_speech(provider.metadata):
            config = asdict(speech_config(provider.metadata, provider.path))
        else:
            found = provider.config
            config, experts = asdict(replace(found, rotation=None)), found.experts
            if found.rotation is not None:
                config["rotation"] = found.rotation.summary()
    except (ConfigError, UnsupportedError) as error:
        config_error = str(error)
    tensors = [provider.tensor(name) for name in provider.tensor_names()]
    return {
        "model": model,
        "path": provider.path,
        "kind": known.kind,
        "bytes": sum(map(os.path.getsize, provider.paths)),
        "summary": dict(known.facts),
        "header": header(provider),
        "config": config,
        "config_error": config_error,
        "refused": refusal(provider) if known.kind == "model" else None,
        "metadata": metadata_of(provider),
        "tensors": [
            {"name": t.name, "shape": list(t.shape), "type": t.type, "bytes": t.nbytes}
            for t in tensors
        ],
        "types": totals(tensors),
        "tensor_bytes": sum(t.nbytes for t in tensors),
        "parameters": sum(math.prod(t.shape) for t in tensors),
        "active_parameters": active_parameters(((t.name, t.shape) for t in tensors), experts),
        "bits_per_weight": bits(sum(t.nbytes for t in tensors), tensors),
    }


def refusal(provider: WeightProvider) -> str | None:
    """Return why trinity cannot run the model, or None, judged by names and shapes."""
    from trinity.errors import TrinityError
    from trinity.models import check_model

    try:
        check_model(provider)
    except TrinityError as error:
        return str(error)
    return None


def totals(tensors: Sequence[Tensor]) -> dict[str, dict[str, object]]:
    """Return the number of tensors, parameters and bytes of each type, the largest first."""
    groups: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.type, []).append(tensor)
    by_type: dict[str, dict[str, object]] = {
        name: {
            "tensors": len(group),
            "parameters": sum(math.prod(t.shape) for t in group),
            "bytes": sum(t.nbytes for t in group),
            "bits_per_weight": bits(sum(t.nbytes for t in group), group),
        }
        for name, group in groups.items()
    }
    return dict(sorted(by_type.items(), key=lambda item: -int(str(item[1]["bytes"]))))


def bits(nbytes: int, tensors: Sequence[Tensor]) -> float | None:
    """Return the bits per parameter, or None without parameters."""
    parameters = sum(math.prod(t.shape) for t in tensors)
    return round(8 * nbytes / parameters, 4) if parameters else None


def header(provider: WeightProvider) -> dict[str, object]:
    """Return the properties of the file format."""
    from trinity.formats import GGUFProvider

    if not isinstance(provider, GGUFProvider):
        return {"format": "Hugging Face", "files": provider.paths}
    return {
        "format": "GGUF",
        "version": provider.version,
        "alignment": provider.alignment,
        "files": provider.paths,
    }


def metadata_of(provider: WeightProvider) -> dict[str, object]:
    """Return all keys; values too large for a model are replaced by type and length."""
    from trinity.formats import GGUFProvider

    shown: dict[str, object] = {}
    left = MOST_SHOWN
    for key in provider.metadata:
        shown[key] = value_of(provider, key, left)
        if isinstance(provider, GGUFProvider) and not isinstance(shown[key], dict):
            left -= provider.metadata.encoded_length(key)
    return shown


def value_of(provider: WeightProvider, key: str, most: int) -> object:
    """Return a value of at most ``most`` bytes; otherwise, or for a long array, its length."""
    from trinity.formats import GGUFProvider

    if isinstance(provider, GGUFProvider):
        length = provider.metadata.array_length(key)
        nbytes = provider.metadata.encoded_length(key)
        if nbytes > most or (length is not None and length > LONGEST_SHOWN):
            length = nbytes if length is None else length
            return {"array": provider.metadata.value_type(key), "length": length}
    value = provider.metadata[key]
    if isinstance(value, Sized) and not isinstance(value, str) and len(value) > LONGEST_SHOWN:
        return {"array": type(value[0]).__name__, "length": len(value)}  # type: ignore[index]
    return plain(value)


def plain(value: object) -> object:
    """Convert ``value`` for JSON: arrays to lists, NaN and infinities to text."""
    import numpy as np

    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return [plain(element) for element in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
