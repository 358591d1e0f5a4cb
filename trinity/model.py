"""The embedded API of a loaded model: complete a prompt, stream, chat, read logits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.embeddings import TextEmbedder
from trinity.errors import InputError, TokenizerError, UnsupportedError, about
from trinity.formats.defaults import NO_DEFAULTS, ChatTemplate, Defaults
from trinity.formats.text_rules import text_rules
from trinity.model_defaults import checked_defaults, pooling_of
from trinity.options.checks import check_integer
from trinity.runtime.cancel import Cancel
from trinity.runtime.chat_options import ChatOptions, PromptOptions, split_options
from trinity.runtime.client import AsyncAnswers, Client
from trinity.runtime.engine_thread import EngineThread
from trinity.runtime.generation import Chunk, Completion
from trinity.runtime.inbox import AsyncInbox, Inbox
from trinity.runtime.interface import Engine
from trinity.runtime.memory import zeros
from trinity.runtime.options import GenerationOptions, Request
from trinity.runtime.paging import give_back_heap
from trinity.runtime.perplexity import (
    DEFAULT_WINDOW,
    SMALLEST_WINDOW,
    Perplexity,
    cut_windows,
    estimate,
    scored_part,
)
from trinity.runtime.prompts import Messages, check_ids, check_length, checked_ids, prompt_ids
from trinity.runtime.sampler import TokenLogprob
from trinity.runtime.scheduler_stats import SchedulerStats
from trinity.runtime.scoring import AllLogits, Likelihoods, PromptLogprobs
from trinity.runtime.sequence import check_context
from trinity.runtime.text_heads import TextHeads

if TYPE_CHECKING:
    from trinity.conversation.prompt import ChatPrompt
    from trinity.conversation.rendering import Rendered
    from trinity.formats import WeightProvider
    from trinity.tokenizers import Tokenizer


class Model(TextEmbedder):
    """A loaded model.

    Threads and tasks: every method may be called from any of them at any time; what they ask for
    runs side by side, in common steps. A stream that is left early ends when it is closed or
    dropped: ``with contextlib.closing(model.stream(...)) as chunks`` closes it for certain.

    asyncio: ``async for chunk in model.astream(...)``, ``await model.achat(...)``.

    As a context manager it closes at the end; a closed model raises InputError.
    """

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, provider: WeightProvider | None = None,
        *, max_sequences: int | None = None, batch_size: int | None = None,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._tokenizer = tokenizer
        self._defaults = NO_DEFAULTS if provider is None else checked_defaults(provider)
        self._pooling = "mean" if provider is None else pooling_of(provider)
        self._heads = None
        if provider is not None:
            self._heads = TextHeads(provider, engine.config.hidden_size)
            self._rules = text_rules(provider.metadata, provider.path)
        self._weights = provider
        release = provider.close if provider is not None else lambda: None
        self._engine_thread = EngineThread(
            engine, release=release, max_sequences=max_sequences, batch_size=batch_size
        )
        self._client = Client(self._engine_thread, tokenizer)

    @property
    def config(self) -> ModelConfig:
        """Sizes and constants of the model."""
        return self._engine.config

    @property
    def context_length(self) -> int:
        """The most tokens that prompt and answer may have together."""
        return self._engine.context_length

    @property
    def max_sequences(self) -> int | None:
        """The most requests that run at the same time; None for as many as find memory."""
        return self._engine_thread.max_sequences

    @property
    def adapters(self) -> tuple[tuple[str, float], ...]:
        """The path and the weight of each LoRA adapter, numbered from 0 in this order."""
        return self._engine.adapters

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._tokenizer

    @property
    def defaults(self) -> Defaults:
        """What the model's files say of its use; options that are given go before it."""
        return self._defaults

    @property
    def weights(self) -> WeightProvider | None:
        """The open files that the model was loaded from: metadata, and tensors as they lie there.

        Tensors that were taken before the model was closed keep the file open until dropped.
        """
        return self._weights

    @property
    def chat_templates(self) -> tuple[ChatTemplate, ...]:
        """The model's chat templates, of which the first that can be rendered is used."""
        own = self._tokenizer.chat_template
        return self._defaults.templates + (() if own is None else (ChatTemplate(own),))

    def use_chat_template(self, text: str) -> None:
        """Let conversations be written by this template (Jinja2), in place of the model's own."""
        self._defaults = replace(self._defaults, templates=(ChatTemplate(text),))
        self._tokenizer.chat_template = None
        self._tokenizer.chat_templates = {}

    @property
    def engine(self) -> Engine:
        """The layer below. Steps of one's own need ``exclusive``."""
        return self._engine

    @property
    def engine_thread(self) -> EngineThread:
        """The layer between: the thread that runs the engine, and calls between its steps."""
        return self._engine_thread

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
        """Complete ``prompt``: text, or token ids that are used as they are.

        An empty prompt means the beginning-of-sequence token alone. ``GenerationOptions`` lists
        the options. ``n`` gives a list of as many answers, which share the evaluated prompt; with
        a seed, answer i has seed + i.

        Raises: ContextLengthError where the prompt exceeds the context; InputError for any other
        bad argument, and where an empty prompt meets a vocabulary without a BOS token.
        """
        request = self._request(options)
        self._check_open()
        ids = self._prompt_ids(prompt, request)
        if n is None:
            return self._client.completions([(ids, request)])[0]
        check_integer("n", n, low=1)
        return self._client.completions([(ids, request.sample(i)) for i in range(n)])

    def generate_batch(
        self, prompts: Iterable[str | Sequence[int]], **options: Unpack[GenerationOptions]
    ) -> Generator[tuple[int, Completion], None, None]:
        """Complete several prompts at once: (place among ``prompts``, completion) as they end.

        Arguments are checked at once; all prompts are submitted when the first result is asked
        for. What is left of it early is cancelled. Raises: as ``generate``; the error of one
        ends all.
        """
        request = self._request(options)
        self._check_open()
        wanted = [(self._prompt_ids(prompt, request), request) for prompt in prompts]
        self._engine.adapter_weights(request.lora)
        return self._client.as_they_end(wanted)

    def stream(
        self, prompt: str | Sequence[int], **options: Unpack[GenerationOptions]
    ) -> Generator[Chunk, None, None]:
        """As ``generate``, piece by piece; the last chunk has finish reason and timings.

        Arguments are checked at once, the prompt is evaluated when the first piece is asked for.
        The answer then goes on while its pieces are read.
        """
        request = self._request(options)
        self._check_open()
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

        The text is what the model wrote: ``chat_prompt`` gives a reader of its calls of tools and
        reasoning. Tokens that an earlier call has computed are not computed again. Raises: as
        ``generate`` and ``apply_chat_template``.
        """
        of_prompt, rest = split_options(options)
        ids = self.apply_chat_template(messages, **of_prompt)
        if n is None:
            return self.generate(ids, **rest)
        return self.generate(ids, n=n, **rest)

    def chat_stream(
        self, messages: Messages, **options: Unpack[ChatOptions]
    ) -> Generator[Chunk, None, None]:
        """As ``chat``, piece by piece."""
        of_prompt, rest = split_options(options)
        return self.stream(self.apply_chat_template(messages, **of_prompt), **rest)

    async def astream(
        self, prompt: str | Sequence[int], **options: Unpack[GenerationOptions]
    ) -> AsyncGenerator[Chunk, None]:
        """As ``stream``, for asyncio: the event loop stays free.

        Cancelling the task, or closing the generator, cancels the generation. For a chat, give
        ``apply_chat_template(messages)`` as the prompt.
        """
        request = self._request(options)
        self._check_open()
        ids = await asyncio.to_thread(self._prompt_ids, prompt, request)
        async with aclosing(self._client.astream(ids, request)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def asubmit(
        self, prompts: Sequence[str | Sequence[int]], *, n: int = 1, whole: bool = False,
        **options: Unpack[GenerationOptions],
    ) -> AsyncAnswers:  # fmt: skip
        """``n`` answers to each prompt, checked and submitted when this returns, for asyncio.

        They come as pairs of the answer's place (that of its prompt times ``n``, and which of its
        answers) and a chunk. ``whole``: one chunk for each answer. With a seed, answer i of a
        prompt has seed + i. Close it (it is a context manager) to cancel what has not ended.
        Raises: as ``generate``.
        """
        check_integer("n", n, low=1)
        request, inbox = self._request(options), AsyncInbox()
        self._check_open()

        def prepared() -> AsyncAnswers:
            ids = [self._prompt_ids(prompt, request) for prompt in prompts]
            return self.prepared(ids, inbox, n=n, whole=whole, **options)

        return (await asyncio.to_thread(prepared)).submit()

    def prepared(
        self, prompts: Sequence[list[int]], inbox: AsyncInbox, *, n: int = 1, whole: bool = False,
        **options: Unpack[GenerationOptions],
    ) -> AsyncAnswers:  # fmt: skip
        """Like ``asubmit`` for checked token ids, but to be called in a thread.

        The event loop makes ``inbox`` and calls ``submit`` of the result. Raises: as ``generate``.
        """
        request = self._request(options)
        self._check_open()
        wanted = [(ids, request.sample(i)) for ids in prompts for i in range(n)]
        return self._client.prepared(wanted, inbox, whole=whole)

    async def achat(self, messages: Messages, **options: Unpack[ChatOptions]) -> Completion:
        """As ``chat``, for asyncio: the event loop stays free; cancelling the task cancels it."""
        of_prompt, rest = split_options(options)
        request = self._request(rest)
        self._check_open()
        ids = await asyncio.to_thread(self.apply_chat_template, messages, **of_prompt)
        return await self._client.completion(ids, request)

    def logits(
        self, token_ids: Sequence[int], *, lora: Mapping[int, float] | None = None
    ) -> NDArray[np.float32]:
        """Logits after every one of ``token_ids``, evaluated from the beginning.

        ``lora``: see GenerationOptions.
        Numerics: the cache is float32 here, whatever the model's ``kv_type``.
        Shapes: returns (n_tokens, vocab_size).
        Raises: ContextLengthError, InputError for ids outside the vocabulary.
        """
        self._check_generates()
        ids = checked_ids(token_ids, self.config.vocab_size)
        check_context(len(ids), self.context_length)
        adapters = self._engine.adapter_weights(Request.of(lora=lora).lora)
        what = f"the logits of {len(ids)} tokens"
        shape = (len(ids), self.config.vocab_size)
        out = zeros(shape, "f4", what, "ask for those of fewer tokens")
        inbox = Inbox()
        if ids and self._client.result(AllLogits(ids, out, inbox, adapters), inbox) is None:
            raise InputError("the model was closed by another thread during the call")
        return out

    async def aprompt_logprobs(
        self, prompt: str | Sequence[int], *, top: int = 0, add_bos: bool = True,
        parse_special: bool = False, lora: Mapping[int, float] | None = None,
    ) -> tuple[str, list[TokenLogprob]]:  # fmt: skip
        """The text of a prompt's first token, and the log-probabilities of all others.

        ``top`` best tokens are noted for each. ``lora``: see GenerationOptions.
        Raises: ContextLengthError, InputError.
        """
        self._check_open()
        request = Request.of(add_bos=add_bos, parse_special=parse_special, lora=lora)
        adapters = self._engine.adapter_weights(request.lora)
        ids = await asyncio.to_thread(self._prompt_ids, prompt, request)

        def text(token: int) -> str:
            return self._tokenizer.bytes_of(token).decode("utf-8", "replace")

        found: list[TokenLogprob] | None = []
        if len(ids) > 1:
            inbox = AsyncInbox()
            scored = PromptLogprobs(ids, top, text, inbox, adapters)
            found = await self._client.aresult(scored, inbox)
        if found is None:
            raise InputError("the model was closed during the call")
        return text(ids[0]), found

    def perplexity(
        self, text: str | Sequence[int], *, window: int | None = None,
        progress: Callable[[Perplexity], None] | None = None, cancel: Cancel | None = None,
    ) -> Perplexity:  # fmt: skip
        """How well the model predicts ``text``, with llama.cpp's conventions.

        ``window`` is the tokens of a window, 512 or the context if that is shorter; the second
        half of each is scored. ``progress`` receives the estimate after every window. Once
        ``cancel`` is set, the estimate so far is the result.

        Raises: InputError where the text has less than two windows of tokens, and where it is
        cancelled before the first; ContextLengthError for a window longer than the context.
        """
        self._check_generates()
        size = min(DEFAULT_WINDOW, self.context_length) if window is None else window
        check_integer("window", size, low=SMALLEST_WINDOW)
        check_context(size, self.context_length)
        vocab_size = self.config.vocab_size
        given = self.tokenize(text, add_eos=False) if isinstance(text, str) else text
        ids = checked_ids(given, vocab_size)
        bos = self._tokenizer.bos_id if self._tokenizer.add_bos else None
        windows = cut_windows(ids, size, bos)
        check_ids(windows, vocab_size)
        nlls, num_bytes, result = np.empty(0), 0, None
        decoder = self._tokenizer.stream(skip_special=False)
        for number, tokens in enumerate(windows, 1):
            self._check_open()
            inbox = Inbox()
            found = self._client.result(Likelihoods(tokens, inbox, cancel), inbox)
            if found is None:
                break
            nlls = np.append(nlls, found)
            num_bytes += sum(len(decoder.bytes_of(int(i))) for i in scored_part(tokens))
            result = estimate(
                nlls, num_bytes, windows=number, total_windows=len(windows), window=size
            )
            if progress is not None:
                progress(result)
        self._check_open()
        if result is None:
            raise InputError("cancelled before the first window was evaluated")
        return result

    def scheduler_stats(self) -> SchedulerStats:
        """How many requests wait and run now."""
        return self._engine_thread.stats()

    def keep_prefixes(self, folder: str | os.PathLike[str], limit: int) -> None:
        """Keep what is evaluated in a folder, too, of ``limit`` bytes; before the first request.

        Later models of the same weights, in this process or another, then begin with it.
        Raises: InputError where the folder cannot be used.
        """
        # Only now, for this import loads the compiler.
        from trinity.runtime.prefix_store import store_of

        self.engine.pool.store = store_of(self.engine, Path(folder), limit)

    def exclusive(self) -> AbstractContextManager[Engine]:
        """``with model.exclusive() as engine``: steps of one's own, which nobody else runs beside.

        It waits until what runs has ended; other calls then wait until it is over. A call in the
        same thread raises InputError. Caches made within may be used in a later one.
        """
        return self._engine_thread.exclusive()

    def tokenize(
        self, text: str, *, add_bos: bool = True, add_eos: bool | None = None,
        parse_special: bool = False,
    ) -> list[int]:  # fmt: skip
        """Token ids of ``text``, with the BOS and EOS that the model's file wants around one.

        ``add_eos`` is as ``add_bos`` if not given.
        """
        add_eos = add_bos if add_eos is None else add_eos
        return self._tokenizer.encode(
            text, add_bos=add_bos, add_eos=add_eos, parse_special=parse_special
        )

    def detokenize(self, ids: Sequence[int], *, remove_special: bool = True) -> str:
        """The text of token ids; ``remove_special``: without what ``tokenize`` adds around one."""
        given = checked_ids(ids, self.config.vocab_size)
        return self._tokenizer.decode(self._tokenizer.inner(given) if remove_special else given)

    def apply_chat_template(
        self, messages: Messages, *, add_generation_prompt: bool = True,
        **options: Unpack[PromptOptions],
    ) -> list[int]:  # fmt: skip
        """Token ids of a conversation in the model's chat format, with one BOS at most.

        ``messages`` have the form of OpenAI's API. A system text and first messages that come with
        the model go before them.

        Raises: InputError for malformed messages or tools, without a template, for tools if it
        lists none, and for a variable that it does not have; TokenizerError for a template that
        fails.
        """
        from trinity.conversation.prompt import rendered_ids

        rendered = self._render(messages, options, add_generation_prompt, general=False)
        return rendered_ids(rendered.text, self._tokenizer)

    def chat_prompt(
        self, messages: Messages, *, tool_choice: str = "auto",
        parallel_tool_calls: bool | None = None, add_generation_prompt: bool = True,
        fitting: bool = False, **options: Unpack[PromptOptions],
    ) -> ChatPrompt:  # fmt: skip
        """A conversation as a prompt, with what reads the answers: calls of tools, reasoning.

        As ``apply_chat_template``; tools that the template does not list go into a system text.
        ``tool_choice`` is "none" (as without tools), "auto", "required" or the name of the tool to
        call; the last two need the prompt's grammar as an option. ``parallel_tool_calls``: whether
        an answer may have several calls; by default as the template does. A named tool is called
        once.
        ``fitting``: refuse a long one that cannot fit the context before it is tokenized.
        """
        from trinity.conversation.prompt import prompt_of

        tools = options.get("tools") or ()
        if tool_choice == "none":
            options = {**options, "tools": ()}
        rendered = self._render(messages, options, add_generation_prompt, general=True)
        if fitting:
            check_length(rendered.text, self._tokenizer, self.context_length)
        return prompt_of(rendered, self._tokenizer, tools, tool_choice, parallel_tool_calls)

    def close(self) -> None:
        """End what runs as "cancelled", then free threads, memory and files; again is harmless.

        All of it is free at once, without the garbage collector. A tensor of ``weights`` or a cache
        of the engine that the caller still has stays valid, and keeps the file or the cache's pages
        until it is dropped.
        """
        self._engine_thread.close()
        give_back_heap()

    def __enter__(self) -> Model:
        self._check_open()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise InputError(
            "a model cannot be pickled or copied: load it in the process that uses it (of a pool, "
            "in the initializer), or before the pool forks"
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
        """The options, and the model's defaults for those that are not given."""
        return Request.of(**{**self._defaults.options, **options})  # type: ignore[arg-type]

    def _render(
        self, messages: Messages, options: PromptOptions, add_generation_prompt: bool, *,
        general: bool,
    ) -> Rendered:  # fmt: skip
        from trinity.conversation.rendering import render_conversation
        from trinity.tokenizers.chat import RefusedHistoryError

        self._check_generates()
        tokenizer = self._tokenizer
        unknown = options.keys() - PromptOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"got an unexpected keyword argument {min(unknown)!r}")
        template, tools = options.get("template"), options.get("tools") or ()
        given = ChatTemplate(template) if isinstance(template, str) else template
        templates = self.chat_templates if given is None else (given,)
        if not templates:
            raise InputError(
                "the model's file has no chat template: pass one as template= (Jinja2 text), or "
                "write the prompt in the model's own format and use generate()"
            )
        for_tools = tokenizer.chat_templates.get("tool_use")
        if tools and template is None and for_tools is not None:
            templates = (ChatTemplate(for_tools), *templates)
        bos, eos = (
            "" if token is None else tokenizer.token_text(token)
            for token in (tokenizer.bos_id, tokenizer.eos_id)
        )
        extra = self._defaults
        try:
            return render_conversation(
                templates,
                messages,
                opened=extra.opened if extra.system or extra.messages else None,
                tools=tools,
                variables=options.get("variables"),
                general=general,
                bos_token=bos,
                eos_token=eos,
                add_generation_prompt=add_generation_prompt,
            )
        except RefusedHistoryError:
            raise  # it is about the messages
        except (TokenizerError, UnsupportedError):
            own = self._weights if given is None else None
            with about("" if own is None else own.path):
                raise

    def _check_generates(self) -> None:
        self._check_open()
        if self._engine.encodes:
            raise InputError(
                f"the model ({self.config.architecture}) is an encoder, which writes no text: use "
                + ("rank()" if self.ranks else "embed()")
                + f" (python -m trinity {'rank' if self.ranks else 'embed'})"
            )

    def _prompt_ids(self, prompt: str | Sequence[int], request: Request) -> list[int]:
        self._check_generates()
        return prompt_ids(
            prompt, self._tokenizer, self.config.vocab_size, self.context_length,
            add_bos=request.add_bos, parse_special=request.parse_special,
        )  # fmt: skip

    def _check_open(self) -> None:
        if self._engine_thread.closing:
            raise InputError("the model is closed; load it again")
