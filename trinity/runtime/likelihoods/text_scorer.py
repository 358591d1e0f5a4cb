"""Scores given tokens with a model: logits, log-probabilities and perplexity."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError
from trinity.options.checks import check_integer
from trinity.runtime.likelihoods.perplexity import (
    DEFAULT_WINDOW,
    SMALLEST_WINDOW,
    Perplexity,
    cut_windows,
    estimate,
    scored_part,
)
from trinity.runtime.likelihoods.scoring import AllLogits, Likelihoods, PromptLogprobs
from trinity.runtime.memory import zeros
from trinity.runtime.options import Cancel
from trinity.runtime.pages.page import AdapterWeights
from trinity.runtime.prompts import check_ids
from trinity.runtime.sampling.logprobs import TokenLogprob
from trinity.runtime.scheduling.client import Client
from trinity.runtime.scheduling.inbox import AsyncInbox, Inbox
from trinity.runtime.scheduling.sequence import check_context

if TYPE_CHECKING:
    from trinity.tokenizers import Tokenizer


class TextScorer:
    """Scores token ids that exist in the vocabulary; ``Model`` checks them."""

    def __init__(self, client: Client, tokenizer: Tokenizer) -> None:
        self._client = client
        self._engine = client.engine
        self._tokenizer = tokenizer

    def logits(self, ids: list[int], adapters: AdapterWeights) -> NDArray[np.float32]:
        """Logits after each token, (n_tokens, vocab_size). Raises: as ``Model.logits``."""
        check_context(len(ids), self._engine.context_length)
        what = f"the logits of {len(ids)} tokens"
        shape = (len(ids), self._engine.config.vocab_size)
        out = zeros(shape, "f4", what, "ask for those of fewer tokens")
        inbox = Inbox()
        if ids and self._client.result(AllLogits(ids, out, inbox, adapters), inbox) is None:
            raise InputError("the model was closed by another thread during the call")
        return out

    async def aprompt_logprobs(
        self, ids: list[int], top: int, adapters: AdapterWeights, client: str = ""
    ) -> tuple[str, list[TokenLogprob]]:
        """The text of the first token, and the log-probabilities of all others.

        Raises: InputError if the model is closed during the call.
        """

        def text(token: int) -> str:
            return self._tokenizer.bytes_of(token).decode("utf-8", "replace")

        logprobs: list[TokenLogprob] | None = []
        if len(ids) > 1:
            inbox = AsyncInbox()
            scored = PromptLogprobs(ids, top, text, inbox, adapters)
            logprobs = await self._client.aresult(scored, inbox, client)
        if logprobs is None:
            raise InputError("the model was closed during the call")
        return text(ids[0]), logprobs

    def perplexity(
        self, ids: list[int], window: int | None,
        progress: Callable[[Perplexity], None] | None, cancel: Cancel | None,
    ) -> Perplexity:  # fmt: skip
        """Measure how well the model predicts the tokens; see ``Model.perplexity``."""
        engine, tokenizer = self._engine, self._tokenizer
        size = min(DEFAULT_WINDOW, engine.context_length) if window is None else window
        check_integer("window", size, low=SMALLEST_WINDOW)
        check_context(size, engine.context_length)
        windows = cut_windows(ids, size, tokenizer.bos_id if tokenizer.add_bos else None)
        check_ids(windows, engine.config.vocab_size)
        nlls, num_bytes, result = np.empty(0), 0, None
        decoder = tokenizer.stream(skip_special=False)
        for number, tokens in enumerate(windows, 1):
            self._client.check_open()
            inbox = Inbox()
            nlls_of_window = self._client.result(Likelihoods(tokens, inbox, cancel), inbox)
            if nlls_of_window is None:
                break
            nlls = np.append(nlls, nlls_of_window)
            num_bytes += sum(len(decoder.bytes_of(int(i))) for i in scored_part(tokens))
            result = estimate(
                nlls, num_bytes, windows=number, total_windows=len(windows), window=size
            )
            if progress is not None:
                progress(result)
        self._client.check_open()
        if result is None:
            raise InputError("cancelled before the first window was computed")
        return result
