"""python -m trinity."""

from __future__ import annotations

from trinity.cli import main

if __name__ == "__main__":
    main()
