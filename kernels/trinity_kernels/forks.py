"""The number of forks, by which owners of threads and locks notice that they are in a child.

A child process has only the thread that forked, and locks that other threads held stay locked for
ever. An owner of threads or locks therefore stores ``count()``, and recreates them if it differs.
"""

from __future__ import annotations

import os
import threading

_forks = 0
_renewing = threading.RLock()


def count() -> int:
    """The number of forks between the process that imported this module and this process.

    A process id would not do, because systems reuse them.
    """
    return _forks


def renewing() -> threading.RLock:
    """A lock to hold while recreating something, because two threads may attempt it at once."""
    return _renewing


def _forked() -> None:
    global _forks, _renewing
    _forks += 1
    _renewing = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
