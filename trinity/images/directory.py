"""The vision tower of a Hugging Face directory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trinity.errors import FormatError, UnsupportedError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.files import (
    CONFIG,
    IMAGE_PROCESSOR,
    PROCESSOR,
    optional_object,
)
from trinity.formats.huggingface.values import Values
from trinity.formats.json_object import read_json_object
from trinity.formats.provider import Tensor
from trinity.images.family import ImageFamily
from trinity.images.settings import ImageSettings
from trinity.images.tower_config import (
    NO_LAYERS,
    Activation,
    Channels,
    TowerConfig,
    centered,
    checked_channels,
    checked_tower,
    shrunk_to,
)
from trinity.images.tower_weights import TowerTensors

_ACTIVATIONS: dict[str, Activation] = {
    "gelu_pytorch_tanh": "gelu", "gelu_new": "gelu", "gelu": "gelu_erf",
    "quick_gelu": "gelu_quick", "silu": "silu",
}  # fmt: skip
_STORED = {"F32", "F16", "BF16"}
_HEAD_NORMS = ("attn_q_norm", "attn_k_norm")


def read_tower(
    family: ImageFamily, files: Mapping[str, str], hidden_size: int
) -> tuple[TowerConfig, ImageSettings]:
    """Return what config.json and the image processor's file say of the tower.

    ``hidden_size``: that of the text model. Raises: ConfigError for impossible values,
    UnsupportedError for those that trinity does not support.
    """
    config = Values(read_json_object(files[CONFIG]), files[CONFIG])
    given = config.inner("vision_config")
    vision = Values({**family.vision_defaults, **_present(given.values)}, given.source)
    vision = family.vision(vision, config)
    name = PROCESSOR if IMAGE_PROCESSOR not in files else IMAGE_PROCESSOR
    source = files.get(name, files[CONFIG])
    processor = Values(optional_object(files, name), source)
    if name == PROCESSOR and processor.has("image_processor"):
        processor = processor.inner("image_processor")
    processor = family.processor(processor, config)
    processor = Values({**family.processor_defaults, **_present(processor.values)}, source)
    named = vision.text("hidden_act", "gelu")
    activation = _ACTIVATIONS.get(named)
    if activation is None or activation not in family.activations:
        known = (name for name, own in _ACTIVATIONS.items() if own in family.activations)
        raise UnsupportedError(
            f"{vision.source}: hidden_act is {named!r:.40}; trinity reads {', '.join(known)}"
        )
    for key in ("do_rescale", "do_resize", *(() if family.centers else ("do_normalize",))):
        if not processor.flag(key, True):
            raise UnsupportedError(f"{source}: {key} is false, which is not supported")
    mean, std = _channels(processor, "image_mean"), _channels(processor, "image_std")
    if family.centers:
        if not processor.flag("do_normalize", False):
            mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
        mean, std = centered(mean, std)
    sizes = NO_LAYERS if family.only_projects else _sizes(vision)
    tower = TowerConfig(
        family=family.name,
        hidden_size=vision.size("hidden_size", "hidden_size"),
        **sizes,
        image_size=vision.size("image_size", "hidden_size"),
        patch_size=vision.size("patch_size", "num_layers"),
        layer_norm_eps=vision.real("layer_norm_eps", "rms_norm_eps"),
        activation=activation,
        projection_size=hidden_size,
        merge=family.merge(config),
        mean=mean,
        std=std,
        deepstack=_layers(vision, "deepstack_visual_indexes") if family.deepstack else (),
        window=vision.size("window", "num_layers", 0, smallest=0),
        whole_layers=_layers(vision, "fullatt_block_indexes") if vision.has("window") else (),
        **{"norm": family.norms[0], **family.more(vision)},
    )
    settings = family.settings(processor)
    if family.cut == "shrunk":
        settings = shrunk_to(settings, tower)
    return checked_tower(tower, settings, vision.source, rotates=family.rotates), settings


def _sizes(vision: Values) -> dict[str, Any]:
    """The sizes of layers."""
    return {
        "intermediate_size": vision.size("intermediate_size", "intermediate_size"),
        "num_layers": vision.size("num_hidden_layers", "num_layers"),
        "num_heads": vision.size("num_attention_heads", "num_heads"),
    }


def _present(values: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in values.items() if value is not None}


def _layers(values: Values, key: str) -> tuple[int, ...]:
    found = values.values.get(key)
    if not isinstance(found, list) or any(type(layer) is not int for layer in found):
        raise values.error(key, "must be a list of layers")
    return tuple(found)


def _channels(values: Values, key: str) -> Channels:
    found = values.values.get(key)
    if isinstance(found, int | float) and not isinstance(found, bool):
        found = [found] * 3
    return checked_channels(found, f"{values.source}: {key}", positive=key == "image_std")


def tower_tensors(family: ImageFamily, config: TowerConfig, checkpoint: Checkpoint) -> TowerTensors:
    """Return the tower's tensors under GGUF's names.

    Raises: FormatError for a tensor that is missing, UnsupportedError for one that is packed.
    """
    names = set(checkpoint.names())
    wanted = dict(family.ends)
    named = family.layer
    if not (config.row_norms or family.head_norms):
        named = {name: own for name, own in named.items() if name not in _HEAD_NORMS}
    for layer in range(config.num_layers):
        source = family.layers.format(layer)
        wanted |= {f"v.blk.{layer}.{name}": source + own for name, own in named.items()}
    for number, layer in enumerate(config.deepstack):
        wanted |= {
            f"v.deepstack.{layer}.{name}": own.format(number)
            for name, own in family.deepstack.items()
        }
    tensors: dict[str, Tensor] = {}
    for name, own in wanted.items():
        for part in ("weight", "bias", *family.parts):
            # A parameter that is no module's has a name of its own; linears may be in a module.
            forms = [f"{own}.{part}"]
            if part == "weight":
                forms += [f"{own}.linear.{part}", own]
            stored = _stored(family, names, forms)
            if stored is not None:
                tensors[f"{name}.{part}"] = _tensor(checkpoint, stored, f"{name}.{part}")
            elif part == "weight":
                raise FormatError(
                    f"{checkpoint.directory}: there is no tensor {own!r} of the vision tower that "
                    "config.json describes; the checkpoint is incomplete"
                )
    for name, own in family.optional.items():
        stored = _stored(family, names, [own])
        if stored is not None:
            tensors[name] = _tensor(checkpoint, stored, name)
    return TowerTensors(checkpoint.directory, family.of_class(tensors))


def _stored(family: ImageFamily, names: Collection[str], forms: Sequence[str]) -> str | None:
    """The name of a checkpoint's tensor that ends as one of ``forms``, or None."""
    found = (prefix + form for prefix in family.prefixes for form in forms)
    return next((known for known in found if known in names), None)


def _tensor(checkpoint: Checkpoint, stored: str, name: str) -> Tensor:
    found = checkpoint.tensor(stored)
    if found.dtype not in _STORED:
        raise UnsupportedError(
            f"{found.source}: tensor {stored!r} of the vision tower has type {found.dtype}; "
            f"trinity reads {', '.join(sorted(_STORED))}"
        )
    return Tensor(name, found.shape, found.dtype, found.data, found.source, origin=stored)
