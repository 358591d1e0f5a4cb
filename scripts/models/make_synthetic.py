"""Write a model of a well-known shape with random weights, to measure speed and memory with.

    python scripts/models/make_synthetic.py bitnet-2b out.gguf --type I2_S --vocab llama-bpe.gguf
    python scripts/models/make_synthetic.py llama-1b out.gguf --type Q4_0 --head-type Q8_0
    python scripts/models/make_synthetic.py qwen3-30b-a3b-8l out.gguf

Blocks are random bytes, freshly drawn for every tensor, with scales that keep activations near
unit size; the text that such a model writes means nothing. bitnet-2b has the keys and tensors
of BitNet b1.58 2B-4T, in their order; llama-1b those of Llama 3.2 1B; qwen3-30b-a3b-8l and
gpt-oss-20b-4l are models with experts, cut to 8 and 4 layers. llama.cpp runs the first as
architecture bitnet, and has no I2_S:

    python scripts/models/make_synthetic.py bitnet-2b out.gguf --arch bitnet --type TQ2_0
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import floor, log2, prod, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trinity.errors import TrinityError
from trinity.formats import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter
from trinity_kernels.quants import TYPES, QuantType

CHUNK_BYTES = 4 << 20
MERGES_PER_WORD = 280_147 / 127_744  # Llama 3's
MOST_MERGES = 1 << 19
# general.file_type of llama.cpp, and of bitnet.cpp for I2_S.
FILE_TYPES = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10,
    "Q3_K": 12, "Q4_K": 15, "Q5_K": 17, "Q6_K": 18, "IQ2_XXS": 19, "IQ2_XS": 20, "IQ3_XXS": 23,
    "IQ1_S": 24, "IQ4_NL": 25, "IQ3_S": 26, "IQ2_S": 28, "IQ4_XS": 30, "IQ1_M": 31, "BF16": 32,
    "TQ1_0": 36, "TQ2_0": 37, "MXFP4": 38, "NVFP4": 39, "I2_S": 40, "I2_S_ARM": 40, "Q1_0": 40,
    "Q2_0": 41,
}  # fmt: skip


@dataclass(frozen=True)
class Experts:
    """``used`` of ``count`` experts of width ``size``."""

    count: int
    used: int
    size: int


@dataclass(frozen=True)
class Shape:
    """Sizes of a model.

    ``dense_type``: of layers' linears beside experts, where not theirs. ``keys``: what the family's
    metadata has beside the usual ones, without the architecture's name.
    """

    arch: str
    name: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    context_length: int
    rope_theta: float
    default_type: str
    experts: Experts | None = None
    dense_type: str | None = None
    keys: Mapping[str, object] = field(default_factory=dict)


SHAPES = {
    "bitnet-2b": Shape(
        "bitnet-b1.58", "bitnet2b", 2560, 6912, 30, 20, 5, 128, 128_256, 4096, 5e5, "I2_S"
    ),
    "llama-1b": Shape(
        "llama", "llama-1b", 2048, 8192, 16, 32, 8, 64, 128_256, 131_072, 5e5, "Q4_0"
    ),
    "llama-100m": Shape("llama", "llama-100m", 768, 2048, 12, 12, 4, 64, 32_000, 4096, 1e4, "Q4_0"),
    "qwen3-30b-a3b-8l": Shape(
        "qwen3moe", "qwen3-30b-a3b-8l", 2048, 6144, 8, 32, 4, 128, 151_936, 40_960, 1e6, "Q4_0",
        Experts(128, 8, 768),
    ),
    "gpt-oss-20b-4l": Shape(
        "gpt-oss", "gpt-oss-20b-4l", 2880, 2880, 4, 64, 8, 64, 201_088, 131_072, 1.5e5, "MXFP4",
        Experts(32, 4, 2880), "Q8_0",
        {"attention.sliding_window": 128, "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0,
         "rope.scaling.original_context_length": 4096},
    ),
    "qwen3-0.6b": Shape(
        "qwen3", "qwen3-0.6b", 1024, 3072, 28, 16, 8, 128, 151_936, 40_960, 1e6, "Q4_0"
    ),
    "gemma3-1b": Shape(
        "gemma3", "gemma3-1b", 1152, 6912, 26, 4, 1, 256, 262_144, 32_768, 1e6, "Q4_0",
        keys={"attention.sliding_window": 512},
    ),
    "phi4-mini-16l": Shape(
        "phi3", "phi4-mini-16l", 3072, 8192, 16, 24, 8, 128, 200_064, 131_072, 1e4, "Q4_0",
        keys={"rope.dimension_count": 96, "rope.scaling.original_context_length": 4096,
              "rope.scaling.attn_factor": 1.19},
    ),
    "qwen35-0.8b": Shape(
        "qwen35", "qwen35-0.8b", 1024, 3584, 24, 8, 2, 256, 248_320, 262_144, 1e7, "Q4_0",
        keys={"rope.dimension_count": 64,
              "rope.dimension_sections": np.array([11, 11, 10, 0], np.int32),
              "full_attention_interval": 4, "ssm.conv_kernel": 4, "ssm.state_size": 128,
              "ssm.group_count": 16, "ssm.time_step_rank": 16, "ssm.inner_size": 2048},
    ),
    "tiny": Shape("llama", "tiny", 256, 512, 2, 4, 2, 64, 512, 512, 1e4, "Q4_0"),
    "tiny-experts": Shape(
        "qwen3moe", "tiny-experts", 256, 512, 2, 4, 2, 64, 512, 512, 1e4, "Q4_0",
        Experts(8, 2, 128),
    ),
}  # fmt: skip


# --- weights -------------------------------------------------------------------------------------


def ternary_bytes(type_name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the valid byte values of a ternary type's codes, for qs and for qh."""
    if type_name == "TQ1_0":
        trits = np.arange(243)
        packed = ((trits * 256 + 242) // 243).astype(np.uint8)
        return packed, packed[::3]
    fields = itertools.product(range(3), repeat=4)
    packed = np.array([a << 6 | b << 4 | c << 2 | d for a, b, c, d in fields], np.uint8)
    return packed, packed


def random_blocks(quant: QuantType, count: int, rms: float, rng: np.random.Generator) -> bytes:
    """Return ``count`` valid blocks whose values have that root mean square."""
    fields = quant.block.names or ()
    if fields == ("x",):  # plain floats
        values = rng.random((count, quant.block_size), np.float32)
        values = (values * 2 - 1) * np.float32(rms * sqrt(3))
        return quant.quantize(values).tobytes()
    if quant.ternary:
        blocks = np.empty(count, quant.block)
        for field, valid in zip(("qs", "qh"), ternary_bytes(quant.name), strict=True):
            if field in fields:
                size = blocks[field].size
                drawn = valid[rng.integers(0, len(valid), size, np.uint8)]
                blocks[field] = drawn.reshape(blocks[field].shape)
        if "d" in fields:
            blocks["d"] = rms * sqrt(1.5)
        return blocks.tobytes()
    blocks = np.frombuffer(bytearray(rng.bytes(count * quant.type_size)), quant.block)
    if quant.name == "Q8_0":
        np.maximum(blocks["qs"], -127, out=blocks["qs"])  # as the quantizer never writes -128
    if "e" in fields:  # the exponent of 2
        blocks["e"] = 128
        wanted = rms / float(values_of(quant, blocks).std())
        low = floor(log2(wanted))
        # Of two neighbouring powers of 2 as many each as give that mean square.
        share = ((wanted / 2.0**low) ** 2 - 1) / 3
        blocks["e"] = 128 + low + (rng.random(count) < share)
    elif "d" not in fields:
        set_packed_scale(quant, blocks, rms)
    else:
        # Some spread, so that no two blocks need have the same scale.
        scales = rng.uniform(0.8, 1.2, count).astype(np.float32)
        least = next((name for name in ("m", "dmin") if name in fields), None)
        ratio = 0.0
        if least:
            blocks["d"], blocks[least] = 1, 0
            mean = float(values_of(quant, blocks).mean())
            blocks["d"], blocks[least] = 0, 1
            ratio = -mean / float(values_of(quant, blocks).mean())
            blocks[least] = ratio
        blocks["d"] = 1
        scales *= rms / float(values_of(quant, blocks).std())
        blocks["d"] = scales
        if least:
            blocks[least] = scales * ratio
    return blocks.tobytes()


def values_of(quant: QuantType, blocks: NDArray[np.void]) -> NDArray[np.float32]:
    """Decode some of the blocks."""
    sample = blocks[:256]
    return quant.dequantize(sample.view(np.uint8), (len(sample) * quant.block_size,))


def set_packed_scale(quant: QuantType, blocks: NDArray[np.void], rms: float) -> None:
    """Set the packed scales: NVFP4 a byte per group, IQ1_M the upper four bits of four words."""
    if quant.name == "NVFP4":
        blocks["scales"] = 0x38  # 1, halved
        blocks["scales"] = max(1, round(rms / float(values_of(quant, blocks).std()) * 512))
        return
    words = blocks["scales"].view("<u2").reshape(len(blocks), 4)

    def write(scale: float) -> None:
        bits = int(np.array(scale, np.float16).view(np.uint16))
        for i in range(4):
            words[:, i] = (words[:, i] & 0x0FFF) | (bits >> 4 * i & 15) << 12

    write(1.0)
    write(rms / float(values_of(quant, blocks).std()))


def random_tensor(
    quant: QuantType, shape: tuple[int, ...], rms: float, rng: np.random.Generator
) -> Iterator[bytes]:
    """Yield the tensor's bytes in chunks."""
    count = prod(shape) // quant.block_size
    step = max(1, CHUNK_BYTES // quant.type_size)
    for start in range(0, count, step):
        yield random_blocks(quant, min(step, count - start), rms, rng)
    if quant.tensor_scale:
        tail = np.zeros(8, "<f4")
        tail[0] = rms * sqrt(1.5)
        yield tail.tobytes()


def tensor_plan(
    shape: Shape, type_name: str, embedding_type: str, head_type: str | None
) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Return name, shape and type of every tensor, in file order."""
    yield "token_embd.weight", (shape.vocab_size, shape.hidden_size), embedding_type
    attn, kv = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    hidden, ffn = shape.hidden_size, shape.intermediate_size
    is_bitnet, is_gpt_oss = shape.arch.startswith("bitnet"), shape.arch == "gpt-oss"
    is_gemma3, is_phi3 = shape.arch == "gemma3", shape.arch == "phi3"
    expert_type, type_name = type_name, shape.dense_type or type_name
    for layer in range(shape.num_layers):
        prefix = f"blk.{layer}."
        yield f"{prefix}attn_norm.weight", (hidden,), "F32"
        if shape.arch == "qwen35":
            yield from qwen35_tensors(shape, layer, prefix, type_name)
            continue
        if is_phi3:
            yield f"{prefix}attn_qkv.weight", (attn + 2 * kv, hidden), type_name
        else:
            yield f"{prefix}attn_q.weight", (attn, hidden), type_name
            yield f"{prefix}attn_k.weight", (kv, hidden), type_name
            yield f"{prefix}attn_v.weight", (kv, hidden), type_name
        if is_bitnet:
            yield f"{prefix}attn_sub_norm.weight", (attn,), "F32"
        if is_gemma3 or shape.arch.startswith("qwen3"):
            yield f"{prefix}attn_q_norm.weight", (shape.head_dim,), "F32"
            yield f"{prefix}attn_k_norm.weight", (shape.head_dim,), "F32"
        if is_gpt_oss:
            yield f"{prefix}attn_sinks.weight", (shape.num_heads,), "F32"
            for name, size in {"q": attn, "k": kv, "v": kv, "output": hidden}.items():
                yield f"{prefix}attn_{name}.bias", (size,), "F32"
        yield f"{prefix}attn_output.weight", (hidden, attn), type_name
        if is_gpt_oss or is_gemma3:
            yield f"{prefix}post_attention_norm.weight", (hidden,), "F32"
        if not is_gpt_oss:
            yield f"{prefix}ffn_norm.weight", (hidden,), "F32"
        if shape.experts is not None:
            yield from expert_tensors(shape, shape.experts, prefix, expert_type)
            continue
        if is_phi3:
            yield f"{prefix}ffn_up.weight", (2 * ffn, hidden), type_name
        else:
            yield f"{prefix}ffn_gate.weight", (ffn, hidden), type_name
            yield f"{prefix}ffn_up.weight", (ffn, hidden), type_name
        if is_bitnet:
            yield f"{prefix}ffn_sub_norm.weight", (ffn,), "F32"
        yield f"{prefix}ffn_down.weight", (hidden, ffn), type_name
        if is_gemma3:
            yield f"{prefix}post_ffw_norm.weight", (hidden,), "F32"
    if is_phi3:
        rotated = shape.keys["rope.dimension_count"]
        assert isinstance(rotated, int)
        for name in ("long", "short"):
            yield f"rope_factors_{name}.weight", (rotated // 2,), "F32"
    yield "output_norm.weight", (hidden,), "F32"
    if head_type is not None:
        yield "output.weight", (shape.vocab_size, hidden), head_type


def qwen35_tensors(
    shape: Shape, layer: int, prefix: str, type_name: str
) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Return a layer's tensors: gated delta rule or every fourth gated attention, feed-forward."""
    hidden, ffn, dim = shape.hidden_size, shape.intermediate_size, shape.head_dim
    sizes = [shape.keys[f"ssm.{key}"] for key in ("inner_size", "state_size", "time_step_rank")]
    inner, state, heads = (size for size in sizes if isinstance(size, int))
    groups, taps = shape.keys["ssm.group_count"], shape.keys["ssm.conv_kernel"]
    assert isinstance(groups, int)
    assert isinstance(taps, int)
    channels = inner + 2 * groups * state
    if layer % 4 == 3:
        yield f"{prefix}attn_q.weight", (2 * shape.num_heads * dim, hidden), type_name
        yield f"{prefix}attn_k.weight", (shape.num_kv_heads * dim, hidden), type_name
        yield f"{prefix}attn_v.weight", (shape.num_kv_heads * dim, hidden), type_name
        yield f"{prefix}attn_q_norm.weight", (dim,), "F32"
        yield f"{prefix}attn_k_norm.weight", (dim,), "F32"
        yield f"{prefix}attn_output.weight", (hidden, shape.num_heads * dim), type_name
    else:
        yield f"{prefix}attn_qkv.weight", (channels, hidden), type_name
        yield f"{prefix}attn_gate.weight", (inner, hidden), type_name
        yield f"{prefix}ssm_beta.weight", (heads, hidden), type_name
        yield f"{prefix}ssm_alpha.weight", (heads, hidden), type_name
        yield f"{prefix}ssm_conv1d.weight", (channels, taps), "F32"
        yield f"{prefix}ssm_dt.bias", (heads,), "F32"
        yield f"{prefix}ssm_a", (heads,), "F32"
        yield f"{prefix}ssm_norm.weight", (inner // heads,), "F32"
        yield f"{prefix}ssm_out.weight", (hidden, inner), type_name
    yield f"{prefix}post_attention_norm.weight", (hidden,), "F32"
    yield f"{prefix}ffn_gate.weight", (ffn, hidden), type_name
    yield f"{prefix}ffn_up.weight", (ffn, hidden), type_name
    yield f"{prefix}ffn_down.weight", (hidden, ffn), type_name


def expert_tensors(
    shape: Shape, experts: Experts, prefix: str, type_name: str
) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Return a layer's router and experts."""
    hidden, size, count = shape.hidden_size, experts.size, experts.count
    yield f"{prefix}ffn_gate_inp.weight", (count, hidden), "F32"
    yield f"{prefix}ffn_gate_exps.weight", (count, size, hidden), type_name
    yield f"{prefix}ffn_up_exps.weight", (count, size, hidden), type_name
    yield f"{prefix}ffn_down_exps.weight", (count, hidden, size), type_name
    if shape.arch == "gpt-oss":
        yield f"{prefix}ffn_gate_inp.bias", (count,), "F32"
        yield f"{prefix}ffn_gate_exps.bias", (count, size), "F32"
        yield f"{prefix}ffn_up_exps.bias", (count, size), "F32"
        yield f"{prefix}ffn_down_exps.bias", (count, hidden), "F32"


def add_tensor(
    writer: GGUFWriter,
    name: str,
    shape: tuple[int, ...],
    type_name: str,
    rng: np.random.Generator,
) -> None:
    """Add a tensor that is drawn when it is written; it keeps activations at unit size."""
    if len(shape) == 1:
        values = np.zeros(shape, np.float32) if name.endswith(".bias") else np.ones(shape, "f4")
        if name.endswith("ssm_a"):  # rates of decay
            values = -values
        writer.add_tensor(name, shape, "F32", values)
        return
    file_type = "I2_S" if type_name == "I2_S_ARM" else type_name
    rms = 1 / sqrt(shape[-1])
    writer.add_tensor(
        name, shape, file_type, lambda: random_tensor(TYPES[type_name], shape, rms, rng)
    )


# --- vocabulary ----------------------------------------------------------------------------------

Vocabulary = dict[str, tuple[object, str | None]]  # key to value and value type

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] | capitalize }}: "
    "{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}Assistant: {% endif %}"
)


