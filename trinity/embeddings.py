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


class Embeddings:
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
        """Values of a vector that ``embed`` gives."""
        size = self._engine.config.hidden_size if self._heads is None else self._heads.size
        return min(size, self._rules.dimensions or size)

    @property
    def text_rules(self) -> TextRules:
        """What the model's files say of texts: the limit, prompts, the length of vectors."""
        return self._rules

    @property
    def text_length(self) -> int:
        """The most tokens of a text that gets a vector, or of a pair that gets a rank."""
        return self._reader.limit

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
        normalize: bool | None = None, *, prompt: str | None = None,
        prompt_name: str | None = None, truncate: bool = True, lora: Lora = None,
        priority: int = 0,
    ) -> NDArray[np.float32]:  # fmt: skip
        """A vector for each text: the hidden states of its tokens after the last norm, pooled.

        A text gets the BOS and EOS tokens that the model's file wants around one, and texts of
        special tokens in it become those tokens; token ids are used as they are. ``pooling``:
        "mean" of all tokens, "cls" the first, "last" the last one; the model file's own if not
        given, "mean" where it names none. The file's dense layers follow. ``normalize`` divides
        vectors by their Euclidean length; if not given, they get length 1 unless the model's files
        compare vectors by more than their direction. ``prompt`` goes before each text, or the one
        of the model's prompts that ``prompt_name`` names, or the model's default one ("" for none).
        Texts longer than ``text_length`` are cut with a warning, or refused where ``truncate`` is
        False. All texts run side by side. ``priority``: texts with lower numbers are taken first.
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
        """The token ids that ``embed`` makes of texts, and which texts it cuts. Raises: as it."""
        return self._reader.texts(
            texts, self._reader.prompt(prompt, prompt_name), truncate=truncate
        )  # fmt: skip

    def embed_texts(
        self, texts: Texts, pooling: Pooling | None = None, normalize: bool | None = None, *,
        lora: Lora = None, priority: int = 0,
    ) -> NDArray[np.float32]:  # fmt: skip
        """The vectors of what ``read_texts`` gave. Raises: as ``embed``."""
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
    ) -> NDArray[np.float32]:  # fmt: skip
        """A score for each text: how well it answers ``query``, by a reranker.

        Of a classifier with one row scores are what it gives, of any size; 1 / (1 + exp(-score))
        lies between 0 and 1. Of one with the rows "yes" and "no" they are the probability of
        "yes". Where the model's files have a prompt for pairs, both texts stand in it. Pairs longer
        than ``text_length`` are cut with a warning, or refused where ``truncate`` is False.
        Shapes: returns (n_texts,).
        Raises: InputError where the model is no reranker, and where query or a text is empty;
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
        """The query with each text, as the reranker was trained. Raises: as ``rank``.

        Texts of special tokens become those tokens, as transformers has it.
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
        """What a user should know where the texts ``cut``, of ``count``, were too long."""
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
