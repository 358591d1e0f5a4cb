"""Write the type that llama.cpp's quantizer chooses for each tensor, for models of many shapes.

    pip install . llama-cpp-python
    python tests/goldens/quantize_goldens.py tests/data/quantize_types.json --models MODELS

Every model has the layers, the heads and the row lengths of its kind, but matrices of few rows
only: llama.cpp's rules look at nothing else. It quantizes each of them to every mix, and what its
files say goes into the JSON file, which tests/quantization/test_quantize_types.py compares with. Of
real models it keeps the digests of whole files. A check for developers: it needs nothing but the
two packages, and the tests need only the file.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path

import llama_cpp  # type: ignore[import-not-found,unused-ignore]
import numpy as np

from trinity.formats import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter
from trinity_kernels.ggml import TYPES_BY_NAME

ROWS = 16  # so that no two types take the same bytes
EXPERT_ROWS = 2  # of each of several experts
MIXES = (
    "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_0", "Q4_1", "Q4_K_S", "Q4_K_M", "Q5_0", "Q5_1",
    "Q5_K_S", "Q5_K_M", "Q6_K", "Q8_0", "IQ4_NL", "IQ4_XS", "Q1_0", "Q2_0", "TQ1_0", "TQ2_0",
    "F16", "BF16", "F32",
)  # fmt: skip
EXPERT_MIXES = ("MXFP4",)
FTYPES = {
    mix: getattr(llama_cpp, "LLAMA_FTYPE_ALL_F32" if mix == "F32" else f"LLAMA_FTYPE_MOSTLY_{mix}")
    for mix in MIXES
} | {"MXFP4": llama_cpp.LLAMA_FTYPE_MOSTLY_MXFP4_MOE}
ATTENTION, FEED_FORWARD = ("attn_q", "attn_k", "attn_v", "attn_output"), ("gate", "up", "down")


@dataclass(frozen=True)
class Shape:
    """The properties that llama.cpp's rules depend on."""

    layers: int
    heads: int
    kv_heads: int
    hidden: int = 256
    ffn: int = 512
    tied: bool = False
    arch: str = "llama"
    experts: int = 0

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Return names and shapes in a converter's order."""
        yield "token_embd.weight", (ROWS, self.hidden)
        for layer in range(self.layers):
            yield f"blk.{layer}.attn_norm.weight", (self.hidden,)
            for name in ATTENTION:
                yield f"blk.{layer}.{name}.weight", (ROWS, self.hidden)
            if self.experts:
                yield f"blk.{layer}.ffn_gate_inp.weight", (self.experts, self.hidden)
            for name in FEED_FORWARD:
                columns = self.ffn if name == "down" else self.hidden
                if self.experts:
                    sizes = self.experts, EXPERT_ROWS, columns
                    yield f"blk.{layer}.ffn_{name}_exps.weight", sizes
                else:
                    yield f"blk.{layer}.ffn_{name}.weight", (ROWS, columns)
            yield f"blk.{layer}.attn_q.bias", (self.hidden,)
        yield "output_norm.weight", (self.hidden,)
        if not self.tied:
            yield "output.weight", (ROWS, self.hidden)


SHAPES = {
    "llama-7b": Shape(32, 32, 32),
    "llama-13b": Shape(40, 40, 40),
    "llama-65b": Shape(80, 64, 64),
    "llama2-70b": Shape(80, 64, 8),
    "llama3-8b": Shape(32, 32, 8),
    "llama3.2-1b": Shape(16, 32, 8, tied=True),
    "llama3.2-3b": Shape(28, 24, 8, tied=True),
    "tinyllama-1b": Shape(22, 32, 4),
    "bitnet-2b": Shape(30, 20, 5, tied=True, arch="bitnet"),
    "rows-of-288": Shape(6, 6, 6, hidden=288, ffn=768),
    "rows-of-288-tied": Shape(6, 6, 6, hidden=288, ffn=800, tied=True),
    "rows-of-172": Shape(5, 8, 4, hidden=64, ffn=172, tied=True),
    "mixtral-8x7b": Shape(32, 32, 8, experts=8),
    "qwen3-moe": Shape(48, 32, 4, arch="qwen3moe", experts=16),
    "gpt-oss-20b": Shape(24, 64, 8, arch="gpt-oss", experts=32),
    "experts-of-96": Shape(16, 16, 16, ffn=96, arch="qwen3moe", experts=8),
}


@dataclass(frozen=True)
class Options:
    """The quantizer's options; types have ggml's names."""

    imatrix: bool = False
    pure: bool = False
    output: str | None = None
    embedding: str | None = None
    patterns: list[tuple[str, str]] = field(default_factory=list)


VARIANTS = {
    "imatrix": Options(imatrix=True),
    "pure": Options(pure=True),
    "output": Options(output="Q5_K"),
    "embedding": Options(embedding="Q5_0"),
    "patterns": Options(patterns=[(r"blk\.[0-3]\.attn_v", "q8_0"), ("ffn_(up|gate)", "q2_K"),
                                  ("attn_v", "q5_1"), ("token_embd", "q3_K")]),
}  # fmt: skip
# Real models, and mixes whose quantizers round alike on every machine.
REAL = {
    "stories260K.gguf": ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16", "F32"),
    "llama-2-tiny-random.gguf": ("Q8_0", "F16", "BF16", "F32"),
}
VARIED = ("llama-7b", "llama3.2-1b", "rows-of-288", "qwen3-moe")


