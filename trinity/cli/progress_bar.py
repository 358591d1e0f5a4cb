"""A progress bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trinity.cli.inspect_tables import printable
from trinity.cli.terminal import escaped, say, styled_stderr


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show a progress bar on a terminal, otherwise a line for each tenth."""
    if not sys.stderr.isatty():
        from trinity.quantization.progress import each_tenth

        yield each_tenth(say, title)
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=styled_stderr()) as progress:
        task = progress.add_task(escaped(title), total=None)

        def move(done: int, total: int, name: str) -> None:
            shown = printable(name or title)
            progress.update(task, completed=done, total=total, description=shown)

        yield move
