"""Write small Hugging Face directories and the logits that transformers computes from them.

    pip install '.[goldens]'
    python tests/goldens/make_goldens.py tests/data/hf

Each directory is a random model with a tokenizer, laid out as published checkpoints are, and
golden.npz: token ids and the float32 logits that transformers gives after each of them. The tests
convert the directories and compare; they need none of the packages above. All is drawn from fixed
seeds. Scales of packed weights are bfloat16, as in published checkpoints. The master weights take
eight values, so that the file compresses.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # needs a C++ compiler
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.integrations.bitnet import AutoBitLinear, BitLinear, pack_weights

TEXT = "Once upon a time there was a model of 12,345 weights; it couldn't say: caf\u00e9, \u4f60."
NUM_TOKENS = 10
CORPUS = [
    "the quick brown fox jumps over the lazy dog and then there was a model that said hello",
    "once upon a time in the land of numbers the weights were either one or none or minus one",
    "hello world, this is a small text for a small tokenizer; it has letters and little else",
]
MASTER_LEVELS = np.array([-14, -9, -6, -2, 1, 5, 10, 13])  # times 2**-9; none near half their mean
Tensors = dict[str, "torch.Tensor"]
Weight = Callable[[str, int, int], Tensors]


@dataclass(frozen=True)
class Sizes:
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_layers: int = 2
    vocab_size: int = 283

    def config(self, **more: object) -> dict[str, object]:
        return {
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "num_hidden_layers": self.num_layers,
            "vocab_size": self.vocab_size,
            "initializer_range": 0.02,
            "use_cache": True,
            **more,
        }


# --- weights -------------------------------------------------------------------------------------


def normal(rng: np.random.Generator, *shape: int, std: float, mean: float = 0.0) -> torch.Tensor:
    values = mean + std * rng.standard_normal(shape)
    return torch.from_numpy(values.astype(np.float32))


def checkpoint(
    sizes: Sizes,
    rng: np.random.Generator,
    linear: Weight,
    *,
    dtype: torch.dtype,
    tied: bool,
    sub_norms: bool,
    embedding: Callable[[int, int], torch.Tensor] | None = None,
) -> Tensors:
    """Return a model's tensors under transformers' names."""
    hidden, ffn = sizes.hidden_size, sizes.intermediate_size
    q, kv = sizes.num_heads * sizes.head_dim, sizes.num_kv_heads * sizes.head_dim
    draw = embedding or (lambda rows, columns: normal(rng, rows, columns, std=0.1))
    tensors: Tensors = {"model.embed_tokens.weight": draw(sizes.vocab_size, hidden).to(dtype)}

    def norm(name: str, size: int) -> None:
        tensors[f"{name}.weight"] = normal(rng, size, std=0.2, mean=1.0).to(dtype)

    for layer in range(sizes.num_layers):
        prefix = f"model.layers.{layer}."
        norm(f"{prefix}input_layernorm", hidden)
        norm(f"{prefix}post_attention_layernorm", hidden)
        if sub_norms:
            norm(f"{prefix}self_attn.attn_sub_norm", q)
            norm(f"{prefix}mlp.ffn_sub_norm", ffn)
        for name, rows, columns in (
            ("self_attn.q_proj", q, hidden),
            ("self_attn.k_proj", kv, hidden),
            ("self_attn.v_proj", kv, hidden),
            ("self_attn.o_proj", hidden, q),
            ("mlp.gate_proj", ffn, hidden),
            ("mlp.up_proj", ffn, hidden),
            ("mlp.down_proj", hidden, ffn),
        ):
            tensors |= linear(f"{prefix}{name}", rows, columns)
    norm("model.norm", hidden)
    if not tied:
        tensors["lm_head.weight"] = normal(rng, sizes.vocab_size, hidden, std=0.1).to(dtype)
    return tensors


def float_linear(rng: np.random.Generator, dtype: torch.dtype) -> Weight:
    def make(name: str, rows: int, columns: int) -> Tensors:
        return {f"{name}.weight": normal(rng, rows, columns, std=1.5 / columns**0.5).to(dtype)}

    return make


def packed_linear(rng: np.random.Generator, *, divides: bool) -> Weight:
    """Pack a linear with transformers' function; its scale multiplies or divides."""

    def make(name: str, rows: int, columns: int) -> Tensors:
        codes = torch.from_numpy(rng.integers(-1, 2, (rows, columns)).astype(np.float32))
        scale = 1.5 / columns**0.5 * rng.uniform(0.8, 1.2)
        stored = torch.tensor([1 / scale if divides else scale]).to(torch.bfloat16)
        return {f"{name}.weight": pack_weights(codes), f"{name}.weight_scale": stored}

    return make


def master_linear(rng: np.random.Generator) -> Weight:
    """Draw master weights whose rounding is far from ties, so that no sum's order matters."""

    def make(name: str, rows: int, columns: int) -> Tensors:
        values = master_values(rng, rows * columns).reshape(rows, columns)
        magnitude = np.abs(values).mean(dtype=np.float64)
        assert np.float64(np.float16(magnitude)) != magnitude  # TQ types must hold it otherwise
        assert np.abs(np.abs(values) / magnitude - 0.5).min() > 0.05
        return {f"{name}.weight": torch.from_numpy(values).to(torch.bfloat16)}

    return make


