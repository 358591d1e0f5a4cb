"""The model's tensors in a checkpoint: canonical names, and what each is called and shaped there.

Every tensor of the checkpoint must have its place: one that is left over means that the
configuration does not describe the model.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from trinity.errors import ConfigError, FormatError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.config import HFConfig
from trinity.formats.huggingface.family import LAYER, Family
from trinity.formats.huggingface.packed.logical import LogicalCheckpoint
from trinity.formats.huggingface.stored import Change, Kind, Module, Stored, View, as_it_is

SCALE_SUFFIX = "_scale"  # of a packed weight's companion
_HEAD = "lm_head.weight"
# Derived values that old versions of transformers saved beside the weights.
_DERIVED = r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq"
# What stands before the names of a model within another one, and for what.
WITHIN = (
    ("language_model.model.", "model."),
    ("language_model.", ""),
    ("model.language_model.", "model."),
)
_OTHER_NETWORKS = (
    "vision_tower.", "vision_model.", "vision_embed_tokens.", "audio_tower.", "embed_vision.",
    "embed_audio.", "multi_modal_projector.", "visual.",
)  # fmt: skip
_MANY_MISSING = 1000
_CONVOLUTIONS = (".ssm_conv1d.weight", ".shortconv.conv.weight")


@dataclass(frozen=True, slots=True)
class HFTensor:
    """One tensor of the model.

    ``name`` is the canonical one; ``shape`` is what config.json implies for the values, whatever
    form they are ``stored`` in. The others: see Module.
    """

    name: str
    shape: tuple[int, ...]
    stored: Stored
    kind: Kind
    permuted_heads: int = 0
    change: Change | None = None
    factors: tuple[tuple[float, ...], ...] = ()
    has_bias: bool = False

    @property
    def source(self) -> str:
        """The checkpoint's name, the first of several."""
        return self.stored.names[0]


def hf_tensors(config: HFConfig, family: Family, checkpoint: LogicalCheckpoint) -> list[HFTensor]:
    """All tensors, layer by layer between embedding and output.

    Raises FormatError for a tensor that is missing or left over, ConfigError where the output's
    weight contradicts tie_word_embeddings.
    """
    actual = _names(config, family, checkpoint)
    tensors, used, missing = _found(config, family, actual)
    if missing:
        count = f"{len(missing)} or more" if len(missing) >= _MANY_MISSING else f"{len(missing)}"
        raise FormatError(
            f"{checkpoint.directory}: {count} tensors that config.json asks for are missing,"
            f" the first is {min(missing)!r}; the checkpoint is incomplete or config.json belongs "
            "to another one"
        )
    if _HEAD in actual and _HEAD not in used and not family.headless:
        _check_tied(config, checkpoint, actual, tensors[0].source)
        used.add(_HEAD)
    known = re.compile("|".join(filter(None, (_DERIVED, family.unused(config)))))
    left = sorted(name for name in actual.keys() - used if not known.fullmatch(name))
    if left:
        hint = ""
        if any(name.endswith(f".weight{SCALE_SUFFIX}") for name in left):
            hint = " (weight_scale tensors need a quantization_config that names their method)"
        raise FormatError(
            f"{checkpoint.directory}: {len(left)} tensors have no place in {config.class_name} as "
            f"config.json describes it, the first is {left[0]!r}{hint}; config.json belongs to "
            "another checkpoint, or the model is one that trinity does not know"
        )
    found = [_renamed(tensor, actual) for tensor in tensors]
    if family.mlx_turns and any(_is_turned(tensor, checkpoint) for tensor in found):
        return [_as_mlx_has_it(tensor, checkpoint) for tensor in found]
    return found


