"""Load GGUF files in llama.cpp and evaluate a few tokens of each.

    python tests/goldens/llama_cpp_loads.py < requests.jsonl

Needs llama-cpp-python and NumPy, and nothing of this project. Each line of standard input is an
object: {"path": FILE, "ids": [tokens], "out": FILE.npy}. llama.cpp's result goes to ``out``: with
"embed": true the text's vector (size,) as the model file pools it, else the logits
(tokens, vocabulary). Each answer on standard output is a line {"path", "error"}, in the same order;
"error" is null, or what llama.cpp said last. A process of its own takes each file, because
llama.cpp aborts at some.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

import llama_cpp  # type: ignore[import-not-found,unused-ignore]
import numpy as np

CONTEXT = 1024  # tokens


def evaluate(request: dict[str, Any]) -> None:
    """Write the result of a request. Raises RuntimeError if llama.cpp refuses the file."""
    parameters = llama_cpp.llama_model_default_params()
    parameters.n_gpu_layers = 0
    parameters.use_extra_bufts = False  # no AMX, which emulated machines trap
    model = llama_cpp.llama_model_load_from_file(os.fsencode(request["path"]), parameters)
    if not model:
        raise RuntimeError("llama.cpp does not load the file")
    embeds, ids = bool(request.get("embed")), request["ids"]
    options = llama_cpp.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = CONTEXT
    options.n_threads = options.n_threads_batch = 1
    options.embeddings = embeds
    options.type_k = options.type_v = 0  # F32
    options.flash_attn_type = 0
    context = llama_cpp.llama_init_from_model(model, options)
    if not context:
        raise RuntimeError("llama.cpp makes no context")
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for place, token in enumerate(ids):
        batch.token[place], batch.pos[place], batch.n_seq_id[place] = token, place, 1
        batch.seq_id[place][0], batch.logits[place] = 0, 1
    if status := llama_cpp.llama_decode(context, batch):
        raise RuntimeError(f"llama_decode returns {status}")
    if embeds:
        found = llama_cpp.llama_get_embeddings_seq(context, 0)
        shape: tuple[int, ...] = (llama_cpp.llama_model_n_embd_out(model),)
    else:
        found = llama_cpp.llama_get_logits(context)
        vocab = llama_cpp.llama_model_get_vocab(model)
        shape = (len(ids), llama_cpp.llama_vocab_n_tokens(vocab))
    if not found:
        raise RuntimeError("llama.cpp gives no result")
    np.save(request["out"], np.ctypeslib.as_array(found, shape).copy())


def in_a_process(request: dict[str, Any]) -> str | None:
    """Run ``evaluate`` in a process; return its error, or None."""
    with tempfile.TemporaryFile() as log:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                evaluate(request)
                status = 0
            except BaseException as error:
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            return None
        log.seek(0)
        lines = log.read().decode(errors="replace").strip().splitlines()
    said = [line for line in lines if "rror" in line or "ASSERT" in line or "fail" in line]
    return " | ".join(said[-3:])[:500] or f"ended with {status}"


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps({"path": asked["path"], "error": in_a_process(asked)}), flush=True)
