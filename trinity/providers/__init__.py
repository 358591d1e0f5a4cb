"""Where models lie: each kind of place claims the names that are its own and opens them.

A kind is a file of this package with a ``Kind``; KINDS, in ``opening.py``, is the list of them.
"""

from __future__ import annotations

from trinity.providers.opening import open_description, open_weights

__all__ = ["open_description", "open_weights"]
