"""Whether this process was forked since something was made.

Of a process's threads only the one that forks lives on in the child, where locks that the others
held stay locked for ever. What owns threads or locks therefore remembers ``count()`` and makes
them anew once it differs.
"""

from __future__ import annotations

import os
import threading

_forks = 0
_renewing = threading.RLock()


def count() -> int:
    """Forks that lie between the first process and this one, since this module was imported.

    A process id would not do: systems give them out again.
    """
    return _forks


def renewing() -> threading.RLock:
    """To be held while something is made anew, which two threads of a child may want at once."""
    return _renewing


def _forked() -> None:
    global _forks, _renewing
    _forks += 1
    _renewing = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
