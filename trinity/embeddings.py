"""What a model says of whole texts: a vector of each, and how well each answers a query."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from trinity.conversation.pair_prompt import after_document, filled, pair_prompt
from trinity.errors import InputError
from trinity.formats.text_rules import NO_RULES, TextRules
from trinity.runtime.inbox import AsyncInbox, Inbox
from trinity.runtime.options import Request
from trinity.runtime.pooling import Pooling, pooled, stacked
from trinity.runtime.texts import Pairs, TextReader, Texts, cut_notice

if TYPE_CHECKING:
    from trinity.formats.defaults import ChatTemplate
    from trinity.runtime.client import Client
    from trinity.runtime.interface import Engine
    from trinity.runtime.page import AdapterWeights
    from trinity.runtime.text_heads import TextHeads
    from trinity.tokenizers import Tokenizer

Lora = Mapping[int, float] | None


class TextEmbedder:
    """The part of a model that gives vectors and ranks; ``Model`` has all of it."""

    _engine: Engine
    _tokenizer: Tokenizer
    _client: Client
    _pooling: Pooling
    _heads: TextHeads | None
    _rules: TextRules = NO_RULES
    _prompt: tuple[tuple[ChatTemplate, ...], str | None] | None = None

    @property
    def embedding_size(self) -> int:
        """The number of values in a vector of ``embed``."""
        size = self._engine.config.hidden_size if self._heads is None else self._heads.size
        return min(size, self._rules.dimensions or size)

    @property
    def text_rules(self) -> TextRules:
        """The limit, prompts and normalization in the model's files."""
        return self._rules

    @property
    def text_length(self) -> int:
        """The maximum number of tokens of a text in ``embed``, or of a pair in ``rank``."""
        return self._reader.limit

    @property
    def encodes(self) -> bool:
        """Whether the model is an encoder, which computes embeddings or ranks but no text."""
        return self._engine.encodes

    @property
    def ranks(self) -> bool:
        """Whether the model is a reranker, so that ``rank`` scores texts for a query."""
        return self._heads is not None and self._heads.ranks

    @property
    def lacks_pooler(self) -> bool:
        """Whether the file may lack the layer before the classifier, as some converters drop it."""
        return (
            self.encodes and self.ranks and self._heads is not None and not self._heads.has_pooler
        )

    def embed(
        self, texts: Sequence[str | Sequence[int]], pooling: Pooling | None = None,
        normalize: bool | None = None, *, prompt: str | None = None,
        prompt_name: str | None = None, truncate: bool = True, lora: Lora = None,
        priority: int = 0,
    ) -> NDArray[np.float32]:  # fmt: skip
        """A vector for each text: the hidden states of its tokens after the last norm, pooled.

        BOS and EOS are added to a text if the model's file asks for them, and special tokens
        written in the text are parsed; token ids are used as they are. ``pooling``: "mean" of all
        tokens, "cls" for the first, "last" for the last one; by default the model file's own, or
        "mean" if it has none. The file's dense layers follow. ``normalize`` divides vectors by
        their Euclidean length; by default, they are normalized unless the model's files compare
        vectors by more than their direction. ``prompt`` is put before each text; ``prompt_name``
        chooses one of the model's prompts instead; without either the model's default prompt is
        used ("" for none). Texts longer than ``text_length`` are cut with a warning, or refused if
        ``truncate`` is False. All texts run in parallel; those with a lower ``priority`` run first.
        Shapes: returns (n_texts, embedding_size).
        Raises: InputError for a text without tokens and for an unknown prompt;
        ContextLengthError for a text that is too long and not cut.
        """
        found = self.read_texts(texts, prompt, prompt_name, truncate=truncate)
        self._warn(found.cut, len(texts))
        return self.embed_texts(found, pooling, normalize, lora=lora, priority=priority)

    async def aembed(
        self, texts: Sequence[str | Sequence[int]], pooling: Pooling | None = None,
        normalize: bool | None = None, *, prompt: str | None = None,
        prompt_name: str | None = None, truncate: bool = True, lora: Lora = None,
        priority: int = 0,
    ) -> NDArray[np.float32]:  # fmt: skip
        """As ``embed``, for asyncio: the event loop stays free; cancelling the task cancels it."""
        found = await asyncio.to_thread(
            self.read_texts, texts, prompt, prompt_name, truncate=truncate
        )
        self._warn(found.cut, len(texts))
        return await self.aembed_texts(found, pooling, normalize, lora=lora, priority=priority)

    def read_texts(
        self, texts: Sequence[str | Sequence[int]], prompt: str | None = None,
        prompt_name: str | None = None, *, truncate: bool = True,
    ) -> Texts:  # fmt: skip
        """The token ids of texts as ``embed`` uses them, and which texts it cuts.

        Raises: as ``embed``.
        """
        return self._reader.texts(
            texts, self._reader.prompt(prompt, prompt_name), truncate=truncate
        )

    def embed_texts(
        self, texts: Texts, pooling: Pooling | None = None, normalize: bool | None = None, *,
        lora: Lora = None, priority: int = 0,
    ) -> NDArray[np.float32]:  # fmt: skip
        """The vectors of the texts that ``read_texts`` returned. Raises: as ``embed``."""
        options = self._pooled_options(pooling, normalize, lora, priority)
        inboxes = [Inbox() for _ in texts.rows]
        wanted = pooled(texts.rows, inboxes, **options, skip=texts.skip)
        return stacked(self._client.results(wanted, inboxes), self.embedding_size)

    async def aembed_texts(
        self, texts: Texts, pooling: Pooling | None = None, normalize: bool | None = None, *,
        lora: Lora = None, priority: int = 0,
    ) -> NDArray[np.float32]:  # fmt: skip
        """As ``embed_texts``, for asyncio; cancelling the task cancels it."""
        options = self._pooled_options(pooling, normalize, lora, priority)
        inboxes = [AsyncInbox() for _ in texts.rows]
        wanted = pooled(texts.rows, inboxes, **options, skip=texts.skip)
        return stacked(await self._client.aresults(wanted, inboxes), self.embedding_size)

    def rank(
        self, query: str, texts: Sequence[str], *, truncate: bool = True, lora: Lora = None
    ) -> NDArray[np.float32]:
        """A score for each text: how well it answers ``query``, by a reranker.

        A classifier with one output gives unbounded scores; 1 / (1 + exp(-score)) is between 0 and
        1. With the outputs "yes" and "no", the score is the probability of "yes". If the model's
        files have a prompt for pairs, both texts are inserted into it. Pairs longer than
        ``text_length`` are cut with a warning, or refused if ``truncate`` is False.
        Shapes: returns (n_texts,).
        Raises: InputError if the model is not a reranker, or if the query or a text is empty;
        ContextLengthError for a pair that is too long and not cut.
        """
        pairs, options = self.pairs(query, texts, truncate=truncate), self._ranked_options(lora)
        self._warn(pairs.cut, len(pairs.rows))
        inboxes = [Inbox() for _ in pairs.rows]
        wanted = pooled(pairs.rows, inboxes, **options, seconds=pairs.seconds)
        return stacked(self._client.results(wanted, inboxes), 1)[:, 0]

    async def arank(self, pairs: Pairs, *, lora: Lora = None) -> NDArray[np.float32]:
        """The scores of ``pairs``, for asyncio; cancelling the task cancels it."""
        options = self._ranked_options(lora)
        inboxes = [AsyncInbox() for _ in pairs.rows]
        wanted = pooled(pairs.rows, inboxes, **options, seconds=pairs.seconds)
        return stacked(await self._client.aresults(wanted, inboxes), 1)[:, 0]

    def pairs(self, query: str, texts: Sequence[str], *, truncate: bool = True) -> Pairs:
        """The query with each text, in the form that the reranker was trained on.

        Special tokens written in the texts are parsed, as in transformers. Raises: as ``rank``.
        """
        self._check_ranks()
        if isinstance(texts, str):
            raise InputError("texts is one text; give a list of texts")
        rows, seconds, cut = [], [], []
        prompt = self._pair_prompt()
        for number, text in enumerate(texts):
            for what, given in (("the query", query), (f"text {number}", text)):
                if not isinstance(given, str):
                    raise InputError(f"{what} is {type(given).__name__}, not str")
                if not given:
                    raise InputError(f"{what} is empty: it has no tokens to be compared")
            ids, second, was_cut = self._pair(prompt, query, text, truncate)
            rows.append(ids)
            seconds.append(second)
            cut += [number] * was_cut
        return Pairs(rows, seconds, tuple(cut))

    def cut_notice(self, cut: Sequence[int], count: int) -> str:
        """The warning that the texts ``cut``, of ``count`` texts, were too long."""
        context, most = self._engine.context_length, self._engine.config.context_length
        return cut_notice(cut, count, self.text_length, larger=self.text_length == context < most)

    def _warn(self, cut: Sequence[int], count: int) -> None:
        if cut:
            warnings.warn(self.cut_notice(cut, count), RuntimeWarning, stacklevel=3)

    @property
    def _reader(self) -> TextReader:
        engine = self._engine
        return TextReader(
            self._tokenizer, self._rules, engine.context_length, engine.config.vocab_size
        )

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

    def _pair(
        self, prompt: str | None, query: str, text: str, truncate: bool
    ) -> tuple[list[int], int | None, bool]:
        """Token ids of a pair, where the text begins, and whether it was cut."""
        if prompt is None:
            ids, second, cut = self._reader.pair(query, text, truncate=truncate)
            # As transformers, which takes the last token that is no padding, be it the model's EOS.
            while not self.encodes and len(ids) > 1 and ids[-1] == self._padding_id:
                ids.pop()
            return ids, second, cut
        whole, end = filled(prompt, query, text), after_document(prompt, query)
        ids, cut = self._reader.prompted_pair(whole, end, truncate=truncate)
        return ids, None, cut

    def _check_ranks(self) -> None:
        self._check_open()
        if not self.ranks:
            raise InputError(
                "the model is not a reranker: its files have no classifier (cls.output.weight) "
                "with a row for the answer or, where pooling_type is 4, rows for yes and no. Of "
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

    def _pooled_options(
        self, pooling: Pooling | None, normalize: bool | None, lora: Lora, priority: int = 0
    ) -> dict[str, Any]:
        self._check_open()
        chosen = pooling or self._pooling
        if chosen not in get_args(Pooling):
            raise InputError(f"pooling is {chosen!r:.40}; it must be mean, cls or last")
        adapters: AdapterWeights = self._engine.adapter_weights(Request.of(lora=lora).lora)
        head = None if self._heads is None else self._heads.vector
        return {
            "pooling": chosen, "adapters": adapters, "head": head, "encodes": self.encodes,
            "normalize": self._rules.normalizes if normalize is None else normalize,
            "priority": priority, "dimensions": self._rules.dimensions,
        }  # fmt: skip
