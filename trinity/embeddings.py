"""Embeds and classifies texts and scores pairs of texts with a model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, get_args

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError
from trinity.formats.text_rules import NO_RULES, TextRules, text_rules
from trinity.model_defaults import pooling_of
from trinity.runtime.chat_format import ChatFormat
from trinity.runtime.options import Request
from trinity.runtime.pooling import Pooling, PoolingOptions, pooled, stacked
from trinity.runtime.scheduling.client import Client
from trinity.runtime.scheduling.inbox import AsyncInbox, Inbox
from trinity.runtime.text_heads import TextHeads
from trinity.runtime.texts import Pairs, TextReader, Texts, cut_notice

if TYPE_CHECKING:
    from trinity.formats import WeightProvider
    from trinity.formats.defaults import ChatTemplate
    from trinity.tokenizers import Tokenizer

Lora = Mapping[int, float] | None


class TextEmbedder:
    """Computes embeddings, scores and labels of texts: what ``Model.embed`` and ``Model.rank`` use.

    A text is read into token ids first (``read_texts``, ``pairs``) and computed then
    (``embed_texts``, ``rank_pairs``), so that callers can do the first in another thread and the
    second in parts.
    """

    rules: TextRules = NO_RULES
    """The limit, prompts and normalization in the model's files."""
    _pooling: Pooling = "mean"
    _heads: TextHeads | None = None
    # The prompt of a reranker, and the chat templates that it was found in.
    _prompt: tuple[tuple[ChatTemplate, ...], str | None] | None = None

    def __init__(
        self, client: Client, tokenizer: Tokenizer, chat: ChatFormat,
        provider: WeightProvider | None,
    ) -> None:  # fmt: skip
        self._client = client
        self._engine = client.engine
        self._tokenizer = tokenizer
        self._chat = chat
        if provider is not None:
            self._pooling = pooling_of(provider)
            self._heads = TextHeads(provider, self._engine.config.hidden_size)
            self.rules = text_rules(provider.metadata, provider.path)

    @property
    def size(self) -> int:
        """The number of values in the embedding of a text."""
        size = self._engine.config.hidden_size if self._heads is None else self._heads.size
        return min(size, self.rules.dimensions or size)

    @property
    def text_length(self) -> int:
        """The maximum number of tokens of a text or of a pair."""
        return self._reader.limit

    @property
    def ranks(self) -> bool:
        """Whether the model is a reranker."""
        return self._heads is not None and self._heads.ranks

    @property
    def ranks_by_logits(self) -> bool:
        """Whether scores are logits, which have no limits, and not probabilities."""
        return self._heads is not None and self._heads.labels == 1

    @property
    def lacks_pooler(self) -> bool:
        """Whether the file may lack the layer before the classifier, as some converters drop it."""
        heads = self._heads
        return self._engine.encodes and self.ranks and heads is not None and not heads.has_pooler

    def read_texts(
        self, texts: Sequence[str | Sequence[int]], prompt: str | None = None,
        prompt_name: str | None = None, *, truncate: bool = True,
    ) -> Texts:  # fmt: skip
        """The token ids of texts as ``Model.embed`` uses them, and which texts it cuts.

        Raises: as ``Model.embed``.
        """
        reader = self._reader
        return reader.texts(texts, reader.prompt(prompt, prompt_name), truncate=truncate)

    def embed_texts(
        self, texts: Texts, pooling: Pooling | None = None, normalize: bool | None = None, *,
        lora: Lora = None, priority: int = 0,
    ) -> NDArray[np.float32]:  # fmt: skip
        """The embeddings of the texts, (n_texts, size). Raises: as ``Model.embed``."""
        options = self._options(pooling, normalize, lora, priority)
        inboxes = [Inbox() for _ in texts.rows]
        sequences = pooled(texts.rows, inboxes, options, skip=texts.skip)
        return stacked(self._client.results(sequences, inboxes), self.size)

    async def aembed_texts(
        self, texts: Texts, pooling: Pooling | None = None, normalize: bool | None = None, *,
        lora: Lora = None, priority: int = 0, client: str = "",
    ) -> NDArray[np.float32]:  # fmt: skip
        """As ``embed_texts``, for asyncio; cancelling the task cancels it.

        ``client``: who sent them; clients take turns.
        """
        options = self._options(pooling, normalize, lora, priority)
        inboxes = [AsyncInbox() for _ in texts.rows]
        sequences = pooled(texts.rows, inboxes, options, skip=texts.skip)
        return stacked(await self._client.aresults(sequences, inboxes, client), self.size)

    def pairs(self, query: str, texts: Sequence[str], *, truncate: bool = True) -> Pairs:
        """The token ids of the query with each text, in the form that the reranker needs.

        Special tokens written in the texts are parsed, as in transformers.
        Raises: as ``Model.rank``.
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

    def rank_pairs(self, pairs: Pairs, *, lora: Lora = None) -> NDArray[np.float32]:
        """The scores of the pairs, (n_pairs,). Raises: as ``Model.rank``."""
        options = self._score_options(lora)
        inboxes = [Inbox() for _ in pairs.rows]
        sequences = pooled(pairs.rows, inboxes, options, seconds=pairs.seconds)
        return stacked(self._client.results(sequences, inboxes), 1)[:, 0]

    async def arank_pairs(
        self, pairs: Pairs, *, lora: Lora = None, client: str = ""
    ) -> NDArray[np.float32]:
        """As ``rank_pairs``, for asyncio; ``client`` as for ``aembed_texts``."""
        options = self._score_options(lora)
        inboxes = [AsyncInbox() for _ in pairs.rows]
        sequences = pooled(pairs.rows, inboxes, options, seconds=pairs.seconds)
        return stacked(await self._client.aresults(sequences, inboxes, client), 1)[:, 0]

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the classifier; empty if the model has none."""
        return () if self._heads is None else self._heads.names

    def classify(
        self, texts: Sequence[str | Sequence[int]], *, truncate: bool = True, lora: Lora = None
    ) -> NDArray[np.float32]:
        """The probabilities of the ``labels`` for each text or list of token ids.

        Those of a text sum to 1, unless the model has one label or its files say that several may
        apply to a text. Long texts are cut as in ``Model.embed``.
        Shapes: returns (n_texts, n_labels).
        Raises: InputError if the model has no classifier, and for a text without tokens;
        ContextLengthError for a text that is too long and not cut.
        """
        read = self.read_classified(texts, truncate=truncate)
        self.warn(read.cut, len(texts))
        return self.classify_texts(read, lora=lora)

    def read_classified(
        self, texts: Sequence[str | Sequence[int]], *, truncate: bool = True
    ) -> Texts:
        """The token ids of texts as ``classify`` uses them. Raises: as ``classify``."""
        self._check_classifies()
        read = self._reader.texts(texts, truncate=truncate)
        return read._replace(rows=[self._unpadded(row) for row in read.rows])

    def classify_texts(
        self, texts: Texts, *, raw: bool = False, lora: Lora = None
    ) -> NDArray[np.float32]:
        """The probabilities of the labels, or with ``raw`` the logits. Raises: as ``classify``."""
        options = self._label_options(lora)
        inboxes = [Inbox() for _ in texts.rows]
        sequences = pooled(texts.rows, inboxes, options)
        return self._classes(self._client.results(sequences, inboxes), raw)

    async def aclassify_texts(
        self, texts: Texts, *, raw: bool = False, lora: Lora = None, client: str = ""
    ) -> NDArray[np.float32]:
        """As ``classify_texts``, for asyncio; ``client`` as for ``aembed_texts``."""
        options = self._label_options(lora)
        inboxes = [AsyncInbox() for _ in texts.rows]
        sequences = pooled(texts.rows, inboxes, options)
        return self._classes(await self._client.aresults(sequences, inboxes, client), raw)

    def cut_notice(self, cut: Sequence[int], count: int) -> str:
        """The warning that the texts with the indices ``cut``, of ``count`` texts, were cut."""
        context, most = self._engine.context_length, self._engine.config.context_length
        return cut_notice(cut, count, self.text_length, larger=self.text_length == context < most)

    def warn(self, cut: Sequence[int], count: int) -> None:
        """Warn the caller's caller with ``cut_notice`` if texts were cut."""
        if cut:
            warnings.warn(self.cut_notice(cut, count), RuntimeWarning, stacklevel=3)

    @property
    def _reader(self) -> TextReader:
        engine = self._engine
        return TextReader(
            self._tokenizer, self.rules, engine.context_length, engine.config.vocab_size
        )

    def _pair_prompt(self) -> str | None:
        """The prompt with the places of query and text, found once per set of chat templates."""
        from trinity.conversation.pair_prompt import pair_prompt

        templates = self._chat.templates
        if self._prompt is None or self._prompt[0] != templates:
            self._prompt = templates, pair_prompt(self._tokenizer, templates)
        return self._prompt[1]

    def _pair(
        self, prompt: str | None, query: str, text: str, truncate: bool
    ) -> tuple[list[int], int | None, bool]:
        """The token ids of a pair, the index where the text begins, and whether it was cut."""
        from trinity.conversation.pair_prompt import after_document, filled

        if prompt is None:
            ids, second, cut = self._reader.pair(query, text, truncate=truncate)
            return self._unpadded(ids), second, cut
        whole, end = filled(prompt, query, text), after_document(prompt, query)
        ids, cut = self._reader.prompted_pair(whole, end, truncate=truncate)
        return ids, None, cut

    def _unpadded(self, ids: list[int]) -> list[int]:
        """The ids without padding at their end, which EOS may be.

        transformers reads the last token that is not padding.
        """
        padding = None if self._heads is None else self._heads.padding_id
        count = len(ids)
        while not self._engine.encodes and count > 1 and ids[count - 1] == padding:
            count -= 1
        return ids[:count]

    def _check_classifies(self) -> None:
        self._client.check_open()
        if not self.labels:
            raise InputError(
                "the model is not a classifier: its files have no cls.output.weight; use a model "
                "whose class ends in ForSequenceClassification"
            )

    def _classes(
        self, results: Sequence[NDArray[np.float32] | None], raw: bool
    ) -> NDArray[np.float32]:
        assert self._heads is not None
        logits = stacked(results, len(self.labels))
        return logits if raw else self._heads.probabilities(logits)

    def _label_options(self, lora: Lora) -> PoolingOptions:
        self._check_classifies()
        assert self._heads is not None
        return self._of_one_state(lora)._replace(head=self._heads.outputs)

    def _check_ranks(self) -> None:
        self._client.check_open()
        if not self.ranks:
            raise InputError(
                "the model is not a reranker: its files have no classifier (cls.output.weight) "
                "with one output, or with outputs for yes and no (pooling_type 4). Use a "
                "cross-encoder such as bge-reranker, or Qwen3-Reranker in one of these forms: a "
                "GGUF file that llama.cpp converted from the original model; a directory with "
                "modules.json and 1_LogitScore; Qwen3ForSequenceClassification. Otherwise compare "
                "the vectors of embed()"
            )

    def _score_options(self, lora: Lora) -> PoolingOptions:
        self._check_ranks()
        assert self._heads is not None
        return self._of_one_state(lora)._replace(head=self._heads.score)

    def _of_one_state(self, lora: Lora) -> PoolingOptions:
        """Options of a classifier, which reads one token's state."""
        # In a decoder only the last token sees the whole text.
        pooling: Pooling = "cls" if self._engine.encodes else "last"
        return self._options(pooling, False, lora)

    def _options(
        self, pooling: Pooling | None, normalize: bool | None, lora: Lora, priority: int = 0
    ) -> PoolingOptions:
        self._client.check_open()
        chosen = pooling or self._pooling
        if chosen not in get_args(Pooling):
            raise InputError(f"pooling is {chosen!r:.40}; it must be mean, cls or last")
        return PoolingOptions(
            pooling=chosen,
            normalize=self.rules.normalizes if normalize is None else normalize,
            adapters=self._engine.adapter_weights(Request.of(lora=lora).lora),
            head=None if self._heads is None else self._heads.vector,
            encodes=self._engine.encodes,
            priority=priority,
            dimensions=self.rules.dimensions,
        )
