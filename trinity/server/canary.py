"""Whether models still compute what they computed when they were loaded: a few tokens' logits.

A fault of memory, or of a processor, changes some; nobody else would notice it but by odd texts.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from trinity.errors import TrinityError
from trinity.runtime.interface import Engine, Rows

if TYPE_CHECKING:
    from trinity.model import Model
    from trinity.server.models import Models

TOKENS = 8
SECONDS = 300.0  # between two checks of a model
LOOK_SECONDS = 1.0  # between looks at whether one is due and nobody uses it

log = logging.getLogger("trinity.server")


@dataclass(slots=True)
class Check:
    """One model's: the hash of its logits when it was loaded, and what the newest check found.

    ``checked`` is in seconds since the epoch, ``due`` of the monotonic clock.
    """

    model: Model
    expected: str
    checked: int
    due: float
    found: str


class Canary:
    """Checks every loaded model from time to time, while nobody uses it."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._checks: dict[str, Check] = {}

    @property
    def checked(self) -> int | None:
        """When the model was checked whose check is the oldest, None before all were."""
        loaded = [one for one in self._models.served.values() if one.model is not None]
        found = [self._checks.get(one.name) for one in loaded]
        times = [check.checked for check in found if check is not None]
        return min(times) if loaded and len(times) == len(loaded) else None

    @property
    def differing(self) -> str | None:
        """What differs, in words; None where nothing does."""
        for name, check in self._checks.items():
            if check.found != check.expected:
                return (
                    f"the model {name} computes other logits than when it was loaded (hash "
                    f"{check.found}, not {check.expected}): memory, a processor or the file is at "
                    "fault; restart the server, and run `python -m trinity selftest`"
                )
        return None

    async def run(self) -> None:
        """Check for ever."""
        while True:
            for served in list(self._models.served.values()):
                if served.model is not None and not served.users:
                    await self.look(served.name, served.model)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self, name: str, model: Model) -> None:
        """Check one model if that is due and nobody uses it."""
        check = self._checks.get(name)
        now = time.monotonic()
        if check is not None and check.model is model and now < check.due:
            return
        work = model.load_of_work()
        if work.waiting or work.running:
            return
        try:
            found = await asyncio.to_thread(logits_hash, model)
        except TrinityError as error:  # it may have been unloaded, or have no memory
            log.warning("the canary of %s could not be run: %s", name, error)
            return
        if check is None or check.model is not model:
            check = self._checks[name] = Check(model, found, 0, 0.0, found)
        check.found, check.checked = found, int(time.time())
        check.due = time.monotonic() + SECONDS
        if found != check.expected:
            log.error("%s", self.differing)


def logits_hash(model: Model) -> str:
    """16 bytes of SHA-256 of the logits behind fixed tokens, of an encoder their states.

    It is one step, which requests wait for as for any other's.
    """
    return model.scheduler.between(partial(_logits_hash, model.engine))


def _logits_hash(engine: Engine) -> str:
    size = engine.config.vocab_size
    ids = [(7919 * place + 1) % size for place in range(min(TOKENS, engine.context_length))]
    cache = engine.new_cache()
    cache.separate()
    try:
        if not cache.reserve(len(ids)):
            raise TrinityError("there is no page for it")
        if engine.encodes:
            logits = np.empty((len(ids), engine.config.hidden_size), np.float32)
            engine.step([Rows(cache, ids, 0, logits)])
        else:
            logits = engine.step([Rows(cache, ids, len(ids))])
        return hashlib.sha256(logits.tobytes()).hexdigest()[:32]
    finally:
        cache.release()
