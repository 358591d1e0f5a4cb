"""A family's table: the canonical name of each tensor, and where a checkpoint has it.

A table has no shapes: they come from the layers of the model, and a stored tensor is checked after
its view. Which of a table's tensors a layer has is also for the model's layers to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.formats.huggingface.stored import Change, Stored, View, as_it_is, part, transposed
from trinity.formats.huggingface.values import Values
from trinity.formats.tensor_names import beside, complete

_BIAS, _WEIGHT = ".bias", ".weight"


@dataclass(frozen=True, slots=True)
class TableRow:
    """A tensor's names in a checkpoint, and how its values differ from the model's."""

    # The ways in which checkpoints store it. The first one is named if the tensor is missing.
    forms: tuple[Stored, ...]
    # Whether a bias belongs to it: always, or if this key of config.json is true.
    bias: bool | str = False
    # The tensor exists if this key of config.json is true; "": always.
    when: str = ""
    # The layers that have the tensor; None: those whose operations need it.
    layers: Collection[int] | None = None
    # The model's layers do without the tensor if the checkpoint has none.
    optional: bool = False
    # GGUF has the rows of each head permuted.
    permuted: bool = False
    # Applied to each value.
    change: Change | None = None
    # The factors of each part of a form, applied in order.
    factors: tuple[tuple[float, ...], ...] = ()
    # The model has a vector as a column, (rows, 1).
    column: bool = False
    # Only for tensors that no operation of a layer states: classifiers, rows that are added.
    shape: tuple[int, ...] | None = None


Table = Mapping[str, str | TableRow]
# A table, or what makes one of the model's sizes and config.json's values.
Tables = Table | Callable[[ModelConfig, Values], Table]


def at(
    *modules: str, add: float = 0.0, bias: bool | str = False, when: str = "",
    permuted: bool = False, shape: tuple[int, ...] | None = None,
) -> TableRow:  # fmt: skip
    """Return the row of a module's weight, which checkpoints may name differently.

    ``add``: what GGUF adds to the values.
    """
    forms = tuple(Stored((f"{module}{_WEIGHT}",)) for module in modules)
    change = partial(_plus, add) if add else None
    return TableRow(forms, bias, when, permuted=permuted, change=change, shape=shape)


def tensor(*names: str, when: str = "") -> TableRow:
    """Return the row of a tensor with its whole name; the first existing name is used."""
    return TableRow(tuple(Stored((name,)) for name in names), when=when)


def _plus(addend: float, values: NDArray[np.float32]) -> NDArray[np.float32]:
    return values + np.float32(addend)


def table_rows(tables: Tables, config: ModelConfig, values: Values) -> dict[str, TableRow]:
    """Return the rows by whole name, in order, each weight's bias after it."""
    rows: dict[str, TableRow] = {}
    for name, given in (tables(config, values) if callable(tables) else tables).items():
        row = at(given) if isinstance(given, str) else given
        if row.when and not values.flag(row.when):
            continue
        bias = values.flag(row.bias) if isinstance(row.bias, str) else row.bias
        if row.column:
            row = replace(row, forms=tuple(_as_column(form) for form in row.forms))
        rows[complete(name)] = row
        if bias:
            forms = tuple(Stored(tuple(map(_bias_of, form.names))) for form in row.forms)
            shape = None if row.shape is None else row.shape[:1]
            rows[beside(name, "bias")] = TableRow(forms, permuted=row.permuted, shape=shape)
    return rows


def _bias_of(name: str) -> str:
    return f"{name.removesuffix(_WEIGHT)}{_BIAS}"


def _as_column(form: Stored) -> Stored:
    view = form.view
    return replace(form, view=lambda array: view(array).reshape(-1, 1))


EMBEDDING: Table = {"token_embd": "model.embed_tokens"}
PLAIN_ENDS: Table = {**EMBEDDING, "output_norm": "model.norm"}


