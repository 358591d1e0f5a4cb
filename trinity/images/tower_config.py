"""The configuration of a vision tower, independent of any file format."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from trinity.errors import ConfigError
from trinity.images.settings import NARROWEST, ImageSettings

Channels: TypeAlias = tuple[float, float, float]
Activation = Literal["gelu", "gelu_erf", "gelu_quick", "silu"]
Norm = Literal["layer", "rms"]
MOST_ROWS = 1 << 14  # patches of a square
RESAMPLER_HEAD = 128  # values of a head of a resampler
MOST_PINPOINTS = 100
MOST_FEATURES = 16
MOST_PIXELS = 1 << 24  # of an image that is resized for a tower, whatever its settings say
# The sizes of a model without layers: patches are only projected.
NO_LAYERS: dict[str, Any] = {"intermediate_size": 0, "num_layers": 0, "num_heads": 1}
_FILTERS = range(6)  # Pillow's numbers of resampling filters


@dataclass(frozen=True, slots=True)
class TowerConfig:
    """Sizes and constants of a vision transformer and of its projector."""

    family: str
    """The name of the projector in GGUF: clip.projector_type."""
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    image_size: int
    """The side of the square whose patches have a row in the table of positions."""
    patch_size: int
    layer_norm_eps: float
    activation: Activation
    """The activation of the feed-forward."""
    projection_size: int
    """The hidden size of the text model."""
    merge: int
    """The projector joins ``merge`` x ``merge`` neighbouring rows."""
    mean: Channels
    std: Channels
    """A channel's values, 0 to 1, become (value - mean) / std."""
    deepstack: tuple[int, ...] = ()
    """The layers whose states, projected, are added within the text model's first layers."""
    window: int = 0
    """The blocks of patches along the side of a window; 0: every layer sees the whole image."""
    whole_layers: tuple[int, ...] = ()
    """With windows: the layers that see the whole image."""
    positions: int = 0
    """With a table of positions for columns and one for rows: the number of their rows."""
    clips: bool = False
    """The inputs and outputs of linears are limited to ranges, which the file has."""
    standardizes: bool = False
    """Joined rows become (value - v.std_bias) * v.std_scale."""
    norm: Norm = "layer"
    """The kind of the layers' norms."""
    class_token: bool = False
    """After the patches there is a row for the whole image, which the projector does not get. Its
    position is the first in the table."""
    row_norms: bool = False
    """Whole rows of queries and of keys have RMS norms."""
    scales: bool = False
    """The outputs of attention and of the feed-forward have factors, ls1 and ls2."""
    features: tuple[int, ...] = ()
    """The numbers of layers after which the projector reads the states, side by side, with the
    last layer among them; (): only after the last one."""

    queries: int = 0
    """The number of a resampler's queries, which become the rows of a square, whatever its size; 0:
    there is no resampler."""

    @property
    def joined_states(self) -> int:
        """How many states of a patch the projector reads."""
        return max(len(self.features), 1)

    @property
    def side(self) -> int:
        """The number of patches along a side of the square."""
        return self.image_size // self.patch_size

    @property
    def rows(self) -> int:
        """The number of patches of a square."""
        return self.side**2

    def blocks(self, width: int, height: int) -> tuple[int, int]:
        """Return the rows and columns of blocks of patches in an image of this size."""
        unit = self.patch_size * self.merge
        return height // unit, width // unit

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """Return the rows and columns that the text model gets for an image of this size."""
        return (1, self.queries) if self.queries else self.blocks(width, height)