def matrix_columns(config: HFConfig, family: Family, checkpoint: Checkpoint) -> dict[str, int]:
    """Columns of the weights that the class has and the checkpoint, by the checkpoint's names."""
    actual = _names(config, family, checkpoint)
    found: dict[str, int] = {}
    for layer in range(-1, config.num_layers):
        prefix = f"{LAYER}{layer}." if layer >= 0 else ""
        before = len(found)
        modules = family.layer(config, layer) if layer >= 0 else family.ends(config)
        found |= _columns(modules, prefix, actual)
        if len(found) == before and layer >= 0:
            break  # hf_tensors says that the layer is missing
    for source, modules in family.drafting(config):
        found |= _columns(modules, source, actual)
    if _HEAD in actual:
        found[actual[_HEAD]] = config.hidden_size
    return found


def _columns(modules: Iterable[Module], prefix: str, actual: dict[str, str]) -> dict[str, int]:
    """Of those of the modules' tensors that the checkpoint has, by its names."""
    forms = (form for m in modules for one in (m, *m.instead) for form in one.forms)
    names = ((prefix + name, form.shape[-1]) for form in forms for name in form.names)
    return {actual[name]: columns for name, columns in names if name in actual}


def other_networks(config: HFConfig, family: Family) -> bool:
    """Whether the class holds networks beside the one that writes, which are left out."""
    return config.class_name in family.wrappers


def _names(
    config: HFConfig, family: Family, checkpoint: Checkpoint | LogicalCheckpoint
) -> dict[str, str]:
    """The names that the model's own class has for the tensors, and those that they have here."""
    renames, left_out = family.renames, tuple[str, ...]()
    if other_networks(config, family):
        renames, left_out = WITHIN, _OTHER_NETWORKS
    names: dict[str, str] = {}
    for name in checkpoint.names():
        if name.removeprefix("model.").startswith(left_out):
            continue
        before, stands_for = next((pair for pair in renames if name.startswith(pair[0])), ("", ""))
        own = stands_for + name.removeprefix(before)
        if own in names:
            raise FormatError(
                f"{checkpoint.directory}: the tensors {names[own]!r} and {name!r} have the same "
                "place; the files belong to different models"
            )
        names[own] = name
    return names


def _found(
    config: HFConfig, family: Family, names: Mapping[str, str]
) -> tuple[list[HFTensor], set[str], list[str]]:
    """Tensors, the names they use, and some of the names that are not there."""
    tensors: list[HFTensor] = []
    used: set[str] = set()
    missing: list[str] = []
    packed = config.quantization is not None and config.quantization.packed
    for tensor in _tensors(config, family, names):
        tensors.append(tensor)
        own = tensor.stored.names
        if packed and tensor.kind == "linear":
            own = (*own, f"{tensor.source}{SCALE_SUFFIX}")
        used.update(own)
        missing += [name for name in own if name not in names]
        if len(missing) >= _MANY_MISSING:
            break
    return tensors, used, missing


def _tensors(config: HFConfig, family: Family, names: Mapping[str, str]) -> Iterator[HFTensor]:
    first, *others = family.ends(config)
    yield _tensor(first, "", "", names)
    for layer in range(config.num_layers):
        source = f"{LAYER}{layer}."
        for module in family.layer(config, layer):
            for one in _chosen(module, source, names):
                yield _tensor(one, f"blk.{layer}.", source, names)
    yield from _drafting(config, family, names)
    for module in others:
        yield _tensor(module, "", "", names)
    # Where the configuration does not say, the tensor itself tells; a checkpoint of an embedder,
    # whose names are those of the model within, lacks it whatever the configuration says.
    embedding = _tensor(first, "", "", names).source
    within = names.get(embedding) == "embed_tokens.weight" and _HEAD not in names
    separate = (config.tied is False and not within) or (config.tied is None and _HEAD in names)
    factor = family.head_factor(config)
    # Tied weights that are multiplied in one place, or by unlike factors, are two tensors here; so
    # are those with a bias at the output alone.
    unlike = first.factors != (((factor,),) if factor != 1.0 else ())
    unlike |= any(module.name == "output.bias" for module in others)
    if (separate or unlike) and not family.headless:
        shape = (config.vocab_size, config.hidden_size)
        stored = Stored((_HEAD if separate else embedding,), shape)
        factors: tuple[tuple[float, ...], ...] = ()
        if factor != 1.0:
            stored, factors = replace(stored, parts=(as_it_is,)), ((factor,),)
        yield HFTensor("output.weight", shape, stored, "matrix", factors=factors)


