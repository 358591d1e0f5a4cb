"""The type of a model in one word: the mix named in its file, if that is plausible."""

from __future__ import annotations

from collections import Counter

from trinity.formats.provider import WeightProvider

# general.file_type: the mix, and a ggml type that such a file contains. Source: llama.cpp, enum
# llama_ftype of include/llama.h, and the type that its quantizer gives most tensors.
FILE_TYPES: dict[int, tuple[str, str]] = {
    0: ("F32", "F32"), 1: ("F16", "F16"), 2: ("Q4_0", "Q4_0"), 3: ("Q4_1", "Q4_1"),
    7: ("Q8_0", "Q8_0"), 8: ("Q5_0", "Q5_0"), 9: ("Q5_1", "Q5_1"), 10: ("Q2_K", "Q2_K"),
    11: ("Q3_K_S", "Q3_K"), 12: ("Q3_K_M", "Q3_K"), 13: ("Q3_K_L", "Q3_K"),
    14: ("Q4_K_S", "Q4_K"), 15: ("Q4_K_M", "Q4_K"), 16: ("Q5_K_S", "Q5_K"),
    17: ("Q5_K_M", "Q5_K"), 18: ("Q6_K", "Q6_K"), 19: ("IQ2_XXS", "IQ2_XXS"),
    20: ("IQ2_XS", "IQ2_XS"), 21: ("Q2_K_S", "Q2_K"), 22: ("IQ3_XS", "IQ3_S"),
    23: ("IQ3_XXS", "IQ3_XXS"), 24: ("IQ1_S", "IQ1_S"), 25: ("IQ4_NL", "IQ4_NL"),
    26: ("IQ3_S", "IQ3_S"), 27: ("IQ3_M", "IQ3_S"), 28: ("IQ2_S", "IQ2_XS"),
    29: ("IQ2_M", "IQ2_S"), 30: ("IQ4_XS", "IQ4_XS"), 31: ("IQ1_M", "IQ1_M"),
    32: ("BF16", "BF16"), 36: ("TQ1_0", "TQ1_0"), 37: ("TQ2_0", "TQ2_0"),
    38: ("MXFP4", "MXFP4"), 39: ("NVFP4", "NVFP4"), 40: ("Q1_0", "Q1_0"), 41: ("Q2_0", "Q2_0"),
    # PrismML's.
    141: ("PQ2_0", "PQ2_0"), 143: ("PTQ1_0", "PTQ1_0"),
}  # fmt: skip
_GUESSED = 1024  # added if no converter wrote the number
_FLOATS = frozenset({"F32", "F16", "BF16"})


def file_type(provider: WeightProvider) -> str | None:
    """Return the mix that the file names, unless its tensors contradict it, or their usual type.

    That is the type with the most bytes. Float types only count if there are no others, so that an
    unquantized embedding does not name a file. None without tensors.
    """
    sizes: Counter[str] = Counter()
    for tensor in map(provider.tensor, provider.tensor_names()):
        sizes[tensor.type] += tensor.nbytes
    said = provider.metadata.get("general.file_type")
    name, base = "", ""
    if isinstance(said, int):
        name, base = FILE_TYPES.get(said & ~_GUESSED, ("", ""))
    quantized = Counter({type: size for type, size in sizes.items() if type not in _FLOATS})
    if base in sizes and (base not in _FLOATS or not quantized):
        return name
    return next((type for type, _ in (quantized or sizes).most_common(1)), None)
