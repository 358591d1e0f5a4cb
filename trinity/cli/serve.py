"""trinity serve: OpenAI's and other HTTP APIs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

from trinity.cli import options
from trinity.cli.loading import model_or_chat_demo
from trinity.cli.parameters import BadParameter, Exit, Flag
from trinity.cli.ray_options import ray_replicas
from trinity.cli.terminal import say
from trinity.errors import InputError
from trinity.options.option import declared
from trinity.processes.command_line import INTERRUPTED, leave_threads
from trinity.runtime.sampling.sampling_params import SamplingParams
from trinity.server.settings import ServerOptions

SERVING = options.flagged(declared(ServerOptions))
DEFAULTS = options.only(
    options.GENERATION,
    "max_tokens",
    *(option.name for option in declared(SamplingParams) if option.name != "logit_bias"),
    "speculative",
    "context_shift",
    "keep",
)
NEEDED = ("starlette", "uvicorn", "msgspec", "prometheus_client", "llguidance")


@contextmanager
def libraries() -> Iterator[None]:
    """Within this context, a missing library gives an InputError that says what to do."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in NEEDED:
            raise
        raise InputError(
            f"the server needs libraries that are not installed ({error}); install them with: "
            'pip install "trinity-llm[serve]"'
        ) from error


def found_models(folder: str | None, say: Callable[[str], None]) -> list[str]:
    """Return the models of a folder or of this machine, or the demo chat model if there are none.

    ``say`` is called with lines for the user. Raises: InputError as ``local_models``.
    """
    from trinity.tools.local_models import local_models

    refs = local_models(folder, say)
    if not refs:
        return [f"demo={model_or_chat_demo(None)}"]
    names = [ref.partition("=")[0] for ref in refs]
    say(f"serving {', '.join(names)}")
    if len(names) > 1:
        say(f"{names[0]} answers requests that name no model; give --model MODEL for another")
    return refs


def on_demand(settings: ServerOptions) -> ServerOptions:
    """Load nothing at the start, and limit the loaded models to three quarters of free memory."""
    from trinity.runtime.paging import available_memory

    limit = settings.memory_limit or available_memory() * 3 // 4 or None
    return replace(settings, preload=False, memory_limit=limit)


@options.takes(serving=SERVING, generation=DEFAULTS, loading=options.LOADING)
def serve(
    model: Annotated[
        list[str] | None,
        Flag(
            f"{options.MODEL_HELP}; may be several: all but the first are loaded when they "
            "are requested. If not given, the models of huggingface_hub's cache and of "
            "Ollama's stores, or the demo chat model.",
            "--model",
            "-m",
            metavar="[NAME=]MODEL",
        ),
    ] = None,
    models_dir: Annotated[
        str | None,
        Flag(
            "Serve the models of this folder, each loaded when it is requested.", metavar="FOLDER"
        ),
    ] = None,
    models_preset: Annotated[
        str | None,
        Flag(
            "INI file with a section of options for each model, as llama.cpp's server has.",
            metavar="FILE",
        ),
    ] = None,
    ray: options.OnRay = False,
    replicas: options.Replicas = None,
    cores: options.Cores = None,
    ray_address: options.RayAddress = None,
    *,
    serving: options.Given,
    generation: options.Given,
    loading: options.Given,
) -> None:
    """Serve models over HTTP with OpenAI's and other APIs, until Ctrl-C or SIGTERM.

    Options of generation are defaults for requests that do not give them.
    """
    settings = ServerOptions(**serving)
    with libraries():
        from trinity.server import serving as server
    on_ray = ray_replicas(ray, replicas, cores, ray_address)
    if on_ray is not None:
        if models_dir is not None or models_preset is not None or len(model or ()) > 1:
            raise BadParameter("--ray serves one model; give it by --model")
        from trinity.ray.serving import serve_on_ray

        ref = model[0] if model else f"demo={model_or_chat_demo(None)}"
        number = serve_on_ray(ref, on_ray, settings, loading, say, generation)
        raise Exit(INTERRUPTED if number == signal.SIGINT else 0)
    if model and models_dir is not None:
        raise BadParameter("--model and --models-dir exclude each other; give only one of them")

    def offered(say: Callable[[str], None]) -> server.Offered:
        if models_preset is None:
            return model or found_models(models_dir, say), {}
        from trinity.cli.presets import read_presets, with_presets

        presets = read_presets(models_preset, DEFAULTS, say)
        given = model or any(preset.ref for preset in presets.values())
        found = [] if given and models_dir is None else found_models(models_dir, say)
        return with_presets(model or (), found, presets, say), presets

    refs, presets = offered(say)
    if not model and len(refs) > 1:
        settings = on_demand(settings)
    ended_by = server.serve(refs, settings, loading, say, generation, presets, offered)
    status = INTERRUPTED if ended_by == signal.SIGINT else 0
    leave_threads(status)
    raise Exit(status)