def _drafting(config: HFConfig, family: Family, names: Collection[str]) -> list[HFTensor]:
    """Of the layer that proposes tokens, where the checkpoint has all of it."""
    found = [
        _tensor(one, f"blk.{config.num_layers}.", source, names)
        for source, modules in family.drafting(config)
        for module in modules
        for one in _chosen(module, source, names)
    ]
    whole = all(name in names for tensor in found for name in tensor.stored.names)
    return found if whole else []


def _chosen(module: Module, source: str, names: Collection[str]) -> tuple[Module, ...]:
    """The module, or those that stand in its place in this checkpoint."""
    if module.instead and source + module.instead[0].forms[0].names[0] in names:
        return module.instead
    return (module,)


def _tensor(module: Module, prefix: str, source: str, names: Collection[str]) -> HFTensor:
    """The form of a module that the checkpoint has, or the first."""
    forms = module.forms
    form = next((form for form in forms if source + form.names[0] in names), forms[0])
    return HFTensor(
        prefix + module.name,
        module.shape,
        replace(form, names=tuple(source + name for name in form.names)),
        module.kind,
        module.permuted_heads,
        module.change,
        module.factors,
        module.has_bias,
    )


def _renamed(tensor: HFTensor, actual: dict[str, str]) -> HFTensor:
    names = tuple(actual[name] for name in tensor.stored.names)
    if names == tensor.stored.names:
        return tensor
    return replace(tensor, stored=replace(tensor.stored, names=names))


def _is_turned(tensor: HFTensor, checkpoint: LogicalCheckpoint) -> bool:
    """Whether it is a convolution's, which mlx-lm has as (channels, kernel, 1)."""
    if not tensor.name.endswith(_CONVOLUTIONS) or tensor.source in checkpoint.packed:
        return False
    channels, one, kernel = tensor.stored.shape
    return kernel > 1 and checkpoint.tensor(tensor.source).shape == (channels, kernel, one)


def _as_mlx_has_it(tensor: HFTensor, checkpoint: LogicalCheckpoint) -> HFTensor:
    """Of a directory of mlx-lm's, whose norms have the 1 added already."""
    if _is_turned(tensor, checkpoint):
        channels, one, kernel = tensor.stored.shape
        parts = tuple(_of_turned(part) for part in tensor.stored.parts)
        view = _of_turned(tensor.stored.view)
        stored = replace(tensor.stored, shape=(channels, kernel, one), view=view, parts=parts)
        return replace(tensor, stored=stored)
    return replace(tensor, change=None) if tensor.name.endswith("_norm.weight") else tensor


def _of_turned(view: View) -> View:
    return lambda array: view(array.swapaxes(1, 2))


def _check_tied(
    config: HFConfig, checkpoint: LogicalCheckpoint, actual: dict[str, str], embedding: str
) -> None:  # fmt: skip
    """An output weight beside tied embeddings must be a copy of them."""
    if not _is_copy(checkpoint, actual[_HEAD], actual[embedding]):
        raise ConfigError(
            f"{config.source}: tie_word_embeddings is true, but {_HEAD} differs from {embedding}; "
            "set it to false if the model has an output matrix of its own"
        )


def _is_copy(checkpoint: LogicalCheckpoint, one: str, other: str) -> bool:
    packed = checkpoint.packed.get(one), checkpoint.packed.get(other)
    if packed[0] is not None and packed[1] is not None:
        if (packed[0].shape, packed[0].dtype) != (packed[1].shape, packed[1].dtype):
            return False
        pairs = zip(packed[0].pieces(as_it_is), packed[1].pieces(as_it_is), strict=True)
        return all(np.array_equal(first, second) for first, second in pairs)
    if packed != (None, None):
        return False
    first, second = checkpoint.tensor(one), checkpoint.tensor(other)
    same_form = first.shape == second.shape and first.dtype == second.dtype
    # Views compare without a temporary of their size.
    return same_form and first.data.data == second.data.data
