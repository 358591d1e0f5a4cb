"""Ray Data: columns of texts, vectors and scores for the rows of a data set."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from trinity.errors import TrinityError
from trinity.loading import load
from trinity.ray.cluster import library
from trinity.ray.cores import pin

AT_ONCE = 16  # rows of a block; an actor runs two blocks at the same time
Row = dict[str, Any]


def generate(
    dataset: Any, model: str, *, column: str = "prompt", replicas: int = 1, cores: int = 1,
    at_once: int = AT_ONCE, loading: Mapping[str, Any] | None = None, **options: Any,
) -> Any:  # fmt: skip
    """Complete each row of a Ray Dataset; returns a Dataset, which is computed when it is read.

    ``column`` has texts, or conversations as lists of messages. The new columns are ``text``,
    ``finish_reason``, ``completion_tokens`` and ``error``, which is None, or why the row failed;
    the others are then None. ``replicas`` actors have the model, each with ``cores`` threads.
    ``loading``: options of ``trinity.load``; ``options``: those of ``Model.generate``.
    """
    return _mapped(dataset, "generate", model, column, replicas, cores, at_once, loading, options)


def embed(
    dataset: Any, model: str, *, column: str = "text", replicas: int = 1, cores: int = 1,
    at_once: int = AT_ONCE, loading: Mapping[str, Any] | None = None, **options: Any,
) -> Any:  # fmt: skip
    """Embed each row of a Ray Dataset: columns ``embedding`` and ``error``.

    ``options``: those of ``Model.embed``; the rest as for ``generate``.
    """
    return _mapped(dataset, "embed", model, column, replicas, cores, at_once, loading, options)


def _mapped(
    dataset: Any, task: str, model: str, column: str, replicas: int, cores: int, at_once: int,
    loading: Mapping[str, Any] | None, options: Mapping[str, Any],
) -> Any:  # fmt: skip
    with library():
        from ray.data import ActorPoolStrategy
    return dataset.map_batches(
        ColumnWorker, batch_size=at_once, batch_format="pyarrow", num_cpus=cores, max_concurrency=2,
        compute=ActorPoolStrategy(size=replicas),
        fn_constructor_args=(task, model, column, cores, dict(loading or {}), dict(options)),
    )  # fmt: skip


class ColumnWorker:
    """An actor of a pool. It has the model; Ray calls it in threads, with a block of rows each."""

    def __init__(
        self, task: str, ref: str, column: str, cores: int, loading: Row, options: Row
    ) -> None:
        pin(cores)
        self._model = load(ref, **{"threads": cores, **loading})
        self._column, self._options = column, options
        self._columns, self._row = {
            "generate": (("text", "finish_reason", "completion_tokens", "error"), self._generate),
            "embed": (("embedding", "error"), self._embed),
        }[task]

    def __call__(self, rows: Any) -> Any:
        """Return the rows, an Arrow table, with the new columns."""
        import pyarrow

        kinds = {
            "completion_tokens": pyarrow.int64(), "embedding": pyarrow.list_(pyarrow.float32())
        }  # fmt: skip
        made = asyncio.run(self._all(rows.column(self._column).to_pylist()))
        for name in self._columns:
            kind = kinds.get(name, pyarrow.string())
            rows = rows.append_column(name, pyarrow.array([one.get(name) for one in made], kind))
        return rows

    async def _all(self, values: Sequence[Any]) -> list[Row]:
        return await asyncio.gather(*map(self._alone, values))

    async def _alone(self, value: Any) -> Row:
        """Return the new columns of a row. An error of the row becomes one of them."""
        try:
            return await self._row(value)
        except TrinityError as error:
            return {"error": str(error)}

    async def _generate(self, value: Any) -> Row:
        prompt = value
        if not isinstance(value, str):
            prompt = await asyncio.to_thread(self._model.apply_chat_template, value)
        with await self._model.asubmit([prompt], whole=True, **self._options) as answers:
            _, chunk = await anext(answers)
        return {
            "text": chunk.text, "finish_reason": chunk.finish_reason,
            "completion_tokens": len(chunk.token_ids),
        }  # fmt: skip

    async def _embed(self, value: Any) -> Row:
        (vector,) = await self._model.aembed([value], **self._options)
        return {"embedding": vector}
