"""The input of one step, checked and written where compiled kernels read it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.errors import ContextLengthError, InputError, TrinityError
from trinity.runtime.image_positions import places_of_images, positions_of_text
from trinity.runtime.image_rows import FIRST_ID, ImageRows
from trinity.runtime.interface import Rows
from trinity.runtime.pages.kv_cache import KVCache, check_different
from trinity.runtime.pages.page_pool import PagePool


class Step:
    """Arrays that change with every step; a plan's records contain their addresses."""

    def __init__(
        self, rows: int, reaches: Collection[int | None] = (),
        windows: Collection[int] | None = None, chunks: Collection[int] = (), spare: int = 0, *,
        only_windowed: bool = False,
    ) -> None:  # fmt: skip
        self.tokens = np.zeros(1, np.int64)  # number of rows
        self.positions = np.zeros(rows, np.int32)
        # Each row's row of the rotary tables. If ``spare`` is not 0, table rows from there on are
        # for images; ``image_places`` has pairs (rows, places (n, 3)) with their positions in
        # time, height and width.
        self.rotary_rows = np.zeros(rows, np.int32) if spare else self.positions
        self.image_places: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._spare = spare
        # The last position that a row attends to. Only rows of images may attend to positions after
        # their own, and only in models whose ``windows`` are not None.
        self.lasts = self.positions if windows is None else np.zeros(rows, np.int32)
        # ``lasts`` in layers without a window.
        self.lasts_of_whole = self.positions if only_windowed else self.lasts
        # For each window of such a model: the first position that a row attends to.
        self.firsts = {window: np.zeros(rows, np.int32) for window in windows or () if window}
        # For each size of chunks: the first position of a row's chunk.
        self.chunk_firsts = {size: np.zeros(rows, np.int32) for size in chunks}
        # For each reach of bidirectional attention: the first and last position that a row attends
        # to.
        self.spans = {reach: np.zeros((2, rows), np.int32) for reach in reaches}
        self.caches = np.zeros(rows, np.int64)
        self.window_caches = np.zeros(rows, np.int64)
        self.state_tables = np.zeros((rows, 2), np.int64)  # before and after each row
        self.wanted = 0  # number of rows whose logits are needed
        self.wanted_rows = np.zeros(rows, np.int32)
        self.outputs = np.zeros(1, np.int64)  # number of rows that the head computes at once
        self.output_rows = np.zeros(rows, np.int32)

    def set_positions(self, first: int, start: int, count: int) -> None:
        """Set the positions of ``count`` rows from row ``first`` on to ``start`` and following."""
        end = first + count
        if count == 1:
            self.positions[first] = start
        else:
            self.positions[first:end] = np.arange(start, start + count)
        positions, last = self.positions[first:end], start + count - 1
        for reach, spans in self.spans.items():
            spans[0, first:end] = 0 if reach is None else np.maximum(positions - reach, 0)
            spans[1, first:end] = last if reach is None else np.minimum(positions + reach, last)
        for size, firsts in self.chunk_firsts.items():
            firsts[first:end] = positions // size * size
        if self.rotary_rows is not self.positions:
            self.rotary_rows[first:end] = positions
        if self.lasts is not self.positions:
            self.lasts[first:end] = positions
            for window, firsts in self.firsts.items():
                firsts[first:end] = np.maximum(positions - (window - 1), 0)

    def place_images(self, images: Sequence[ImageRows], first: int, start: int, count: int) -> None:
        """Place the rows of images, and let them attend to each other where images do so.

        ``count`` rows from row ``first`` on have the positions from ``start`` on.
        """
        for image in images:
            low, high = max(image.first, start), min(image.end, start + count)
            if image.both_ways and low < high:
                self.lasts[first + low - start : first + high - start] = image.end - 1
        if self.rotary_rows is self.positions:
            return
        self.rotary_rows[first : first + count] = positions_of_text(images, start, count)
        for low, high, places in places_of_images(images, start, count):
            rows = np.arange(first + low - start, first + high - start)
            self.rotary_rows[rows] = self._spare + rows
            self.image_places.append((rows, places))

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Use the positions and caches of these rows for the first rows."""
        self.positions[: len(rows)] = self.positions[rows]
        self.caches[: len(rows)] = self.caches[rows]
        if self.rotary_rows is not self.positions:
            self.rotary_rows[: len(rows)] = self.rotary_rows[rows]


@dataclass(frozen=True, slots=True)
class StepInput:
    """Checks a batch of rows and writes it to a ``Step``."""

    step: Step
    config: ModelConfig
    context_length: int
    encodes: bool
    windowed: bool

    def take(self, batch: Sequence[Rows], pool: PagePool) -> tuple[NDArray[np.integer], int]:
        """Check a batch, reserve its pages and fill the step's arrays.

        Returns all token ids (M,), and the number of positions of the longest sequence.
        Raises: InputError, ContextLengthError; TrinityError if no page is left.
        """
        step, all_ids, first, longest = self.step, [], 0, 0
        step.image_places.clear()
        wanted_rows: list[int] = []
        for rows in batch:
            cache = rows.cache
            ids = self._ids(rows.tokens, 2 * FIRST_ID if rows.images else self.config.vocab_size)
            count = len(ids)
            end = first + count
            self._check(rows, count, end, pool)
            length = cache.length + count
            revocable = count - 1 if rows.revocable else 0
            if revocable > cache.most_revocable:
                raise InputError(
                    f"{revocable} of {count} rows are to be revocable, but the cache can take "
                    f"back at most {cache.most_revocable}"
                )
            if not cache.reserve(length, revocable=revocable):
                raise TrinityError(
                    f"the KV cache has no free page for a sequence of {length} tokens: "
                    "release another cache, or give more kv_memory (--kv-memory)"
                )
            step.set_positions(first, cache.length, count)
            if rows.images:
                step.place_images(rows.images, first, cache.length, count)
            step.caches[first:end] = cache.address
            if self.windowed:
                step.window_caches[first:end] = cache.window_address
                cache.state_tables(step.state_tables[first:end], revocable=revocable > 0)
            wanted_rows.extend(range(end - rows.logits, end))
            all_ids.append(ids)
            first, longest = end, max(longest, length)
        if not all_ids:
            raise InputError("a step takes at least one row, got none")
        if len(batch) > 1:
            check_different([rows.cache for rows in batch])
        step.tokens[0] = first
        step.wanted = len(wanted_rows)
        step.wanted_rows[: len(wanted_rows)] = wanted_rows
        return all_ids[0] if len(all_ids) == 1 else np.concatenate(all_ids), longest

    def _check(self, rows: Rows, count: int, end: int, pool: PagePool) -> None:
        cache, config = rows.cache, self.config
        most = len(self.step.positions)
        if end > most:
            raise InputError(f"a step takes {most} rows, got {end}")
        if not 0 <= rows.logits <= count:
            raise InputError(f"logits of {rows.logits} rows are requested, but there are {count}")
        # Kernels access a cache by its address: a foreign or full one would corrupt memory.
        if type(cache) is not KVCache or cache.pool is not pool:
            raise InputError(
                "the cache is not one of this engine's; take one from its new_cache(), got "
                f"{type(cache).__name__}"
            )
        if self.encodes and (rows.logits or cache.length):
            raise InputError(
                f"the model ({config.architecture}) is an encoder: it has no logits, and "
                "takes a whole text in one step; use embed() or rank()"
            )
        if rows.states is not None and rows.states.shape != (count, config.hidden_size):
            raise InputError(
                f"the states of {count} rows have shape {(count, config.hidden_size)}, "
                f"the array for them {rows.states.shape}"
            )
        if cache.length + count > self.context_length:
            raise ContextLengthError(
                f"{cache.length} + {count} tokens do not fit a context of {self.context_length}"
            )

    def _ids(self, tokens: Any, end: int) -> NDArray[np.integer]:
        """``tokens`` as an array, all below ``end``."""
        ids = np.asarray(tokens)
        if ids.ndim != 1 or ids.dtype.kind not in "iu" or not len(ids):
            raise InputError(
                "tokens must be a flat sequence of integers, at least one, got shape "
                f"{ids.shape} of {ids.dtype}"
            )
        if ids.min() < 0 or ids.max() >= end:
            raise InputError(
                f"token ids must be in 0..{self.config.vocab_size - 1}, "
                f"got {ids.min()}..{ids.max()}"
            )
        return ids