def byte_characters() -> list[str]:
    """Return GPT-2's character for each byte: itself if printable, else from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = itertools.count(256)
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


def synthetic_vocabulary(size: int) -> Vocabulary:
    """Make a byte-level BPE: 256 bytes, words of 16 letters, Llama 3's special tokens."""
    num_special = 256 if size >= 32_000 else 16
    letters = "\u0120etaoinshrdlucmf"  # the first is the space
    words = (
        "".join(word)
        for length in itertools.count(2)
        for word in itertools.product(letters, repeat=length)
    )
    texts = list(itertools.islice(words, size - 256 - num_special))
    # Every word grows letter by letter; other ways to split the same words come after.
    merges = [f"{text[:-1]} {text[-1]}" for text in texts]
    merges += [f"{text[0]} {text[1:]}" for text in texts if len(text) > 2]
    merges += [f"{text[:2]} {text[2:]}" for text in texts if len(text) > 3]
    special = {0: "<|begin_of_text|>", 1: "<|end_of_text|>", 9: "<|eot_id|>"}
    control = [special.get(i, f"<|reserved_special_token_{i}|>") for i in range(num_special)]
    bos = size - num_special
    return {
        "tokenizer.ggml.model": ("gpt2", None),
        "tokenizer.ggml.pre": ("llama-bpe", None),
        "tokenizer.ggml.tokens": ([*byte_characters(), *texts, *control], None),
        "tokenizer.ggml.token_type": (np.array([1] * bos + [3] * num_special, np.int32), None),
        "tokenizer.ggml.merges": (
            merges[: min(round(len(texts) * MERGES_PER_WORD), MOST_MERGES)],
            None,
        ),
        "tokenizer.ggml.bos_token_id": (bos, "uint32"),
        "tokenizer.ggml.eos_token_id": (bos + 1, "uint32"),
        "tokenizer.ggml.padding_token_id": (bos + 1, "uint32"),
        "tokenizer.ggml.add_bos_token": (True, None),
        "tokenizer.chat_template": (CHAT_TEMPLATE, None),
    }


