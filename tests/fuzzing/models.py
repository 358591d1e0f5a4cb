"""Random small models of every family and type, and changes that keep a file readable."""

from __future__ import annotations

import random
from math import prod

from tests.fuzzing import families, values, vocabularies, weights
from tests.fuzzing.gguf_draft import (
    ARRAY,
    BOOL,
    F32,
    F64,
    I32,
    I64,
    STRING,
    U8,
    U16,
    U32,
    U64,
    Draft,
    Tensor,
    Value,
    any_value,
)
from trinity.formats.config_limits import FIELDS
from trinity.formats.gguf_types import tensor_nbytes

TERNARY = ("I2_S", "TQ1_0", "TQ2_0")
OPTIONAL_KEYS = tuple(key for field in FIELDS.values() for key in field.keys)
_SCALING_KEYS = (
    "rope.scaling.factor", "rope.scale_linear", "rope.freq_base",
    "rope.scaling.original_context_length", "rope.scaling.attn_factor",
    "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_log_multiplier",
)  # fmt: skip
_EXTRA_TENSORS = (
    "rope_freqs.weight", "output.weight", "blk.0.attn_q_norm.weight", "x", "blk.9.ffn_up.weight",
    "blk.0.attn_qkv.weight", "blk.0.attn_sinks.weight", "blk.0.ffn_up_exps.weight",
)  # fmt: skip
_COMMON = ("F32", "F16", "BF16", "Q4_0", "Q8_0", "IQ4_NL")
_CONTESTED = ("Q2_0", "Q2_0_G128", "PQ2_0", "PTQ1_0", "STQ1_0")  # ids of several types


def _type_for(columns: int, rows: int, wanted: str, rng: random.Random) -> str:
    """``wanted`` where rows of it fit, else one that fits; I2_S rarely where blocks do not."""
    if wanted == "I2_S":
        if columns * rows % 128 == 0 or (columns * rows % 4 == 0 and rng.random() < 0.02):
            return wanted
    elif (wanted, columns) == ("PQ2_0", 256) or (rows == 1 and wanted in _CONTESTED):
        pass  # another type of the same id can have the same length
    elif columns % weights.block_size(wanted) == 0:
        return wanted
    return rng.choice([t for t in _COMMON if columns % weights.block_size(t) == 0])


