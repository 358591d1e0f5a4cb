"""Put the table of tested clients into docs/clients.md, from what `make test-clients` found.

    python scripts/clients_table.py           # print it
    python scripts/clients_table.py --write   # write it

`make test-clients` writes the rows of each client into build/clients/rows. Run it for all clients
first.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from tests.clients.environments import packages_of, rows_file, scripts  # noqa: E402

DOCUMENT = ROOT / "docs" / "clients.md"
BEGIN, END = "<!-- scripts/clients_table.py -->\n", "<!-- end of the table -->\n"
HEAD = "| client | packages | calls | right | not right |\n| --- | --- | ---: | ---: | --- |"


def title_of(script: Path) -> str:
    """The first sentence of a script: of its docstring, or of its first comment."""
    text = script.read_text(encoding="utf-8")
    if script.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or script.stem
    return text.splitlines()[0].removeprefix("// ").rstrip(".")


def line_of(name: str, script: Path) -> str | None:
    """The row of one client; None if it was not run."""
    file = rows_file(name)
    if not file.exists():
        return None
    rows = json.loads(file.read_text(encoding="utf-8"))
    failed = [row for row in rows if row["error"]]
    told = "; ".join(f"{row['row']}: {row['excused'] or 'a fault here'}" for row in failed)
    packages = ", ".join(f"`{package}`" for package in packages_of(script))
    cells = (title_of(script), packages, str(len(rows)), str(len(rows) - len(failed)), told)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table() -> str:
    """The table of all clients that were run, and their sum."""
    lines = [line for name, script in scripts().items() if (line := line_of(name, script))]
    return "\n".join((HEAD, *lines)) + "\n"


def main() -> int:
    """Print or write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true")
    if not parser.parse_args().write:
        print(table(), end="")
        return 0
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    DOCUMENT.write_text(before + BEGIN + table() + END + rest.split(END)[1], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
