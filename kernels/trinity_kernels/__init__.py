"""The arithmetic of trinity: compiled kernels, usable without the engine."""
