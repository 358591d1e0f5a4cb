"""The deployment that has the model: it generates, embeds and ranks for the ingress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.loading import load
from trinity.ray.calls import Generation
from trinity.ray.cores import pin
from trinity.ray.slices import SlicedInbox
from trinity.runtime.generation import Chunk
from trinity.runtime.pooling import Pooling
from trinity.runtime.texts import Pairs, Texts
from trinity.server.model_refs import settled

# Seconds of the slices in which chunks are sent: of each stream for each other one, at most, and of
# responses whose clients get no stream.
STREAM_SECONDS = 0.02
MOST_SECONDS = 0.2
WHOLE_SECONDS = 0.5


class Replica:
    """A model in a process that is bound to ``cores`` cores."""

    def __init__(self, ref: str, cores: int, loading: Mapping[str, Any]) -> None:
        pin(cores)
        self._streams = 0
        self._model = settled(lambda: load(ref, **{"threads": cores, **loading}))

    async def generate(self, call: Generation) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of a response. Raises: TrinityError.

        If the ingress cancels it, or closes the generator, the generation ends.
        """
        inbox = SlicedInbox((lambda: WHOLE_SECONDS) if call.whole else self._slice)
        prompts = [(call.ids, call.request)]
        prepared = await asyncio.to_thread(self._model.client.prepared, prompts, inbox)
        self._streams += not call.whole
        try:
            with prepared.submit(call.client) as answers:
                async for _, chunk in answers:
                    yield chunk
        finally:
            self._streams -= not call.whole

    def _slice(self) -> float:
        """Seconds between the chunks of a stream: the more streams there are, the longer."""
        return min(MOST_SECONDS, STREAM_SECONDS * (self._streams - 1))

    async def embed(
        self, texts: Texts, pooling: Pooling | None, normalize: bool | None,
        lora: Mapping[int, float] | None, priority: int, client: str,
    ) -> NDArray[np.float32]:  # fmt: skip
        """As ``TextEmbedder.aembed_texts``."""
        return await self._model.embedder.aembed_texts(
            texts, pooling, normalize, lora=lora, priority=priority, client=client
        )

    async def rank(
        self, pairs: Pairs, lora: Mapping[int, float] | None, client: str
    ) -> NDArray[np.float32]:
        """As ``TextEmbedder.arank_pairs``."""
        return await self._model.embedder.arank_pairs(pairs, lora=lora, client=client)

    async def check_health(self) -> None:
        """Raise InputError if the model has ended; Serve then starts another replica."""
        self._model.engine_thread.check_open()
