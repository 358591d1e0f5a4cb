"""The declarations in the file of a family of vision models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.formats.huggingface.values import Values
from trinity.formats.provider import Tensor
from trinity.images.settings import ImageSettings
from trinity.images.tower_config import Activation, Norm, TowerConfig

if TYPE_CHECKING:
    from trinity.images.tower_weights import TowerWeights


Joined = Callable[[NDArray[np.float32]], NDArray[np.float32]]


class Squares(NamedTuple):
    """An image as squares for the tower; ``rows`` x ``columns`` tiles are before the last one.

    Without tiles, it is one rectangle. Of the cuts "scanned" and "sliced", the whole image is the
    first.
    """

    images: list[NDArray[np.uint8]]  # (height, width, 3)
    rows: int  # 0: there are no tiles
    columns: int
    size: tuple[int, int]  # the width and height of the image
    whole: bool = True  # whether the last one is the whole image


def size_of(square: NDArray[np.uint8]) -> tuple[int, int]:
    """The width and height of a square."""
    return square.shape[1], square.shape[0]


@dataclass(frozen=True, slots=True)
class ImageFamily:
    """A family of vision models."""

    # clip.projector_type in GGUF files.
    name: str
    # The classes of transformers.
    class_names: tuple[str, ...]
    # The text that chat templates write for an image.
    mark: str
    # How an image is cut into squares: a name in ``cutting.CUTS``.
    cut: Literal[
        "square",
        "scanned",
        "tiles",
        "grid",
        "rectangle",
        "filled",
        "shrunk",
        "anyres",
        "fitted",
        "sliced",
    ]
    # The weights of the projector's products, with GELU between them.
    projector: tuple[str, ...]
    # Beginnings of the tensors' names in the class, of which a checkpoint has some.
    prefixes: tuple[str, ...]
    # Names of tensors in GGUF and in the class, without ".weight" and ".bias".
    ends: Mapping[str, str]
    # The same of a layer, after "v.blk.N." and ``layers``.
    layer: Mapping[str, str]
    # The beginning of a layer's names in the class.
    layers: str
    # The image processor's settings.
    settings: Callable[[Values], ImageSettings]
    # The values of GGUF files without a key.
    usual_settings: ImageSettings
    # The number of neighbours along a side that are joined, from config.json; and that of GGUF
    # files without a key, None: they must have it.
    merge: Callable[[Values], int] = lambda config: 1
    usual_merge: int | None = 1
    # The texts of an image in a prompt: before, between and after the rows of its squares.
    texts: Callable[[Squares], list[str]] = lambda squares: ["", ""]
    # The text between an image and the parts of a message around it if a chat template reads only
    # text.
    joint: str = ""
    # The text before an image with its number in the prompt, {}; settings say whether it is there.
    number: str = ""
    # The text that chat templates write around the mark, if ``texts`` does not have it.
    around: tuple[str, str] = ("", "")
    # The rows of an image's squares in the text, of which -1 is the row of v.image_newline; None:
    # all in their order, with ``texts`` between those of squares.
    order: Callable[[TowerConfig, Squares], NDArray[np.int64] | None] = lambda config, squares: None
    # Makes what joins blocks of neighbours (n, merge * merge, hidden_size) to the projector's rows;
    # None: their values become one row.
    joined: Callable[[TowerConfig, TowerWeights], Joined] | None = None
    # The weight that maps each joined block to one state, before the projector. Without a name, or
    # in a file without it, there is none.
    merger: str = ""
    # The text between the lines of a square's rows.
    line_break: str = ""
    # GGUF's key of ``merge``, after "clip.vision.".
    merge_key: str = "projector.scale_factor"
    # The tower's configuration with the usual names, from vision_config and all of config.json.
    vision: Callable[[Values, Values], Values] = lambda vision, config: vision
    # The image processor's settings with the usual names, made from its file and config.json.
    processor: Callable[[Values, Values], Values] = lambda processor, config: processor
    # The positions of patches: a table for one square, a table that is resized to each image (by
    # ``resized_table``, ``smoothed_table`` or ``nearest_table``), a table for columns and one for
    # rows, or none.
    positions: Literal["table", "resized", "smoothed", "nearest", "axes", "none"] = "table"
    # The kinds of the layers' norms that models have.
    norms: tuple[Norm, ...] = ("layer",)
    # The activations of the feed-forward; the first GELU is that of GGUF files with clip.use_gelu.
    activations: tuple[Activation, ...] = ("gelu", "gelu_erf", "gelu_quick")
    # The activation of GGUF files that name none.
    usual_activation: Activation = "gelu_quick"
    # The feed-forward is gated.
    gated: bool = False
    # The heads of queries and keys have norms with weights, those of values one without; the scale
    # of attention is 1.
    head_norms: bool = False
    # There are norms after attention and after the feed-forward.
    post_norms: bool = False
    # There are no layers: patches and their norms are projected to rows of the text model.
    only_projects: bool = False
    # There is a norm before the first layer; if its weight is ``optional``, only in some files.
    pre_norm: bool = False
    # There is a norm after the last layer; if its weight is ``optional``, only in some files.
    last_norm: bool = True
    # The layer norm before the projector; "" and in a file without it, if it is ``optional``: none.
    projector_norm: str = ""
    # Pixels p, 0 to 1, become 2 p - 1 if the image processor does not change them.
    centers: bool = False
    # The side of windows in pixels, for GGUF files without a key; 0: there are none.
    window: int = 0
    # Queries and keys are rotated by the rows and columns of patches.
    rotates: bool = False
    # Each half of a head rotates by itself, the first by columns, with a base of 100.
    rotates_halves: bool = False
    # Rotations of rows have the even frequencies, those of columns the odd ones.
    rotates_odd: bool = False
    # In GGUF files, the rows of queries and keys that rotate together are adjacent, as in llama's.
    permuted: bool = False
    # Images have positions in time, height and width in the text model.
    axes: bool = False
    # Names of tensors of a layer of ``TowerConfig.deepstack``, after "v.deepstack.N." and in the
    # class, in which {} is the layer's place among them.
    deepstack: Mapping[str, str] = field(default_factory=dict)
    # The tensors of a GGUF file as the tower reads them.
    of_gguf: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] = lambda tensors: tensors
    # The tensors of the class, under GGUF's names, as the tower reads them.
    of_class: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] = lambda tensors: tensors
    # The family of a GGUF file with tensors of these names and these keys; the last argument is the
    # file, for errors.
    variant: Callable[[ImageFamily, Collection[str], Mapping[str, object], str], ImageFamily] = (
        lambda family, names, metadata, source: family
    )
    # The model_type of vision_config, if families share a class; "": any.
    tower: str = ""
    # The values of config.json's version as text, if families share a class; (): any.
    versions: tuple[str, ...] = ()
    # GGUF's architecture of the text model; "": any.
    architecture: str = ""
    # Whether the rows of a square see each other, whatever their order: the text model's
    # configuration, and config.json if there is one.
    both_ways: Callable[[ModelConfig, Values | None], bool] = lambda text, values: False
    # The factor by which the text model multiplies an image's rows.
    row_scale: Callable[[ModelConfig], float] = lambda text: 1.0
    # Names of tensors that a checkpoint may have, in GGUF and in the class.
    optional: Mapping[str, str] = field(default_factory=dict)
    # Endings of a linear's further tensors, in addition to ".weight" and ".bias".
    parts: tuple[str, ...] = ()
    # Further fields of TowerConfig, from vision_config.
    more: Callable[[Values], dict[str, Any]] = lambda vision: {}
    # Defaults of vision_config and of the image processor's file, as in transformers.
    vision_defaults: Mapping[str, object] = field(default_factory=dict)
    processor_defaults: Mapping[str, object] = field(default_factory=dict)
