"""Write the memory and expected speed of models of known shapes into models.md.

The size of a file and the bytes read per token follow from the family's declaration in
trinity/models and from the published configuration, so they are those of what trinity runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from trinity.config import ExpertConfig, LatentConfig, ModelConfig
from trinity.models import ARCHITECTURES
from trinity.models.decoder import Decoder

DOCUMENT = Path(__file__).resolve().parents[2] / "models.md"
BEGIN, END = "<!-- sizes: scripts/documents/families_table.py -->\n", "<!-- end of sizes -->\n"
HEAD = (
    "| model | `general.architecture` | parameters | read for a token | file | keys and values of "
    "1,000 tokens | tokens/s at 20, 50, 100 GB/s |"
)
EFFICIENCY = 0.8  # of the read bandwidth, as measured for decoding: docs/benchmarks.md
BANDWIDTHS = (20e9, 50e9, 100e9)
Q4_K_M, MXFP4 = 4.9, 4.6  # bits of a weight, the higher types of some tensors counted in


@dataclass(frozen=True, slots=True)
class Known:
    """A published model."""

    name: str
    config: ModelConfig
    bits: float = Q4_K_M
    has: tuple[str, ...] = ()

    @property
    def decoder(self) -> Decoder:
        """Its layers."""
        names = {
            f"blk.{layer}.{name}.weight"
            for layer in range(self.config.num_layers)
            for name in self.has
        }
        architecture = ARCHITECTURES[self.config.architecture]
        return Decoder(architecture, architecture.completed(self.config), names)


def model(
    name: str, architecture: str, hidden: int, ffn: int, layers: int, heads: int, kv_heads: int,
    head_dim: int, vocab: int, *, bits: float = Q4_K_M, has: tuple[str, ...] = (), **more: Any,
) -> Known:  # fmt: skip
    """Make a model from the sizes of its config.json; ``tied``: the output is the embedding."""
    config = ModelConfig(
        architecture=architecture, hidden_size=hidden, intermediate_size=ffn, num_layers=layers,
        num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim, vocab_size=vocab,
        context_length=32_768, rms_norm_eps=1e-6,
        rope_dim=more.pop("rope_dim", head_dim), tie_word_embeddings=more.pop("tied", False),
        logit_scale=1.0, **more,
    )  # fmt: skip
    return Known(name, config, bits, has)


FUSED = ("attn_qkv",)
KNOWN = (
    model("Qwen 3 0.6B", "qwen3", 1024, 3072, 28, 16, 8, 128, 151_936, tied=True),
    model("Gemma 3 1B", "gemma3", 1152, 6912, 26, 4, 1, 256, 262_144, tied=True,
          sliding_window=512),
    model("SmolLM 3 3B", "smollm3", 2048, 11_008, 36, 16, 4, 128, 128_256, tied=True),
    model("StarCoder 2 3B", "starcoder2", 3072, 12_288, 30, 24, 2, 128, 49_152, tied=True),
    model("Phi-4-mini", "phi3", 3072, 8192, 32, 24, 8, 128, 200_064, tied=True, has=FUSED,
          rope_dim=96),
    model("Qwen 2.5 7B", "qwen2", 3584, 18_944, 28, 28, 4, 128, 152_064),
    model("Llama 3.1 8B", "llama", 4096, 14_336, 32, 32, 8, 128, 128_256),
    model("Qwen 3 8B", "qwen3", 4096, 12_288, 36, 32, 8, 128, 151_936),
    model("Gemma 2 9B", "gemma2", 3584, 14_336, 42, 16, 8, 256, 256_000, tied=True,
          sliding_window=4096),
    model("GLM-4 9B", "glm4", 4096, 13_696, 40, 32, 2, 128, 151_552, rope_dim=64),
    model("OLMo 2 13B", "olmo2", 5120, 13_824, 40, 40, 40, 128, 100_352),
    model("Granite 3.1 3B-A800M", "granitemoe", 1536, 512, 32, 24, 8, 64, 49_155, tied=True,
          experts=ExpertConfig(40, 8, 512)),
    model("DeepSeek V2 Lite", "deepseek2", 2048, 10_944, 27, 16, 1, 576, 102_400, rope_dim=64,
          experts=ExpertConfig(64, 6, 1408, 2816, 1), latent=LatentConfig(512, 0, 192, 128)),
    model("gpt-oss-20b (MXFP4)", "gpt-oss", 2880, 2880, 24, 64, 8, 64, 201_088, bits=MXFP4,
          sliding_window=128, experts=ExpertConfig(32, 4, 2880)),
    model("Qwen 3 30B-A3B", "qwen3moe", 2048, 6144, 48, 32, 4, 128, 151_936,
          experts=ExpertConfig(128, 8, 768)),
    model("GLM 4.5 Air", "glm4moe", 4096, 10_944, 46, 96, 8, 128, 151_552, rope_dim=64,
          experts=ExpertConfig(128, 8, 1408, 1408, 1)),
    model("Gemma 3n E4B", "gemma3n", 2048, 16_384, 35, 8, 2, 256, 262_400, tied=True,
          sliding_window=512, per_layer_input_size=256, shared_kv_layers=15),
    model("Apertus 8B", "apertus", 4096, 21_504, 32, 32, 8, 128, 131_072,
          **dict.fromkeys(("xielu_alpha_p", "xielu_alpha_n", "xielu_beta", "xielu_eps"),
                          (0.5,) * 32)),
    model("Laguna XS.2", "laguna", 2048, 8192, 40, 64, 8, 128, 100_352, rope_dim=64,
          sliding_window=512, layer_heads=(48, 64, 64, 64) * 10,
          experts=ExpertConfig(256, 8, 512, 512, 1)),
    model("Llama 4 Scout", "llama4", 5120, 16_384, 48, 40, 8, 128, 202_048,
          experts=ExpertConfig(16, 1, 8192)),
    model("Mixtral 8x7B", "llama", 4096, 14_336, 32, 32, 8, 128, 32_000,
          experts=ExpertConfig(8, 2, 14_336)),
)  # fmt: skip


def counts(known: Known) -> tuple[int, int]:
    """Return the number of weights, and of those that a token reads (only the chosen experts)."""
    decoder, experts = known.decoder, known.config.experts
    total = read = 0
    for name, shape in decoder.tensors().items():
        size = prod(shape)
        total += size
        of_token = name.startswith(("token_embd.", "per_layer_token_embd."))  # a row of it
        if name.startswith(f"{decoder.head}.") or not of_token:
            chosen = "_exps." in name and experts is not None
            read += size * experts.num_experts_per_tok // experts.num_experts if chosen else size
    return total, read


def cache_bytes(known: Known, positions: int) -> int:
    """Return the bytes of the KV cache in float16; a windowed layer keeps its window."""
    return sum(
        2
        * layer.num_kv_heads
        * (layer.head_dim + layer.width_of_values)
        * min(positions, layer.window or positions)
        for layer in known.decoder.attention
        if layer.cache_of is None
    )


def _speed(tokens: float) -> str:
    return f"{tokens:.0f}" if tokens >= 10 else f"{tokens:.1f}"


def rows() -> Iterator[str]:
    """Return the rows of the table, the smallest model first."""
    for known in sorted(KNOWN, key=lambda known: counts(known)[0]):
        total, read = counts(known)
        size, speed = known.bits / 8, EFFICIENCY / (known.bits / 8 * read)
        cells = (
            known.name,
            f"`{known.config.architecture}`",
            f"{total / 1e9:.2f} B",
            f"{read / 1e9:.2f} B",
            f"{size * total / 1e9:.1f} GB",
            f"{cache_bytes(known, 1000) / 1e6:.0f} MB",
            ", ".join(_speed(speed * bandwidth) for bandwidth in BANDWIDTHS),
        )
        yield f"| {' | '.join(cells)} |"


def table() -> str:
    """Return the table as it is in the document."""
    return f"{HEAD}\n| --- | --- |{' ---: |' * 5}\n" + "".join(f"{row}\n" for row in rows())


def main() -> None:
    """Print or write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="put it into models.md")
    if not parser.parse_args().write:
        print(table(), end="")
        return
    before, _, rest = DOCUMENT.read_text("utf-8").partition(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}", "utf-8")


if __name__ == "__main__":
    main()
