"""python -m trinity, and the console script."""

from __future__ import annotations

from trinity.processes import command_line


def main() -> None:
    """Run the command line of this process; never returns."""
    command_line.begin()
    from trinity.cli import main as run  # slow

    run()


if __name__ == "__main__":
    main()
