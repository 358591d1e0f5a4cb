"""The server as a process: its models by name, its socket, and its end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from trinity.errors import InputError, TrinityError
from trinity.loading import load, open_weights
from trinity.model import Model
from trinity.runtime.paging import give_back_heap
from trinity.server.accepting import BACKLOG, Accepting
from trinity.server.app import make_app
from trinity.server.connection import Connection, written_to
from trinity.server.connections import Connections
from trinity.server.contexts import context_limit, usual_context
from trinity.server.models import Models
from trinity.server.security import EVERYWHERE
from trinity.server.served import Served
from trinity.server.service import NO_DEFAULTS
from trinity.server.setting_values import check_folder, read_template
from trinity.server.settings import ServerOptions
from trinity.server.speech import Speech
from trinity.speech.model import SpeechModel

Say = Callable[[str], None]
# A name before "=": nothing that begins a path or another form of reference.
_NAMED = re.compile(r"(?P<name>[\w.:-][\w.:/-]*)=(?P<ref>.+)", re.DOTALL)
# After a request's end a connection is kept for the next one, in seconds.
KEPT_SECONDS = 75
# Tenths of a second after which freed memory is given back, where no request is being answered.
GIVE_BACK_TICKS = 20
# Seconds for cancelled requests to say so to their clients.
LAST_SECONDS = 0.5
# After which a thread gives up the interpreter's lock to another one: the event loop, or the thread
# that runs the model, beside a thread that reads a long request. Python's own value is 5 ms.
SWITCH_SECONDS = 0.0005
# Seconds for cancelled tasks to end when the server ends.
TASK_SECONDS = 1.0
log = logging.getLogger("trinity.server")


def serve(
    refs: Sequence[str], options: ServerOptions, loading: Mapping[str, Any], say: Say,
    defaults: Mapping[str, Any] = NO_DEFAULTS,
) -> int | None:  # fmt: skip
    """Serve models until a signal comes, whose number is returned.

    ``refs`` are NAME=REF or REF, with REF as ``trinity.load`` takes it, ``loading`` its options.
    ``say`` gets lines that whoever starts the server should see. ``defaults`` are
    GenerationOptions of requests that do not give them. Raises: TrinityError.
    """
    options.all_keys()
    template = None if options.chat_template is None else read_template(options.chat_template)
    loading = {**loading, "max_sequences": options.parallel, "batch_size": options.batch_size}
    served = served_models(refs, loading, say, template)
    if options.state is not None and options.prefix_cache_bytes:
        folder = os.path.join(options.state, "prefixes")
        for one in served:
            one.load = partial(with_prefixes, one.load, folder, options.prefix_cache_bytes)
    for one in served:
        one.load = partial(settled, one.load)
    taken = {one.name for one in served[1:]}.intersection(options.aliases)
    if taken:
        raise InputError(f"the alias {min(taken)!r:.80} is the name of another model")
    served[0].aliases, served[0].tags = options.aliases, options.all_tags
    if options.slot_save_path is not None:
        check_folder(options.slot_save_path)
    models = Models(served, memory_limit=options.memory_limit, any_name=options.any_model_name)
    errors: list[BaseException] = []

    def failed(error: BaseException) -> None:
        errors.append(error)
        server.should_exit = True

    speech = None
    if options.speech_model is not None:
        speech = speech_of(options.speech_model, options.speech_quantize, loading, say)
    app = make_app(models, options, failed, defaults, speech)
    if options.log_requests:
        log_to(say)
    with ExitStack() as open_sockets:
        listeners: list[socket.socket] = []
        port = options.port
        for wanted in options.hosts:
            listeners.append(open_sockets.enter_context(listening(wanted, port)))
            host, port = listeners[-1].getsockname()[:2]
            say(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}")
        everywhere = [one for one in options.hosts if one in EVERYWHERE]
        if everywhere and not options.all_keys():
            say(
                f"warning: {everywhere[0]} is every address of this machine, and there is no API "
                "key: whoever reaches it can use the models; give --api-key, or --host 127.0.0.1"
            )
        server = Server(config(app, options), options.max_connections)
        sys.setswitchinterval(SWITCH_SECONDS)
        server.run(sockets=listeners)
    if errors:
        (error,) = errors
        raise error if isinstance(error, TrinityError) else TrinityError(str(error)) from error
    return server.ended_by


def config(app: Any, options: ServerOptions) -> uvicorn.Config:
    """How uvicorn runs the application."""
    return uvicorn.Config(
        written_to(app), http=Connection, ws="none", lifespan="on", log_config=None,
        log_level="error", access_log=False, server_header=False, proxy_headers=False,
        timeout_keep_alive=KEPT_SECONDS, timeout_graceful_shutdown=round(options.drain),
        h11_max_incomplete_event_size=options.max_header,
    )  # fmt: skip


class Server(uvicorn.Server):
    """Ends in good order at the first signal, and at once at the second.

    It ends within ``drain`` + 5 s whatever its clients, their requests' threads and the models do.
    """

    ended_by: int | None = None

    def __init__(self, config: uvicorn.Config, most_connections: int | None = None) -> None:
        super().__init__(config)
        self.server_state = self._connections = Connections(most_connections)
        self._given_back = 0  # connections and answers until then

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until the end. Threads that still compute then are abandoned.

        ``asyncio.run`` would wait for them, and for tasks that do not end, without a limit.
        """
        loop = asyncio.new_event_loop()
        # As many threads as asyncio has by default.
        executor = ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 4), "trinity-request")
        loop.set_default_executor(executor)
        try:
            loop.run_until_complete(self.serve(sockets=sockets))
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            try:
                loop.run_until_complete(end_tasks(TASK_SECONDS))
            finally:
                loop.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take connections."""
        await super().startup(sockets=[])  # asyncio would take more than there is room for
        made = partial(Connection, self.config, self._connections, self.lifespan.state)
        taking = [Accepting(one, self._connections, made) for one in sockets or ()]
        self.servers = taking  # type: ignore[assignment]

    async def on_tick(self, counter: int) -> bool:
        """What is done ten times a second; whether the server shall end."""
        if counter % 10 == 0:
            self._connections.sweep()
        if counter % GIVE_BACK_TICKS == 0:
            self._give_back()
        return await super().on_tick(counter)

    def _give_back(self) -> None:
        """Let the system have what requests have freed, once they have ended."""
        state = self._connections
        done = state.total + state.total_requests
        if done != self._given_back and not state.tasks:
            self._given_back = done
            asyncio.get_running_loop().run_in_executor(None, give_back_heap)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more requests, let running ones end, then close what is left."""
        await super().shutdown(sockets)
        if self._connections.tasks:
            await asyncio.wait(self._connections.tasks, timeout=LAST_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take no more requests; the second time wait for none."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self.ended_by = sig

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals end the server while it runs; whoever started it then goes on.

        They come to the main thread alone.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


async def end_tasks(seconds: float) -> None:
    """Cancel all other tasks; log those that have not ended after ``seconds``."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        _, left = await asyncio.wait(tasks, timeout=seconds)
        for task in left:
            log.error("the server ends before its task %r", task)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().shutdown_asyncgens()


def served_models(
    refs: Sequence[str], loading: Mapping[str, Any], notice: Say, template: str | None = None
) -> list[Served]:
    """The models of a command line, with ``template`` in place of their own chat templates.

    Several models share ``loading``: each has the context that was asked for, or its own limit if
    that is smaller. Without one each has ``usual_context``. Raises: InputError for a name that is
    used twice.
    """
    wanted = loading.get("context_length")

    def loaded(ref: str) -> Model:
        length = usual_context(ref) if wanted is None else wanted
        if wanted is not None and len(refs) > 1:
            length = min(wanted, context_limit(ref))
        model = load(ref, **{**loading, "context_length": length}, progress=notice)
        if template is not None:
            model.use_chat_template(template)
        return model

    found: dict[str, Served] = {}
    for text in refs:
        name, ref = name_and_ref(text)
        if name in found:
            raise InputError(
                f"two models are called {name!r:.80}; give one another name: NAME={ref:.200}"
            )
        found[name] = Served(name, ref, partial(loaded, ref), partial(weight_bytes, ref))
    return list(found.values())


def settled(loaded: Callable[[], Model]) -> Model:
    """A model, loaded; what then exists is left out of garbage collection from the first one on.

    A full collection looks at every object, most of them modules and the compiler, in 60 ms, for
    which the event loop stands still.
    """
    model = loaded()
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    return model


def with_prefixes(loaded: Callable[[], Model], folder: str, limit: int) -> Model:
    """A model that keeps what it evaluates in ``folder``."""
    model = loaded()
    model.keep_prefixes(folder, limit)
    return model


def speech_of(text: str, quantize: str | None, loading: Mapping[str, Any], notice: Say) -> Speech:
    """The speech model of NAME=REF or REF; of the options of loading it has threads and isa."""
    name, ref = name_and_ref(text)
    given = {key: loading.get(key) for key in ("threads", "isa")}
    load = partial(SpeechModel, ref, quantize=quantize, progress=notice, **given)
    return Speech(name, load, notice)


def name_and_ref(text: str) -> tuple[str, str]:
    """The name and the reference of NAME=REF, or of REF, which has a name of its own."""
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


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens. Raises: InputError where the address cannot be had."""
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        listener = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise InputError(f"cannot listen on {host}:{port}: {error}") from error
    with listener:
        yield listener


class _Lines(logging.Handler):
    """Writes records by a function."""

    def __init__(self, say: Say) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        self._say(self.format(record))


def log_to(say: Say) -> None:
    """Write a line for each request."""
    log.setLevel(logging.INFO)
    log.addHandler(_Lines(say))
    log.propagate = False