def model(
    rng: random.Random, hostile: float = 0.02, *, width: int | None = None, main: str = "",
    family: str = "", context: int | None = None, scaled: bool = True,
) -> Draft:  # fmt: skip
    """A sound model of tiny sizes; its weights are hostile with that probability each.

    ``width``: of most matrices, rows and columns but the embedding's. ``main``: the type of most.
    ``context``: the context length, else a random one.
    ``scaled``: now and then there are keys of RoPE scaling, with edges.
    """
    draft = Draft(version=rng.choice((3, 3, 3, 2)), alignment=rng.choice((32, 32, 32, 8, 64, 1)))
    family = family or rng.choice(families.NAMES)
    main = main or rng.choice(
        TERNARY if family.startswith("bitnet") and rng.random() < 0.6 else weights.RUNNABLE
    )
    block = weights.block_size(main)
    hidden = block * rng.choice((1, 1, 2)) if block >= 64 else 32 * rng.choice((1, 2, 3, 4))
    ffn = rng.choice((16, 32, 48, 64, hidden))
    heads = rng.choice((1, 2, 2, 3, 4))
    kv_heads = rng.choice([n for n in (1, 2, 3, 4) if heads % n == 0])
    head_dim = rng.choice((2, 4, 8, 16, 32, 6, 10))
    if rng.random() < 0.5 and hidden % heads == 0 and hidden // heads % 2 == 0:
        head_dim = hidden // heads
    if width is not None:
        hidden = ffn = width
        heads, kv_heads, head_dim = 2, 2, width // 2
    layers = rng.choice((1, 1, 1, 2, 3))
    draft.keys.append(("general.architecture", Value(STRING, family)))
    if draft.alignment != 32:
        draft.keys.append(("general.alignment", Value(U32, draft.alignment)))
    sizes = {
        "context_length": context or rng.choice((16, 64, 256, 131072)),
        "embedding_length": hidden,
        "block_count": layers, "feed_forward_length": ffn, "attention.head_count": heads,
        "attention.head_count_kv": kv_heads, "attention.key_length": head_dim,
        "attention.value_length": head_dim,
    }  # fmt: skip
    for key, size in sizes.items():
        if rng.random() < 0.97 or key not in ("attention.head_count_kv", "attention.value_length"):
            draft.keys.append((f"{family}.{key}", Value(U32, size)))
    eps = Value(F32, rng.choice((1e-5, 1e-6)))
    draft.keys.append((f"{family}.attention.layer_norm_rms_epsilon", eps))
    if rng.random() < 0.3:
        draft.keys.append((f"{family}.rope.freq_base", Value(F32, rng.choice((1e4, 5e5, 1e6)))))
    families.add_keys(draft, family, layers, rng)
    vocab = vocabularies.add(draft, rng)

    def add(name: str, dims: list[int], type_name: str) -> None:
        data = weights.content(type_name, dims, rng, hostile)
        draft.tensors.append(Tensor(name, dims, weights.file_type_id(type_name), data))

    embedding = rng.choice(("F16", "F32", "BF16", "Q8_0", "Q6_K", main))
    if embedding == "I2_S" and rng.random() < 0.95:
        embedding = "F16"
    add("token_embd.weight", [hidden, vocab], _type_for(hidden, vocab, embedding, rng))
    of_experts: dict[str, str] = {}
    for name, shape in families.shapes_of(draft, vocab, rng).items():
        if name == "token_embd.weight":
            continue
        dims = [*reversed(shape)]
        if len(dims) == 1 or "norm" in name or not name.endswith(".weight"):
            data = weights.norm(prod(dims), rng)
            draft.tensors.append(Tensor(name, dims, 0, data))
        else:
            wanted = main if rng.random() < 0.7 else rng.choice(weights.RUNNABLE)
            chosen = _type_for(dims[0], prod(dims[1:]), wanted, rng)
            stem, _, number = name.removesuffix(".weight").rpartition(".")
            if number.isdigit():  # one of a layer's experts, which are of one type
                chosen = of_experts.setdefault(stem, chosen)
            add(name, dims, chosen)
    if scaled and rng.random() < 0.1 and width is None:
        rope_scaling(draft, family, rng)
    if scaled and rng.random() < 0.06 and width is None:
        rotation(draft, rng)
    return draft


def rope_scaling(draft: Draft, family: str, rng: random.Random) -> None:
    """Keys of RoPE scaling, with edges."""
    kind = rng.choice(("linear", "linear", "yarn", "yarn", "yarn", "none", "longrope"))
    draft.set(f"{family}.rope.scaling.type", Value(STRING, kind))
    for key in rng.sample(_SCALING_KEYS, k=rng.randrange(1, 6)):
        whole = key.endswith("length")
        content = values.integer(rng) if whole else values.real(rng)
        draft.set(f"{family}.{key}", Value(U32 if whole else F32, content))


def rotation(draft: Draft, rng: random.Random) -> None:
    """Keys of rotated weights (``prism.hadamard``); at times one of them is odd."""
    matrices = [tensor for tensor in draft.tensors if len(tensor.dims) > 1]
    named = [tensor for tensor in matrices if rng.random() < 0.8]
    widths = sorted({tensor.dims[0] for tensor in named})
    signs = [rng.choice((-1, 1)) for _ in range(sum(widths))]
    inverse = rng.choice(([], ["token_embd.weight"]))
    found = {
        "version": Value(U32, 1),
        "block_size": Value(U32, rng.choice((2, 16, 16, 32, 32, 64, 128))),
        "transform": Value(STRING, "normalized-sylvester-walsh-hadamard"),
        "axis": Value(STRING, "input-last-dimension"),
        "sign_mode": Value(STRING, rng.choice(("explicit", "identity"))),
        "gdn_v_grouped": Value(BOOL, rng.random() < 0.5),
        "weight_names": Value(ARRAY, [tensor.name for tensor in named], STRING),
        "inverse_weight_names": Value(ARRAY, inverse, STRING),
        "sign_widths": Value(ARRAY, widths, I32),
        "sign_values": Value(ARRAY, signs, I32),
    }
    if rng.random() < 0.3:
        name = rng.choice((*found, "x"))
        found[name] = any_value(rng)
    for name, value in found.items():
        draft.set(f"prism.hadamard.{name}", value)


