"""Target: Hugging Face directories, converted, loaded and run for one token; safetensors files."""

from __future__ import annotations

import json
import random
import struct
from copy import deepcopy
from math import prod
from typing import Any

import trinity
from scripts.models.make_synthetic import byte_characters
from tests.fuzzing import hf_families, values, vocabularies, weights
from tests.fuzzing.case import Case, Finding
from tests.fuzzing.target_text import any_json, sentencepiece_bytes
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.safetensors import DTYPE_BITS, SafeTensorsFile
from trinity.tokenizers.pretokenizers import PRE_TOKENIZERS
from trinity.tools.convert import OUTTYPES, convert

JSON_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 2**31, 2**64, 1.5, 1e308, 1e-300, "", "x", "\u2581",
    "\0", [], {},
    [1, 2], ["a"], {"a": 1}, {"type": "BPE"}, {"content": 5}, "silu", "relu2", "llama3", 283,
    256, [[]],
    {"type": "Sequence", "pretokenizers": []}, {"Fixed": 10**9}, {"Regex": "(a+)+$"},
    "Isolated", [[["a"]]],
)  # fmt: skip
Json = dict[str, Any]
Tensors = dict[str, tuple[str, list[int], bytes]]


def safetensors(case: Case) -> None:
    """One file, its header right or wrong."""
    rng = case.rng
    tensors: Tensors = {}
    for i in range(rng.randrange(5)):
        dtype = rng.choice(list(DTYPE_BITS))
        shape = [rng.choice((0, 1, 2, 8, 16)) for _ in range(rng.choice((0, 1, 2, 2, 3)))]
        tensors[f"t{i}"] = dtype, shape, bytes(prod(shape) * DTYPE_BITS[dtype] // 8)
    raw = safetensors_bytes(rng, tensors, rng.choice((0, 1, 1, 2)))
    found = case.attempt("opened", SafeTensorsFile, case.write("model.safetensors", raw))
    if found is None:
        return
    with found:
        for name in found.names():
            case.attempt("read", lambda name=name: found.tensor(name).all_floats())


def safetensors_bytes(rng: random.Random, tensors: Tensors, spoils: int) -> bytes:
    """A file of these tensors, with so many wrong places in its header."""
    header: Json = {"__metadata__": {"format": "pt"}} if rng.random() < 0.7 else {}
    reached = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [reached, reached + len(data)],
        }
        reached += len(data)
    for _ in range(spoils):
        replace_one(rng, header)
    raw = json.dumps(header).encode()
    length = len(raw)
    data = b"".join(data for _, _, data in tensors.values())
    whole = bytearray(raw)
    if spoils and rng.random() < 0.3:
        at = rng.randrange(len(whole) + 1)
        whole[at : at + rng.choice((0, 1, 2))] = rng.choice(
            (b"\0", b"{", b"9", b'"', b"-", b"1e99", b" ", b"\xff")
        )
        length = len(whole)
    if spoils and rng.random() < 0.2:
        length = values.integer(rng) & (1 << 64) - 1
    if spoils and rng.random() < 0.2:
        data = data[: rng.randrange(len(data) + 1)] if rng.random() < 0.5 else data + bytes(8)
    return struct.pack("<Q", length) + bytes(whole) + data


