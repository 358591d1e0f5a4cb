"""Write tests/data/classes/rwkv6.npz and rwkv7.npz with NumPy, in float64.

    python tests/goldens/rwkv_golden.py [NAME ...]

transformers lacks the classes. The formulas of RWKV-7 are read from fla's RWKV7Attention,
RWKV7FeedForward and RWKV7Block, those of RWKV-6 from llama.cpp's rwkv6.cpp and rwkv6-base.cpp;
needs safetensors.
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

Doubles = NDArray[np.float64]


def sigmoid(x: Doubles) -> Doubles:
    return np.asarray(1 / (1 + np.exp(-x)))


def normed(x: Doubles, eps: float) -> Doubles:
    centred = x - x.mean(-1, keepdims=True)
    return np.asarray(centred / np.sqrt(x.var(-1, keepdims=True) + eps))


class Finch:
    """RWKV-6's formulas, one token after the other in each layer."""

    def __init__(self, config: dict[str, Any], weights: dict[str, Doubles]) -> None:
        self.weights, self.layers = weights, config["num_hidden_layers"]
        self.size, self.eps = config["head_size"], config["layer_norm_epsilon"]

    def layer_norm(self, x: Doubles, name: str) -> Doubles:
        weight, bias = (self.weights[f"{name}.{kind}"] for kind in ("weight", "bias"))
        return normed(x, self.eps) * weight + bias

    def time_mix(self, x: Doubles, name: str) -> Doubles:
        def of(one: str) -> Doubles:
            return self.weights[f"{name}.{one}"]

        def vector(one: str) -> Doubles:
            return of(one).reshape(-1)

        shift = np.vstack([np.zeros_like(x[:1]), x[:-1]]) - x
        latent = np.tanh((x + shift * vector("time_maa_x")) @ of("time_maa_w1"))
        latent = latent.reshape(len(x), 5, -1)
        w, k, v, r, g = (
            x + shift * (vector(f"time_maa_{one}") + latent[:, i] @ of("time_maa_w2")[i])
            for i, one in enumerate("wkvrg")
        )
        w = np.tanh(w @ of("time_decay_w1")) @ of("time_decay_w2") + vector("time_decay")
        decay = np.exp(-np.exp(w))
        k, v, r = (
            part @ of(f"{one}.weight").T
            for part, one in ((k, "key"), (v, "value"), (r, "receptance"))
        )
        gate = g @ of("gate.weight").T
        gate = gate * sigmoid(gate)
        heads = len(x), -1, self.size
        decay, k, v, r = (part.reshape(heads) for part in (decay, k, v, r))
        first = of("time_faaaa").reshape(k.shape[1:])
        out, state = np.zeros_like(v), np.zeros((*v.shape[1:], self.size))
        for t in range(len(x)):
            taken = k[t][:, :, None] * v[t][:, None]
            out[t] = np.einsum("hk,hkv->hv", r[t], state + first[:, :, None] * taken)
            state = state * decay[t][:, :, None] + taken
        flat = normed(out, 64e-5).reshape(x.shape)
        flat = (flat * of("ln_x.weight") + of("ln_x.bias")) * gate
        return np.asarray(flat @ of("output.weight").T)

    def channel_mix(self, x: Doubles, name: str) -> Doubles:
        weights = self.weights
        shift = np.vstack([np.zeros_like(x[:1]), x[:-1]]) - x
        k, r = (x + shift * weights[f"{name}.time_maa_{one}"].reshape(-1) for one in "kr")
        hidden = np.maximum(k @ weights[f"{name}.key.weight"].T, 0) ** 2
        rate = sigmoid(r @ weights[f"{name}.receptance.weight"].T)
        return np.asarray(rate * (hidden @ weights[f"{name}.value.weight"].T))

    def logits(self, ids: list[int]) -> Doubles:
        """The logits after each token."""
        x = self.layer_norm(self.weights["rwkv.embeddings.weight"][ids], "rwkv.blocks.0.pre_ln")
        for layer in range(self.layers):
            name = f"rwkv.blocks.{layer}"
            x = x + self.time_mix(self.layer_norm(x, f"{name}.ln1"), f"{name}.attention")
            x = x + self.channel_mix(self.layer_norm(x, f"{name}.ln2"), f"{name}.feed_forward")
        return self.layer_norm(x, "rwkv.ln_out") @ self.weights["head.weight"].T


class Goose:
    """RWKV-7's formulas, one token after the other in each layer."""

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


def write_golden(name: str, model_class: type[Finch | Goose]) -> None:
    """Write the logits of the prompt, and the greedy tokens after it."""
    with tempfile.TemporaryDirectory() as folder:
        file = write(name, Path(folder) / name) / "model.safetensors"
        weights = {name: array.astype(np.float64) for name, array in load_file(file).items()}
    model, tokens = model_class(CONFIGS[name], weights), list(PROMPT)
    for _ in range(TOKENS):
        tokens.append(int(model.logits(tokens)[-1].argmax()))
    np.savez_compressed(
        ROOT / "tests" / "data" / "classes" / f"{name}.npz",
        logits=model.logits(list(PROMPT)).astype(np.float32),
        greedy=np.array(tokens[len(PROMPT) :]),
    )


def main() -> None:
    """Write the files that are named, or both."""
    models: dict[str, type[Finch | Goose]] = {"rwkv6": Finch, "rwkv7": Goose}
    for name in sys.argv[1:] or models:
        write_golden(name, models[name])


if __name__ == "__main__":
    main()
