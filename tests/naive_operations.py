"""A decoder's operations in plain NumPy and float64, over a whole text at once.

Letters of the shapes: T tokens, W values of a row. Operations run in the order in which the family
lists them. The formulas are those of ``trinity/models/operations.py``, without plans or caches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import singledispatchmethod

import numpy as np
from numpy.typing import NDArray

from trinity.formats.tensor_names import complete
from trinity.models.activation_operations import XIELU
from trinity.models.decoder import Decoder
from trinity.models.operations import (
    Attention,
    Copy,
    Gated,
    GatedAdd,
    HeadLinear,
    Linear,
    Norm,
    Operation,
    Rope,
    Scale,
)
from trinity.models.recurrent_operations import CausalConv, ChannelScan, DeltaRule, SelectiveScan

Array = NDArray[np.float64]
Rounding = Callable[[str, Array], Array]


def _sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


_ACTS: dict[str, Callable[[Array], Array]] = {
    "silu": lambda x: x * _sigmoid(x),
    "gelu": lambda x: x * _sigmoid(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)),
    "gelu_erf": lambda x: x * np.vectorize(math.erfc, otypes=[float])(-x / math.sqrt(2)) / 2,
    "relu2": lambda x: np.square(np.maximum(x, 0)),
    "sigmoid": _sigmoid,
    "none": lambda x: x,
    "swiglu_7": lambda x: np.minimum(x, 7) * _sigmoid(np.minimum(x, 7)),
    "swiglu_oai": lambda x: np.minimum(x, 7) * _sigmoid(1.702 * np.minimum(x, 7)),
}


class NaiveDecoder:
    """Runs a decoder's operations on tensors by complete name.

    ``interleaved``: neighbouring dimensions rotate. ``rounded(name, x)`` rounds the input x (T, W)
    of the weight of that name.
    """

    def __init__(
        self,
        decoder: Decoder,
        tensors: Mapping[str, NDArray[np.float32]],
        interleaved: bool,
        rounded: Rounding = lambda name, x: x,
    ) -> None:
        self.decoder = decoder
        self.tensors = tensors
        self.interleaved = interleaved
        self.rounded = rounded
        self.buffers: dict[str, Array] = {}
        self.cache: dict[int, tuple[Array, Array]] = {}
        self.prefix = ""
        self.layer = 0

    def logits(self, tokens: Sequence[int]) -> Array:
        """Compute the logits (T, vocabulary) of tokens at positions 0 to T - 1."""
        config, architecture = self.decoder.config, self.decoder.architecture
        self.buffers = {
            name: np.full((len(tokens), width), np.nan)
            for name, width in self.decoder.widths.items()
        }
        embeddings = [("token_embd", "x", architecture.embedding_scale(config))]
        embeddings += [(t.weight, t.buffer, t.scale) for t in architecture.tables(config)]
        for name, buffer, scale in embeddings:
            rows = self.tensors[complete(name)][list(tokens)].astype(np.float64)
            self.buffers[buffer][:, : rows.shape[1]] = rows * scale
        self._run("", self.decoder.prologue)
        for index, layer in enumerate(self.decoder.layers):
            self.layer = index
            self._run(f"blk.{index}.", layer)
        last = Norm("x", architecture.output_norm, "h", config.hidden_size, kind=architecture.norm)
        self._run("", [last])
        head = self.decoder.head
        h = self.buffers["h"][:, : config.hidden_size]
        result = self.rounded(f"{head}.weight", h) @ self._weight(head).T
        result = (result + self._beside(head, "bias", 0)) * architecture.logit_scale(config)
        cap = architecture.logit_softcap(config)
        return cap * np.tanh(result / cap) if cap else result

    def _run(self, prefix: str, operations: Sequence[Operation]) -> None:
        self.prefix = prefix
        for operation in operations:
            self.run(operation)

    def _weight(self, name: str) -> Array:
        return self.tensors[self.prefix + complete(name)].astype(np.float64)

    def _beside(self, name: str, what: str, default: float) -> Array:
        found = self.tensors.get(f"{self.prefix}{name}.{what}")
        return np.array(default, np.float64) if found is None else found.astype(np.float64)

    def _put(self, name: str, rows: Array, add: bool) -> None:
        out = self.buffers[name][:, : rows.shape[1]]
        out[:] = out + rows if add else rows

    def _heads(self, name: str, count: int, width: int) -> Array:
        """Return a view (T, count, width) of a buffer's first values."""
        rows = self.buffers[name]
        return rows[:, : count * width].reshape(len(rows), count, width)

    @singledispatchmethod
    def run(self, operation: Operation) -> None:
        """Run one operation of the current layer."""
        raise TypeError(operation)

    @run.register
    def _(self, norm: Norm) -> None:
        x = self._heads(norm.x, norm.groups, norm.width).copy()
        if norm.kind == "layer":
            x -= x.mean(axis=-1, keepdims=True)
        eps = norm.eps or self.decoder.config.rms_norm_eps
        weight = self._weight(norm.weight) if norm.weight else np.ones(norm.width)
        weight = weight if norm.per_group else weight.reshape(-1)
        x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * weight * norm.factor
        if norm.kind == "layer":
            x = x + self._beside(norm.weight, "bias", 0)
        self._put(norm.out, x.reshape(len(x), -1), norm.add)

    @run.register
    def _(self, linear: Linear) -> None:
        x = self.buffers[linear.x][:, : linear.width].copy()
        for product in linear.products:
            rows = slice(product.first, product.first + product.rows)
            weight = self._weight(product.weight)[rows]
            y = self.rounded(self.prefix + complete(product.weight), x) @ weight.T
            bias = self._beside(product.weight, "bias", 0)
            y = (y + (bias[rows] if bias.ndim else bias)) * linear.scale
            self._put(product.out, y, linear.add)

    @run.register
    def _(self, linear: HeadLinear) -> None:
        x = self._heads(linear.x, linear.heads, linear.x_step)[..., : linear.width]
        out = self._heads(linear.out, linear.heads, linear.out_step)
        weights = self._weight(linear.weight)
        for head in range(linear.heads):
            some = self.rounded(self.prefix + complete(linear.weight), x[:, head])
            out[:, head, : linear.rows] = some @ weights[head].T

    @run.register
    def _(self, copy: Copy) -> None:
        for group in range(copy.groups):
            start, to = copy.x_first + group * copy.x_step, copy.out_first + group * copy.out_step
            piece = self.buffers[copy.x][:, start : start + copy.width].copy()
            self.buffers[copy.out][:, to : to + copy.width] = piece

    @run.register
    def _(self, gated: Gated) -> None:
        gate = self.buffers[gated.gate][:, : gated.width]
        y = _ACTS[gated.activation](gate)
        if gated.up:
            up = self.buffers[gated.up][:, gated.first : gated.first + gated.width]
            if gated.activation.startswith("swiglu"):
                up = np.clip(up, -7, 7) + (gated.activation == "swiglu_oai")
            y = y * up
        gate[:] = y

    @run.register
    def _(self, activation: XIELU) -> None:
        x = self.buffers[activation.x][:, : activation.width]
        below = activation.alpha_n * (np.expm1(np.minimum(x, activation.eps)) - x)
        above = activation.alpha_p * x**2
        x[:] = np.where(x > 0, above, below) + activation.beta * x

    @run.register
    def _(self, scale: Scale) -> None:
        factor = self._weight(scale.weight).item() if scale.weight else 1.0
        self.buffers[scale.x][:, : scale.width] *= factor * scale.factor

    @run.register
    def _(self, added: GatedAdd) -> None:
        gate = _sigmoid(self.buffers[added.gate][:, :1])
        self._put(added.out, gate * self.buffers[added.x][:, : added.width], True)

    @run.register
    def _(self, rope: Rope) -> None:
        q = self._heads("q", rope.num_heads, rope.head_dim)
        positions = np.arange(len(q))
        turned = [q]
        if rope.stores:
            k = self._heads("k", rope.num_kv_heads, rope.head_dim)
            turned.append(k)
        if rope.rotation is not None:
            half = rope.rotation.dim // 2
            angles = rope.rotation.theta ** (-np.arange(half) / half) * positions[:, None]
            first, second = np.arange(half), np.arange(half) + half
            if self.interleaved:
                first, second = 2 * np.arange(half), 2 * np.arange(half) + 1
            for x in turned:
                pairs = x[..., rope.first + first] + 1j * x[..., rope.first + second]
                pairs = pairs * np.exp(1j * angles)[:, None]
                x[..., rope.first + first] = pairs.real
                x[..., rope.first + second] = pairs.imag
        if rope.temperature is not None:
            turns = np.floor((positions + rope.temperature.offset) / rope.temperature.length)
            q *= (1 + rope.temperature.scale * np.log(1 + turns))[:, None, None]
        if rope.stores:
            v = self._heads(rope.value, rope.num_kv_heads, rope.value_dim or rope.head_dim)
            self.cache[self.layer] = k.copy(), v.copy()

    @run.register
    def _(self, attention: Attention) -> None:
        source = self.layer if attention.cache_of is None else attention.cache_of
        keys, values = self.cache[source]
        q = self._heads("q", attention.num_heads, attention.head_dim)
        group = attention.num_heads // attention.num_kv_heads
        keys, values = np.repeat(keys, group, axis=1), np.repeat(values, group, axis=1)
        scores = np.einsum("thd,shd->hts", q, keys) * attention.scale
        if attention.softcap:
            scores = attention.softcap * np.tanh(scores / attention.softcap)
        distance = np.arange(len(q))[:, None] - np.arange(len(q))
        hidden = distance < 0
        if attention.window:
            firsts = np.arange(len(q)) - attention.window + 1
            if attention.chunked:
                firsts = np.arange(len(q)) // attention.window * attention.window
            hidden |= np.arange(len(q)) < firsts[:, None]
        scores[:, hidden] = -math.inf
        if attention.sinks:
            sinks = np.broadcast_to(
                self._weight(attention.sinks)[:, None, None], (*scores.shape[:2], 1)
            )
            scores = np.concatenate([scores, sinks], axis=-1)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p = (p / p.sum(axis=-1, keepdims=True))[..., : len(q)]
        mixed = np.einsum("hts,shd->thd", p, values)
        self._put("a", mixed.reshape(len(q), -1), False)

    @run.register
    def _(self, conv: CausalConv) -> None:
        x = self.buffers[conv.x][:, : conv.width]
        taps = self._weight(conv.weight).reshape(conv.width, conv.taps)
        padded = np.concatenate([np.zeros((conv.taps - 1, conv.width)), x])
        y = sum(padded[i : i + len(x)] * taps[:, i] for i in range(conv.taps))
        y = y + self._beside(conv.weight, "bias", 0)
        x[:] = _ACTS[conv.activation](y) if conv.activation else y

    @run.register
    def _(self, rule: DeltaRule) -> None:
        count, dim, width = rule.key_heads, rule.key_dim, rule.heads * rule.value_dim
        row = self.buffers[rule.x]
        q, k = (
            row[:, i * count * dim : (i + 1) * count * dim].reshape(-1, count, dim) for i in (0, 1)
        )
        v = row[:, 2 * count * dim :][:, :width].reshape(-1, rule.heads, rule.value_dim)
        heads = np.arange(rule.heads)
        of_keys = heads % count if rule.tiled else heads // (rule.heads // count)
        alpha, beta = (self.buffers[name][:, : rule.heads] for name in (rule.alpha, rule.beta))
        a, bias = self._weight(rule.a).reshape(-1), self._weight(rule.bias)
        decay = np.exp(a * np.logaddexp(0, alpha + bias))[..., None, None]
        state = np.zeros((rule.heads, dim, rule.value_dim))
        out = np.zeros_like(v)
        for t in range(len(row)):
            state *= decay[t]
            wrong = v[t] - np.einsum("hkv,hk->hv", state, k[t, of_keys])
            wrong *= _sigmoid(beta[t])[:, None]
            state += k[t, of_keys][..., None] * wrong[:, None]
            out[t] = np.einsum("hkv,hk->hv", state, q[t, of_keys]) * rule.scale
        self._put(rule.out, out.reshape(len(row), -1), False)

    @run.register
    def _(self, scan: ChannelScan) -> None:
        x = self.buffers[scan.x][:, : scan.width]
        b, c = (self.buffers[name][:, : scan.key_dim] for name in (scan.b, scan.c))
        a = self._weight(scan.a).reshape(scan.width, scan.key_dim)
        d = self._weight(scan.d).reshape(-1)
        step = np.logaddexp(0, self.buffers[scan.dt][:, : scan.width])
        state = np.zeros_like(a)
        out = np.zeros_like(x)
        for t in range(len(x)):
            state = np.exp(a * step[t][:, None]) * state + np.outer(step[t] * x[t], b[t])
            out[t] = state @ c[t] + d * x[t]
        self._put(scan.out, out, False)

    @run.register
    def _(self, scan: SelectiveScan) -> None:
        row, width = self.buffers[scan.x], scan.heads * scan.head_dim
        x = row[:, :width].reshape(-1, scan.heads, scan.head_dim)
        keys = row[:, width : width + 2 * scan.groups * scan.key_dim]
        b, c = np.split(keys.reshape(len(row), 2 * scan.groups, scan.key_dim), 2, axis=1)
        of_group = np.arange(scan.heads) // (scan.heads // scan.groups)
        a, d, bias = (self._weight(name).reshape(-1) for name in (scan.a, scan.d, scan.bias))
        step = np.logaddexp(0, self.buffers[scan.dt][:, : scan.heads] + bias)
        state = np.zeros((scan.heads, scan.head_dim, scan.key_dim))
        out = np.zeros_like(x)
        for t in range(len(row)):
            taken = (step[t][:, None] * x[t])[..., None] * b[t, of_group][:, None]
            state = np.exp(a * step[t])[:, None, None] * state + taken
            out[t] = np.einsum("hpn,hn->hp", state, c[t, of_group]) + d[:, None] * x[t]
        self._put(scan.out, out.reshape(len(row), -1), False)
