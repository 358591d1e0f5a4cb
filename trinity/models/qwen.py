"""qwen2 (biases on q, k and v) and qwen3 (norms on the heads of q and k): llama's layer otherwise.

Source: llama.cpp src/models/qwen2.cpp and qwen3.cpp.
"""

from __future__ import annotations

from trinity.models.architecture import Architecture
from trinity.models.llama import layer

ARCHITECTURES = (Architecture(("qwen2", "qwen3"), layer, rope_halves=True),)
