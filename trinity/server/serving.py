"""Start a server from the options of a command line, and serve until a signal."""

from __future__ import annotations

import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.errors import InputError, TrinityError
from trinity.runtime.paging import bound_kept_heap
from trinity.server.app import make_app
from trinity.server.logs import log_to
from trinity.server.model_refs import (
    NO_PRESETS,
    Preset,
    Say,
    served_models,
    settled,
    speech_of,
    with_prefixes,
)
from trinity.server.models import Models
from trinity.server.process import Server, config, listening
from trinity.server.reload import Reload, some_of
from trinity.server.security import EVERYWHERE
from trinity.server.served import Served
from trinity.server.service import NO_DEFAULTS
from trinity.server.setting_values import check_folder, read_template
from trinity.server.settings import ServerOptions

if TYPE_CHECKING:
    from trinity.server.created import CreatedModels
    from trinity.server.speech import Speech

# Seconds until a running thread yields the interpreter's lock (Python's default: 5 ms), so that a
# thread that reads a long request does not hold up the event loop and the engine.
SWITCH_SECONDS = 0.0005
Offered = tuple[Sequence[str], Mapping[str, Preset]]  # models, and options of single ones


def serve(
    refs: Sequence[str], options: ServerOptions, loading: Mapping[str, Any], say: Say,
    defaults: Mapping[str, Any] = NO_DEFAULTS, presets: Mapping[str, Preset] = NO_PRESETS,
    again: Callable[[Say], Offered] | None = None,
) -> int | None:  # fmt: skip
    """Serve models until a signal arrives; return its number.

    ``refs`` are NAME=REF or REF, with REF as in ``trinity.load``; ``loading`` are its options.
    ``say`` is called with lines for the user. ``defaults`` are GenerationOptions for requests that
    do not set them, ``presets`` options of single models. ``again`` reads ``refs`` and
    ``presets`` anew, for a reload. Raises: TrinityError.
    """
    options.all_keys()
    say = log_to(say, requests=options.log_requests, json=options.log_format == "json")
    template = None if options.chat_template is None else read_template(options.chat_template)
    limits = {"max_sequences": options.parallel, "batch_size": options.batch_size}
    loading = {**loading, **{name: most for name, most in limits.items() if most is not None}}

    def made(texts: Sequence[str], presets: Mapping[str, Preset]) -> list[Served]:
        served = served_models(texts, loading, say, template, presets)
        for model in served:
            if options.state is not None and options.prefix_cache_bytes:
                folder = os.path.join(options.state, "prefixes")
                model.load = partial(with_prefixes, model.load, folder, options.prefix_cache_bytes)
            model.load = partial(settled, model.load)
        return served

    def offered(refs: Sequence[str], presets: Mapping[str, Preset]) -> list[Served]:
        served = made(refs, presets)
        served[0].aliases = (*served[0].aliases, *options.aliases)
        served[0].tags = options.all_tags
        taken = Counter(name for model in served for name in {model.name, *model.aliases})
        twice = [name for name, count in taken.items() if count > 1]
        if twice:
            raise InputError(f"the alias {min(twice)!r:.80} is the name of another model")
        return served

    served = offered(refs, presets)
    if options.slot_save_path is not None:
        check_folder(options.slot_save_path)
    models = Models(
        served, memory_limit=options.memory_limit, any_name=options.any_model_name,
        idle_seconds=options.idle_seconds,
    )  # fmt: skip

    def added(name: str, ref: str) -> Served:
        (model,) = made([ref], presets)
        model.name = name
        return model

    models.of_ref = added if options.allow_pull else None
    if again is not None:

        def offered_by_now() -> list[Served]:
            nonlocal presets
            refs, presets = again(say)
            return offered(refs, presets)

        models.reload = Reload(models, offered_by_now, say)
    created = None
    if options.allow_create:
        from trinity.server.created import CreatedModels

        created = CreatedModels(added, options.max_store)
        created.offer(models)
    speech = None
    if options.speech_model is not None:
        speech = speech_of(
            options.speech_model, options.speech_quantize, options.max_audio_seconds, loading, say
        )
    return run(models, options, say, defaults, speech, created)


def run(
    models: Models, options: ServerOptions, say: Say, defaults: Mapping[str, Any] = NO_DEFAULTS,
    speech: Speech | None = None, created: CreatedModels | None = None,
) -> int | None:  # fmt: skip
    """Listen, and serve models until a signal arrives; return its number. Raises: TrinityError.

    Arguments: as of ``make_app``; ``say`` is called with the addresses and the models.
    """
    errors: list[BaseException] = []

    def failed(error: BaseException) -> None:
        errors.append(error)
        server.should_exit = True

    addresses: list[str] = []

    def ready() -> None:
        for address in addresses:
            say(f"listening on {address}")
        page = "" if "/" in options.disable else f"; chat page: {addresses[0]}/"
        say(f"models: {some_of(list(models.served))}{page}")

    app = make_app(models, options, failed, ready, defaults, speech, created)
    with ExitStack() as open_sockets:
        listeners: list[socket.socket] = []
        port = options.port
        for wanted in options.hosts:
            listeners.append(open_sockets.enter_context(listening(wanted, port)))
            host, port = listeners[-1].getsockname()[:2]
            addresses.append(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        everywhere = [address for address in options.hosts if address in EVERYWHERE]
        if everywhere and not options.all_keys():
            say(
                f"warning: {everywhere[0]} is every address of this machine, and there is no API "
                "key: anyone who reaches it can use the models; give --api-key, or --host 127.0.0.1"
            )
        server = Server(config(app, options), options.max_connections, models.reload)
        sys.setswitchinterval(SWITCH_SECONDS)
        bound_kept_heap()
        server.run(sockets=listeners)
    if errors:
        (error,) = errors
        raise error if isinstance(error, TrinityError) else TrinityError(str(error)) from error
    return server.ended_by
