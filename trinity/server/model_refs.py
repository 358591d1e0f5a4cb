"""Models on the command line: NAME=REF, how they are loaded, and their context length."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from trinity.errors import InputError, TrinityError
from trinity.formats.defaults import ChatTemplate
from trinity.loading import load, open_weights
from trinity.model import Model
from trinity.models import find_architecture
from trinity.runtime.engine_building import MEMORY_SHARE, USUAL_CONTEXT
from trinity.runtime.paging import available_memory
from trinity.server.served import Served
from trinity.server.speech import Speech
from trinity.speech.model import SpeechModel
from trinity.tools.recommend import of_file
from trinity_kernels.ops.kv_layout import PAGE

Say = Callable[[str], None]
GLOBAL = "*"  # the name of the preset of models that have none
# A name before "=": nothing that begins a path or another form of reference.
NAME = r"[\w.:-][\w.:/-]*"
_NAMED = re.compile(rf"(?P<name>{NAME})=(?P<ref>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Preset:
    """Options of one model."""

    ref: str | None = None
    loading: Mapping[str, Any] = field(default_factory=dict)
    generation: Mapping[str, Any] = field(default_factory=dict)  # for requests without them
    template: ChatTemplate | None = None
    aliases: Sequence[str] = ()
    at_start: bool = False  # whether it is loaded when the server starts


NO_PRESETS: Mapping[str, Preset] = MappingProxyType({})


def served_models(
    refs: Sequence[str],
    loading: Mapping[str, Any],
    notice: Say,
    template: ChatTemplate | None = None,
    presets: Mapping[str, Preset] = NO_PRESETS,
) -> list[Served]:
    """The models of a command line, with ``template`` in place of their own chat templates.

    ``presets`` by name are options of one model, which those of the command line override.

    Several models share ``loading``: each has the context that was asked for, or its own limit if
    that is smaller. Without one each has ``usual_context``, and a request may ask for more.
    Raises: InputError for a name that is used twice.
    """

    def loaded(one: Served, loading: Mapping[str, Any], template: ChatTemplate | None) -> Model:
        ref, wanted = one.ref, loading.get("context_length")
        if wanted is None:
            length = one.context or usual_context(ref)
        else:
            length = min(wanted, context_limit(ref)) if len(refs) > 1 else wanted
        model = load(ref, **{**loading, "context_length": length}, progress=notice)
        if template is not None:
            model.use_chat_template(template)
        return model

    def made(name: str, ref: str) -> Served:
        preset = presets.get(name) or presets.get(GLOBAL) or Preset()
        given = {**preset.loading, **loading}
        chosen = template or preset.template
        one = Served(name, ref, lambda: loaded(one, given, chosen), partial(weight_bytes, ref))
        if given.get("context_length") is None:
            one.longest = partial(longest_context, ref)
        one.defaults, one.aliases, one.at_start = preset.generation, preset.aliases, preset.at_start
        one.loaded_with = (ref, given, chosen)
        return one

    served: dict[str, Served] = {}
    for text in refs:
        name, ref = name_and_ref(text)
        if name in served:
            raise InputError(
                f"two models are called {name!r:.80}; give one another name: NAME={ref:.200}"
            )
        served[name] = made(name, ref)
    return list(served.values())


def settled(loaded: Callable[[], Model]) -> Model:
    """Load a model; at the first one, exclude all existing objects from garbage collection.

    A full collection would visit every object (modules and the compiler) and block the event loop
    for 60 ms.
    """
    model = loaded()
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    return model


def with_prefixes(loaded: Callable[[], Model], folder: str, limit: int) -> Model:
    """Load a model that stores computed prefixes in ``folder``."""
    model = loaded()
    model.keep_prefixes(folder, limit)
    return model


def speech_of(
    text: str, quantize: str | None, longest: float, loading: Mapping[str, Any], notice: Say
) -> Speech:
    """The speech model of NAME=REF or REF; of the options of loading it has threads and isa.

    ``longest``: most seconds of a recording.
    """
    name, ref = name_and_ref(text)
    given = {key: loading.get(key) for key in ("threads", "isa")}
    load = partial(SpeechModel, ref, quantize=quantize, progress=notice, **given)
    return Speech(name, load, notice, longest)


def name_and_ref(text: str) -> tuple[str, str]:
    """Split NAME=REF into name and reference; REF alone has a name that is made from it."""
    named = None if os.path.lexists(text) else _NAMED.fullmatch(text)
    if named is not None:
        return named["name"], named["ref"]
    kind, colon, rest = text.partition(":")
    if colon and kind in ("hf", "ollama"):
        return rest, text
    stem = os.path.basename(os.path.normpath(text))
    return stem.removesuffix(".gguf").removesuffix(".safetensors"), text


def weight_bytes(ref: str) -> int:
    """Bytes of a model's weights."""
    provider = open_weights(ref)
    try:
        return sum(provider.tensor(name).nbytes for name in provider.tensor_names())
    finally:
        provider.close()


def context_limit(ref: str) -> int:
    """The longest context that a model was made for."""
    provider = open_weights(ref)
    try:
        return provider.config.context_length
    finally:
        provider.close()


def usual_context(ref: str, memory: int | None = None) -> int | None:
    """The context of a model for which none was asked for.

    It is the model's own limit, if keys and values of so many tokens have room in a quarter of
    ``memory`` in float32; else as many tokens as have, and at least 4096. ``memory``: bytes, by
    default the free memory. None, the engine's own default, is the context of models whose files
    give one (``num_ctx``) and of those that ``_room`` does not know.
    """
    room = _room(ref)
    if room is None or room.is_given:
        return None
    share = (available_memory() if memory is None else memory) // MEMORY_SHARE
    return min(room.limit, max(USUAL_CONTEXT, room.tokens(share)))


def longest_context(ref: str, memory: int) -> int:
    """The longest context of a model for which ``memory`` has room; 0 if ``_room`` is None."""
    room = _room(ref)
    return 0 if room is None else min(room.limit, room.tokens(memory))


class _Room(NamedTuple):
    """The limits of a model's context."""

    limit: int  # tokens: the model's own limit
    per_token: float  # bytes of a token's keys and values
    is_given: bool  # the model's files give a context

    def tokens(self, memory: int) -> int:
        """How many tokens have room, in whole pages."""
        if self.per_token * self.limit <= memory:
            return self.limit
        return int(memory / self.per_token) // PAGE * PAGE


def _room(ref: str) -> _Room | None:
    """The limits of a model's context.

    None for encoders, for models with two sets of rotary factors, which depend on the context, and
    for files that cannot be read: loading reports the error.
    """
    provider = open_weights(ref)
    try:
        config, names = provider.config, provider.tensor_names()
        if find_architecture(config.architecture, provider.path, names).encodes:
            return None
        if any("rope_factors_long" in name for name in names):
            return None
        per_token = 2 * of_file(provider).kv_bytes_per_token  # of float32
        given = "context_length" in provider.defaults.loading
        return _Room(config.context_length, per_token, given)
    except TrinityError:
        return None
    finally:
        provider.close()
