"""The embedded API: load a model, complete a prompt, stream, chat, read logits."""

from __future__ import annotations

import asyncio
import importlib
import importlib.resources
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, NoReturn, Unpack

import numpy as np
from numpy.typing import NDArray

from trinity.checks import check_integer
from trinity.config import ModelConfig
from trinity.errors import InputError, TrinityError
from trinity.load_options import LoadOptions
from trinity.runtime.cancel import AnyOf, Cancel, Deadline, Flag
from trinity.runtime.generation import Chunk, Completion, Timings, collect, stream
from trinity.runtime.interface import Engine
from trinity.runtime.memory import enough_memory
from trinity.runtime.options import GenerationOptions, Request
from trinity.runtime.perplexity import (
    DEFAULT_WINDOW,
    SMALLEST_WINDOW,
    Perplexity,
    cut_windows,
    estimate,
    scored_part,
    window_nlls,
)
from trinity.runtime.session import Session, all_logits, check_context
from trinity.runtime.turn import Turn
from trinity_kernels import forks
from trinity_kernels.uninterrupted import uninterrupted

if TYPE_CHECKING:
    from trinity.formats import WeightProvider
    from trinity.tokenizers import Tokenizer

Path = str | os.PathLike[str]
CLOSE_RETRY_SECONDS = 0.05
Messages = Sequence[Mapping[str, object]]


