"""The deployment that has the model: it generates, embeds and ranks for the ingress."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError
from trinity.loading import load
from trinity.ray.calls import Generation
from trinity.ray.channel import IngressConnections, Sent
from trinity.ray.cores import pin
from trinity.runtime.image_rows import PromptIds
from trinity.runtime.pooling import Pooling
from trinity.runtime.texts import Pairs, Texts
from trinity.server.model_refs import settled

WHOLE_SECONDS = 0.5  # that tokens may wait if their client gets no stream


class Replica:
    """A model in a process that is bound to ``cores`` cores."""

    def __init__(self, ref: str, cores: int, loading: Mapping[str, Any]) -> None:
        pin(cores)
        self._connections = IngressConnections()
        self._model = settled(lambda: load(ref, **{"threads": cores, **loading}))

    async def generate(self, call: Generation) -> None:
        """Generate a response, whose chunks go to the ingress, and return at its end.

        If the ingress cancels the call, the generation ends. Raises: TrinityError;
        LostConnectionError.
        """
        connection = await self._connections.to(call.address)
        sent = Sent(connection, call.number, WHOLE_SECONDS if call.whole else 0)
        ids = call.ids
        if isinstance(ids, PromptIds):
            ids = await asyncio.to_thread(self._with_rows, ids)
        prompts = [(ids, call.request)]
        if call.request.takes_time:
            prepared = await asyncio.to_thread(self._model.client.prepared, prompts, sent)
        else:
            prepared = self._model.client.prepared(prompts, sent)
        with prepared.submit(call.client):
            await sent.ended()

    def _with_rows(self, ids: PromptIds) -> PromptIds:
        from trinity.ray.images import with_rows

        encoder = self._model.image_encoder
        if encoder is None:
            raise InputError("this replica cannot read images: its files differ from the ingress's")
        return with_rows(ids, encoder)

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
