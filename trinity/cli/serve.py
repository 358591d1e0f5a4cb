"""trinity serve: OpenAI's and other HTTP APIs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from trinity.cli import options
from trinity.cli.loading import model_or_chat_demo
from trinity.cli.parameters import Exit, Flag
from trinity.cli.terminal import say
from trinity.errors import InputError
from trinity.options.option import declared
from trinity.processes.command_line import INTERRUPTED, leave_threads
from trinity.runtime.sampling_params import SamplingParams
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


@options.takes(serving=SERVING, generation=DEFAULTS, loading=options.LOADING)
def serve(
    model: Annotated[
        list[str] | None,
        Flag(
            "--model",
            "-m",
            metavar="[NAME=]MODEL",
            help=(
                f"{options.MODEL_HELP}; may be several: all but the first are loaded when they "
                "are requested. The demo chat model if not given."
            ),
        ),
    ] = None,
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
    refs = model or [f"demo={model_or_chat_demo(None)}"]
    ended_by = server.serve(refs, settings, loading, say, generation)
    status = INTERRUPTED if ended_by == signal.SIGINT else 0
    leave_threads(status)
    raise Exit(status)
