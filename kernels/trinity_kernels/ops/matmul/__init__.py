"""out = scale * (x @ w.T) + bias, or added onto out: the operation that takes the time.

A row of x is a token's activations, brought to the form that the weight's type takes. Weights are
multiplied as they lie in the file:

    operands.py      the record of a product
    activations.py   the forms of activations; quantize.py and activation_tiles.py make them
    rows.py          a row of weights times a token by a dot product (dot.py), or, of plain numbers
                     and several tokens, in blocks (float_block.py)
    panels.py        16 rows of weights, packed side by side, times several tokens by vectors
    tiles.py         16 rows of weights, unpacked (unpack.py), times 16 tokens by AMX
    epilogue.py      how all of them end: scale, bias, add
    variants.py      which of them serves which type, level and number of tokens

What differs by type comes from its reader in trinity_kernels.quants (readers.py); how code depends
on levels and types is in trinity_kernels/tags.py.
"""
