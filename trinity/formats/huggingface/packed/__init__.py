"""Weights that several tensors of a checkpoint hold together: codes and their scales.

A file for each method of quantization; ``weight.py`` has what they give, ``logical.py`` the
checkpoint as it looks then, ``methods.py`` their table.
"""
