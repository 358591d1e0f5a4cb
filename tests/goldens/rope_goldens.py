"""Write tests/data/rope_options.npz: llama.cpp's logits with rotary options and replaced keys.

    pip install llama-cpp-python gguf
    python tests/goldens/rope_goldens.py

The model is tests/data/stories260K with its weights in float32.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import gguf  # type: ignore[import-not-found,unused-ignore]
import llama_cpp as lib  # type: ignore[import-not-found,unused-ignore]
import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tests.runtime.rope_cases import CASES, LENGTH, OVERRIDES, TOKENS  # noqa: E402

MODEL = ROOT / "tests" / "data" / "stories260K" / "Q4_0.gguf"
KINDS = {None: -1, "none": 0, "linear": 1, "yarn": 2}  # enum llama_rope_scaling_type
VALUES = {int: (0, "val_i64"), float: (1, "val_f64"), bool: (2, "val_bool"), str: (3, "val_str")}


def in_float32(path: Path) -> None:
    """Write the model with float32 weights."""
    reader = gguf.GGUFReader(MODEL)
    writer = gguf.GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind, element = field.types[0], field.types[-1]
            writer.add_key_value(field.name, field.contents(), kind, element)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logits(path: Path, options: dict[str, Any], keys: dict[str, Any]) -> NDArray[np.float32]:
    """The logits after each of TOKENS."""
    parameters = lib.llama_model_default_params()
    parameters.use_extra_bufts = False
    overrides = (lib.llama_model_kv_override * (len(keys) + 1))()
    for place, (key, value) in enumerate(keys.items()):
        tag, member = VALUES[type(value)]
        overrides[place].tag, overrides[place].key = tag, key.encode()
        setattr(overrides[place].value, member, value.encode() if tag == 3 else value)
    if keys:
        parameters.kv_overrides = overrides
    model = lib.llama_model_load_from_file(os.fsencode(path), parameters)
    chosen = lib.llama_context_default_params()
    chosen.n_ctx = chosen.n_batch = chosen.n_ubatch = LENGTH
    chosen.n_threads = chosen.n_threads_batch = 1
    chosen.type_k = chosen.type_v = 0  # F32
    chosen.flash_attn_type = 0
    for name, value in options.items():
        if name == "rope_scaling":
            chosen.rope_scaling_type = KINDS[value]
        elif name == "rope_scale":
            chosen.rope_freq_scale = 1 / value
        else:
            setattr(chosen, name, value)
    context = lib.llama_init_from_model(model, chosen)
    batch = lib.llama_batch_init(len(TOKENS), 0, 1)
    batch.n_tokens = len(TOKENS)
    for place, token in enumerate(TOKENS):
        batch.token[place], batch.pos[place], batch.n_seq_id[place] = token, place, 1
        batch.seq_id[place][0], batch.logits[place] = 0, 1
    assert lib.llama_decode(context, batch) == 0
    size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    found = np.ctypeslib.as_array(lib.llama_get_logits(context), (len(TOKENS), size)).copy()
    lib.llama_free(context)
    lib.llama_model_free(model)
    return found[len(TOKENS) // 2 :: 5]  # some are enough


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f32.gguf"
        in_float32(path)
        results = {name: logits(path, options, {}) for name, options in CASES.items()}
        results |= {name: logits(path, {}, keys) for name, (_, keys) in OVERRIDES.items()}
    np.savez_compressed(ROOT / "tests" / "data" / "rope_options.npz", **results)  # type: ignore[arg-type]