def checked_tower(
    config: TowerConfig, settings: ImageSettings, source: str, *, rotates: bool
) -> TowerConfig:
    """Return the configuration. Raises ConfigError if its sizes contradict each other.

    ``rotates``: whether queries and keys rotate by the patch's row and column.
    """
    for fits, what in (
        (config.hidden_size % config.num_heads == 0, "its width is not divided by its heads"),
        (
            not rotates or config.hidden_size // config.num_heads % 4 == 0,
            f"its heads have {config.hidden_size // config.num_heads} values; rotation by row and "
            "column needs a multiple of 4",
        ),
        (config.side > 0, "its squares are smaller than a patch"),
        (config.side % config.merge == 0, "the projector does not join whole blocks of patches"),
        (config.rows <= MOST_ROWS, f"it has {config.rows} patches; at most {MOST_ROWS} are read"),
        (
            config.deepstack == tuple(sorted({*config.deepstack} & {*range(config.num_layers)})),
            f"it has {config.num_layers} layers, but deepstack reads {config.deepstack}",
        ),
        (
            not config.features
            or (
                max(config.features) == config.num_layers and len(config.features) <= MOST_FEATURES
            ),
            f"it has {config.num_layers} layers, of which the projector reads {config.features}; "
            f"at most {MOST_FEATURES} are read",
        ),
        (
            settings.unit in (0 if settings.tile else -1, config.patch_size * config.merge),
            f"the projector joins {config.merge} x {config.merge} patches of {config.patch_size} "
            f"pixels, but sides of images are multiples of {settings.unit}",
        ),
        (
            config.image_size**2 <= MOST_PIXELS and settings.unit**2 <= MOST_PIXELS,
            f"its squares have sides of {max(config.image_size, settings.unit)} pixels; at most "
            f"{MOST_PIXELS} pixels are read",
        ),
        (
            not config.positions
            or settings.most_pixels // settings.unit**2 * config.merge <= config.positions,
            f"its tables of positions have {config.positions} rows, which are less than the "
            "patches along a side of an image",
        ),
        (
            not config.queries or config.projection_size % RESAMPLER_HEAD == 0,
            f"its resampler makes rows of {config.projection_size} values, which are not divided "
            f"into heads of {RESAMPLER_HEAD}",
        ),
        (
            not config.queries
            or NARROWEST * (settings.tile // config.patch_size) ** 2 <= MOST_ROWS,
            f"slices of {settings.tile} x {settings.tile} pixels have more than "
            f"{MOST_ROWS // NARROWEST} patches",
        ),
        (settings.resample in _FILTERS, f"there is no filter {settings.resample} for resizing"),
        (
            settings.unit or settings.tile in (0, config.image_size),
            f"the tower sees squares of {config.image_size} pixels, but the image processor makes "
            f"tiles of {settings.tile}",
        ),
        (
            all(
                min(sides) > 0
                and math.prod(sides) <= MOST_PIXELS
                and not any(side % settings.tile for side in sides)
                for sides in settings.pinpoints
            )
            and len(settings.pinpoints) <= MOST_PINPOINTS,
            f"the sizes of images (image_grid_pinpoints) must be multiples of {settings.tile}, "
            f"with at most {MOST_PIXELS} pixels, and at most {MOST_PINPOINTS} sizes",
        ),
        (
            not settings.patch
            or max(settings.tile**2, 2 * settings.most_pixels)
            <= min(MOST_ROWS * config.patch_size**2, MOST_PIXELS),
            f"its image processor makes more than {MOST_ROWS} patches",
        ),
        (
            not settings.unit or settings.tile % settings.unit == 0,
            f"the projector joins blocks of {settings.unit} pixels, but the image processor makes "
            f"tiles of {settings.tile}",
        ),
        (
            settings.least_tiles <= max(settings.most_tiles, 1)
            and settings.most_tiles * settings.tile**2 <= MOST_PIXELS,
            f"an image becomes {settings.least_tiles} to {settings.most_tiles} tiles of "
            f"{settings.tile} x {settings.tile} pixels; at most {MOST_PIXELS} pixels are read",
        ),
    ):
        if not fits:
            raise ConfigError(f"{source}: {what}; the file contradicts itself: download it again")
    return config


def pixel_limits(least: int, most: int, patch_size: int) -> tuple[int, int]:
    """Return the limits of a resized image; it has at most ``MOST_ROWS`` patches."""
    most = min(most, MOST_ROWS * patch_size**2, MOST_PIXELS)
    return min(least, most), most


def shrunk_to(settings: ImageSettings, config: TowerConfig) -> ImageSettings:
    """Return the settings of the cut "shrunk" for a tower: at most ``MOST_ROWS`` patches."""
    unit = config.patch_size * config.merge
    most = min(math.isqrt(MOST_ROWS) * config.patch_size, math.isqrt(MOST_PIXELS)) // unit * unit
    return replace(settings, unit=unit, longest_edge=max(min(settings.longest_edge, most), 1))


def centered(mean: Channels, std: Channels) -> tuple[Channels, Channels]:
    """Return the mean and the deviation of channels for a model that turns normalized values v
    into 2 v - 1.
    """
    (a, b, c), (d, e, f) = mean, std
    return (a + d / 2, b + e / 2, c + f / 2), (d / 2, e / 2, f / 2)


def checked_channels(found: object, where: str, *, positive: bool) -> Channels:
    """Return the three numbers, one per channel, that a list or an array holds.

    Raises ConfigError, whose message begins with ``where``: the file and the key.
    """
    values = found.tolist() if isinstance(found, np.ndarray) else found
    if (
        not isinstance(values, list)
        or len(values) != 3
        or not all(isinstance(value, int | float) and -10 <= value <= 10 for value in values)
        or (positive and not all(value > 0 for value in values))
    ):
        raise ConfigError(f"{where} is {found!r:.80}; it must be three numbers, one per channel")
    first, second, third = (float(value) for value in values)
    return first, second, third