def _places(value: object) -> list[tuple[Any, Any]]:
    """Containers with a key or an index into each; of long ones some."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        keys: list[Any] = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    else:
        return found
    for key in keys[:3] + keys[-3:] if len(keys) > 40 else keys:
        found.append((value, key))
        found += _places(value[key])
    return found


def replace_one(rng: random.Random, whole: Json) -> None:
    """Change one place of an object, however deep."""
    places = _places(whole)
    if not places:
        return
    container, key = rng.choice(places)
    old = container[key] if isinstance(container, dict) or key < len(container) else None
    kind = rng.random()
    if kind < 0.15 and isinstance(container, dict):
        del container[key]
    elif kind < 0.3 and isinstance(container, dict):
        container[values.text(rng)[:60]] = deepcopy(container[key])
    elif kind < 0.6 and isinstance(old, int) and not isinstance(old, bool):
        container[key] = rng.choice((old + 1, old - 1, 2 * old, values.integer(rng)))
    elif kind < 0.7:
        container[key] = any_json(rng, 2)
    else:
        container[key] = deepcopy(rng.choice(JSON_VALUES))


def huggingface(case: Case) -> None:
    """A directory with all its files, of which some are wrong."""
    rng = case.rng
    directory = case.folder / "hf"
    directory.mkdir()
    is_spm = rng.random() < 0.4
    kind = rng.choice(("bitnet", "llama", "family"))
    is_bitnet = kind == "bitnet"
    vocab = 0
    if is_spm:
        raw = sentencepiece_bytes(rng, 0.8)
        case.write("hf/tokenizer.model", raw)
        vocab = 300
        fast = None
    else:
        fast = tokenizer_json(rng)
        vocab = len(fast["model"]["vocab"]) + 3
    config, tensors = (
        of_any_family(rng, vocab) if kind == "family" else plain_model(rng, is_bitnet, vocab)
    )
    if not is_bitnet and rng.random() < 0.3:
        config["quantization"] = mlx_weights(rng, tensors)
    settings: Json = {
        "tokenizer_class": "LlamaTokenizer" if is_spm else "PreTrainedTokenizerFast",
        "legacy": False,
        "bos_token": "<s>" if is_spm else "<|begin_of_text|>",
        "add_bos_token": True,
        "eos_token": "</s>" if is_spm else "<|end_of_text|>",
        "chat_template": vocabularies.TEMPLATES[0],
    }
    files: dict[str, Json] = {
        "config.json": config,
        "tokenizer_config.json": settings,
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": [2]},
    }
    if fast is not None:
        files["tokenizer.json"] = fast
    elif rng.random() < 0.1:
        files["added_tokens.json"] = {"<extra>": rng.choice((290, values.integer(rng)))}
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        replace_one(rng, files[rng.choice(list(files))])
    for name, content in files.items():
        if rng.random() < 0.99:
            case.write(f"hf/{name}", json.dumps(content).encode())
    if rng.random() < 0.05:
        case.write("hf/chat_template.jinja", values.text(rng).encode("utf-8", "replace"))
    _shards(case, rng, tensors)
    out = case.folder / "out.gguf"
    if rng.random() < 0.05:
        case.attempt("read", lambda: Checkpoint(directory).close())
    outtype = rng.choice(list(OUTTYPES) if is_bitnet else ("f32", "f16", "bf16", "q8_0"))
    rule = (
        rng.choice(("divide", "multiply")) if rng.random() < (0.2 if is_bitnet else 0.02) else None
    )
    options = {"weight_scale": rule, "allow_requantize": rng.random() < 0.8}
    if case.attempt("converted", convert, directory, out, outtype, **options) is None:
        if out.exists():
            raise Finding("leftover", "a refused conversion left its file")
        return
    model = case.attempt(
        "loaded", trinity.load, out, threads=1, context_length=16, progress=case.progress
    )
    if model is not None:
        with model:
            prompt = values.prose(rng)[:12] or "a"
            case.attempt("token", lambda: model.generate(prompt, max_tokens=1, temperature=0.0))


def mlx_weights(rng: random.Random, tensors: Tensors) -> Json:
    """Some of the weights as MLX quantizes them, now and then with something wrong; and what
    config.json says of it."""
    bits, group = rng.choice((2, 3, 4, 5, 6, 8)), rng.choice((16, 32, 32, 64))
    settings: Json = {"bits": bits, "group_size": group}
    stored = rng.choice(("BF16", "F16", "F32", "U8"))
    for name in [name for name in tensors if name.endswith(".weight")]:
        dtype, shape, _ = tensors[name]
        rows, columns = prod(shape[:-1]), shape[-1]
        if dtype == "U8" or len(shape) < 2 or columns % 32 or columns % group or rng.random() < 0.2:
            continue
        base, words = name.removesuffix(".weight"), columns * bits // 32
        words += rng.random() < 0.01
        tensors[name] = "U32", [*shape[:-1], words], rng.randbytes(4 * rows * words)
        groups = [*shape[:-1], columns // group]
        each = ["scales"] if stored == "U8" else ["scales", "biases"]
        for companion in each[: 1 if rng.random() < 0.01 else 2]:
            if stored == "U8":
                content = rng.randbytes(prod(groups))
            else:
                content = weights.content(stored, groups[::-1], rng, 0.002)
            tensors[f"{base}.{companion}"] = stored, groups, content
        if rng.random() < 0.05:
            settings[base] = {"bits": rng.choice((bits, 7)), "group_size": group}
    return settings


def _shards(case: Case, rng: random.Random, tensors: Tensors) -> None:
    spoils = rng.choice((0, 0, 0, 0, 0, 0, 1))
    if rng.random() < 0.75:
        case.write("hf/model.safetensors", safetensors_bytes(rng, tensors, spoils))
        return
    count = rng.choice((1, 2, 3))
    names = [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
    index: Json = {"metadata": {"total_size": 1}, "weight_map": {}}
    for i, name in enumerate(names):
        part = dict(list(tensors.items())[i::count])
        index["weight_map"] |= dict.fromkeys(part, name)
        if rng.random() < 0.97:
            case.write(f"hf/{name}", safetensors_bytes(rng, part, spoils))
    for _ in range(rng.choice((0, 0, 1))):
        replace_one(rng, index)
    case.write("hf/model.safetensors.index.json", json.dumps(index).encode())


def tokenizer_json(rng: random.Random) -> Json:
    """The object of a small tokenizer.json."""
    regex = PRE_TOKENIZERS[rng.choice(("llama-bpe", "llama-bpe", "qwen2", "gpt-2"))].regexes[0]
    merges = [merge for merge in vocabularies.MERGES if rng.random() < 0.9]
    vocab = {token: i for i, token in enumerate(byte_characters())}
    in_pairs = rng.random() < 0.5
    kept: list[Any] = []
    for merge in merges:
        a, b = merge.split(" ", 1)
        if a in vocab and b in vocab:
            vocab.setdefault(a + b, len(vocab))
            kept.append([a, b] if in_pairs else merge)
    size = len(vocab)
    added = [
        {"id": size + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i, text in enumerate(("<|begin_of_text|>", "<|end_of_text|>"))
    ]  # fmt: skip
    begin = {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
            "use_regex": False}]},
        "post_processor": {"type": "TemplateProcessing", "single": [begin, sequence],
            "pair": [sequence, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [size],
            "tokens": ["<|begin_of_text|>"]}}},
        "decoder": None,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
        "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": True,
            "vocab": vocab, "merges": kept},
    }  # fmt: skip


def of_any_family(rng: random.Random, vocab: int) -> tuple[Json, Tensors]:
    """config.json's object of any class, and the tensors that it asks for."""
    names = (*hf_families.classes(), *hf_families.wrappers())
    config = hf_families.configuration(rng.choice(names), vocab)
    inner = config.get("text_config", config)
    inner["tie_word_embeddings"] = rng.random() < 0.6
    inner["num_hidden_layers"] = rng.choice((2, 2, 2, 3, 4))
    if rng.random() < 0.3:
        del inner[rng.choice([key for key in inner if key != "architectures"])]
    dtype = rng.choice(("BF16", "F16", "F32"))
    tensors: Tensors = {}
    try:
        wanted = list(hf_families.stored_tensors(config, rng.randrange(2)))
    except trinity.TrinityError:
        return config, tensors
    for name, shape, is_bytes in wanted:
        if is_bytes:
            tensors[name] = "U8", list(shape), rng.randbytes(prod(shape))
        else:
            content = weights.content(dtype, list(shape)[::-1], rng, 0.002)
            tensors[name] = dtype, list(shape), content
    return config, tensors