class Model:
    """A loaded model.

    Threads: every method may be called from any thread; calls wait for each other, first come,
    first served. A stream has its turn from its first piece until it is read to the end, closed,
    or dropped (garbage collection closes it), so close a stream that you leave early, or use
    ``with contextlib.closing(model.stream(...)) as chunks``. A thread that calls the model while
    its own open stream holds the turn gets an InputError after some seconds, not a deadlock.

    asyncio: ``async for chunk in model.astream(...)``.

    As a context manager it closes at the end; a closed model raises InputError.
    """

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, provider: WeightProvider | None = None
    ) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._provider = provider
        self._session: Session | None = None
        self._turn = Turn()
        self._closing = Flag()
        # No lock: a fork could leave it held. The operations of a set are whole.
        self._streams: set[weakref.ref[Generator[Chunk, None, None]]] = set()

    @property
    def config(self) -> ModelConfig:
        """Sizes and constants of the model."""
        return self._engine.config

    @property
    def context_length(self) -> int:
        """The most tokens that prompt and answer may have together."""
        return self._engine.context_length

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._tokenizer

    @property
    def engine(self) -> Engine:
        """The layer below: forward steps. It must not be used while another call runs."""
        return self._engine

    def generate(
        self, prompt: str | Sequence[int], **options: Unpack[GenerationOptions]
    ) -> Completion:
        """Complete ``prompt``: text, or token ids that are used as they are.

        An empty prompt means the beginning-of-sequence token alone. ``GenerationOptions`` lists
        the options.

        Raises: ContextLengthError where the prompt exceeds the context; InputError for any other
        bad argument, and where an empty prompt meets a vocabulary without a BOS token.
        """
        return collect(self.stream(prompt, **options))

    def stream(
        self, prompt: str | Sequence[int], **options: Unpack[GenerationOptions]
    ) -> Generator[Chunk, None, None]:
        """As ``generate``, piece by piece; the last chunk has finish reason and timings.

        Arguments are checked at once, the prompt is evaluated when the first piece is asked for.
        """
        request = Request.of(**options)
        self._check_open()
        ids = self._prompt_ids(prompt, request)
        check_context(len(ids), self.context_length)
        chunks = self._run(ids, request)
        self._streams.add(weakref.ref(chunks, self._streams.discard))
        return chunks

    def chat(
        self,
        messages: Messages,
        *,
        template: str | None = None,
        **options: Unpack[GenerationOptions],
    ) -> Completion:
        """The model's answer to ``messages``, each with a "role" and a "content".

        ``template`` replaces the chat template of the model's file. Only what the messages add to
        the call before is evaluated. Raises: as ``generate`` and ``apply_chat_template``.
        """
        return collect(self.chat_stream(messages, template=template, **options))

    def chat_stream(
        self,
        messages: Messages,
        *,
        template: str | None = None,
        **options: Unpack[GenerationOptions],
    ) -> Generator[Chunk, None, None]:
        """As ``chat``, piece by piece."""
        return self.stream(self.apply_chat_template(messages, template=template), **options)

    async def astream(
        self, prompt: str | Sequence[int], **options: Unpack[GenerationOptions]
    ) -> AsyncGenerator[Chunk, None]:
        """As ``stream``, for asyncio: a worker thread computes, the event loop stays free.

        Cancelling the task, or closing the generator, cancels the generation. For a chat, give
        ``apply_chat_template(messages)`` as the prompt.
        """
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Chunk | BaseException | None] = asyncio.Queue()
        stopped = threading.Event()
        options["cancel"] = AnyOf(stopped, options.get("cancel"))

        def put(item: Chunk | BaseException | None) -> None:
            try:
                loop.call_soon_threadsafe(queue.put_nowait, item)
            except RuntimeError:  # the event loop was closed: nobody listens any more
                stopped.set()

        def work() -> None:
            try:
                for chunk in self.stream(prompt, **options):
                    put(chunk)
                put(None)
            except BaseException as error:
                put(error)

        threading.Thread(target=work, name="trinity-stream", daemon=True).start()
        try:
            while (item := await queue.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            stopped.set()

    def logits(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        """Logits after every one of ``token_ids``, evaluated from the beginning.

        Numerics: the cache is float32 here, whatever the model's ``kv_type``.
        Shapes: returns (n_tokens, vocab_size).
        Raises: ContextLengthError, InputError for ids outside the vocabulary.
        """
        self._check_open()
        ids = self._checked_ids(token_ids)
        check_context(len(ids), self.context_length)
        logits = None
        ticket = self._turn.acquire(self._closing)
        if ticket is not None:
            try:
                self._check_open()
                with enough_memory("for a call"):
                    logits = all_logits(self._engine, ids, self._closing)
            finally:
                del ticket
                self._turn.call_next()
        if logits is None:
            raise InputError("the model was closed by another thread during the call")
        return logits

    def perplexity(
        self,
        text: str | Sequence[int],
        *,
        window: int | None = None,
        progress: Callable[[Perplexity], None] | None = None,
        cancel: Cancel | None = None,
    ) -> Perplexity:
        """How well the model predicts ``text``, with llama.cpp's conventions.

        ``window`` is the tokens of a window, 512 or the context if that is shorter; the second
        half of each is scored. ``progress`` receives the estimate after every window. Once
        ``cancel`` is set, the estimate so far is the result.

        Raises: InputError where the text has less than two windows of tokens, and where it is
        cancelled before the first; ContextLengthError for a window longer than the context.
        """
        self._check_open()
        size = min(DEFAULT_WINDOW, self.context_length) if window is None else window
        check_integer("window", size, low=SMALLEST_WINDOW)
        check_context(size, self.context_length)
        ids = self.tokenize(text) if isinstance(text, str) else self._checked_ids(text)
        bos = self._tokenizer.bos_id if self._tokenizer.add_bos else None
        windows = cut_windows(ids, size, bos)
        check_ids(windows, self.config.vocab_size)
        stopped = AnyOf(cancel, self._closing)
        nlls, num_bytes, result = np.empty(0), 0, None
        decoder = self._tokenizer.stream(skip_special=False)
        for number, tokens in enumerate(windows, 1):
            found = None
            ticket = self._turn.acquire(stopped)
            if ticket is not None:
                try:
                    self._check_open()
                    with enough_memory("for a window"):
                        found = window_nlls(self._engine, tokens, stopped)
                finally:
                    del ticket
                    self._turn.call_next()
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

    def tokenize(
        self, text: str, *, add_bos: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Token ids of ``text``; ``add_bos`` counts where the model's file wants a BOS token."""
        return self._tokenizer.encode(text, add_bos=add_bos, parse_special=parse_special)

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of token ids."""
        return self._tokenizer.decode(self._checked_ids(ids))

    def apply_chat_template(
        self, messages: Messages, *, template: str | None = None, add_generation_prompt: bool = True
    ) -> list[int]:
        """Token ids of a conversation in the model's chat format, with one BOS at most.

        Raises: InputError for malformed messages, or where there is no template; TokenizerError
        for a template that fails.
        """
        from trinity.tokenizers.chat import render_chat

        tokenizer = self._tokenizer
        template = tokenizer.chat_template if template is None else template
        if template is None:
            raise InputError(
                "the model's file has no chat template: pass one as template= (Jinja2 text), or "
                "write the prompt in the model's own format and use generate()"
            )
        check_messages(messages)
        bos, eos = (
            "" if token is None else tokenizer.token_text(token)
            for token in (tokenizer.bos_id, tokenizer.eos_id)
        )
        text = render_chat(
            template,
            messages,
            bos_token=bos,
            eos_token=eos,
            add_generation_prompt=add_generation_prompt,
        )
        wrote_bos = bos != "" and text.startswith(bos)
        return tokenizer.encode(text, add_bos=not wrote_bos, parse_special=True)

    def close(self) -> None:
        """End what runs as "cancelled", then release threads and file; again is harmless."""
        self._closing.set()
        self._close_streams()
        while (ticket := self._turn.acquire(Deadline(CLOSE_RETRY_SECONDS))) is None:
            self._close_streams()
        try:
            self._session = None
            self._engine.close()
            if self._provider is not None:
                self._provider.close()
        finally:
            del ticket
            self._turn.call_next()

    def _close_streams(self) -> None:
        """Close streams that are suspended, whoever holds them."""
        for ref in list(self._streams):
            chunks = ref()
            if chunks is None:
                continue
            try:
                chunks.close()
            except ValueError:  # it is running in another thread, and will see _closing
                continue

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
        state = "closed" if self._closing.is_set() else f"{engine.isa}, {engine.threads} threads"
        return (
            f"<Model {config.name or config.architecture!s}: {config.num_layers} layers, "
            f"hidden size {config.hidden_size}, context {engine.context_length}, {state}>"
        )

    def _run(self, ids: list[int], request: Request) -> Generator[Chunk, None, None]:
        cancel = AnyOf(request.cancel, self._closing)
        ticket = self._turn.acquire(cancel)
        if ticket is None:
            self._check_open()
            yield Chunk("", finish_reason="cancelled", timings=Timings(prompt_tokens=len(ids)))
            return
        try:
            self._check_open()
            session = self._own_session()
            if not request.cache_prompt:
                session.reset()
            chunks = stream(
                session,
                self._tokenizer,
                ids,
                request.sampling,
                request.limits,
                cancel=cancel,
                proposals=request.proposals,
            )
            last = None
            with closing(chunks), enough_memory("for a call"):
                for chunk in chunks:
                    if chunk.finish_reason is not None:
                        last = chunk  # given out below, for its reader may never come back
                        continue
                    ticket.pause()
                    yield chunk
                    ticket.resume()
        finally:
            del ticket
            self._turn.call_next()
        if last is not None:
            yield last

    def _own_session(self) -> Session:
        """The session, anew where a call of the parent process was changing it when this forked."""
        session = self._session
        if session is not None and session.forks != forks.count() and self._turn.held_before_fork():
            session = None
        if session is None:
            session = self._session = Session(self._engine)
        return session

    def _prompt_ids(self, prompt: str | Sequence[int], request: Request) -> list[int]:
        if isinstance(prompt, str):
            ids = self.tokenize(
                prompt, add_bos=request.add_bos, parse_special=request.parse_special
            )
        else:
            ids = self._checked_ids(prompt)
        if not ids:
            if self._tokenizer.bos_id is None:
                raise InputError(
                    "the prompt is empty and the vocabulary has no BOS token to begin with; "
                    "give at least one token"
                )
            ids = [self._tokenizer.bos_id]
        check_ids(np.asarray(ids), self.config.vocab_size)
        return ids

    def _checked_ids(self, token_ids: Sequence[int]) -> list[int]:
        try:
            array = np.asarray(token_ids)
        except (TypeError, ValueError):  # ragged
            array = np.empty(1, object)
        if array.size == 0:
            return []
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise InputError(
                f"token ids are {type(token_ids).__name__} of {array.dtype}; "
                "they must be a flat sequence of integers"
            )
        check_ids(array, self.config.vocab_size)
        return [int(i) for i in array]

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise InputError("the model is closed; load it again")


def check_ids(ids: NDArray[np.generic], vocab_size: int) -> None:
    """Raise InputError where an id is outside the vocabulary."""
    for bad in (int(ids.min()), int(ids.max())):
        if not 0 <= bad < vocab_size:
            raise InputError(f"token id {bad} does not exist: the model has 0 to {vocab_size - 1}")


def check_messages(messages: Messages) -> None:
    """Raise InputError unless ``messages`` is a list of mappings with role and content."""
    if isinstance(messages, str | Mapping) or not len(messages):
        raise InputError(
            'messages must be a list such as [{"role": "user", "content": "Hello"}], '
            f"with at least one message; got {messages!r}"
        )
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InputError(f'message {number} has no "role": {message!r}')
        if "content" not in message:
            raise InputError(f'message {number} has no "content": {message!r}')


def load(
    path: Path,
    *,
    threads: int | None = None,
    context_length: int | None = None,
    kv_type: str = "f16",
    kv_memory: int | None = None,
    batch_invariant: bool = False,
    isa: str | None = None,
    i2s_layout: str = "x86",
    tl_config: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Model:
    """Load the model file at ``path`` (GGUF; of a split model the first part).

    ``threads`` defaults to the physical cores that this process may use, ``context_length`` to
    the model's own but at most 4096, ``isa`` to the best level of this CPU. ``kv_type`` is "f16"
    or "f32". ``kv_memory`` is the most bytes that keys and values of all sequences take together;
    by default context and free memory decide. ``batch_invariant`` evaluates every row in the
    order of a single token: answers then do not depend on what else runs, and prompts are slower.
    ``i2s_layout`` is "arm" for I2_S files that bitnet.cpp's quantizer wrote on ARM;
    ``tl_config`` the kernel_config.ini that a TL1 or TL2 file was made with, where its shapes are
    not among those that bitnet.cpp publishes tiles for.
    ``progress`` receives lines such as "compiling kernels 3/14".

    Raises: TrinityError; its subclasses are drawn in ``trinity.errors``.
    """
    options = LoadOptions(
        threads=threads,
        context_length=context_length,
        kv_type=kv_type,
        kv_memory=kv_memory,
        batch_invariant=batch_invariant,
        isa=isa,
        i2s_layout=i2s_layout,
        tl_config=tl_config,
    )
    from trinity.formats import open_weights
    from trinity.tokenizers import tokenizer_from_metadata

    provider = open_weights(path, i2s_layout=options.i2s_layout, tl_config=options.tl_config)
    try:
        with _libraries():
            tokenizer = tokenizer_from_metadata(provider.metadata)
        # Only now, for this import loads the compiler: a wrong path is told at once.
        with _libraries():
            engine_module = uninterrupted(importlib.import_module, "trinity.runtime.engine")
        engine = engine_module.load_engine(
            provider,
            threads=options.threads,
            context_length=options.context_length,
            kv_type=options.kv_type,
            kv_memory=options.kv_memory,
            batch_invariant=options.batch_invariant,
            isa=options.isa,
            progress=progress,
        )
    except BaseException:
        provider.close()
        raise
    return Model(engine, tokenizer, provider)


@contextmanager
def _libraries() -> Iterator[None]:
    """What the system refuses while libraries are loaded, as a TrinityError."""
    try:
        yield
    except (ImportError, OSError, MemoryError) as error:
        raise TrinityError(
            f"a library cannot be loaded ({str(error) or 'out of memory'}): install trinity's "
            "requirements again, or give the process more memory (ulimit -v)"
        ) from error


def generate(
    path_or_model: Path | Model, prompt: str | Sequence[int], **options: Unpack[GenerationOptions]
) -> Completion:
    """Complete ``prompt`` with a loaded model, or with one loaded for this call alone."""
    if isinstance(path_or_model, Model):
        return path_or_model.generate(prompt, **options)
    Request.of(**options)  # a bad option must not cost a load
    with load(path_or_model) as model:
        return model.generate(prompt, **options)


def demo_model() -> str:
    """The path of the small BitNet model that is part of the package.

    Raises: InputError where the installation lacks it.
    """
    path = str(importlib.resources.files("trinity") / "data" / "demo.gguf")
    if not os.path.isfile(path):
        raise InputError(
            f"{path}: the demo model is missing from this installation; install trinity again, "
            "or give a model's file (--model FILE)"
        )
    return path


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a model file, with or without weights.

    Raises: InputError, FormatError or TokenizerError.
    """
    from trinity.formats import open_weights
    from trinity.tokenizers import tokenizer_from_metadata

    provider = open_weights(path)
    try:
        return tokenizer_from_metadata(provider.metadata)
    finally:
        provider.close()


def open_weights(path: Path) -> WeightProvider:
    """The tensors, metadata and configuration of a model file, without loading it to run.

    A file without a usable configuration opens too. Raises: InputError, FormatError or
    UnsupportedError.
    """
    from trinity.formats import open_weights as open_provider

    return open_provider(path)
