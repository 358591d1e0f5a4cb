"""Write an importance matrix from the operands of llama.cpp's products.

For development: needs llama-cpp-python, whose evaluation callback shows every operand. It is cut
into chunks as llama-imatrix cuts a text; every token's logits are computed, in a float32 cache.

    python tests/goldens/llama_cpp_imatrix.py stories260K.gguf tests/data/imatrix_stories260K.npz
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK = 64
TEXT = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    'One day, she saw a big red ball in a tree. Tom said, "I can help you!" and they were happy. '
) * 3
F32 = 0


class Tensor(ctypes.Structure):
    """ggml.h's ggml_tensor, up to its name."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
        ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", ctypes.c_void_p * 10),
        ("view_src", ctypes.c_void_p),
        ("view_offs", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("name", ctypes.c_char * 64),
    )


def tensor(address: int) -> Tensor:
    return ctypes.cast(address, ctypes.POINTER(Tensor)).contents


def gather(path: str) -> dict[str, NDArray[Any]]:
    """Return sums (K,) by the weight's name, and the number of ``tokens`` in them."""
    import llama_cpp as lib

    sums: dict[str, NDArray[Any]] = {}

    def look(address: int, ask: bool, _: object) -> bool:
        product = tensor(address)
        if not product.src[0] or not product.src[1]:
            return False
        weight, x = tensor(product.src[0]), tensor(product.src[1])
        name = weight.name.decode()
        if not name.endswith(".weight") or name[:4] not in ("blk.", "outp") or weight.ne[1] == 1:
            return False
        if not ask:
            k, rows = x.ne[0], x.ne[1]
            assert (x.type, x.nb[0], x.nb[1]) == (F32, 4, 4 * k), name
            pointer = ctypes.cast(x.data, ctypes.POINTER(ctypes.c_float))
            values = np.ctypeslib.as_array(pointer, (rows, k)).astype(np.float64)
            sums[name] = sums.get(name, np.zeros(k)) + (values**2).sum(axis=0)
        return True

    callback = lib.ggml_backend_sched_eval_callback(look)
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    options = lib.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = CHUNK
    options.type_k = options.type_v = F32
    options.cb_eval = callback
    context = lib.llama_init_from_model(model, options)
    vocabulary = lib.llama_model_get_vocab(model)
    found = (lib.llama_token * (len(TEXT) + 8))()
    text = TEXT.encode()
    count = lib.llama_tokenize(vocabulary, text, len(text), found, len(found), True, False)
    tokens = np.array(found[: count // CHUNK * CHUNK], np.int32).reshape(-1, CHUNK)
    if lib.llama_vocab_get_add_bos(vocabulary):
        tokens[:, 0] = lib.llama_vocab_bos(vocabulary)
    batch = lib.llama_batch_init(CHUNK, 0, 1)
    for window in tokens:
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        batch.n_tokens = CHUNK
        for i, token in enumerate(window.tolist()):
            batch.token[i], batch.pos[i], batch.logits[i] = token, i, 1
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        if lib.llama_decode(context, batch) != 0:
            raise SystemExit("llama.cpp could not evaluate a chunk")
    floats = {name: values.astype(np.float32) for name, values in sums.items()}
    return {"tokens": tokens, **floats}


if __name__ == "__main__":
    np.savez_compressed(sys.argv[2], **gather(sys.argv[1]))