def change(draft: Draft, rng: random.Random) -> None:
    """One change of what the file says; it can still be read as GGUF."""
    kind = rng.random()
    family = str(getattr(draft.find("general.architecture"), "content", "llama"))
    if kind < 0.22:
        vocabularies.spoil(draft, rng)
    elif kind < 0.3:
        rope_scaling(draft, family, rng)
    elif kind < 0.5:
        _change_key(draft, family, rng)
    elif draft.tensors and kind < 0.97:
        change_tensor(draft, rng)
    else:
        draft.version = rng.choice((0, 1, 2, 3, 4, 0x03000000, 2**32 - 1))


def _change_key(draft: Draft, family: str, rng: random.Random) -> None:
    at = rng.randrange(len(draft.keys)) if draft.keys else 0
    kind = rng.random()
    if kind < 0.15 or not draft.keys:
        key = f"{family}.{rng.choice(OPTIONAL_KEYS)}"
        draft.set(key, any_value(rng))
        return
    key, value = draft.keys[at]
    if kind < 0.25:
        del draft.keys[at]
    elif kind < 0.3:
        draft.keys.insert(rng.randrange(len(draft.keys)), (key, value))
    elif kind < 0.4:
        draft.keys[at] = key, any_value(rng)
    elif kind < 0.45:
        draft.keys[at] = values.text(rng), value
    elif value.type in (STRING, ARRAY):
        draft.keys[at] = key, Value(STRING, values.text(rng))
    elif value.type in (F32, F64):
        draft.keys[at] = key, Value(rng.choice((F32, F64)), values.real(rng))
    elif kind < 0.9:
        # Sizes that are near enough to be believed.
        old = int(value.content)  # type: ignore[call-overload]
        new = rng.choice((old - 1, old + 1, 2 * old, old // 2, 0, 1, values.integer(rng)))
        draft.keys[at] = key, Value(rng.choice((U32, U32, I32, U64, I64, U16, U8)), new)
    else:
        draft.keys[at] = key, Value(ARRAY, [value.content] * rng.choice((1, 2, 3)), I32)


def change_tensor(draft: Draft, rng: random.Random) -> None:
    if not draft.tensors:
        return
    at = rng.randrange(len(draft.tensors))
    tensor = draft.tensors[at]
    kind = rng.randrange(14)
    if kind == 0:
        del draft.tensors[at]
    elif kind == 1:
        other = rng.choice(draft.tensors)
        tensor.name, other.name = other.name, tensor.name
    elif kind == 2:
        tensor.dims.reverse()
    elif kind == 3:
        tensor.dims.append(1) if rng.random() < 0.7 else tensor.dims.insert(0, 1)
    elif kind == 4 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = values.integer(rng)
    elif kind in (5, 6, 7):
        # Another type, with the bytes that it takes.
        name = rng.choice(weights.ALL_TYPES)
        if tensor_nbytes(name, tensor.dims) is not None:
            tensor.type_id = weights.file_type_id(name)
            tensor.data = weights.content(name, tensor.dims, rng)
    elif kind == 8:
        tensor.type_id = rng.randrange(45)
    elif kind == 9:
        rng.shuffle(draft.tensors)
    elif kind == 10:
        tensor.data = tensor.data[: rng.randrange(len(tensor.data) + 1)]
    elif kind == 11:
        suffixed = tensor.name.replace(".weight", rng.choice((".bias", ".scale")))
        new = rng.choice((*_EXTRA_TENSORS, suffixed))
        dims = rng.choice(([1], [2], [16], [32], list(tensor.dims), [4, 4], [1, 1, 1, 1]))
        name = rng.choice(("F32", "F32", "F16", "I32", "F64"))
        data = weights.content(name, dims, rng, 0.4)
        draft.tensors.append(Tensor(new, list(dims), weights.file_type_id(name), data))
    elif kind == 12:
        draft.alignment = rng.choice((1, 2, 16, 32, 4096))
        if rng.random() < 0.7:
            draft.set("general.alignment", Value(U32, draft.alignment))
    else:
        data = bytearray(tensor.data)
        for _ in range(rng.choice((1, 4, 64))):
            if data:
                data[rng.randrange(len(data))] = rng.choice((0, 0x7F, 0x80, 0xFF, 0x7C, 0xFC))
        tensor.data = bytes(data)