def copied_vocabulary(path: str) -> Vocabulary:
    """Return the tokenizer's keys of another GGUF file."""
    with GGUFProvider(path) as provider:
        metadata = provider.metadata
        return {
            key: (metadata[key], metadata.value_type(key))
            for key in metadata
            if key.startswith("tokenizer.")
        }


# --- metadata ------------------------------------------------------------------------------------


def llama_keys(shape: Shape, type_name: str, vocabulary: Vocabulary) -> Vocabulary:
    arch = shape.arch
    return {
        "general.architecture": (arch, None),
        "general.name": (shape.name, None),
        f"{arch}.block_count": (shape.num_layers, None),
        f"{arch}.context_length": (shape.context_length, None),
        f"{arch}.embedding_length": (shape.hidden_size, None),
        f"{arch}.feed_forward_length": (shape.intermediate_size, None),
        f"{arch}.attention.head_count": (shape.num_heads, None),
        f"{arch}.attention.head_count_kv": (shape.num_kv_heads, None),
        f"{arch}.rope.freq_base": (shape.rope_theta, None),
        f"{arch}.attention.layer_norm_rms_epsilon": (1e-5, None),
        f"{arch}.attention.key_length": (shape.head_dim, None),
        f"{arch}.attention.value_length": (shape.head_dim, None),
        f"{arch}.vocab_size": (shape.vocab_size, None),
        f"{arch}.rope.dimension_count": (shape.head_dim, None),
        **expert_keys(shape),
        **{f"{arch}.{key}": (value, None) for key, value in shape.keys.items()},
        "general.file_type": (FILE_TYPES.get(type_name, 1), None),
        **vocabulary,
        "general.quantization_version": (2, None),
    }


