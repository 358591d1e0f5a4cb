"""Sources of models: each kind of source recognizes its own names and opens the models.

A kind is a file of this package with a ``Kind``; KINDS in ``opening.py`` lists them.
"""

from __future__ import annotations

from trinity.providers.opening import open_description, open_weights

__all__ = ["open_description", "open_weights"]
