"""Small vocabularies as GGUF keys, and changes that damage them."""

from __future__ import annotations

import functools
import random

from scripts.models.make_synthetic import byte_characters
from tests.fuzzing import values
from tests.fuzzing.gguf_draft import ARRAY, BOOL, F32, I32, STRING, U32, Draft, Value, any_value
from trinity.tokenizers.pretokenizers import PRE_TOKENIZERS

PREFIX = "tokenizer.ggml."
WORDS = (
    "\u2581", "t", "h", "e", "a", "o", "n", "\u2581t", "he", "\u2581the", "H", "l", "ll",
    "Hell", "1",
    "\u2581a", "an", "\u2581an", "ab", "b", "!", "?", "\n", "\u0301",
)  # fmt: skip
MERGES = (
    "t h", "h e", "\u0120 t", "\u0120t he", "l l", "H e", "He ll", "Hell o", "a b", "a a", "1 2",
    "\u0120 \u0120", "\u010a \u010a", "' s",
)  # fmt: skip
_SPECIAL_IDS = (
    "bos", "eos", "unknown", "eot", "eom", "padding", "seperator", "fim_pad", "fim_rep", "fim_sep",
)  # fmt: skip
TEMPLATES = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] | upper }}|>{{ m['content'] | trim }}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t ~ m.content %}"
    "{% endfor %}{{ ns.t }}",
)


@functools.cache
def _spm(with_bytes: bool) -> tuple[list[str], list[float], list[int]]:
    tokens, types = ["<unk>", "<s>", "</s>"], [2, 3, 3]
    if with_bytes:
        tokens += [f"<0x{byte:02X}>" for byte in range(256)]
        types += [6] * 256
    scores = [0.0] * len(tokens) + [-float(rank) for rank in range(len(WORDS))]
    return [*tokens, *WORDS], scores, types + [1] * len(WORDS)


@functools.cache
def _bpe() -> tuple[list[str], list[int]]:
    tokens = [*byte_characters(), *(merge.replace(" ", "", 1) for merge in MERGES)]
    types = [1] * len(tokens) + [3, 3, 3, 4]
    return [*tokens, "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|user|>"], types


def add(draft: Draft, rng: random.Random) -> int:
    """Add a valid vocabulary's keys; return the number of tokens."""
    if rng.random() < 0.65:
        tokens, scores, types = _spm(rng.random() < 0.25)
        pairs = [
            ("model", Value(STRING, "llama")),
            ("tokens", Value(ARRAY, list(tokens), STRING)),
            ("scores", Value(ARRAY, list(scores), F32)),
            ("token_type", Value(ARRAY, list(types), I32)),
            ("bos_token_id", Value(U32, 1)),
            ("eos_token_id", Value(U32, 2)),
            ("add_bos_token", Value(BOOL, 1)),
        ]
    else:
        tokens, types = _bpe()
        pairs = [
            ("model", Value(STRING, "gpt2")),
            ("pre", Value(STRING, rng.choice(sorted(PRE_TOKENIZERS)))),
            ("tokens", Value(ARRAY, list(tokens), STRING)),
            ("token_type", Value(ARRAY, list(types), I32)),
            ("merges", Value(ARRAY, list(MERGES), STRING)),
            ("bos_token_id", Value(U32, len(tokens) - 4)),
            ("eos_token_id", Value(U32, len(tokens) - 3)),
        ]
    draft.keys += [(PREFIX + key, value) for key, value in pairs]
    if rng.random() < 0.15:
        draft.keys.append(("tokenizer.chat_template", Value(STRING, rng.choice(TEMPLATES))))
    return len(tokens)


def spoil(draft: Draft, rng: random.Random) -> None:
    """Damage a vocabulary in one place; the number of tokens mostly stays."""
    kind = rng.randrange(12)
    tokens = draft.find(PREFIX + "tokens")
    if kind == 0:
        name = rng.choice(_SPECIAL_IDS)
        width = rng.choice((U32, I32))
        draft.set(f"{PREFIX}{name}_token_id", Value(width, values.integer(rng)))
    elif kind == 1:
        name = rng.choice(("add_bos_token", "add_eos_token", "add_space_prefix"))
        draft.set(PREFIX + name, Value(BOOL, rng.randrange(256)))
    elif kind == 2:
        name = rng.choice(("pre", "model"))
        draft.set(PREFIX + name, Value(STRING, values.text(rng)))
    elif kind == 3:
        keys = [i for i, (key, _) in enumerate(draft.keys) if key.startswith("tokenizer.")]
        if keys:
            del draft.keys[rng.choice(keys)]
    elif kind == 4:
        names = ("tokens", "scores", "token_type", "merges", "model", "pre", "bos_token_id")
        draft.set(PREFIX + rng.choice(names), any_value(rng))
    elif kind == 5:
        draft.set("general.name", Value(STRING, rng.choice(("phi-3", "Phi3 mini", "x"))))
        _retype(draft, rng)
    elif kind == 6:
        merges = draft.find(PREFIX + "merges")
        if merges is not None and isinstance(merges.content, list):
            for _ in range(rng.choice((1, 3, 30))):
                merges.content.insert(rng.randrange(len(merges.content) + 1), _merge(rng))
    elif kind == 7:
        scores = draft.find(PREFIX + "scores")
        if scores is not None and isinstance(scores.content, list) and scores.content:
            for _ in range(rng.choice((1, 10, 300))):
                scores.content[rng.randrange(len(scores.content))] = values.real(rng)
    elif kind == 8:
        _retype(draft, rng)
    elif kind == 9 and tokens is not None and isinstance(tokens.content, list):
        _chain(tokens.content, rng)
    elif tokens is not None and isinstance(tokens.content, list) and tokens.content:
        for _ in range(rng.choice((1, 2, 20))):
            at = rng.randrange(len(tokens.content))
            change = rng.random()
            if change < 0.5:
                tokens.content[at] = values.text(rng)
            elif change < 0.8:
                tokens.content[at] = rng.choice(tokens.content)
            else:
                tokens.content[at] = rng.randbytes(rng.randrange(5))
        if rng.random() < 0.1:
            del tokens.content[rng.randrange(len(tokens.content)) :]


def _retype(draft: Draft, rng: random.Random) -> None:
    types = draft.find(PREFIX + "token_type")
    if types is not None and isinstance(types.content, list) and types.content:
        for _ in range(rng.choice((1, 10, 100))):
            kind = rng.choice((0, 1, 2, 3, 4, 5, 6, 7, -1, 2**31 - 1))
            types.content[rng.randrange(len(types.content))] = kind


def _merge(rng: random.Random) -> str:
    pieces = (
        "a", "b", "ab", "\u0120", "\u0120\u0120", "t", "", " ", "x" * 300, "\u2581", "\U0001f999",
    )  # fmt: skip
    some = rng.choices(pieces, k=rng.choice((1, 2, 2, 3)))
    return rng.choice((" ", " ", " ", "", "  ")).join(some)


def _chain(tokens: list[object], rng: random.Random) -> None:
    """Return tokens that are prefixes of one another, or one very long token."""
    if not tokens:
        return
    at = rng.randrange(len(tokens))
    length = min(len(tokens) - at, rng.choice((8, 64, 250)))
    letter = rng.choice(("a", "\u2581", "\u0120", "ab"))
    for i in range(length):
        tokens[at + i] = letter * (i + 1)
    if rng.random() < 0.2:
        tokens[at] = letter * rng.choice((1000, 10_000, 40_000))
