"""The tensors of a model in a Hugging Face checkpoint.

The family's table gives their names in the checkpoint, the model's layers their existence and
shapes. Every tensor of the checkpoint must be used: a leftover means that the configuration does
not describe the model.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from trinity.config import ModelConfig
from trinity.errors import FormatError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.configuration import config_from_metadata
from trinity.formats.huggingface.config import class_name_of
from trinity.formats.huggingface.family import LAYER
from trinity.formats.huggingface.hf_model import HFModel
from trinity.formats.huggingface.layer_numbers import number_names
from trinity.formats.huggingface.metadata import beyond_gguf, model_metadata
from trinity.formats.huggingface.packed.logical import LogicalCheckpoint
from trinity.formats.huggingface.stored import HFTensor, Stored, as_it_is
from trinity.formats.huggingface.table import TableRow, table_rows
from trinity.formats.huggingface.tensors import (
    HEAD,
    SCALE_SUFFIX,
    as_mlx_has_them,
    check_tied,
    own_names,
)
from trinity.formats.tensor_names import beside, complete
from trinity.models import make_decoder
from trinity.models.expert_operations import ExpertLinear
from trinity.models.operations import HeadLinear, Linear

# Derived values that old versions of transformers saved with the weights.
_DERIVED = r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq"
_MANY_MISSING = 1000
_ROUTERS = frozenset(("ffn_gate_inp", "ffn_gate_inp_shexp"))  # linear layers that stay float32


def hf_tensors(model: HFModel, checkpoint: LogicalCheckpoint) -> list[HFTensor]:
    """Return all tensors: embedding, layers in order, output.

    Raises FormatError for a tensor that is missing or unused; ConfigError if the output's weight
    contradicts tie_word_embeddings, or for the configuration itself.
    """
    actual = own_names(model, checkpoint)
    places = CheckpointLayout(model, actual)
    tensors: list[HFTensor] = []
    used: set[str] = set()
    missing: list[str] = []
    packed = model.ternary is not None and model.ternary.packed
    for tensor in places.tensors():
        tensors.append(tensor)
        own = tensor.stored.names
        if packed and tensor.linear:
            own = (*own, f"{tensor.source}{SCALE_SUFFIX}")
        used.update(own)
        missing += [name for name in own if name not in actual]
        if len(missing) >= _MANY_MISSING:
            break
    numbers = {name for names in number_names(model).values() for name in names}
    used |= numbers
    missing += numbers - actual.keys()
    if missing:
        count = f"{len(missing)} or more" if len(missing) >= _MANY_MISSING else f"{len(missing)}"
        raise FormatError(
            f"{checkpoint.directory}: {count} tensors that config.json requires are missing, such "
            f"as {min(missing)!r}; the checkpoint is incomplete or config.json belongs to another "
            "one"
        )
    if HEAD in actual and HEAD not in used and not model.family.headless:
        check_tied(model.values.source, checkpoint, actual, tensors[0].source)
        used.add(HEAD)
    _refuse_left_over(model, actual.keys() - used, checkpoint.directory)
    renamed = [_renamed(tensor, actual) for tensor in tensors]
    return as_mlx_has_them(renamed, checkpoint) if model.family.mlx_turns else renamed


def matrix_columns(model: HFModel, checkpoint: Checkpoint) -> dict[str, int]:
    """Return the columns of the model's weights in a checkpoint, by the checkpoint's names."""
    actual = own_names(model, checkpoint)
    columns: dict[str, int] = {}
    for group, named in CheckpointLayout(model, actual).groups():
        before = len(columns)
        for row, shape in named.values():
            # If a part of a matrix is rotated, it is followed by a part that is not.
            names = (name for form in row.forms for name in names_of(form, group.source, shape))
            columns |= {actual[name]: shape[-1] for name in names if name in actual}
        if len(columns) == before and group.source.startswith(LAYER):
            break  # hf_tensors reports that the layer is missing
    if HEAD in actual:
        columns[actual[HEAD]] = model.config.hidden_size
    return columns


@dataclass(frozen=True, slots=True)
class NameGroup:
    """Tensors of a table that share a prefix of their names, in GGUF and in the checkpoint."""

    prefix: str
    source: str
    table: Mapping[str, TableRow]
    layer: int = -1

    def has(self, row: TableRow, names: Collection[str]) -> bool:
        """Whether the layer has the tensor, if an operation reads it."""
        if row.layers is not None and self.layer not in row.layers:
            return False
        return not row.optional or _is_there(row.forms[0], self.source, names)


class CheckpointLayout:
    """The tensors that a model has according to its layers, and their places among ``names``.

    ``names`` maps the class's names of tensors to the checkpoint's own.
    """

    def __init__(self, model: HFModel, names: Mapping[str, str]) -> None:
        self._model, self._names = model, names
        config, family, values = _model_config(model), model.family, model.values
        self._ends = NameGroup("", "", table_rows(family.ends, config, values))
        self._layer = table_rows(family.layer, config, values)
        key, count = family.drafting_key, config.num_layers
        drafts = not key or values.size(key, "nextn_layers", 0, smallest=0)
        self._drafting = [
            NameGroup(f"blk.{count}.", source.format(count), table_rows(tables, config, values))
            for source, tables in (family.drafting if drafts else ())
        ]
        config = replace(
            config,
            tie_word_embeddings=family.headless or self._output() is None,
            nextn_layers=1 if self._drafting else 0,
        )
        canonical = {
            group.prefix + name
            for group in self._groups()
            for name, row in group.table.items()
            if group.has(row, names)
        }
        decoder = make_decoder(config, canonical, values.source)
        self._needed, self._optional = decoder.tensors(), decoder.optional_tensors()
        self._linear = frozenset(
            prefix + complete(name)
            for prefix, operation in decoder.operations()
            if isinstance(operation, Linear | HeadLinear | ExpertLinear)
            for name in operation.weights()
            if name not in _ROUTERS
        )

    def tensors(self) -> Iterator[HFTensor]:
        """Yield all tensors, in the form that the checkpoint has, or else the first form."""
        groups = self.groups()
        first, *last = self._of_group(*next(groups))
        yield first
        drafting: list[HFTensor] = []
        for group, named in groups:
            if group.layer >= 0:
                yield from self._of_group(group, named)
            else:
                drafting += self._of_group(group, named)
        if all(name in self._names for tensor in drafting for name in tensor.stored.names):
            yield from drafting
        yield from last
        output = None if self._model.family.headless else self._output()
        if output is not None:
            yield output

    def groups(self) -> Iterator[tuple[NameGroup, dict[str, tuple[TableRow, tuple[int, ...]]]]]:
        """Yield the ends, the layers and a drafting layer, with the rows and shapes of tensors."""
        for group in self._groups():
            named = {}
            for name, row in group.table.items():
                full = group.prefix + name
                shape = row.shape or self._needed.get(full) or self._optional.get(full)
                if shape is not None and group.has(row, self._names):
                    named[full] = row, (*shape, 1) if row.column else shape
            yield group, named

    def _groups(self) -> Iterator[NameGroup]:
        yield self._ends
        for index in range(self._model.config.num_layers):
            yield NameGroup(f"blk.{index}.", f"{LAYER}{index}.", self._layer, index)
        yield from self._drafting

    def _of_group(
        self, group: NameGroup, named: Mapping[str, tuple[TableRow, tuple[int, ...]]]
    ) -> Iterator[HFTensor]:
        config = self._model.config
        for name, (row, shape) in named.items():
            forms = row.forms
            form = next((f for f in forms if _is_there(f, group.source, self._names)), forms[0])
            linear, heads = name in self._linear, 0
            if row.permuted:
                is_query = name.startswith(f"{group.prefix}attn_q.")
                heads = config.num_heads if is_query else config.num_kv_heads
            yield HFTensor(
                name,
                shape,
                replace(
                    form, names=names_of(form, group.source, shape), numbered="{}" in form.names[0]
                ),
                linear,
                heads,
                row.change,
                row.factors,
                linear and beside(name, "bias") in named,
            )

    def _output(self) -> HFTensor | None:
        """Return the output's matrix, if it is not the unchanged embedding."""
        model, (first, *others) = self._model, self._ends.table.items()
        forms = first[1].forms
        form = next((f for f in forms if _is_there(f, "", self._names)), forms[0])
        embedding, names = form.names[0], self._names
        # If the configuration does not say, the tensor itself decides. A checkpoint of an embedder,
        # whose names are those of the inner model, lacks it in any case.
        within = names.get(embedding) == "embed_tokens.weight"
        within = within and HEAD not in names
        separate = model.tied is False and not within
        separate |= model.tied is None and HEAD in names
        factor = model.family.head_factor(model.values)
        factors = ((factor,),) if factor != 1.0 else ()
        # Tied weights are two tensors here if only one of them is multiplied, if their factors
        # differ, or if only the output has a bias.
        unlike = first[1].factors != factors or any(name == "output.bias" for name, _ in others)
        if not separate and not unlike:
            return None
        stored = Stored((HEAD if separate else embedding,), parts=(as_it_is,) if factors else ())
        shape = (model.config.vocab_size, model.config.hidden_size)
        return HFTensor("output.weight", shape, stored, linear=False, factors=factors)


