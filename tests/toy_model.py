"""An engine and a tokenizer without weights: bytes as tokens, logits from a hash of the context."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.model import Model

UNK, BOS, EOS, FIRST_BYTE = 0, 1, 2, 3
VOCAB_SIZE = FIRST_BYTE + 256
SPECIAL = {"<s>": BOS, "</s>": EOS}
TEMPLATE = (
    "<s>{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def ids_of(text: str) -> list[int]:
    """The byte tokens of a text."""
    return [FIRST_BYTE + byte for byte in text.encode()]


class ToyCache:
    """Remembers the tokens themselves, so that a test can see what the cache holds."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    @property
    def length(self) -> int:
        return len(self.tokens)

    def truncate(self, length: int) -> None:
        assert 0 <= length <= len(self.tokens)
        del self.tokens[length:]


class ToyEngine:
    """Logits that depend on every token in the cache, or on a script of what to say.

    ``before_forward`` is called with the tokens of each step; it may raise or set an event.
    ``answer`` makes the engine continue a prompt of ``answer_at`` tokens with that text and EOS.
    """

    def __init__(self, *, context_length: int = 64, prefill_chunk: int = 8) -> None:
        self.config = ModelConfig(
            "toy", 16, 32, 2, 2, 1, 8, VOCAB_SIZE, context_length, 1e-5, name="toy"
        )
        self.context_length = context_length
        self.prefill_chunk = prefill_chunk
        self.few = min(16, prefill_chunk)
        self.threads = 2
        self.isa = "portable"
        self.closed = False
        self.evaluated: list[list[int]] = []
        self.before_forward: Callable[[list[int]], object] = lambda tokens: None
        self.answer: list[int] | None = None
        self.answer_at = 0
        self.running = 0
        self.loads: list[tuple[str, dict[str, Any]]] = []
        self._buffer = np.empty((prefill_chunk, VOCAB_SIZE), np.float32)

    def says(self, text: str, after: int) -> None:
        """Continue a prompt of ``after`` tokens with ``text``, then end."""
        self.answer, self.answer_at = ids_of(text), after

    def new_cache(self, kv_type: str | None = None) -> ToyCache:
        assert not self.closed
        return ToyCache()

    def forward(
        self, tokens: NDArray[np.int32], cache: ToyCache, *, all_logits: bool = False
    ) -> NDArray[np.float32]:
        assert not self.closed
        assert tokens.dtype == np.int32
        assert 1 <= len(tokens) <= self.prefill_chunk
        assert cache.length + len(tokens) <= self.context_length
        self.running += 1
        try:
            assert self.running == 1, "two calls at once"
            self.before_forward(tokens.tolist())
            self.evaluated.append(tokens.tolist())
            for row, token in enumerate(tokens.tolist()):
                cache.tokens.append(token)
                self._buffer[row] = self.logits_of(cache.tokens)
        finally:
            self.running -= 1
        last = len(tokens)
        return self._buffer[:last] if all_logits else self._buffer[last - 1 : last]

    def forward_few(self, tokens: NDArray[np.int32], cache: ToyCache) -> NDArray[np.float32]:
        assert len(tokens) <= self.few
        return self.forward(tokens, cache, all_logits=True)

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

    def bytes_per_token(self, context: int) -> int:
        return 1000 + context

    def close(self) -> None:
        self.closed = True


class ToyStream:
    """Holds back the bytes of a character until it is complete."""

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
    """Bytes, <s> and </s>."""

    def __init__(self, *, bos: bool = True, chat_template: str | None = TEMPLATE) -> None:
        self.vocab_size = VOCAB_SIZE
        self.bos_id = BOS if bos else None
        self.eos_id = EOS
        self.add_bos, self.add_eos = bos, False
        self.eog_ids = frozenset({EOS})
        self.chat_template = chat_template

    def encode(self, text: str, *, add_bos: bool = True, parse_special: bool = False) -> list[int]:
        ids = [BOS] if add_bos and self.add_bos else []
        while text:
            special = next((s for s in SPECIAL if parse_special and text.startswith(s)), None)
            ids += ids_of(text[0]) if special is None else [SPECIAL[special]]
            text = text[1 if special is None else len(special) :]
        return ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        stream = ToyStream()
        return "".join(stream.push(i) for i in ids) + stream.finish()

    def stream(self, *, skip_special: bool = True) -> ToyStream:
        return ToyStream()

    def token_text(self, token: int) -> str:
        named = {number: text for text, number in SPECIAL.items()}
        return named.get(token, "<unk>" if token == UNK else f"<0x{token - FIRST_BYTE:02X}>")

    def is_special(self, token: int) -> bool:
        return token < FIRST_BYTE


def toy_model(
    *, context_length: int = 64, prefill_chunk: int = 8, **tokenizer: object
) -> tuple[Model, ToyEngine]:
    """A model of the toys above, and its engine."""
    engine = ToyEngine(context_length=context_length, prefill_chunk=prefill_chunk)
    return Model(engine, ToyTokenizer(**tokenizer)), engine  # type: ignore[arg-type]
