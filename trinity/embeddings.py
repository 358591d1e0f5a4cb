"""What a model says of whole texts: a vector of each, and how well each answers a query."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from trinity.conversation.pair_prompt import filled, pair_prompt
from trinity.errors import ContextLengthError, InputError
from trinity.runtime.inbox import AsyncInbox, Inbox
from trinity.runtime.options import Request
from trinity.runtime.pooling import Pooling, pooled, stacked
from trinity.runtime.prompts import check_ids, check_length, checked_ids
from trinity.runtime.sequence import check_context

if TYPE_CHECKING:
    from trinity.formats.defaults import ChatTemplate
    from trinity.runtime.client import Client
    from trinity.runtime.interface import Engine
    from trinity.runtime.page import AdapterWeights
    from trinity.runtime.text_heads import TextHeads
    from trinity.tokenizers import Tokenizer

Lora = Mapping[int, float] | None


class Pairs(NamedTuple):
    """Token ids of a query with each text, and where each text begins, if that matters."""

    rows: list[list[int]]
    seconds: list[int | None]


class Embeddings:
    """The part of a model that gives vectors and ranks; ``Model`` has all of it."""

    _engine: Engine
    _tokenizer: Tokenizer
    _client: Client
    _pooling: Pooling
    _heads: TextHeads | None
    _prompt: tuple[tuple[ChatTemplate, ...], str | None] | None = None

    @property
    def embedding_size(self) -> int:
        """Values of a vector that ``embed`` gives."""
        return self._engine.config.hidden_size if self._heads is None else self._heads.size

    @property
    def encodes(self) -> bool:
        """Whether the model is an encoder: it gives vectors or ranks, and no text."""
        return self._engine.encodes

    @property
    def ranks(self) -> bool:
        """Whether the model is a reranker: ``rank`` scores texts by a query."""
        return self._heads is not None and self._heads.ranks

    @property
    def lacks_pooler(self) -> bool:
        """Whether the file may have lost the layer that its classifier was trained behind."""
        return (
            self.encodes and self.ranks and self._heads is not None and not self._heads.has_pooler
        )

    def embed(
        self, texts: Sequence[str | Sequence[int]], pooling: Pooling | None = None,
        normalize: bool = True, *, lora: Lora = None, priority: int = 0,
    ) -> NDArray[np.float32]:  # fmt: skip
        """A vector for each text: the hidden states of its tokens behind the last norm, pooled.

        A text gets the BOS and EOS tokens that the model's file wants around one, and texts of
        special tokens in it become those tokens; token ids are used as they are. ``pooling``:
        "mean" of all tokens, "cls" the first, "last" the last one; the model file's own if not
        given, "mean" where it names none. The file's dense layers
        follow. ``normalize`` makes the vectors' Euclidean length 1. All texts run side by side.
        ``priority``: as of answers, texts with lower numbers are taken first.
        Shapes: returns (n_texts, embedding_size).
        Raises: InputError for a text without tokens; ContextLengthError for one that is longer than
        the context: nothing is cut.
        """
        rows = self._texts_ids(texts)
        options = self._pooled_options(pooling, normalize, lora, priority)
        inboxes = [Inbox() for _ in rows]
        found = self._client.results(pooled(rows, inboxes, **options), inboxes)
        return stacked(found, self.embedding_size)

    async def aembed(
        self, texts: Sequence[str | Sequence[int]], pooling: Pooling | None = None,
        normalize: bool = True, *, lora: Lora = None, priority: int = 0,
    ) -> NDArray[np.float32]:  # fmt: skip
        """As ``embed``, for asyncio: the event loop stays free; cancelling the task cancels it."""
        rows = await asyncio.to_thread(self._texts_ids, texts)
        options = self._pooled_options(pooling, normalize, lora, priority)
        inboxes = [AsyncInbox() for _ in rows]
        found = await self._client.aresults(pooled(rows, inboxes, **options), inboxes)
        return stacked(found, self.embedding_size)

    def rank(
        self, query: str, texts: Sequence[str], *, lora: Lora = None
    ) -> NDArray[np.float32]:  # fmt: skip
        """A score for each text: how well it answers ``query``, by a reranker.

        Of a classifier with one row scores are what it gives, of any size; 1 / (1 + exp(-score))
        lies between 0 and 1. Of one with the rows "yes" and "no" they are the probability of
        "yes". Where the model's files have a prompt for pairs, both texts stand in it.
        Shapes: returns (n_texts,).
        Raises: InputError where the model is no reranker, and where query or a text is empty;
        ContextLengthError where both are longer than the context: nothing is cut.
        """
        pairs, options = self.pairs(query, texts), self._ranked_options(lora)
        inboxes = [Inbox() for _ in pairs.rows]
        wanted = pooled(pairs.rows, inboxes, **options, seconds=pairs.seconds)
        return stacked(self._client.results(wanted, inboxes), 1)[:, 0]

    async def arank(self, pairs: Pairs, *, lora: Lora = None) -> NDArray[np.float32]:
        """The scores of ``pairs``, for asyncio; cancelling the task cancels it."""
        options = self._ranked_options(lora)
        inboxes = [AsyncInbox() for _ in pairs.rows]
        wanted = pooled(pairs.rows, inboxes, **options, seconds=pairs.seconds)
        return stacked(await self._client.aresults(wanted, inboxes), 1)[:, 0]

    def pairs(self, query: str, texts: Sequence[str]) -> Pairs:
        """The query with each text, as the reranker was trained. Raises: as ``rank``.

        Texts of special tokens become those tokens, as transformers has it.
        """
        self._check_ranks()
        if isinstance(texts, str):
            raise InputError("texts is one text; give a list of texts")
        found, prompt = Pairs([], []), self._pair_prompt()
        for number, text in enumerate(texts):
            for what, given in (("the query", query), (f"text {number}", text)):
                if not isinstance(given, str):
                    raise InputError(f"{what} is {type(given).__name__}, not str")
                if not given:
                    raise InputError(f"{what} is empty: it has no tokens to be compared")
            ids, second = self._pair(prompt, query, text)
            try:
                check_context(len(ids), self._engine.context_length)
            except ContextLengthError as error:
                raise _too_long(f"the query with text {number}", error) from None
            found.rows.append(ids)
            found.seconds.append(second)
        return found

    @property
    def chat_templates(self) -> tuple[ChatTemplate, ...]:
        """The model's chat templates, of which the first that can be rendered is used."""
        raise NotImplementedError

    def _check_open(self) -> None:
        """Raise InputError where the model is closed."""
        raise NotImplementedError

    def _pair_prompt(self) -> str | None:
        """What a query and a text stand in; found once for the templates that the model has."""
        templates = self.chat_templates
        if self._prompt is None or self._prompt[0] != templates:
            self._prompt = templates, pair_prompt(self._tokenizer, templates)
        return self._prompt[1]

    @property
    def _padding_id(self) -> object:
        return None if self._heads is None else self._heads.padding_id

    def _pair(self, prompt: str | None, query: str, text: str) -> tuple[list[int], int | None]:
        if prompt is None:
            ids, second = self._tokenizer.encode_pair(query, text)
            # As transformers, which takes the last token that is no padding, be it the model's EOS.
            while not self.encodes and len(ids) > 1 and ids[-1] == self._padding_id:
                ids.pop()
            return ids, second
        whole = filled(prompt, query, text)
        return self._tokenizer.encode(whole, add_bos=False, parse_special=True), None

    def _check_ranks(self) -> None:
        self._check_open()
        if not self.ranks:
            raise InputError(
                "the model is no reranker: its files have no classifier (cls.output.weight) with "
                "a row for the answer or, where pooling_type is 4, rows for yes and no. Of "
                "Qwen3-Reranker take a GGUF file that llama.cpp's converter made of the original, "
                "a directory with modules.json and 1_LogitScore, or one of "
                "Qwen3ForSequenceClassification; of other families a cross-encoder such as "
                "bge-reranker; or compare the vectors of embed()"
            )

    def _ranked_options(self, lora: Lora) -> dict[str, Any]:
        self._check_ranks()
        assert self._heads is not None
        # A token that sees no later one knows the whole pair only at its end.
        options = self._pooled_options("cls" if self.encodes else "last", False, lora)
        return {**options, "head": self._heads.score}

    def _texts_ids(self, texts: Sequence[str | Sequence[int]]) -> list[list[int]]:
        """Token ids of texts that get vectors. Raises: as ``embed``."""
        if isinstance(texts, str):
            raise InputError("texts is one text; give a list of texts")
        config, context = self._engine.config, self._engine.context_length
        found = []
        for number, text in enumerate(texts):
            try:
                if isinstance(text, str):
                    check_length(text, self._tokenizer, context)
                    ids = self._tokenizer.encode_whole(text) if text else []
                else:
                    ids = checked_ids(text, config.vocab_size)
                if not ids:
                    raise InputError(
                        f"text {number} is empty: it has no tokens to make a vector of"
                    )
                check_ids(np.asarray(ids), config.vocab_size)
                check_context(len(ids), context)
            except ContextLengthError as error:
                raise _too_long(f"text {number}", error) from None
            found.append(ids)
        return found

    def _pooled_options(
        self, pooling: Pooling | None, normalize: bool, lora: Lora, priority: int = 0
    ) -> dict[str, Any]:
        self._check_open()
        chosen = pooling or self._pooling
        if chosen not in get_args(Pooling):
            raise InputError(f"pooling is {chosen!r:.40}; it must be mean, cls or last")
        adapters: AdapterWeights = self._engine.adapter_weights(Request.of(lora=lora).lora)
        head = None if self._heads is None else self._heads.vector
        return {
            "pooling": chosen, "normalize": normalize, "adapters": adapters, "head": head,
            "encodes": self.encodes, "priority": priority,
        }  # fmt: skip


def _too_long(what: str, error: ContextLengthError) -> ContextLengthError:
    """The same error in words that speak of texts."""
    return ContextLengthError(
        f"{what} has {error.length} tokens, but the context holds {error.limit}: nothing "
        "is cut; give shorter texts, or load the model with a larger context_length (--ctx) if it "
        "supports one",
        error.length,
        error.limit,
    )
