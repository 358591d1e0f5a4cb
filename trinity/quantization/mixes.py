"""The names of mixes, for whole models, and of types, for single tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from trinity.errors import InputError
from trinity.formats.gguf_types import is_type_of_gguf
from trinity_kernels.quantizers import WRITABLE


@dataclass(frozen=True, slots=True)
class QuantizationMix:
    """A mix of types; ``base`` is the type of most tensors.

    ``file_type`` is the value of general.file_type: llama.cpp's llama_ftype, and bitnet.cpp's 40
    for I2_S.
    """

    name: str
    base: str
    file_type: int


_ROWS = (
    ("Q2_K", "Q2_K", 10), ("Q3_K_S", "Q3_K", 11), ("Q3_K_M", "Q3_K", 12), ("Q3_K_L", "Q3_K", 13),
    ("Q4_0", "Q4_0", 2), ("Q4_1", "Q4_1", 3), ("Q4_K_S", "Q4_K", 14), ("Q4_K_M", "Q4_K", 15),
    ("Q5_0", "Q5_0", 8), ("Q5_1", "Q5_1", 9), ("Q5_K_S", "Q5_K", 16), ("Q5_K_M", "Q5_K", 17),
    ("Q6_K", "Q6_K", 18), ("Q8_0", "Q8_0", 7), ("IQ4_NL", "IQ4_NL", 25), ("IQ4_XS", "IQ4_XS", 30),
    ("MXFP4", "MXFP4", 38), ("Q1_0", "Q1_0", 40), ("Q2_0", "Q2_0", 41),
    ("TQ1_0", "TQ1_0", 36), ("TQ2_0", "TQ2_0", 37), ("I2_S", "I2_S", 40),
    ("F16", "F16", 1), ("BF16", "BF16", 32), ("F32", "F32", 0),
)  # fmt: skip
MIXES: dict[str, QuantizationMix] = {row[0]: QuantizationMix(*row) for row in _ROWS}
ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}

PLAIN = ("F32", "F16", "BF16")
_NOT_FOR_WEIGHTS = {
    "I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K", "Q2_0_G128", "PQ2_0", "PTQ1_0"
}  # fmt: skip
# I2_S is quantized separately: its one scale needs the whole tensor, not a row.
TENSOR_TYPES: tuple[str, ...] = tuple(
    sorted(name for name in WRITABLE - _NOT_FOR_WEIGHTS | {"I2_S"} if is_type_of_gguf(name))
)


def find_mix(name: str, option: str = "type") -> QuantizationMix:
    """Return the mix of that name, ignoring case. Raises InputError with similar names."""
    given = ALIASES.get(name.upper(), name.upper())
    if given not in MIXES:
        raise _unknown(option, name, [*MIXES, *ALIASES])
    return MIXES[given]


def find_tensor_type(name: str, option: str) -> str:
    """Return ggml's name of a type that trinity can write, ignoring case. Raises InputError."""
    given = name.upper()
    if given in TENSOR_TYPES:
        return given
    if given in MIXES:
        raise InputError(
            f"{option}: {given} is a mix of types for a whole model; a tensor has one type; use "
            f"{MIXES[given].base}"
        )
    raise _unknown(option, name, TENSOR_TYPES)


def _unknown(what: str, name: str, known: Sequence[str]) -> InputError:
    near = get_close_matches(name.upper(), known, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return InputError(
        f"{what} is {name!r:.40}; it must be one of {', '.join(sorted(known))}.{hint}"
    )
