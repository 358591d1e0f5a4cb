"""Products with weights: out = scale * (x @ w.T) + bias; with ADD the product is added to out.

These kernels take most of the time. A row of x is a token's activations in the form of the weight's
type. Weights are read as they are stored in the file.

    operands.py      the record of a product
    activations.py   the forms of activations; quantize.py and activation_tiles.py write them
    rows.py          one row of weights at a time by dot products (dot.py, dot_*.py), and blocks of
                     plain numbers (float_block.py)
    panels.py        16 rows of weights, packed side by side (panel_*.py), times several tokens
    tiles.py         16 rows of weights, unpacked (unpack*.py), times 16 tokens by AMX (tile*.py)
    experts.py       the products of mixtures of experts, by the kernels above
    epilogue.py      the end of every product: scale, bias, addition
    variants.py      the table of variants by type, level and number of tokens
    readers.py       the readers of quantization types, for compiled code

How code depends on levels and types is described in tags.py.
"""