def expert_keys(shape: Shape) -> Vocabulary:
    arch, experts = shape.arch, shape.experts
    if experts is None:
        return {}
    return {
        f"{arch}.expert_count": (experts.count, None),
        f"{arch}.expert_used_count": (experts.used, None),
        f"{arch}.expert_feed_forward_length": (experts.size, None),
    }


def bitnet_keys(shape: Shape, type_name: str, vocabulary: Vocabulary) -> Vocabulary:
    """Return the 24 keys of the published file in its order; it has no tokenizer.ggml.pre."""
    arch, tokenizer = shape.arch, "tokenizer.ggml."
    eos = vocabulary.get(f"{tokenizer}eos_token_id", (1, "uint32"))
    fallback: Vocabulary = {
        f"{tokenizer}scores": (np.zeros(shape.vocab_size, np.float32), None),
        f"{tokenizer}merges": ([], "array[string]"),
        f"{tokenizer}padding_token_id": eos,
        "tokenizer.chat_template": (CHAT_TEMPLATE, None),
    }
    source = fallback | vocabulary
    return {
        "general.architecture": (arch, None),
        "general.name": (shape.name, None),
        f"{arch}.vocab_size": (shape.vocab_size, None),
        f"{arch}.context_length": (shape.context_length, None),
        f"{arch}.embedding_length": (shape.hidden_size, None),
        f"{arch}.block_count": (shape.num_layers, None),
        f"{arch}.feed_forward_length": (shape.intermediate_size, None),
        f"{arch}.rope.dimension_count": (shape.head_dim, None),
        f"{arch}.attention.head_count": (shape.num_heads, None),
        f"{arch}.attention.head_count_kv": (shape.num_kv_heads, None),
        f"{tokenizer}add_bos_token": (True, None),
        f"{arch}.attention.layer_norm_rms_epsilon": (1e-5, None),
        f"{arch}.rope.freq_base": (shape.rope_theta, None),
        "general.file_type": (FILE_TYPES.get(type_name, 1), None),
        **{
            key: source[key]
            for key in (
                *(f"{tokenizer}{name}" for name in ("model", "tokens", "scores", "token_type")),
                f"{tokenizer}merges",
                *(f"{tokenizer}{name}_token_id" for name in ("bos", "eos", "padding")),
                "tokenizer.chat_template",
            )
        },
        "general.quantization_version": (2, None),
    }