def master_values(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    return (rng.choice(MASTER_LEVELS, count) / 512).astype(np.float32)


# --- tokenizers ----------------------------------------------------------------------------------


def write_bpe(path: Path, vocab_size: int) -> None:
    """Write byte-level BPE like Llama 3's: its regex, special tokens at the end, BOS in front."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors, trainers

    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
    regex = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(regex), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(special)
    bos = tokenizer.token_to_id(special[0])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{special[0]} $A", special_tokens=[(special[0], bos)]
    )
    tokenizer.save(str(path / "tokenizer.json"))
    write_json(
        path / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": special[0],
            "eos_token": special[1],
            "pad_token": special[1],
            "clean_up_tokenization_spaces": False,
            "model_max_length": 4096,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    end = tokenizer.token_to_id(special[1])
    write_json(
        path / "generation_config.json",
        {"bos_token_id": bos, "eos_token_id": [end, tokenizer.token_to_id(special[2])]},
    )


CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] | capitalize }}: "
    "{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}Assistant: {% endif %}"
)


def write_sentencepiece(path: Path, vocab_size: int) -> None:
    """Write SentencePiece BPE with byte tokens, like Llama 2's."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        model_type="bpe",
        vocab_size=vocab_size,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        character_coverage=1.0,
        num_threads=1,
        minloglevel=2,
    )
    (path / "tokenizer.model").write_bytes(model.getvalue())
    write_json(
        path / "tokenizer_config.json",
        {
            "tokenizer_class": "LlamaTokenizer",
            "add_bos_token": True,
            "add_eos_token": False,
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "legacy": False,
        },
    )
    (path / "chat_template.jinja").write_text(
        "{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}\n", "utf-8"
    )
    write_json(path / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2})


# --- directories ---------------------------------------------------------------------------------


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", "utf-8")


def write_shards(path: Path, tensors: Tensors, count: int) -> None:
    names = list(tensors)
    size = -(-len(names) // count)
    weight_map: dict[str, str] = {}
    for number in range(count):
        part = names[number * size : (number + 1) * size]
        file = f"model-{number + 1:05d}-of-{count:05d}.safetensors"
        save_file({n: tensors[n] for n in part}, path / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    write_json(
        path / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": weight_map},
    )


def write_golden(path: Path, sizes: Sizes, seed: int, ternary: type | None) -> None:
    """Write what transformers computes from the directory in float32."""
    tokenizer = AutoTokenizer.from_pretrained(path)
    model: Any = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    torch.nn.Module.float(model)  # unpacked weights keep the checkpoint's type otherwise
    for module in model.modules():
        if isinstance(module, BitLinear):
            module.dtype = torch.float32
    down = model.model.layers[0].mlp.down_proj
    assert type(down) is (ternary or torch.nn.Linear), type(down)
    rng = np.random.default_rng(seed)
    tokens = rng.integers(3, sizes.vocab_size - 3, NUM_TOKENS)
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)[None]).logits[0].float().numpy()
    ids = tokenizer(TEXT).input_ids
    np.savez_compressed(
        path / "golden.npz",
        tokens=tokens.astype(np.int32),
        logits=logits,
        text=np.array(TEXT),
        text_ids=np.array(ids, np.int32),
    )
    best = np.sort(logits, axis=1)
    gap = (best[:, -1] - best[:, -2]).min()
    print(f"{path.name}: logits std {logits.std():.2f}, smallest lead {gap:.3f}, {len(ids)} ids")
    assert gap > 0.01, "the argmax of a position is nearly a tie: take another seed"


def bitnet_config(sizes: Sizes, mode: str, **more: object) -> dict[str, object]:
    """Return a configuration like BitNet b1.58 2B-4T's, with keys of older transformers."""
    return sizes.config(
        architectures=["BitNetForCausalLM"],
        model_type="bitnet",
        hidden_act="relu2",
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        rope_theta=500000.0,
        tie_word_embeddings=True,
        torch_dtype="bfloat16",
        bos_token_id=sizes.vocab_size - 3,
        eos_token_id=sizes.vocab_size - 2,
        quantization_config={
            "quant_method": "bitnet",
            "linear_class": "autobitlinear",
            "quantization_mode": mode,
        },
        **more,
    )


def llama_config(sizes: Sizes, **more: object) -> dict[str, object]:
    return sizes.config(
        architectures=["LlamaForCausalLM"],
        model_type="llama",
        hidden_act="silu",
        head_dim=sizes.head_dim,
        rms_norm_eps=1e-6,
        attention_bias=False,
        mlp_bias=False,
        **more,
    )