def attention(
    *, bias: bool | str = False, output_bias: bool | str = False, permuted: bool = False,
    module: str = "self_attn", output: str = "o_proj",
) -> Table:  # fmt: skip
    """Return query, key, value and output projections. ``bias`` is that of the first three."""
    return {
        "attn_q": at(f"{module}.q_proj", bias=bias, permuted=permuted),
        "attn_k": at(f"{module}.k_proj", bias=bias, permuted=permuted),
        "attn_v": at(f"{module}.v_proj", bias=bias),
        "attn_output": at(f"{module}.{output}", bias=output_bias),
    }


def head_norms(*, add: float = 0.0, when: str = "") -> Table:
    """Return norms of queries and keys."""
    return {
        "attn_q_norm": at("self_attn.q_norm", add=add, when=when),
        "attn_k_norm": at("self_attn.k_norm", add=add, when=when),
    }


def gated(module: str = "mlp", *, suffix: str = "", bias: bool | str = False) -> Table:
    """Return a gated feed-forward. ``suffix`` of GGUF's names: "_shexp" for a shared expert."""
    return {
        f"ffn_{name}{suffix}": at(f"{module}.{name}_proj", bias=bias)
        for name in ("gate", "up", "down")
    }


def pre_norm_layer(attention: Table, feed_forward: Table, *, ffn_norm: str = "ffn_norm") -> Table:
    """Return a layer that normalizes the inputs of its attention and of its feed-forward."""
    return {
        "attn_norm": "input_layernorm",
        **attention,
        ffn_norm: "post_attention_layernorm",
        **feed_forward,
    }


def post_norm_layer(attention: Table, feed_forward: Table) -> Table:
    """Return a layer that normalizes the results of its attention and of its feed-forward."""
    return {
        **attention,
        "post_attention_norm": "post_attention_layernorm",
        **feed_forward,
        "post_ffw_norm": "post_feedforward_layernorm",
    }


def both_rows(both: str, *apart: str) -> tuple[TableRow, TableRow]:
    """Return gate and up, stored in one tensor with the gate's rows first, or in two."""
    gate, up = (
        TableRow(
            (Stored((both,), part(i, 2)), *(Stored((name.format(part_name),)) for name in apart))
        )
        for i, part_name in enumerate(("gate", "up"))
    )
    return gate, up


def experts(
    module: str, *, gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj"
) -> Table:
    """Return experts: one matrix each, one tensor for all, or gate and up in one tensor.

    ``gate`` "": there is no gate. mlx-lm names stacks switch_mlp; Ollama's tensor blobs have
    transformers' name.
    """
    both = f"{module}.gate_up_proj"
    together = {
        "gate": (Stored((both,), part(0, 2)),),
        "up": (Stored((both,), part(1, 2)),) if gate else (),
        "down": (Stored((f"{module}.down_proj",)),),
    }
    switch = f"{module.rpartition('.')[0]}.switch_mlp"
    return {
        f"ffn_{name}_exps": TableRow(
            (
                Stored((f"{module}.{{}}.{own}.weight",)),
                *together[name],
                *(Stored((f"{place}.{name}_proj.weight",)) for place in (switch, module)),
            )
        )
        for name, own in (("gate", gate), ("up", up), ("down", down))
        if own
    }


def turned_experts(module: str, hidden_size: int, width: int) -> Table:
    """Return experts of one tensor for all, stored as (inputs, outputs), gate and up in one.

    transformers 5 saves them as (outputs, inputs). Like transformers, trinity takes a square matrix
    for one of these. mlx-lm names stacks switch_mlp, and stores them as (outputs, inputs).
    """
    switch = f"{module.rpartition('.')[0]}.switch_mlp"
    views = {"gate": part(0, 2), "up": part(1, 2), "down": as_it_is}
    new_shapes = (2 * width, hidden_size), (hidden_size, width)

    def turned(view: View) -> View:
        new = new_shapes[view is as_it_is]
        return lambda array: view(array if array.shape[-2:] == new else transposed(array))

    return {
        f"ffn_{name}_exps": TableRow(
            (
                Stored(
                    (f"{module}.{'down' if name == 'down' else 'gate_up'}_proj",),
                    turned(view),
                    turned=True,
                ),
                Stored((f"{switch}.{name}_proj.weight",)),
            )
        )
        for name, view in views.items()
    }
