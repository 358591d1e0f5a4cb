"""An engine and a tokenizer without weights: tokens are bytes, logits a hash of the context."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.model import Model
from trinity.runtime.generation import Chunk
from trinity.runtime.interface import Engine, Rows
from trinity.runtime.limits import GenerationLimits
from trinity.runtime.options import Request
from trinity.runtime.pages.kv_cache import KVCache
from trinity.runtime.pages.page import COMMON, Domain
from trinity.runtime.pages.page_layout import PartSizes, Window
from trinity.runtime.pages.page_pool import PagePool
from trinity.runtime.sampling.sampling_params import SamplingParams
from trinity.runtime.scheduling.engine_thread import EngineThread
from trinity.runtime.scheduling.inbox import Inbox
from trinity.runtime.scheduling.request_state import RequestState
from trinity_kernels.ops.kv_layout import PAGE

UNK, BOS, EOS, FIRST_BYTE = 0, 1, 2, 3
VOCAB_SIZE = FIRST_BYTE + 256
SPECIAL = {"<s>": BOS, "</s>": EOS}
TEMPLATE = (
    "<s>{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def ids_of(text: str) -> list[int]:
    """Return the byte tokens of a text."""
    return [FIRST_BYTE + byte for byte in text.encode()]


PART_BYTES = PAGE * 8


def part_sizes(window: Window | None = None) -> dict[str, PartSizes]:
    """Return a page's parts: eight bytes per position, in both if there is a window."""
    return dict.fromkeys(("F16", "F32"), PartSizes(PART_BYTES, PART_BYTES if window else 0))


HIDDEN = 1000  # added to the content of hidden tokens