def _model_config(model: HFModel) -> ModelConfig:
    shapes = {name: values.shape for name, values in model.rope_factors().items()}
    known = config_from_metadata(
        model_metadata(model, ""),
        shapes,
        source=model.values.source,
        num_tokens=model.config.vocab_size,
    )
    return beyond_gguf(known, model)


def _is_there(form: Stored, source: str, names: Collection[str]) -> bool:
    return source + form.names[0].replace("{}", "0") in names


def names_of(form: Stored, source: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return the names of a form; if it has a matrix per expert, all of them."""
    (first, *_) = form.names
    if "{}" in first:
        return tuple(source + first.format(expert) for expert in range(shape[0]))
    return tuple(source + name for name in form.names)


def _refuse_left_over(model: HFModel, names: Collection[str], directory: str) -> None:
    """Raise FormatError for tensors that the model does not use."""
    known = re.compile("|".join(filter(None, (_DERIVED, model.unused))))
    left = sorted(name for name in names if not known.fullmatch(name))
    if not left:
        return
    hint = ""
    if any(name.endswith(f".weight{SCALE_SUFFIX}") for name in left):
        hint = " (weight_scale tensors need a quantization_config that names their method)"
    raise FormatError(
        f"{directory}: {len(left)} tensors are not used by {class_name_of(model.values)} as "
        f"config.json describes it, such as {left[0]!r}{hint}; config.json belongs to another "
        "checkpoint, or the model is not supported"
    )


def _renamed(tensor: HFTensor, actual: Mapping[str, str]) -> HFTensor:
    names = tuple(actual[name] for name in tensor.stored.names)
    if names == tensor.stored.names:
        return tensor
    return replace(tensor, stored=replace(tensor.stored, names=names))