# --- the command ---------------------------------------------------------------------------------


def default_embedding_type(shape: Shape, type_name: str) -> str:
    """Return the type of the embedding: as in quantizers, finer than the layers' for the output."""
    if shape.dense_type:
        return shape.dense_type
    if shape.arch.startswith("bitnet") or TYPES[type_name].ternary:
        return "F16"
    if TYPES[type_name].block_size == 256:
        return "Q6_K"
    return type_name if TYPES[type_name].block_size == 1 else "Q8_0"


def write_model(
    path: str | Path,
    shape: Shape,
    *,
    type_name: str | None = None,
    embedding_type: str | None = None,
    head_type: str | None = None,
    vocab: str | None = None,
    seed: int = 0,
) -> None:
    """Write the model with little memory, whatever its size.

    The output is tied to the embedding unless both types are given and differ, or the model has
    experts.
    """
    type_name = type_name or shape.default_type
    embedding = embedding_type or head_type or default_embedding_type(shape, type_name)
    head = head_type if head_type not in (None, embedding) else None
    if shape.experts is not None:
        head = head_type or embedding
    vocabulary = copied_vocabulary(vocab) if vocab else synthetic_vocabulary(shape.vocab_size)
    tokens = vocabulary["tokenizer.ggml.tokens"][0]
    assert isinstance(tokens, list)
    shape = replace(shape, vocab_size=len(tokens))
    make_keys = bitnet_keys if shape.arch == "bitnet-b1.58" else llama_keys
    rng = np.random.Generator(np.random.SFC64(seed))
    with GGUFWriter(path) as writer:
        for key, (value, value_type) in make_keys(shape, type_name, vocabulary).items():
            writer.add(key, value, value_type)
        for name, sizes, kind in tensor_plan(shape, type_name, embedding, head):
            add_tensor(writer, name, sizes, kind, rng)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Write a model of a well-known shape with random weights.",
        epilog="The output is tied to the embedding, in the type given for either of them, "
        "unless both are given and differ.",
    )
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", help="the GGUF file to write")
    parser.add_argument(
        "--arch",
        choices=("llama", "bitnet", "bitnet-b1.58"),
        help="the architecture's name, where not the shape's own",
    )
    parser.add_argument("--type", choices=TYPES, help="type of the layers' linear weights")
    parser.add_argument("--head-type", choices=TYPES, help="type of the output matrix")
    parser.add_argument("--embedding-type", choices=TYPES, help="type of the token embedding")
    parser.add_argument("--vocab", metavar="GGUF", help="take the tokenizer from this file")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    shape = SHAPES[options.shape]
    try:
        write_model(
            options.out,
            replace(shape, arch=options.arch or shape.arch),
            type_name=options.type,
            embedding_type=options.embedding_type,
            head_type=options.head_type,
            vocab=options.vocab,
            seed=options.seed,
        )
    except TrinityError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    size = Path(options.out).stat().st_size
    seconds = time.perf_counter() - start
    print(f"{options.out}: {size / 1e6:.1f} MB in {seconds:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
