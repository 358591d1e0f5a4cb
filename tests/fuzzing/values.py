"""Extreme and odd values: numbers at the limits of types, unusual texts."""

from __future__ import annotations

import random
import struct

INTEGERS = (
    *(0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 257, 1000),
    *(4096, 65535, 65536, 65537, 2**20, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**53),
    *(2**61, 2**62, 2**63 - 3, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 32, 2**64 - 9, 2**64 - 8),
    *(2**64 - 1, -1, -2, -128, -(2**31), -(2**63)),
)
REALS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-45, 1e-38, 1.2e-38, 1e-10, 1e-5, 0.1, 0.999999, 1.000001),
    *(10.0, 1e4, 65504.0, 65536.0, 1e6, 1e15, 1e16, 1e30, 3.4e38, 1e308, -1e30, -3.4e38),
    *(float("inf"), float("-inf"), float("nan")),
)
TEXTS = (
    "", " ", "\0", "\x1b[31m", "\n", "\u2581", "a", "ab", "<s>", "</s>", "<unk>", "<0x0A>",
    "<0xZZ>",
    "<|eot_id|>", "llama", "gpt2", "bert", "none", "linear", "yarn", "longrope", "default",
    "llama-bpe", "\u0120", "\u0120\u0120", "\U0001f999", "\u202e", "e\u0301", "\ud7ff", "{{",
    "{% if",
    "x" * 64, "y" * 5000, "\u2581" * 300, "../../etc/passwd", "%s%n", "inf", "nan", "-1",
)  # fmt: skip
PIECES = (
    " ", "  ", "\n", "\t", "the", " the", "Hello", "1234567", "<s>", "</s>", "<|eot_id|>", "<0x0A>",
    "\u2581", "e\u0301", "\U0001f999", "\ud55c", "\0", "a", "b", "ab", "aab", "'s", "\r\n",
    "\u00a0", "!?",
)  # fmt: skip


def integer(rng: random.Random) -> int:
    """Draw a limit of a type, a number beside one, or any number."""
    kind = rng.random()
    if kind < 0.7:
        return rng.choice(INTEGERS)
    if kind < 0.9:
        return rng.choice(INTEGERS) + rng.choice((-1, 1))
    return rng.randrange(-300, 1 << rng.randrange(1, 65))


def real(rng: random.Random) -> float:
    """Draw a limit, or any 32 bits as a float."""
    if rng.random() < 0.8:
        return rng.choice(REALS)
    value: float = struct.unpack("<f", rng.randbytes(4))[0]
    return value


def text(rng: random.Random) -> str:
    """Draw an extreme text, or some parts."""
    if rng.random() < 0.6:
        return rng.choice(TEXTS)
    return "".join(rng.choices(PIECES, k=rng.randrange(1, 12)))


def prose(rng: random.Random) -> str:
    """Draw an ordinary text to tokenize."""
    kind = rng.random()
    if kind < 0.1:
        return rng.choice(PIECES) * rng.choice((1, 50, 400))
    if kind < 0.2:
        return "".join(chr(rng.randrange(1, 0xD7FF)) for _ in range(rng.randrange(20)))
    return "".join(rng.choices(PIECES, k=rng.randrange(0, 24)))
