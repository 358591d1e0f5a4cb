"""What compiled code knows of a quantization type, of whatever kind its reader is.

There are five kinds: Plain, Affine4, Block32, SuperBlock and Ternary. A kind adds the functions
that read codes and scales. Numbers are bytes from the start of a block, and 0 if a type lacks what
they describe.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockReader:
    """The layout of a type's blocks, as products ask for it."""

    # Bytes of a block, and its elements.
    nbytes: int
    elements: int = 32
    # The form of the activations (ops/matmul/activations.py).
    form: str = "q8"
    # Elements that share a scale: 16, 32 or a whole block.
    group: int = 32
    # Codes are signed, or unsigned and higher than the values by ``offset`` (0 or a power of 2).
    signed: bool = False
    offset: int = 0
    # The largest unsigned code.
    top: int = 0
    # The one minimum of a block, which is added; of the scale's type.
    minimum_at: int = 0
    # Elements that share one of several minima, which are subtracted: 16, 32 or 0.
    minima: int = 0
    # Every product of a code and a scale is a bfloat16.
    fits_bfloat16: bool = False
    # The float16 scale of a ternary block.
    scale_at: int = 0
    # Codes that are contiguous signed bytes, or 16 bytes of which the low halves are elements 0
    # to 15.
    bytes_at: int = 0
    nibbles_at: int = 0
    # The fifth bits of 32 codes in 4 bytes, which are followed by 16 bytes of nibbles.
    fifth_bits_at: int = 0

    @property
    def has_minima(self) -> bool:
        """Whether codes as they are stored need a minimum: an offset is one, too."""
        return bool(self.offset or self.minima or self.minimum_at)

    @property
    def in_order(self) -> bool:
        """Whether the two codes of a byte are neighbours."""
        return False

    @property
    def bfloat16s(self) -> int:
        """How many bfloat16 represent a weight; 0 if they would lose too many bits.

        Activations of 19 bits would show that a weight has more bits than one bfloat16.
        """
        return 0 if self.form == "q19" and not self.fits_bfloat16 else 1

    @property
    def unit(self) -> int:
        """Elements that int8 tiles take together: four blocks, or a superblock."""
        return 128

    @property
    def has_exact_groups(self) -> bool:
        """Whether sums of groups can stay integers until they are scaled, four groups at a time."""
        return False