def plain_model(
    rng: random.Random, is_bitnet: bool, vocab: int, width: int = 32
) -> tuple[Json, Tensors]:
    """config.json's object and the tensors that it asks for; ``width``: where it is no BitNet."""
    heads = rng.choice((1, 2))
    kv_heads = rng.choice((1, heads))
    packed = is_bitnet and rng.random() < 0.7
    hidden = 128 * rng.choice((1, 2)) if is_bitnet else width
    head_dim = hidden // heads if is_bitnet else rng.choice((16, 32))
    ffn, layers = rng.choice((128, 256)) if is_bitnet else 2 * width, rng.choice((1, 1, 2))
    config: Json = {
        "architectures": ["BitNetForCausalLM" if is_bitnet else rng.choice(("LlamaForCausalLM",
        "MistralForCausalLM"))],
        "hidden_size": hidden, "intermediate_size": ffn, "num_attention_heads": heads,
        "head_dim": head_dim,
        "num_key_value_heads": kv_heads, "num_hidden_layers": layers, "vocab_size": vocab,
        "hidden_act": rng.choice(("relu2", "silu")) if is_bitnet else "silu", "rms_norm_eps": 1e-5,
        "max_position_embeddings": rng.choice((64, 4096)),
        "tie_word_embeddings": rng.random() < 0.6,
        "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    if rng.random() < 0.3:
        config["rope_scaling"] = rng.choice((
            {"type": "linear", "factor": 2.0},
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 64, "rope_theta": rng.choice((5e5,
             values.real(rng)))},
        ))  # fmt: skip
    if packed:
        config["quantization_config"] = {
            "quant_method": "bitnet",
            "linear_class": rng.choice(("autobitlinear", "bitlinear")),
            "quantization_mode": "offline",
        }
    dtype = rng.choice(("BF16", "F16", "F32"))
    tensors: Tensors = {}

    def floats(name: str, shape: list[int]) -> None:
        hostile = 0.002
        tensors[name] = dtype, shape, weights.content(dtype, shape[::-1], rng, hostile)

    def linear(name: str, rows: int, columns: int) -> None:
        if not packed:
            floats(f"{name}.weight", [rows, columns])
            return
        codes = weights.content("I2_S", [columns, rows], rng, 0.0)[: rows * columns // 4]
        tensors[f"{name}.weight"] = "U8", [rows // 4, columns], codes
        tensors[f"{name}.weight_scale"] = (
            "BF16",
            [1],
            b"\x4d\x3d" if rng.random() < 0.99 else rng.randbytes(2),
        )

    floats("model.embed_tokens.weight", [vocab, hidden])
    query, kv = heads * head_dim, kv_heads * head_dim
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        floats(f"{prefix}input_layernorm.weight", [hidden])
        floats(f"{prefix}post_attention_layernorm.weight", [hidden])
        if is_bitnet:
            floats(f"{prefix}self_attn.attn_sub_norm.weight", [query])
            floats(f"{prefix}mlp.ffn_sub_norm.weight", [ffn])
        for name, rows, columns in (
            ("self_attn.q_proj", query, hidden),
            ("self_attn.k_proj", kv, hidden),
            ("self_attn.v_proj", kv, hidden),
            ("self_attn.o_proj", hidden, query),
            ("mlp.gate_proj", ffn, hidden),
            ("mlp.up_proj", ffn, hidden),
            ("mlp.down_proj", hidden, ffn),
        ):
            linear(prefix + name, rows, columns)
    floats("model.norm.weight", [hidden])
    if not config["tie_word_embeddings"]:
        floats("lm_head.weight", [vocab, hidden])
    return config, tensors
