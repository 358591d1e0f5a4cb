"""The embedded API of a loaded model: generate, stream, chat, embed, rank, read logits."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.embeddings import Lora, TextEmbedder
from trinity.errors import InputError
from trinity.formats.defaults import NO_DEFAULTS, ChatTemplate, Defaults
from trinity.model_defaults import checked_defaults
from trinity.options.checks import check_integer
from trinity.runtime.chat_format import ChatFormat
from trinity.runtime.generation import Chunk, Completion
from trinity.runtime.interface import Engine
from trinity.runtime.options import Request, split_options
from trinity.runtime.paging import give_back_heap
from trinity.runtime.pooling import Pooling
from trinity.runtime.prompts import Messages, checked_ids, prompt_ids
from trinity.runtime.sampling.logprobs import TokenLogprob
from trinity.runtime.scheduling.client import AsyncResponses, Client
from trinity.runtime.scheduling.engine_thread import EngineThread
from trinity.runtime.scheduling.inbox import AsyncInbox
from trinity.runtime.scheduling.scheduler_stats import SchedulerStats

if TYPE_CHECKING:
    from trinity.conversation.prompt import ChatPrompt
    from trinity.formats import WeightProvider
    from trinity.images.encoder import ImageEncoder
    from trinity.runtime.likelihoods.perplexity import Perplexity
    from trinity.runtime.likelihoods.text_scorer import TextScorer
    from trinity.runtime.options import Cancel, ChatOptions, GenerationOptions, PromptOptions
    from trinity.runtime.pages.page import AdapterWeights
    from trinity.tokenizers import Tokenizer


class Model:
    """A loaded model; ``trinity.load`` returns it.

    Every method may be called from any thread or task at any time. Concurrent requests are
    batched. A stream that is left early ends when it is closed or dropped;
    ``with contextlib.closing(model.stream(...)) as chunks`` closes it reliably.

    As a context manager, the model is closed at the end. Methods of a closed model raise
    InputError.
    """

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, provider: WeightProvider | None = None,
        *, max_sequences: int | None = None, batch_size: int | None = None,
        images: ImageEncoder | None = None,
    ) -> None:  # fmt: skip
        self._engine = engine
        self.image_encoder = images  # None: messages have only text
        self._tokenizer = tokenizer
        self._weights = provider
        self._defaults = NO_DEFAULTS if provider is None else checked_defaults(provider)
        self._engine_thread = EngineThread(
            engine, release=(lambda: None) if provider is None else provider.close,
            max_sequences=max_sequences, batch_size=batch_size,
        )  # fmt: skip
        self._client = Client(self._engine_thread, tokenizer)
        path = "" if provider is None else provider.path
        self._chat = ChatFormat(tokenizer, self._defaults, path, images)
        self._embedder = TextEmbedder(self._client, tokenizer, self._chat, provider)

    @cached_property
    def _scorer(self) -> TextScorer:
        from trinity.runtime.likelihoods.text_scorer import TextScorer

        return TextScorer(self._client, self._tokenizer)

    @property
    def config(self) -> ModelConfig:
        """Sizes and constants of the model."""
        return self._engine.config

    @property
    def context_length(self) -> int:
        """The maximum number of tokens of prompt and completion together."""
        return self._engine.context_length

    @property
    def max_sequences(self) -> int | None:
        """The maximum number of requests that run at the same time; None: limited by memory."""
        return self._engine_thread.max_sequences

    @property
    def adapters(self) -> tuple[tuple[str, float], ...]:
        """The path and the scale of each LoRA adapter; requests number them in this order."""
        return self._engine.adapters

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._tokenizer

    @property
    def defaults(self) -> Defaults:
        """The defaults in the model's files. Options of a request override them."""
        return self._defaults

    @property
    def weights(self) -> WeightProvider | None:
        """The open model files: metadata and stored tensors.

        Tensors that were taken before the model was closed keep the file open until dropped.
        """
        return self._weights

    @property
    def chat_templates(self) -> tuple[ChatTemplate, ...]:
        """The model's chat templates. The first one that can be rendered is used."""
        return self._chat.templates

    def use_chat_template(self, template: str | ChatTemplate) -> None:
        """Replace the model's chat templates by this one; a text is Jinja2."""
        given = ChatTemplate(template, source="") if isinstance(template, str) else template
        self._chat.use(given)

    @property
    def encodes(self) -> bool:
        """Whether the model is an encoder, which computes embeddings or scores but no text."""
        return self._engine.encodes

    @property
    def reads_images(self) -> bool:
        """Whether messages may have images."""
        return self.image_encoder is not None

    @property
    def ranks(self) -> bool:
        """Whether the model is a reranker, so that ``rank`` scores texts for a query."""
        return self._embedder.ranks

    @property
    def embedding_size(self) -> int:
        """The number of values in a vector of ``embed``."""
        return self._embedder.size

    @property
    def text_length(self) -> int:
        """The maximum number of tokens of a text in ``embed``, or of a pair in ``rank``."""
        return self._embedder.text_length

    @property
    def embedder(self) -> TextEmbedder:
        """The steps of ``embed`` and ``rank``: first read the texts, then compute."""
        return self._embedder

    @property
    def engine(self) -> Engine:
        """The engine, which computes single steps; use it inside ``exclusive``."""
        return self._engine

    @property
    def engine_thread(self) -> EngineThread:
        """The thread that runs the engine for all requests."""
        return self._engine_thread

    @property
    def client(self) -> Client:
        """Submits checked requests to the engine thread."""
        return self._client

    @overload
    def generate(
        self, prompt: str | Sequence[int], **options: Unpack[GenerationOptions]
    ) -> Completion: ...

    @overload
    def generate(
        self, prompt: str | Sequence[int], *, n: int, **options: Unpack[GenerationOptions]
    ) -> list[Completion]: ...

    def generate(
        self, prompt: str | Sequence[int], *, n: int | None = None,
        **options: Unpack[GenerationOptions],
    ) -> Completion | list[Completion]:  # fmt: skip
        """Complete ``prompt``, which is text or a sequence of token ids.

        An empty prompt stands for the BOS token alone. ``GenerationOptions`` lists the options.
        ``n`` returns a list of ``n`` completions, which share the computed prompt; with a seed,
        completion i uses seed + i.

        Raises: ContextLengthError if the prompt exceeds the context; InputError for any other bad
        argument, and for an empty prompt if the vocabulary has no BOS token.
        """
        request = self._request(options)
        ids = self._prompt_ids(prompt, request)
        if n is None:
            return self._client.completions([(ids, request)])[0]
        check_integer("n", n, low=1)
        return self._client.completions([(ids, request.sample(i)) for i in range(n)])

    def generate_batch(
        self, prompts: Iterable[str | Sequence[int]], **options: Unpack[GenerationOptions]
    ) -> Generator[tuple[int, Completion], None, None]:
        """Complete several prompts at once; yields (index of the prompt, completion) as they end.

        Arguments are checked by this call. All prompts are submitted when the first result is
        requested. Closing the generator cancels the rest. Raises: as ``generate``; an error of one
        prompt ends all.
        """
        request = self._request(options)
        if isinstance(prompts, str | bytes):
            raise InputError("prompts is one text; give a list of texts, or use generate()")
        wanted = [(self._prompt_ids(prompt, request), request) for prompt in prompts]
        self._engine.adapter_weights(request.lora)
        return self._client.as_they_end(wanted)

    def stream(
        self, prompt: str | Sequence[int], **options: Unpack[GenerationOptions]
    ) -> Generator[Chunk, None, None]:
        """As ``generate``, chunk by chunk; the last chunk has the finish reason and timings.

        Arguments are checked by this call. The prompt is submitted when the first chunk is
        requested; generation then continues while the caller reads.
        """
        request = self._request(options)
        return self._client.stream(self._prompt_ids(prompt, request), request)

    @overload
    def chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> Completion: ...

    @overload
    def chat(
        self, messages: Messages, *, n: int, **options: Unpack[ChatOptions]
    ) -> list[Completion]: ...

    def chat(
        self, messages: Messages, *, n: int | None = None, **options: Unpack[ChatOptions]
    ) -> Completion | list[Completion]:
        """The model's response to ``messages``, each with a "role" and a "content".

        The content is a text or a list of parts. If ``reads_images``, parts may be {"type":
        "image", "image": ...} with the path of a file, its bytes, a NumPy array (height, width, 3)
        of uint8 or a PIL image, or OpenAI's "image_url" with a data URL.

        The text is the model's raw output; ``chat_prompt`` returns a reader that separates tool
        calls and reasoning. Tokens that an earlier call has computed are not computed again.
        Raises: as ``generate`` and ``apply_chat_template``.
        """
        of_prompt, rest = split_options(options)
        ids = self.apply_chat_template(messages, **of_prompt)
        if n is None:
            return self.generate(ids, **rest)
        return self.generate(ids, n=n, **rest)

    def chat_stream(
        self, messages: Messages, **options: Unpack[ChatOptions]
    ) -> Generator[Chunk, None, None]:
        """As ``chat``, chunk by chunk."""
        of_prompt, rest = split_options(options)
        return self.stream(self.apply_chat_template(messages, **of_prompt), **rest)

    async def astream(
        self, prompt: str | Sequence[int], **options: Unpack[GenerationOptions]
    ) -> AsyncGenerator[Chunk, None]:
        """As ``stream``, for asyncio: the event loop is not blocked.

        Cancelling the task, or closing the generator, cancels the generation. For a chat, pass
        ``apply_chat_template(messages)`` as the prompt.
        """
        request = self._request(options)
        import asyncio

        ids = await asyncio.to_thread(self._prompt_ids, prompt, request)
        async with aclosing(self._client.astream(ids, request)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def asubmit(
        self, prompts: Sequence[str | Sequence[int]], *, n: int = 1, whole: bool = False,
        **options: Unpack[GenerationOptions],
    ) -> AsyncResponses:  # fmt: skip
        """Submit ``n`` completions of each prompt; they run when this returns. For asyncio.

        The result yields pairs (index, chunk), where the index is that of the prompt times ``n``
        plus that of the completion. ``whole``: one chunk per completion. With a seed, completion i
        of a prompt uses seed + i. Close the result (a context manager) to cancel what has not
        ended. Raises: as ``generate``.
        """
        check_integer("n", n, low=1)
        request, inbox = self._request(options), AsyncInbox()

        def prepared() -> AsyncResponses:
            ids = [self._prompt_ids(prompt, request) for prompt in prompts]
            return self.prepared(ids, inbox, n=n, whole=whole, **options)

        import asyncio

        return (await asyncio.to_thread(prepared)).submit()

    def prepared(
        self, prompts: Sequence[list[int]], inbox: AsyncInbox, *, n: int = 1, whole: bool = False,
        **options: Unpack[GenerationOptions],
    ) -> AsyncResponses:  # fmt: skip
        """As ``asubmit`` for checked token ids, to be called in a thread.

        The event loop creates ``inbox`` and calls ``submit`` of the result. Raises: as
        ``generate``.
        """
        request = self._request(options)
        wanted = [(ids, request.sample(i)) for ids in prompts for i in range(n)]
        return self._client.prepared(wanted, inbox, whole=whole)

    async def achat(self, messages: Messages, **options: Unpack[ChatOptions]) -> Completion:
        """As ``chat``, for asyncio; cancelling the task cancels the generation."""
        of_prompt, rest = split_options(options)
        request = self._request(rest)
        import asyncio

        ids = await asyncio.to_thread(self.apply_chat_template, messages, **of_prompt)
        return await self._client.completion(ids, request)

    def apply_chat_template(
        self, messages: Messages, *, add_generation_prompt: bool = True,
        **options: Unpack[PromptOptions],
    ) -> list[int]:  # fmt: skip
        """The token ids of a conversation in the model's chat format, with at most one BOS.

        ``messages`` have the form of OpenAI's API. A system text and first messages in the model's
        files are put before them.

        Raises: InputError for malformed messages or tools, if there is no template, for tools that
        the template does not list, and for a variable that it does not have; TokenizerError for a
        template that fails.
        """
        self._check_generates()
        return self._chat.ids(messages, options, add_generation_prompt=add_generation_prompt)

    def chat_prompt(
        self, messages: Messages, *, tool_choice: str = "auto",
        parallel_tool_calls: bool | None = None, add_generation_prompt: bool = True,
        fitting: bool = False, **options: Unpack[PromptOptions],
    ) -> ChatPrompt:  # fmt: skip
        """A conversation as a prompt, with a reader that finds tool calls and reasoning.

        As ``apply_chat_template``, but tools that the template does not list are described in a
        system text. ``tool_choice`` is "none" (as without tools), "auto", "required" or the name
        of the tool to call; for the last two, generate with the prompt's ``grammar()``.
        ``parallel_tool_calls``: whether a response may have several calls; by default as the
        template does. A named tool is called once. ``fitting``: if a conversation is so long that
        it cannot fit the context, refuse it without tokenizing it.
        """
        self._check_generates()
        return self._chat.prompt(
            messages, options, tool_choice=tool_choice, parallel_tool_calls=parallel_tool_calls,
            add_generation_prompt=add_generation_prompt,
            most_tokens=self.context_length if fitting else None,
        )  # fmt: skip

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
        their Euclidean length. The default is True, unless the model's files name a similarity
        function that depends on the length, such as the dot product. ``prompt`` is put before each
        text; ``prompt_name`` chooses one of the model's prompts instead; without either the model's
        default prompt is used ("" for none). Texts longer than ``text_length`` are cut with a
        warning, or refused if ``truncate`` is False. All texts run in parallel; those with a lower
        ``priority`` run first.
        Shapes: returns (n_texts, embedding_size).
        Raises: InputError for a text without tokens and for an unknown prompt;
        ContextLengthError for a text that is too long and not cut.
        """
        embedder = self._embedder
        read = embedder.read_texts(texts, prompt, prompt_name, truncate=truncate)
        embedder.warn(read.cut, len(texts))
        return embedder.embed_texts(read, pooling, normalize, lora=lora, priority=priority)

    async def aembed(
        self, texts: Sequence[str | Sequence[int]], pooling: Pooling | None = None,
        normalize: bool | None = None, *, prompt: str | None = None,
        prompt_name: str | None = None, truncate: bool = True, lora: Lora = None,
        priority: int = 0,
    ) -> NDArray[np.float32]:  # fmt: skip
        """As ``embed``, for asyncio; cancelling the task cancels it."""
        embedder = self._embedder
        import asyncio

        read = await asyncio.to_thread(
            embedder.read_texts, texts, prompt, prompt_name, truncate=truncate
        )
        embedder.warn(read.cut, len(texts))
        return await embedder.aembed_texts(read, pooling, normalize, lora=lora, priority=priority)

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
        pairs = self._embedder.pairs(query, texts, truncate=truncate)
        self._embedder.warn(pairs.cut, len(pairs.rows))
        return self._embedder.rank_pairs(pairs, lora=lora)

    def logits(
        self, token_ids: Sequence[int], *, lora: Mapping[int, float] | None = None
    ) -> NDArray[np.float32]:
        """Logits after each of ``token_ids``, computed without the prefix cache.

        ``lora``: see GenerationOptions.
        Numerics: the KV cache is float32 here, whatever the model's ``kv_type``.
        Shapes: returns (n_tokens, vocab_size).
        Raises: ContextLengthError, InputError for ids outside the vocabulary.
        """
        self._check_generates()
        ids = checked_ids(token_ids, self.config.vocab_size)
        return self._scorer.logits(ids, self._adapters(lora))

    async def aprompt_logprobs(
        self, prompt: str | Sequence[int], *, top: int = 0, add_bos: bool = True,
        parse_special: bool = False, lora: Mapping[int, float] | None = None, client: str = "",
    ) -> tuple[str, list[TokenLogprob]]:  # fmt: skip
        """Return the text of a prompt's first token, and the log-probabilities of all others.

        Each has the ``top`` most probable tokens. ``lora``: see GenerationOptions. ``client``: the
        request's client; clients take turns. Raises: ContextLengthError, InputError.
        """
        self._client.check_open()
        request = Request.of(add_bos=add_bos, parse_special=parse_special)
        adapters = self._adapters(lora)
        import asyncio

        ids = await asyncio.to_thread(self._prompt_ids, prompt, request)
        return await self._scorer.aprompt_logprobs(ids, top, adapters, client)

    def perplexity(
        self, text: str | Sequence[int], *, window: int | None = None,
        progress: Callable[[Perplexity], None] | None = None, cancel: Cancel | None = None,
    ) -> Perplexity:  # fmt: skip
        """Measure how well the model predicts ``text``, with llama.cpp's conventions.

        ``window`` is the number of tokens per window, by default 512 or the context if that is
        shorter; the second half of each window is scored. ``progress`` receives the estimate after
        every window. Once ``cancel`` is set, the estimate so far is returned.

        Raises: InputError if the text has fewer tokens than two windows, and if it is cancelled
        before the first window; ContextLengthError for a window longer than the context.
        """
        self._check_generates()
        given = self.tokenize(text, add_eos=False) if isinstance(text, str) else text
        ids = checked_ids(given, self.config.vocab_size)
        return self._scorer.perplexity(ids, window, progress, cancel)

    def scheduler_stats(self) -> SchedulerStats:
        """The number of requests that wait and run now."""
        return self._engine_thread.stats()

    def kv_cache_usage(self) -> float:
        """The part of the KV cache that running requests use, from 0 to 1."""
        pool = self.engine.pool
        return (pool.nbytes - pool.idle_bytes) / pool.limit if pool.limit else 0.0

    def keep_prefixes(self, folder: str | os.PathLike[str], limit: int) -> None:
        """Store computed prompt prefixes in a folder of at most ``limit`` bytes.

        Call it before the first request. Later models with the same weights, in this process or
        another, reuse them. Raises: InputError if the folder cannot be used.
        """
        # Imported here because it loads the compiler.
        from trinity.runtime.pages.prefix_store import store_of

        self.engine.pool.store = store_of(self.engine, Path(folder), limit)

    def exclusive(self) -> AbstractContextManager[Engine]:
        """``with model.exclusive() as engine``: run single steps while no request runs.

        It waits for running requests to end; other calls then wait for the end of the block. A
        call in the same thread raises InputError. Caches that are created inside may be used in a
        later block.
        """
        return self._engine_thread.exclusive()

    def tokenize(
        self, text: str, *, add_bos: bool = True, add_eos: bool | None = None,
        parse_special: bool = False,
    ) -> list[int]:  # fmt: skip
        """The token ids of ``text``, with BOS and EOS if the model's file asks for them.

        ``add_eos`` defaults to ``add_bos``. A BOS or EOS that the text has itself is not added
        again, except in models that end texts with EOS: their ids are those that ``embed`` reads.
        """
        add_eos = add_bos if add_eos is None else add_eos
        if add_bos and add_eos and parse_special and self._tokenizer.add_eos:
            return self._tokenizer.encode_whole(text)
        return self._tokenizer.encode(
            text, add_bos=add_bos, add_eos=add_eos, parse_special=parse_special
        )

    def image_prompt(self, text: str, images: Sequence[object], mark: str) -> list[int]:
        """The ids of a text in which ``mark`` stands for each image, for ``generate``.

        Special tokens that are written in the text are parsed. Images are given as in messages.
        Raises: InputError if there are not as many marks as images, or for a bad image.
        """
        if self.image_encoder is None:
            raise InputError("the model reads only text: load a vision model, such as SmolVLM")

        def tokenize(part: str, is_first: bool) -> list[int]:
            return self._tokenizer.encode(part, add_bos=is_first, parse_special=True)

        return self.image_encoder.prompt(text, images, tokenize, mark)  # type: ignore[arg-type]

    def detokenize(self, ids: Sequence[int], *, remove_special: bool = True) -> str:
        """The text of token ids; ``remove_special`` drops BOS and EOS around it."""
        given = checked_ids(ids, self.config.vocab_size)
        return self._tokenizer.decode(self._tokenizer.inner(given) if remove_special else given)

    def close(self) -> None:
        """End running requests as "cancelled", then free threads, memory and files.

        All of it is freed at once, without the garbage collector. Closing again does nothing. A
        tensor of ``weights`` or a cache of the engine that the caller still holds stays valid, and
        keeps the file or the cache's pages until it is dropped.
        """
        if self.image_encoder is not None:
            self.image_encoder.close()
        self._engine_thread.close()
        give_back_heap()

    def __enter__(self) -> Model:
        self._client.check_open()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise InputError(
            "a model cannot be pickled or copied: load it in each process that uses it (for a "
            "pool: in its initializer), or load it before the pool forks"
        )

    def __repr__(self) -> str:
        config, engine = self.config, self._engine
        closed = self._engine_thread.closing
        state = "closed" if closed else f"{engine.isa}, {engine.threads} threads"
        return (
            f"<Model {config.name or config.architecture!s}: {config.num_layers} layers, "
            f"hidden size {config.hidden_size}, context {engine.context_length}, {state}>"
        )

    def _request(self, options: GenerationOptions) -> Request:
        """The options, with the model's defaults for those that are not given.

        Raises InputError for a bad option and for a closed model.
        """
        request = Request.of(**{**self._defaults.options, **options})  # type: ignore[arg-type]
        self._client.check_open()
        return request

    def _adapters(self, lora: Lora) -> AdapterWeights:
        return self._engine.adapter_weights(Request.of(lora=lora).lora)

    def _check_generates(self) -> None:
        """Raise InputError for a closed model and for an encoder."""
        self._client.check_open()
        if self._engine.encodes:
            use = "rank" if self.ranks else "embed"
            name = "" if self._weights is None else f"{self._weights.path}: "
            raise InputError(
                f"{name}the model ({self.config.architecture}) is an encoder, which cannot "
                f"generate text: use {use}() (trinity {use})"
            )

    def _prompt_ids(self, prompt: str | Sequence[int], request: Request) -> list[int]:
        self._check_generates()
        return prompt_ids(
            prompt, self._tokenizer, self.config.vocab_size, self.context_length,
            add_bos=request.add_bos, parse_special=request.parse_special,
        )  # fmt: skip
