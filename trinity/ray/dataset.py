"""Ray Data: columns of texts, vectors, scores and transcripts for the rows of a data set."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from trinity.errors import TrinityError
from trinity.loading import load
from trinity.ray.cluster import library
from trinity.ray.cores import pin
from trinity.speech.model import SpeechModel
from trinity.speech.transcript import Transcript

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
    return _mapped(
        dataset, "generate", model, (column,), replicas, cores, at_once, loading, options
    )


def embed(
    dataset: Any, model: str, *, column: str = "text", replicas: int = 1, cores: int = 1,
    at_once: int = AT_ONCE, loading: Mapping[str, Any] | None = None, **options: Any,
) -> Any:  # fmt: skip
    """Embed each row of a Ray Dataset: columns ``embedding`` and ``error``.

    ``options``: those of ``Model.embed``; the rest as for ``generate``.
    """
    return _mapped(dataset, "embed", model, (column,), replicas, cores, at_once, loading, options)


def rank(
    dataset: Any, model: str, *, query: str = "query", column: str = "documents",
    replicas: int = 1, cores: int = 1, at_once: int = AT_ONCE,
    loading: Mapping[str, Any] | None = None, **options: Any,
) -> Any:  # fmt: skip
    """Rank the texts of each row of a Ray Dataset: columns ``scores`` and ``error``.

    The column ``query`` has a text, ``column`` a list of texts, which get a score each.
    ``options``: those of ``Model.rank``; the rest as for ``generate``.
    """
    columns = (query, column)
    return _mapped(dataset, "rank", model, columns, replicas, cores, at_once, loading, options)


def transcribe(
    dataset: Any, model: str, *, column: str = "audio", replicas: int = 1, cores: int = 1,
    at_once: int = 1, loading: Mapping[str, Any] | None = None, **options: Any,
) -> Any:  # fmt: skip
    """Transcribe each row of a Ray Dataset: columns ``text``, ``language``, ``error``.

    ``column`` has paths of recordings, or their bytes. ``loading`` and ``options``: those of
    ``SpeechModel`` and of its ``transcribe``; the rest as for ``generate``.
    """
    return _mapped(
        dataset, "transcribe", model, (column,), replicas, cores, at_once, loading, options
    )


def _mapped(
    dataset: Any, task: str, model: str, columns: Sequence[str], replicas: int, cores: int,
    at_once: int, loading: Mapping[str, Any] | None, options: Mapping[str, Any],
) -> Any:  # fmt: skip
    with library():
        from ray.data import ActorPoolStrategy
    return dataset.map_batches(
        ColumnWorker, batch_size=at_once, batch_format="pyarrow", num_cpus=cores, max_concurrency=2,
        compute=ActorPoolStrategy(size=replicas),
        fn_constructor_args=(task, model, columns, cores, dict(loading or {}), dict(options)),
    )  # fmt: skip


class ColumnWorker:
    """An actor of a pool. It has the model; Ray calls it in threads, with a block of rows each."""

    def __init__(
        self, task: str, ref: str, columns: Sequence[str], cores: int, loading: Row, options: Row
    ) -> None:
        pin(cores)
        made: Callable[..., Any] = SpeechModel if task == "transcribe" else load
        self._model = made(ref, **{"threads": cores, **loading})
        self._given, self._options = columns, options
        tasks: dict[str, tuple[tuple[str, ...], Callable[..., Awaitable[Row]]]] = {
            "generate": (("text", "finish_reason", "completion_tokens", "error"), self._generate),
            "embed": (("embedding", "error"), self._embed),
            "rank": (("scores", "error"), self._rank),
            "transcribe": (("text", "language", "error"), self._transcribe),
        }
        self._columns, self._row = tasks[task]

    def __call__(self, rows: Any) -> Any:
        """Return the rows, an Arrow table, with the new columns."""
        import pyarrow

        vector = pyarrow.list_(pyarrow.float32())
        kinds = {"completion_tokens": pyarrow.int64(), "embedding": vector, "scores": vector}
        values = [rows.column(name).to_pylist() for name in self._given]
        made = asyncio.run(self._all(list(zip(*values, strict=True))))
        for name in self._columns:
            kind = kinds.get(name, pyarrow.string())
            rows = rows.append_column(name, pyarrow.array([one.get(name) for one in made], kind))
        return rows

    async def _all(self, values: Sequence[tuple[Any, ...]]) -> list[Row]:
        return await asyncio.gather(*map(self._alone, values))

    async def _alone(self, values: tuple[Any, ...]) -> Row:
        """Return the new columns of a row. An error of the row becomes one of them."""
        try:
            return await self._row(*values)
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

    async def _rank(self, query: Any, texts: Any) -> Row:
        return {"scores": await asyncio.to_thread(self._model.rank, query, texts, **self._options)}

    async def _transcribe(self, audio: Any) -> Row:
        made = await asyncio.to_thread(self._transcript, audio)
        return {"text": made.text, "language": made.language}

    def _transcript(self, audio: str | bytes) -> Transcript:
        if isinstance(audio, str):
            return self._transcript_of(audio)
        with tempfile.NamedTemporaryFile() as file:
            file.write(audio)
            file.flush()
            return self._transcript_of(file.name)

    def _transcript_of(self, path: str) -> Transcript:
        made: Transcript = self._model.transcribe(path, **self._options)
        return made