def packed_bitnet(path: Path, sizes: Sizes, seed: int) -> None:
    rng = np.random.default_rng(seed)
    write_json(path / "config.json", bitnet_config(sizes, "offline"))
    linear = packed_linear(rng, divides=False)
    tensors = checkpoint(sizes, rng, linear, dtype=torch.bfloat16, tied=True, sub_norms=True)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    write_bpe(path, sizes.vocab_size)
    write_golden(path, sizes, seed, AutoBitLinear)


def master_bitnet(path: Path, sizes: Sizes, seed: int) -> None:
    rng = np.random.default_rng(seed)
    write_json(path / "config.json", bitnet_config(sizes, "online"))
    tensors = checkpoint(
        sizes,
        rng,
        master_linear(rng),
        dtype=torch.bfloat16,
        tied=True,
        sub_norms=True,
        embedding=lambda rows, columns: torch.from_numpy(
            4 * master_values(rng, rows * columns).reshape(rows, columns)
        ),
    )
    file = path / "model.safetensors"
    save_file(tensors, file, metadata={"format": "pt"})
    write_bpe(path, sizes.vocab_size)
    write_golden(path, sizes, seed, AutoBitLinear)
    file.with_name("model.safetensors.xz").write_bytes(lzma.compress(file.read_bytes(), preset=9))
    file.unlink()


def packed_llama(path: Path, sizes: Sizes, seed: int) -> None:
    """Write a model like Llama3-8B-1.58 and Falcon3-1.58bit: no sub-norms, dividing scales."""
    rng = np.random.default_rng(seed)
    config = llama_config(
        sizes,
        max_position_embeddings=8192,
        rope_theta=500000.0,
        tie_word_embeddings=True,
        quantization_config={"quant_method": "bitnet", "modules_to_not_convert": None},
    )
    write_json(path / "config.json", config)
    linear = packed_linear(rng, divides=True)
    tensors = checkpoint(sizes, rng, linear, dtype=torch.bfloat16, tied=True, sub_norms=False)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    write_bpe(path, sizes.vocab_size)
    write_golden(path, sizes, seed, BitLinear)


def grouped_llama(path: Path, sizes: Sizes, seed: int) -> None:
    """Write grouped KV heads, tied, heads wider than hidden_size / heads, Llama 3's RoPE."""
    rng = np.random.default_rng(seed)
    config = llama_config(
        sizes,
        max_position_embeddings=131072,
        tie_word_embeddings=True,
        dtype="bfloat16",
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    )
    write_json(path / "config.json", config)
    linear = float_linear(rng, torch.bfloat16)
    tensors = checkpoint(sizes, rng, linear, dtype=torch.bfloat16, tied=True, sub_norms=False)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    write_bpe(path, sizes.vocab_size)
    write_golden(path, sizes, seed, None)


def sharded_llama(path: Path, sizes: Sizes, seed: int) -> None:
    """Write as many KV heads as heads, untied, linear RoPE scaling, SentencePiece, two files."""
    rng = np.random.default_rng(seed)
    config = llama_config(
        sizes,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        torch_dtype="float16",
        rope_theta=10000.0,
        rope_scaling={"type": "linear", "factor": 2.0},
        bos_token_id=1,
        eos_token_id=2,
    )
    write_json(path / "config.json", config)
    linear = float_linear(rng, torch.float16)
    tensors = checkpoint(sizes, rng, linear, dtype=torch.float16, tied=False, sub_norms=False)
    write_shards(path, tensors, 2)
    write_sentencepiece(path, sizes.vocab_size)
    write_golden(path, sizes, seed, None)


CASES: dict[str, tuple[Callable[[Path, Sizes, int], None], Sizes, int]] = {
    # Rows of multiples of 256, which TQ1_0 and TQ2_0 need.
    "bitnet-packed": (packed_bitnet, Sizes(256, 256, 4, 1, 64), 1),
    "bitnet-masters": (master_bitnet, Sizes(256, 256, 4, 1, 64), 2),
    # Odd sizes: heads of 80, FFN a multiple of 128 but not of 256, rows across I2_S's blocks.
    "bitnet-odd": (packed_bitnet, Sizes(160, 384, 2, 1, 80), 3),
    "llama-packed": (packed_llama, Sizes(64, 128, 2, 1, 32, num_layers=3), 7),
    "llama-grouped": (grouped_llama, Sizes(32, 384, 2, 1, 80), 10),
    "llama-sharded": (sharded_llama, Sizes(48, 128, 3, 3, 16, vocab_size=301), 26),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the golden models of the tests.")
    parser.add_argument("out", type=Path, help="the folder to write them into")
    parser.add_argument("--only", choices=CASES, help="only this one")
    options = parser.parse_args(arguments)
    for name, (write, sizes, seed) in CASES.items():
        if options.only in (None, name):
            path = options.out / name
            path.mkdir(parents=True, exist_ok=True)
            for file in path.iterdir():
                file.unlink()
            write(path, sizes, seed)
    total = sum(file.stat().st_size for file in options.out.rglob("*") if file.is_file())
    print(f"{total / 1e6:.2f} MB in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
