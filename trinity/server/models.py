"""The models of a server: loaded on demand, and unloaded by least use or on request."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import TypeVar
from weakref import WeakSet

from trinity.errors import TrinityError
from trinity.runtime.paging import available_memory
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignored
from trinity.server.served import ModelLease, Served
from trinity.server.transport.loop_turns import CLIENT

T = TypeVar("T")

log = logging.getLogger("trinity.server")

# Names that programs have built in ("dummy" and "tgi": Text Generation Inference; "some-model":
# llama.cpp's document). A server with one model accepts them.
VENDORS = re.compile(
    r"(openai/)?(chatgpt|gpt-?[345]|o[134](-|$)|text-davinci|text-embedding-|davinci|codex)"
    r"|(anthropic/)?claude-|(google/|models/)?gemini-"
    r"|(default|local|local-model|some-model|llama_cpp|dummy|tgi)$",
    re.IGNORECASE,
)


class _Turns:
    """A lock for which clients take turns; tasks of one client get it in their order."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # the first client is next

    async def __aenter__(self) -> None:
        if not self._is_held:
            self._is_held = True
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(CLIENT.get(), deque()).append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._pass_on()
            raise

    async def __aexit__(self, *exception: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting:
            client = next(iter(self._waiting))
            own = self._waiting.pop(client)
            future = own.popleft()
            if own:
                self._waiting[client] = own  # as the last
            if not future.cancelled():
                future.set_result(None)
                return
        self._is_held = False


class Models:
    """All models of a server. Requests that name no model use the first."""

    def __init__(
        self, served: Sequence[Served], *, memory_limit: int | None = None, any_name: bool = False,
        idle_seconds: float = math.inf,
    ) -> None:  # fmt: skip
        self.served = {model.name: model for model in served}
        # Makes a model of a name and a reference, if requests may add models.
        self.of_ref: Callable[[str, str], Served] | None = None
        # Reads the list of models again; None: the list is fixed.
        self.reload: Callable[[], Awaitable[None]] | None = None
        self.pulling = asyncio.Lock()  # held by the one download that may run
        self._by_name = {alias: model for model in served for alias in model.aliases} | self.served
        self.first = served[0]
        self.began = any(model.model is not None for model in served)  # a model has been loaded
        self._memory_limit = memory_limit
        self._any_name = any_name
        self._idle_seconds = idle_seconds  # after which an unused model is unloaded
        self._loading = _Turns()
        self._wanted: Served | None = None  # waits until another model is idle
        # One thread loads and closes all models: the C library would keep the end of the heap of
        # each thread in which a model was loaded.
        self._thread = ThreadPoolExecutor(1, "trinity-models")
        self._freed = asyncio.Event()
        self._uses = count(1)
        self._timers: dict[Served, asyncio.TimerHandle] = {}  # by idle model
        self._removed = WeakSet[Served]()  # models that are no longer offered, but may be loaded
        self._unloading = set[asyncio.Task[None]]()
        # Called with the name of a model ("*": of all) and its new status, or None if it changed.
        self.watching = set[Callable[[str, str | None], None]]()

    def add(self, served: Served) -> None:
        """Serve another model, unless its name is taken."""
        if served.name not in self._by_name:
            self.served[served.name] = self._by_name[served.name] = served
            self._tell("*", None)

    def replace(self, served: Served) -> None:
        """Serve a model in place of the one of its name. Responses of that one go on."""
        old = self.served.get(served.name)
        self.served[served.name] = self._by_name[served.name] = served
        if old is not None:
            served.aliases, served.tags = old.aliases, old.tags
            self._by_name.update(dict.fromkeys(old.aliases, served))
            self._retire(old, served)
        self._tell("*", None)

    def offer(self, served: Sequence[Served], instead: Collection[str]) -> None:
        """Replace the models named in ``instead`` by these. Responses in progress go on.

        A loaded model stays loaded if it would be loaded in the same way.
        """
        before, listed = self.served, dict[str, Served]()
        for new in served:
            old = before.get(new.name)
            same = old is not None and old.loaded_with == new.loaded_with
            if old is not None and same:
                old.defaults, old.aliases, old.tags = new.defaults, new.aliases, new.tags
                new = old
            listed[new.name] = new
        others = {name: one for name, one in before.items() if name not in instead}
        self.served = {**listed, **{name: others[name] for name in others if name not in listed}}
        self._by_name = {alias: one for one in listed.values() for alias in one.aliases}
        self._by_name |= self.served
        self.first = next(iter(self.served.values()))
        for old in before.values():
            if self.served.get(old.name) is not old:
                self._retire(old, self.first)
        self._tell("*", None)

    def remove(self, served: Served) -> None:
        """Serve a model no longer. Responses of it go on.

        Raises: ApiError 400 for the only model.
        """
        if len(self.served) == 1:
            raise ApiError(400, f"{served.name} is the server's only model, so it stays")
        del self.served[served.name]
        for name in [name for name, one in self._by_name.items() if one is served]:
            del self._by_name[name]
        self._retire(served, next(iter(self.served.values())))
        self._tell(served.name, None)

    def _retire(self, served: Served, other: Served) -> None:
        """Unload a model once it is idle; if it is the first, ``other`` becomes the first."""
        self._removed.add(served)
        if self.first is served:
            self.first = other
        self._set_timer(served)

    @property
    def reads_images(self) -> bool:
        """Whether a loaded model reads images."""
        return any(one.model is not None and one.model.reads_images for one in self.served.values())

    @property
    def ready(self) -> bool:
        """Whether a model is loaded."""
        return any(served.model is not None for served in self.served.values())

    @property
    def names(self) -> Collection[str]:
        """All names of models and their aliases."""
        return self._by_name.keys()

    def check_queue(self, name: str | None, client: str, most: int) -> None:
        """Raises: ApiError 429 as ``Served.check_queue``, if there is a model of that name."""
        alone = not name or len(self.served) == 1
        served = self.first if alone else self._by_name.get(name or "")
        if served is not None:
            served.check_queue(client, most)

    def find(self, ignored: Ignored, name: str | None) -> Served:
        """The model of a name, the first one if there is none or an empty one.

        A server with one model accepts vendors' names.
        Raises: ApiError 404; 400 for a vendor's name under ``--strict``.
        """
        served = self._by_name.get(name) if name else self.first
        if served is None and self._any_name:
            served = self.first
        if served is None and len(self.served) == 1 and VENDORS.match(name or ""):
            served = self.first
            ignored.add("model")
        if served is None:
            known = ", ".join(sorted(self._by_name))
            raise ApiError(
                404,
                f"there is no model {name!r:.200}; there is {known}",
                "model",
                "model_not_found",
            )
        return served

    async def lease(self, ignored: Ignored, name: str | None, owner: str = "") -> ModelLease:
        """Load the model of a name and lease it for an owner.

        While another model waits for room, it waits for its turn even if its model is loaded:
        else a model that is never idle would keep the other one out.

        Raises: ApiError 404 for an unknown name, 503.
        """
        served = self.find(ignored, name)
        served.used = next(self._uses)
        while served.model is None or self._wanted not in (None, served):
            try:
                await self._load(served)
            except TrinityError as error:
                # The message names files of the server, so only the log has it.
                log.error("the model %s cannot be loaded: %s", served.name, error)
                raise ApiError(
                    503, f"the model {served.name} cannot be loaded; the server's log says why"
                ) from error
        lease = ModelLease(served, served.model, self._released)
        self.keep(served, self._idle_seconds, owner)
        return lease

    def keep(self, served: Served, seconds: float, owner: str = "") -> None:
        """Keep a model loaded for ``seconds`` after its last use, until an owner's next request.

        Of several owners the longest time counts.
        """
        served.keep_seconds[owner] = seconds
        self._set_timer(served)

    def _released(self, served: Served) -> None:
        self._freed.set()
        self._set_timer(served)

    def _set_timer(self, served: Served) -> None:
        """Unload a model after its time, if it is idle; an earlier timer of it ends."""
        seconds = max(served.keep_seconds.values(), default=self._idle_seconds)
        if served in self._removed:
            seconds = 0
        served.expires = time.time() + seconds
        timer = self._timers.pop(served, None)
        if timer is not None:
            timer.cancel()
        if served.model is not None and not served.users and seconds < math.inf:
            later = asyncio.get_running_loop().call_later
            self._timers[served] = later(seconds, self._unload_soon, served)

    def _unload_soon(self, served: Served) -> None:
        del self._timers[served]
        task = asyncio.create_task(self._unload_idle(served))
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)

    async def _unload_idle(self, served: Served) -> None:
        if not served.users:
            await self._unload(served)

    async def _load(self, served: Served) -> None:
        async with self._loading:
            if served.model is None:
                await self._load_in_turn(served)

    async def _load_in_turn(self, served: Served) -> None:
        """Load a model; the caller holds ``_loading``."""
        served.loading, served.failed = True, False
        self._tell(served.name, "loading")
        try:
            need = 0
            if self._memory_limit is not None:
                need = await self._run(served.weigh)
                await self._make_room(need, served)
            served.model = await self._run(served.load)
            served.keep_seconds.clear()
            self.began = True
        finally:
            served.loading, self._wanted = False, None
            served.failed = served.model is None
            self._tell(served.name, "unloaded" if served.failed else "loaded")
        # The limit of the KV cache is known only after loading.
        engine = served.model.engine
        served.bytes = need + engine.pool.limit + engine.other_bytes
        await self._make_room(0, served)

    async def lengthen(self, served: Served, tokens: int) -> None:
        """Load a loaded model again, with a context of ``tokens`` or more.

        It gets no more than its own limit and than half of the free memory has room for. It stays
        as it is without room, with a fixed context, and while it is in use: waiting for that would
        let one client hold up the others.
        """
        if not self._is_short(served, tokens):
            return
        async with self._loading:
            model = served.model
            if model is None or served.longest is None:
                return
            if served.most_context is None:
                room = await self._room(served)
                served.most_context = await self._run(partial(served.longest, room))
            if served.users or not self._is_short(served, tokens):
                return
            # Few different lengths, so that requests cannot reload it again and again.
            context = min(1 << (tokens - 1).bit_length(), served.most_context)
            before = model.context_length
            del model  # its memory is needed
            await self._unload(served)
            served.context = context
            try:
                await self._load_in_turn(served)
            except TrinityError as error:
                log.error("%s cannot have a context of %d: %s", served.name, context, error)
                served.context, served.most_context = None, before

    def _is_short(self, served: Served, tokens: int) -> bool:
        """Whether a loaded model's context is shorter than ``tokens``, and could be longer."""
        model, most = served.model, served.most_context
        if model is None or served.longest is None or model.context_length >= tokens:
            return False
        return most is None or most > model.context_length

    async def _room(self, served: Served) -> int:
        """Bytes that a model's keys and values may have."""
        room = available_memory() // 2
        if self._memory_limit is None:
            return room
        return max(0, min(room, self._memory_limit - await self._run(served.weigh)))

    async def _make_room(self, need: int, wanted: Served) -> None:
        """Unload the least recently used idle models until ``need`` bytes are free.

        If ``wanted`` is not loaded yet, wait until a model becomes idle.
        """
        limit = self._memory_limit
        while limit is not None:
            loaded = [served for served in self._all() if served.model is not None]
            if sum(served.bytes for served in loaded) + need <= limit:
                return
            others = [served for served in loaded if served is not wanted]
            idle = [served for served in others if not served.users]
            if idle:
                await self._unload(min(idle, key=lambda served: served.used))
            elif not others and need:
                raise ApiError(
                    503,
                    f"the model {wanted.name} takes {need} bytes; the memory limit is {limit}",
                )
            elif need:
                self._wanted = wanted
                self._freed.clear()
                await self._freed.wait()
            else:
                return

    def _all(self) -> list[Served]:
        """The models that are offered, and removed ones that may still be loaded."""
        return [*self.served.values(), *self._removed]

    async def _unload(self, served: Served) -> None:
        model, served.model, served.bytes = served.model, None, 0
        if model is not None:
            await self._run(model.close)
            if self.served.get(served.name) is served:
                self._tell(served.name, "unloaded")

    def _tell(self, name: str, status: str | None) -> None:
        for told in self.watching:
            told(name, status)

    async def _run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def load_first(self) -> None:
        """Load the first model. Raises: TrinityError, which names its file; ApiError 503."""
        await self._load(self.first)
        self._set_timer(self.first)

    async def load_presets(self) -> None:
        """Load the models that are to be loaded at the start. Raises: as ``load_first``."""
        for served in [served for served in self.served.values() if served.at_start]:
            await self._load(served)
            self._set_timer(served)

    async def close(self) -> None:
        """Unload every model."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._unloading:
            task.cancel()
        for served in self._all():
            await self._unload(served)
