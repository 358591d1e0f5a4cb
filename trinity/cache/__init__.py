"""Folders for compiled kernels and converted models, and which folders can be trusted."""
