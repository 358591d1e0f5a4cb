"""Quantized weights that a checkpoint stores in several tensors: codes and their scales.

There is a file for each quantization method. ``weight.py`` declares their result, ``logical.py``
the checkpoint with unpacked names, ``methods.py`` lists the methods.
"""
