"""Write tests/data/classes/rwkv7.npz with NumPy, in float64; transformers lacks the class.

    python tests/goldens/rwkv_golden.py

The formulas are read from fla's RWKV7Attention, RWKV7FeedForward and RWKV7Block; needs safetensors.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.formats.huggingface.class_configs import CONFIGS  # noqa: E402
from tests.formats.huggingface.class_models import PROMPT, TOKENS, write  # noqa: E402

NAME = "rwkv7"
Doubles = NDArray[np.float64]


def sigmoid(x: Doubles) -> Doubles:
    return np.asarray(1 / (1 + np.exp(-x)))


def normed(x: Doubles, eps: float) -> Doubles:
    centred = x - x.mean(-1, keepdims=True)
    return np.asarray(centred / np.sqrt(x.var(-1, keepdims=True) + eps))


class Model:
    """The class's formulas, one token after the other in each layer."""

    def __init__(self, config: dict[str, Any], weights: dict[str, Doubles]) -> None:
        self.weights, self.layers = weights, config["num_hidden_layers"]
        self.size, self.eps = config["head_dim"], config["norm_eps"]

    def layer_norm(self, x: Doubles, name: str) -> Doubles:
        weight, bias = (self.weights[f"{name}.{kind}"] for kind in ("weight", "bias"))
        return normed(x, self.eps) * weight + bias

    def low_rank(self, x: Doubles, name: str, between: Any = None) -> Doubles:
        latent = x @ self.weights[f"{name}_lora.lora.0.weight"].T
        latent = between(latent) if between else latent
        result = latent @ self.weights[f"{name}_lora.lora.2.weight"].T
        bias = self.weights.get(f"{name}_lora.lora.2.bias")
        return np.asarray(result if bias is None else result + bias)

    def attention(self, x: Doubles, name: str, first: Doubles | None) -> tuple[Doubles, Doubles]:
        """The result, and the first layer's values."""
        weights, heads = self.weights, (len(x), -1, self.size)
        shift = np.vstack([np.zeros_like(x[:1]), x[:-1]]) - x
        mixed = {one: x + shift * weights[f"{name}.x_{one}"].reshape(-1) for one in "rwkvag"}
        r, k, v = (mixed[one] @ weights[f"{name}.{one}_proj.weight"].T for one in "rkv")
        decay = np.exp(-(np.e**-0.5) * sigmoid(self.low_rank(mixed["w"], f"{name}.w", np.tanh)))
        rate = sigmoid(self.low_rank(mixed["a"], f"{name}.a"))
        gate = self.low_rank(mixed["g"], f"{name}.g", sigmoid)
        if first is None:
            first = v
        else:
            v = v + (first - v) * sigmoid(self.low_rank(mixed["v"], f"{name}.v"))
        unit = (k * weights[f"{name}.k_k"]).reshape(heads)
        unit /= np.maximum(np.linalg.norm(unit, axis=-1, keepdims=True), 1e-12)
        k = k * (1 + (rate - 1) * weights[f"{name}.k_a"])
        r, decay, k, v, rate = (one.reshape(heads) for one in (r, decay, k, v, rate))
        out, state = np.zeros_like(v), np.zeros((r.shape[1], self.size, self.size))
        for t in range(len(x)):
            seen = np.einsum("hvk,hk->hv", state, -unit[t])
            state = state * decay[t][:, None] + np.einsum("hv,hk->hvk", v[t], k[t])
            state += np.einsum("hv,hk->hvk", seen, unit[t] * rate[t])
            out[t] = np.einsum("hvk,hk->hv", state, r[t])
        flat = normed(out, self.size * self.eps).reshape(x.shape)
        flat = flat * weights[f"{name}.g_norm.weight"] + weights[f"{name}.g_norm.bias"]
        bonus = (r * k * weights[f"{name}.r_k"].reshape(heads[1:])).sum(-1, keepdims=True) * v
        flat = (flat + bonus.reshape(x.shape)) * gate
        return flat @ weights[f"{name}.o_proj.weight"].T, first

    def feed_forward(self, x: Doubles, name: str) -> Doubles:
        shift = np.vstack([np.zeros_like(x[:1]), x[:-1]]) - x
        mixed = x + shift * self.weights[f"{name}.x_k"].reshape(-1)
        hidden = np.maximum(mixed @ self.weights[f"{name}.key.weight"].T, 0) ** 2
        return np.asarray(hidden @ self.weights[f"{name}.value.weight"].T)

    def logits(self, ids: list[int]) -> Doubles:
        """The logits after each token."""
        first: Doubles | None = None
        x = self.weights["model.embeddings.weight"][ids]
        x = self.layer_norm(x, "model.layers.0.pre_norm")
        for layer in range(self.layers):
            name = f"model.layers.{layer}"
            result, first = self.attention(
                self.layer_norm(x, f"{name}.attn_norm"), f"{name}.attn", first
            )
            x = x + result
            x = x + self.feed_forward(self.layer_norm(x, f"{name}.ffn_norm"), f"{name}.ffn")
        return self.layer_norm(x, "model.norm") @ self.weights["lm_head.weight"].T


def main() -> None:
    """Write the logits of the prompt, and the greedy tokens after it."""
    with tempfile.TemporaryDirectory() as folder:
        file = write(NAME, Path(folder) / NAME) / "model.safetensors"
        weights = {name: array.astype(np.float64) for name, array in load_file(file).items()}
    model, tokens = Model(CONFIGS[NAME], weights), list(PROMPT)
    for _ in range(TOKENS):
        tokens.append(int(model.logits(tokens)[-1].argmax()))
    np.savez_compressed(
        ROOT / "tests" / "data" / "classes" / f"{NAME}.npz",
        logits=model.logits(list(PROMPT)).astype(np.float32),
        greedy=np.array(tokens[len(PROMPT) :]),
    )


if __name__ == "__main__":
    main()