def write_model(path: Path, shape: Shape) -> None:
    """Write the model in F16 (vectors in F32)."""
    keys = {
        "general.architecture": shape.arch,
        "vocab_size": ROWS,
        "context_length": 64,
        "embedding_length": shape.hidden,
        "block_count": shape.layers,
        "feed_forward_length": shape.ffn,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": 8,
        "attention.value_length": 8,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": 8,
        "general.file_type": 1,
        "general.name": "shape",
    }
    if shape.experts:
        keys |= {
            "expert_count": shape.experts,
            "expert_used_count": 2,
            "expert_feed_forward_length": shape.ffn,
            "attention.sliding_window": 8,
        }
    rng = np.random.default_rng(0)
    with GGUFWriter(path) as writer:
        for key, value in keys.items():
            writer.add(key if key.startswith("general.") else f"{shape.arch}.{key}", value)
        for name, dims in shape.tensors():
            values = rng.standard_normal(dims)
            kind = "F32" if len(dims) == 1 or "ffn_gate_inp" in name else "F16"
            writer.add_tensor(name, dims, kind, values.astype("<f4" if kind == "F32" else "<f2"))


def quantize(
    source: Path, out: Path, mix: str, options: Options, shape: Shape | None = None
) -> bool:
    """Quantize with llama.cpp; False if it refuses."""
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.nthread = 1
    parameters.ftype = FTYPES[mix]
    parameters.pure = options.pure
    if options.output:
        parameters.output_tensor_type = TYPES_BY_NAME[options.output].id
    if options.embedding:
        parameters.token_embedding_type = TYPES_BY_NAME[options.embedding].id
    by_lower = {name.lower(): row.id for name, row in TYPES_BY_NAME.items()}
    overrides = [(pattern.encode(), by_lower[kind.lower()]) for pattern, kind in options.patterns]
    Override = llama_cpp.llama_model_tensor_override
    table = (Override * (len(overrides) + 1))(*overrides, (None, 0))
    if overrides:
        parameters.tt_overrides = ctypes.cast(table, type(parameters.tt_overrides))
    entries = []
    for name, dims in shape.tensors() if shape else ():
        if len(dims) > 1:
            size = dims[-1] * prod(dims[:-2])
            entries.append((name.encode(), (ctypes.c_float * size)(*([1.0] * size)), size))
    Entry = llama_cpp.llama_model_imatrix_data
    matrix = (Entry * (len(entries) + 1))()
    for i, (name, values, size) in enumerate(entries):
        matrix[i] = Entry(name, ctypes.cast(values, ctypes.POINTER(ctypes.c_float)), size)
    if options.imatrix:
        parameters.imatrix = ctypes.cast(matrix, type(parameters.imatrix))
    status = llama_cpp.llama_model_quantize(
        str(source).encode(), str(out).encode(), ctypes.byref(parameters)
    )
    return bool(status == 0)


def description(out: Path, source: Path) -> dict[str, object]:
    """Return the file's type, and the tensors that do not have the most common type."""
    with GGUFProvider(out) as made, GGUFProvider(source) as given:
        names: dict[str, list[str]] = {}
        for name in made.tensor_names():
            kind = made.tensor(name).type
            if len(given.tensor(name).shape) == 1 or "ffn_gate_inp" in name:
                assert kind == "F32", name
                continue
            names.setdefault(kind, []).append(name.removesuffix(".weight"))
        commonest = max(names, key=lambda kind: len(names[kind]))
        others = {kind: grouped(names[kind]) for kind in sorted(names) if kind != commonest}
        assert made.metadata["general.quantization_version"] == 2
        return {
            "file_type": made.metadata["general.file_type"],
            "most": commonest,
            "others": others,
        }


def grouped(names: list[str]) -> dict[str, str]:
    """Format layers by tensor, such as "0-3,6"; tensors outside layers have none."""
    groups: dict[str, list[int]] = {}
    for name in names:
        if name.startswith("blk."):
            _, layer, tensor = name.split(".")
            groups.setdefault(tensor, []).append(int(layer))
        else:
            groups[name] = []
    return {name: ranges(sorted(layers)) for name, layers in sorted(groups.items())}


def ranges(numbers: list[int]) -> str:
    """Format sorted numbers; runs are written by their ends."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    pairs = zip(starts, ends, strict=True)
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path, help="the JSON file to write")
    parser.add_argument("--models", type=Path, required=True, help="the folder of real models")
    arguments = parser.parse_args()
    path = arguments.out
    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    cases: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "in.gguf", Path(folder) / "out.gguf"
        for name, shape in SHAPES.items():
            write_model(source, shape)
            variants = {"plain": Options()} | (VARIANTS if name in VARIED else {})
            for variant, options in variants.items():
                if options.output and shape.hidden % 256:
                    continue  # llama.cpp ends the process where a type asked for does not fit
                for mix in (*MIXES, *(EXPERT_MIXES if shape.experts else ())):
                    case: dict[str, object] = {"shape": name, "variant": variant, "mix": mix}
                    done = quantize(source, out, mix, options, shape)
                    cases.append(case | (description(out, source) if done else {"refused": True}))
        files: dict[str, dict[str, str]] = {}
        for name, mixes in REAL.items():
            for mix in mixes:
                assert quantize(arguments.models / name, out, mix, Options())
                digest = hashlib.sha256(out.read_bytes()).hexdigest()
                files.setdefault(name, {})[mix] = digest
    document = {
        "made_by": f"tests/goldens/quantize_goldens.py, llama-cpp-python {llama_cpp.__version__}",
        "shapes": {name: asdict(shape) for name, shape in SHAPES.items()},
        "variants": {name: asdict(options) for name, options in VARIANTS.items()},
        "files": files,
        "cases": cases,
    }
    lines = json.dumps(document, separators=(",", ":")).replace('{"shape"', '\n{"shape"')
    path.write_text(lines + "\n", "utf-8")
    print(f"{path}: {len(cases)} cases", file=sys.stderr)


if __name__ == "__main__":
    main()
