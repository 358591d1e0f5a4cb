"""The record of a product, and the numbers of rows at which kernels change their method.

Shapes: X is M rows of activations in the form of the weight's type (activations.py), X_STRIDE bytes
apart; W is N rows of K weights, W_STRIDE bytes apart; OUT is M rows of N float32, OUT_STRIDE bytes
apart. SCALE is the bits of a float64. BIAS is N float32 or 0. If ADD is not 0, the result is added
to OUT.
"""

from __future__ import annotations

X, X_STRIDE, W, W_STRIDE, N, K, OUT, OUT_STRIDE, SCALE, BIAS, ADD = range(3, 14)
# For kernels that pack weights or activations: activations as tiles, and scratch for each thread.
TILES, SCRATCH, SCRATCH_STRIDE = range(14, 17)
# For the kernels that write tiles of activations (activation_tiles.py).
CODES, CODES_STRIDE, FLOATS, INDEX = range(17, 21)
# For both: if not 0, every number of rows is processed like many rows, so that a row's bits do not
# depend on the number of rows in a chunk of a prompt.
MANY = 24

# Below this number of rows of activations, dot products are as fast as packing.
PACK_FROM = 4
# Rows of activations in one tile. Up to as many, AMX multiplies most block types as integers.
TILE_ROWS = 16
