"""The rows that encoders add to embeddings: position embeddings and token-type embeddings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.errors import ConfigError, InputError
from trinity.formats.tensor_names import complete
from trinity.models.decoder import Decoder
from trinity.runtime.embedding import TokenEmbedding
from trinity.runtime.weights import Weights


class AddedRows:
    """The position and token-type tables of a decoder's ``added_rows``, in the file's memory.

    Raises: InputError for a context that is longer than the table of positions.
    """

    def __init__(self, weights: Weights, decoder: Decoder, context_length: int) -> None:
        named, config = decoder.architecture.added_rows, decoder.config
        if named.positions and context_length > config.context_length:
            raise InputError(
                f"{weights.provider.path}: a context of {context_length} tokens exceeds the "
                f"model's {config.context_length} positions; use at most that many (--ctx)"
            )
        width = config.hidden_size
        self._positions = self._texts = None
        if named.positions:
            name = complete(named.positions)
            self._positions = TokenEmbedding(weights, name, config.context_length, width, 1)
        if named.texts and weights.has(complete(named.texts)):
            name = complete(named.texts)
            shape = weights.shape(name)
            if shape[-1:] != (width,) or len(shape) > 2:
                raise ConfigError(
                    f"{weights.provider.path}: tensor {name!r} has shape {shape}, but the metadata "
                    f"implies rows of {width}; the file contradicts itself: convert the model again"
                )
            self._num_texts = 1 if len(shape) == 1 else shape[0]
            self._texts = TokenEmbedding(weights, name, self._num_texts, width, 1)

    @np.errstate(over="ignore", invalid="ignore")  # the logits show what is not finite
    def add(
        self, x: NDArray[np.float32], positions: NDArray[np.int32], texts: NDArray[np.integer]
    ) -> None:
        """Add the rows of positions and token types to ``x``, (rows, width).

        A token type beyond the last row of the table uses the last row.
        """
        if self._positions is not None:
            x += self._positions.rows(positions)
        if self._texts is not None:
            x += self._texts.rows(np.minimum(texts, self._num_texts - 1))
