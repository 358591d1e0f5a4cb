"""What the record of a product holds, and by how many rows of activations a product's way changes.

Shapes: x is M rows of activations in the form that the weight's type takes (activations.py),
``X_STRIDE`` bytes apart; w is N rows of K weights, ``W_STRIDE`` bytes apart; out is M rows of
float32, ``OUT_STRIDE`` bytes apart. ``SCALE`` is the bits of a float64, ``BIAS`` the address of N
float32 or 0, ``ADD`` not 0 where the result is added onto out.
"""

from __future__ import annotations

X, X_STRIDE, W, W_STRIDE, N, K, OUT, OUT_STRIDE, SCALE, BIAS, ADD = range(3, 14)
# Of kernels that pack weights or activations: activations as tiles; bytes of a thread's own.
TILES, SCRATCH, SCRATCH_STRIDE = range(14, 17)
# Of the kernels that make tiles of activations (activation_tiles.py).
CODES, CODES_STRIDE, FLOATS, INDEX = range(17, 21)
# Of kernels that pack, and of those that make tiles: not 0 where every number of rows is taken as
# many rows are, so that a row's bits do not depend on how many rows a prompt's piece has.
MANY = 24

# Below this many rows of activations dot products are as fast as packing, and read further ahead.
PACK_FROM = 4
# Rows of activations in one tile; up to as many, AMX takes most block types as integers.
TILE_ROWS = 16
