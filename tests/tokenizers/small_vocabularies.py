"""Small vocabularies as metadata, and the SentencePiece algorithm in plain Python."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from hypothesis import strategies as st

from trinity.providers import open_weights
from trinity.tokenizers import Tokenizer, tokenizer_from_metadata
from trinity.tokenizers.bpe import BYTE_CHARACTERS

Metadata = dict[str, object]

TEXTS = st.one_of(
    st.text(),
    st.text(alphabet="ab <s>/0xAF▁\n\t\0\u00a0é🦙한'1234.,!\u0301"),
    st.lists(
        st.sampled_from(
            [
                "<s>",
                "</s>",
                "<unk>",
                "<0x0A>",
                "<|eot_id|>",
                "  ",
                " the",
                "Hello",
                "é",
                "🦙",
                "\r\n",
            ]
        )
    ).map("".join),
)


def real_metadata(path: Path) -> Metadata:
    """The tokenizer's part of a real file's metadata."""
    with_weights = open_weights(os.fspath(path))
    try:
        found = with_weights.metadata
        return {key: found[key] for key in found if key.startswith(("tokenizer.", "general."))}
    finally:
        with_weights.close()


def spm_metadata(words: Iterable[tuple[str, float, int]] = (), **overrides: object) -> Metadata:
    """<unk>, <s>, </s>, the 256 bytes, then (text, score, type) of ``words``."""
    entries = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    entries += [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
    entries += words or [
        ("▁", -9.0, 1), ("a", -8.0, 1), ("b", -8.5, 1), ("▁a", -1.0, 1), ("ab", -2.0, 1),
        ("▁ab", -3.0, 1), ("ba", -2.0, 1), ("aa", -2.0, 1),
    ]  # fmt: skip
    tokens, scores, types = map(list, zip(*entries, strict=True))
    return with_overrides(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": scores,
            "tokenizer.ggml.token_type": types,
        },
        overrides,
    )


def bpe_metadata(
    merges: Iterable[str] = ("a b", "Ġ a", "Ġa b", "ab ab"),
    words: Iterable[tuple[str, int]] = (),
    **overrides: object,
) -> Metadata:
    """The 256 bytes, what ``merges`` make, then (text, type) of ``words``, then BOS, EOS, EOT."""
    merges = list(merges)
    tokens = [*BYTE_CHARACTERS.values(), *(merge.replace(" ", "", 1) for merge in merges)]
    types = [1] * len(tokens)
    for text, kind in words:
        tokens.append(text)
        types.append(kind)
    tokens += ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
    types += [3, 3, 3]
    return with_overrides(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.bos_token_id": len(tokens) - 3,
            "tokenizer.ggml.eos_token_id": len(tokens) - 2,
        },
        overrides,
    )


def with_overrides(metadata: Metadata, overrides: Mapping[str, object]) -> Metadata:
    """``metadata`` with tokenizer.ggml.KEY replaced, or left out where the value is ``...``."""
    for key, value in overrides.items():
        full = f"tokenizer.{key}" if key.startswith("chat_template") else f"tokenizer.ggml.{key}"
        metadata.pop(full, None)
        if value is not ...:
            metadata[full] = value
    return metadata


def spm(words: Iterable[tuple[str, float, int]] = (), **overrides: object) -> Tokenizer:
    """The tokenizer of ``spm_metadata``."""
    return tokenizer_from_metadata(spm_metadata(words, **overrides))


def bpe(
    merges: Iterable[str] = ("a b", "Ġ a", "Ġa b", "ab ab"),
    words: Iterable[tuple[str, int]] = (),
    **overrides: object,
) -> Tokenizer:
    """The tokenizer of ``bpe_metadata``."""
    return tokenizer_from_metadata(bpe_metadata(merges, words, **overrides))


def reference_spm(tokens: list[str], scores: list[float], text: str) -> list[int]:
    """Ids of ``text`` (without a space prefix), by the rules and no library.

    The adjacent pair whose concatenation is a token with the highest score is merged, the
    leftmost of equals, until none is left; then each symbol is a token or its bytes' tokens.
    """
    ids = {token: i for i, token in enumerate(tokens)}
    symbols: list[str] = list(text.replace(" ", "▁"))
    before = list(range(-1, len(symbols) - 1))
    after = [*range(1, len(symbols)), -1]
    queue: list[tuple[float, int, str]] = []

    def offer(left: int, right: int) -> None:
        if left >= 0 and right >= 0 and symbols[left] + symbols[right] in ids:
            pair = symbols[left] + symbols[right]
            heapq.heappush(queue, (-scores[ids[pair]], left, pair))

    for i in range(len(symbols) - 1):
        offer(i, i + 1)
    while queue:
        _, left, pair = heapq.heappop(queue)
        right = after[left]
        if not symbols[left] or right < 0 or symbols[left] + symbols[right] != pair:
            continue
        symbols[left], symbols[right] = pair, ""
        after[left] = after[right]
        if after[right] >= 0:
            before[after[right]] = left
        offer(before[left], left)
        offer(left, after[left])
    out: list[int] = []
    for symbol in filter(None, symbols):
        if symbol in ids:
            out.append(ids[symbol])
        else:
            out += [ids[f"<0x{byte:02X}>"] for byte in symbol.encode()]
    return out
