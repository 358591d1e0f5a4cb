"""qwen2 (biases on q, k and v) and qwen3 (norms on the heads of q and k): llama's layer otherwise.

Source: llama.cpp src/models/qwen2.cpp and qwen3.cpp.
"""

from __future__ import annotations

from functools import partial

from trinity.models.architecture import Architecture
from trinity.models.llama import layer

ARCHITECTURES = (
    Architecture(("qwen2",), layer, rope_halves=True),
    Architecture(("qwen3",), partial(layer, head_norms=True), rope_halves=True),
)
