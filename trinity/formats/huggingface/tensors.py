"""Names of a checkpoint's tensors: those of other networks, wrappers and mlx-lm's directories."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trinity.errors import ConfigError, FormatError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.config import class_name_of
from trinity.formats.huggingface.hf_model import HFModel
from trinity.formats.huggingface.packed.logical import LogicalCheckpoint
from trinity.formats.huggingface.stored import HFTensor, View, as_it_is

SCALE_SUFFIX = "_scale"  # of a packed weight's companion
HEAD = "lm_head.weight"
# Prefixes of a model's tensor names within another model, and their meaning.
WITHIN = (
    ("language_model.model.", "model."),
    ("language_model.output.", "lm_head."),  # InternLM 2
    ("language_model.", ""),
    ("model.language_model.", "model."),
    ("model.text_model.", "model."),
    ("llm.model.", "model."),  # MiniCPM-V
    ("llm.", ""),
)
_OTHER_NETWORKS = (
    "vision_tower.", "vision_model.", "vision_embed_tokens.", "audio_tower.", "embed_vision.",
    "embed_audio.", "multi_modal_projector.", "visual.", "vision_adapter.", "vision_projection.",
    "connector.", "image_newline", "vit_large_projector.", "mlp1.",
    "mm_projector.", "merger.", "mlp_AR.", "projector.",
    "vpm.", "resampler.", "apm.", "audio_projection_layer.", "tts.",
)  # fmt: skip
_CONVOLUTIONS = (".ssm_conv1d.weight", ".shortconv.conv.weight")


def other_networks(model: HFModel) -> bool:
    """Whether the class contains other networks than the text decoder, which are ignored."""
    return class_name_of(model.values) in model.family.wrappers


def own_names(model: HFModel, checkpoint: Checkpoint | LogicalCheckpoint) -> dict[str, str]:
    """Return the names of the tensors in the model's own class, and their names here."""
    renames, left_out = model.family.renames, tuple[str, ...]()
    if other_networks(model):
        renames, left_out = WITHIN, _OTHER_NETWORKS
    names: dict[str, str] = {}
    for name in checkpoint.names():
        if name.removeprefix("model.").startswith(left_out):
            continue
        before, stands_for = next((pair for pair in renames if name.startswith(pair[0])), ("", ""))
        own = stands_for + name.removeprefix(before)
        if own in names:
            raise FormatError(
                f"{checkpoint.directory}: the tensors {names[own]!r} and {name!r} stand for the "
                "same one; the files belong to different models"
            )
        names[own] = name
    return names


def as_mlx_has_them(tensors: list[HFTensor], checkpoint: LogicalCheckpoint) -> list[HFTensor]:
    """Return the tensors as mlx-lm stores them, if the directory is mlx-lm's.

    Convolutions have their taps on the second axis, and 1 is added to norms.
    """
    turned = {tensor.name for tensor in tensors if _is_turned(tensor, checkpoint)}
    if not turned:
        return tensors
    return [_as_mlx_has_it(tensor, tensor.name in turned) for tensor in tensors]


def _is_turned(tensor: HFTensor, checkpoint: LogicalCheckpoint) -> bool:
    """Whether it is a convolution in mlx-lm's layout (channels, kernel, 1)."""
    if not tensor.name.endswith(_CONVOLUTIONS) or tensor.source in checkpoint.packed:
        return False
    return tensor.shape[1] > 1 and checkpoint.tensor(tensor.source).shape == (*tensor.shape, 1)


def _as_mlx_has_it(tensor: HFTensor, turned: bool) -> HFTensor:
    if turned:
        parts = tuple(_of_turned(part) for part in tensor.stored.parts)
        stored = replace(tensor.stored, view=_of_turned(tensor.stored.view), parts=parts)
        return replace(tensor, stored=stored)
    return replace(tensor, change=None) if tensor.name.endswith("_norm.weight") else tensor


def _of_turned(view: View) -> View:
    return lambda array: view(array.swapaxes(1, 2))


def check_tied(
    source: str, checkpoint: LogicalCheckpoint, actual: dict[str, str], embedding: str
) -> None:
    """Raise ConfigError if the output weight of tied embeddings is not a copy of them."""
    if not _is_copy(checkpoint, actual[HEAD], actual[embedding]):
        raise ConfigError(
            f"{source}: tie_word_embeddings is true, but {HEAD} differs from {embedding}; "
            "set it to false if the model has an output matrix of its own"
        )


def _is_copy(checkpoint: LogicalCheckpoint, name: str, other: str) -> bool:
    packed = checkpoint.packed.get(name), checkpoint.packed.get(other)
    if packed[0] is not None and packed[1] is not None:
        if (packed[0].shape, packed[0].dtype) != (packed[1].shape, packed[1].dtype):
            return False
        pairs = zip(packed[0].pieces(as_it_is), packed[1].pieces(as_it_is), strict=True)
        return all(np.array_equal(first, second) for first, second in pairs)
    if packed != (None, None):
        return False
    first, second = checkpoint.tensor(name), checkpoint.tensor(other)
    same_form = first.shape == second.shape and first.dtype == second.dtype
    # Views compare without a temporary of their size.
    return same_form and first.data.data == second.data.data