def write(cache: KVCache, tokens: Sequence[int], *, hidden: bool = False) -> None:
    """Append tokens as a step does: reserve space, write both parts, then record the tokens."""
    assert cache.reserve(cache.length + len(tokens)), "no page"
    state = cache._window is not None and cache._window.state
    tables = [cache._table]
    if cache._window is not None and not state:
        tables.append(cache._window_table)
    for place, token in enumerate(tokens, cache.length):
        token += HIDDEN * hidden
        if state:
            _advance(cache._window_table, place, token)
        for table in tables:
            _slots(table, place // PAGE)[place % PAGE] = token
    cache.append(tokens, hidden=hidden)


def held(cache: KVCache) -> list[int]:
    """Return the tokens that a cache's full parts contain."""
    return _tokens(cache._table, 0, cache.length)


def _advance(table: NDArray[np.int64], place: int, token: int) -> None:
    """Advance the state by a token: a hash of all tokens so far, and their number."""
    before = 0
    if place:
        before, count = _slots(table, (place - 1) // PAGE)[:2]
        assert count == place, f"the state stands at {count} where position {place} comes"
    _slots(table, place // PAGE)[:2] = hash((int(before), token)), place + 1


def seen(cache: KVCache, length: int) -> list[int]:
    """Return the tokens in a cache's windowed parts that tokens after the first ``length`` see.

    A state must equal that of all tokens.
    """
    assert cache._window is not None
    if cache._window.state:
        if cache.length:
            state = 0
            for token in held(cache):
                state = hash((state, token))
            slots = _slots(cache._window_table, (cache.length - 1) // PAGE)
            assert list(slots[:2]) == [state, cache.length]
        return []
    start = max(0, length + 1 - cache._window.positions)
    return _tokens(cache._window_table, min(start, cache.length), cache.length)


def _slots(table: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """Return the memory of a page by its address in a table."""
    assert table[number], f"page {number} has no memory"
    memory = (ctypes.c_int64 * PAGE).from_address(int(table[number]))
    return np.frombuffer(memory, np.int64)


def _tokens(table: NDArray[np.int64], start: int, stop: int) -> list[int]:
    pages = [_slots(table, number) for number in range(start // PAGE, -(-stop // PAGE))]
    return [int(token) for page in pages for token in page][start % PAGE :][: stop - start]


def used_bytes(engine: ToyEngine) -> int:
    """Return the bytes of an engine's pool that sequences use."""
    return engine.pool.claimed


class ToyEngine:
    """An engine whose logits depend on every token in the cache, or follow a script.

    It stores the tokens in the cache's pages, eight bytes each, and reads them from there, so a
    page that is wrongly shared, copied or cut changes the logits. ``pages``: their maximum number.
    ``window``, if not 0: how many positions a token sees in windowed parts. ``state``: whether
    there is a recurrent state. ``before_forward`` is called with the tokens of each step; it may
    raise or set an event. ``answer``: the engine continues a prompt of ``answer_at`` tokens with
    this text and EOS.
    """

    def __init__(
        self, *, context_length: int = 64, prefill_chunk: int = 8, pages: int = 1 << 20,
        window: int = 0, state: bool = False,
    ) -> None:  # fmt: skip
        self.config = ModelConfig(
            "toy", 16, 32, 2, 2, 1, 8, VOCAB_SIZE, context_length, 1e-5, name="toy"
        )
        self.context_length = context_length
        self.prefill_chunk = prefill_chunk
        self.few = min(16, prefill_chunk)
        self.encodes = self.drafts = False
        self.other_bytes = 0
        self.threads = 2
        self.isa = "portable"
        self.kv_type = "F16"
        self.closed = False
        self.evaluated: list[list[int]] = []
        self.before_forward: Callable[[list[int]], object] = lambda tokens: None
        self.answer: list[int] | None = None
        self.answer_at = 0
        self.running = 0
        self.loads: list[tuple[str, dict[str, Any]]] = []
        self.adapters: tuple[tuple[str, float], ...] = ()
        self.fingerprint = self.rounding = "toy"
        self._pages = pages
        self._window = Window(window, prefill_chunk) if window else None
        if state:
            self._window = Window(2, prefill_chunk, state=True)
        self.renew_pool()

    def says(self, text: str, after: int) -> None:
        """Continue a prompt of ``after`` tokens with ``text``, then end."""
        self.answer, self.answer_at = ids_of(text), after

    def draft(
        self, cache: KVCache, tokens: Sequence[int], most: int, wants: Callable[[float], bool]
    ) -> list[int]:
        raise AssertionError("a toy model has no layer that proposes tokens")

    def adapter_weights(self, wanted: Mapping[int, float] | None = None) -> tuple[float, ...]:
        assert not wanted
        return ()

    def new_cache(
        self,
        kv_type: str | None = None,
        adapters: tuple[float, ...] | None = None,
        domain: Domain = COMMON,
    ) -> KVCache:
        assert not self.closed
        kind = kv_type or self.kv_type
        return KVCache(self.pool, kind, self.context_length, adapters or (), domain)

    def renew_pool(self) -> None:
        sizes = part_sizes(self._window)
        self.pool = PagePool(sizes, self._pages * sum(sizes["F16"]), self._window)

    def step(
        self, rows: Sequence[Rows], *, exact: bool = False, out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        assert not self.closed
        assert 1 <= sum(len(part.tokens) for part in rows) <= self.prefill_chunk
        assert len({id(part.cache) for part in rows}) == len(rows)
        assert len({part.cache.kv_type for part in rows}) == 1
        wanted = sum(part.logits for part in rows)
        if out is None:
            out = np.empty((wanted, VOCAB_SIZE), np.float32)
        out = out[:wanted]
        assert out.shape == (wanted, VOCAB_SIZE)
        self.running += 1
        try:
            assert self.running == 1, "two steps at once"
            self.before_forward([int(token) for part in rows for token in part.tokens])
            for part in rows:
                self.evaluated.append([int(token) for token in part.tokens])
            at = 0
            for part in rows:
                self._append(part.cache, [int(token) for token in part.tokens])
                tokens = held(part.cache)
                for end in range(len(tokens) - part.logits + 1, len(tokens) + 1):
                    out[at] = self.logits_of(tokens[:end])
                    at += 1
                for place in range(0 if part.states is None else len(part.tokens)):
                    end = len(tokens) - len(part.tokens) + place + 1
                    part.states[place] = self.states_of(tokens[:end])  # type: ignore[index]
        finally:
            self.running -= 1
        return out

    def _append(self, cache: KVCache, tokens: list[int]) -> None:
        start = cache.length
        assert start + len(tokens) <= self.context_length
        assert cache.pool is self.pool
        write(cache, tokens)
        if self._window is not None:
            found = seen(cache, start)
            assert found == held(cache)[cache.length - len(found) :]

    def logits_of(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Logits after a sequence."""
        if self.answer is None:
            digest = hashlib.sha256(repr(list(tokens)).encode()).digest()
            seed = int.from_bytes(digest[:8], "little")
            return np.random.default_rng(seed).standard_normal(VOCAB_SIZE, np.float32) * 3
        logits = np.full(VOCAB_SIZE, -10, np.float32)
        said = len(tokens) - self.answer_at
        logits[self.answer[said] if 0 <= said < len(self.answer) else EOS] = 10
        return logits

    def states_of(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """The hidden state after a sequence."""
        return self.logits_of(tokens)[: self.config.hidden_size]

    def bytes_per_token(self, context: int) -> int:
        return 1000 + context

    def close(self) -> None:
        self.closed = True


class ToyStream:
    """Decodes tokens to text, and holds back the bytes of an incomplete character."""

    def __init__(self) -> None:
        self.pending = b""

    def push(self, token: int) -> str:
        if token >= FIRST_BYTE:
            self.pending += bytes([token - FIRST_BYTE])
        for size in range(len(self.pending), -1, -1):
            try:
                text = self.pending[:size].decode()
            except UnicodeDecodeError:
                continue
            if size == 0 and len(self.pending) >= 4:
                return self.finish()
            self.pending = self.pending[size:]
            return text
        raise AssertionError

    def bytes_of(self, token: int) -> bytes:
        return bytes([token - FIRST_BYTE]) if token >= FIRST_BYTE else b""

    def finish(self) -> str:
        text, self.pending = self.pending.decode(errors="replace"), b""
        return text


class ToyTokenizer:
    """A tokenizer whose tokens are bytes, <s> and </s>."""

    def __init__(self, *, bos: bool = True, chat_template: str | None = TEMPLATE) -> None:
        self.vocab_size = VOCAB_SIZE
        self.bos_id = BOS if bos else None
        self.eos_id = EOS
        self.add_bos, self.add_eos = bos, False
        self.add_space_prefix = False
        self.eog_ids = frozenset({EOS})
        self.chat_template = chat_template
        self.chat_templates: dict[str, str] = {}

    def encode(
        self, text: str, *, add_bos: bool = True, add_eos: bool = False,
        parse_special: bool = False, continuation: bool = False,
    ) -> list[int]:  # fmt: skip
        assert not (add_eos and self.add_eos)
        ids = [BOS] if add_bos and self.add_bos else []
        while text:
            special = next((s for s in SPECIAL if parse_special and text.startswith(s)), None)
            ids += ids_of(text[0]) if special is None else [SPECIAL[special]]
            text = text[1 if special is None else len(special) :]
        return ids

    def encode_whole(self, text: str) -> list[int]:
        return self.encode(text, parse_special=True)

    def inner(self, ids: list[int]) -> list[int]:
        return ids[1:] if self.add_bos and ids[:1] == [BOS] else ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        stream = ToyStream()
        return "".join(stream.push(i) for i in ids) + stream.finish()

    def stream(self, *, skip_special: bool = True) -> ToyStream:
        return ToyStream()

    def bytes_of(self, token: int) -> bytes:
        return ToyStream().bytes_of(token)

    def token_text(self, token: int) -> str:
        named = {number: text for text, number in SPECIAL.items()}
        return named.get(token, "<unk>" if token == UNK else f"<0x{token - FIRST_BYTE:02X}>")

    def pieces(self) -> Iterator[tuple[bytes, bool]]:
        for token in range(VOCAB_SIZE):
            text = self.token_text(token).encode()
            yield (text, False) if self.is_special(token) else (bytes([token - FIRST_BYTE]), True)

    def is_special(self, token: int) -> bool:
        return token < FIRST_BYTE


def chunks_of(
    engine: Engine, prompt: Sequence[int], params: SamplingParams, limits: GenerationLimits,
    tokenizer: object = None, **options: Any,
) -> Iterator[Chunk]:  # fmt: skip
    """Yield the chunks of the response to a prompt, from an engine thread of its own."""
    engine_thread = EngineThread(engine)
    inbox = Inbox()
    answer = RequestState(
        prompt, Request(params, limits, **options), tokenizer or ToyTokenizer(), inbox,  # type: ignore[arg-type]
        vocab_size=engine.config.vocab_size, context_length=engine.context_length,
    )  # fmt: skip
    try:
        engine_thread.submit(answer)
        reason = None
        while reason is None:
            chunk: Chunk = engine_thread.wait(inbox)
            reason = chunk.finish_reason
            yield chunk
    finally:
        engine_thread.cancel(answer)
        engine_thread.abandon()


def toy_model(
    *, context_length: int = 64, prefill_chunk: int = 8, pages: int = 1 << 20, window: int = 0,
    state: bool = False, **tokenizer: object,
) -> tuple[Model, ToyEngine]:  # fmt: skip
    """Make a model of the toys above, and return it with its engine."""
    engine = ToyEngine(
        context_length=context_length,
        prefill_chunk=prefill_chunk,
        pages=pages,
        window=window,
        state=state,
    )
    return Model(engine, ToyTokenizer(**tokenizer)), engine  # type: ignore[arg-type]
