"""Write the table of tested clients into docs/clients.md, from the results of `make test-clients`.

    python scripts/documents/clients_table.py           # print it
    python scripts/documents/clients_table.py --write   # write it

`make test-clients` writes the rows of each client into build/clients/rows. A client that was not
run keeps its row in the document.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tests.clients.environments import packages_of, rows_file, scripts  # noqa: E402

DOCUMENT = ROOT / "docs" / "clients.md"
BEGIN, END = "<!-- scripts/documents/clients_table.py -->\n", "<!-- end of the table -->\n"
HEAD = "| client | packages | calls | right | not right |\n| --- | --- | ---: | ---: | --- |"


def title_of(script: Path) -> str:
    """Return the first sentence of a script's docstring or first comment."""
    text = script.read_text(encoding="utf-8")
    if script.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or script.stem
    return text.splitlines()[0].removeprefix("// ").rstrip(".")


def line_of(name: str, script: Path, documented: str) -> str | None:
    """Return the row of a client; for one that was not run, the document's row or None."""
    file = rows_file(name)
    if not file.exists():
        begin = f"| {_cell(title_of(script))} |"
        return next((line for line in documented.splitlines() if line.startswith(begin)), None)
    rows = json.loads(file.read_text(encoding="utf-8"))
    failed = [row for row in rows if row["error"]]
    told = "; ".join(f"{row['row']}: {row['excused'] or 'a fault here'}" for row in failed)
    packages = ", ".join(f"`{package}`" for package in packages_of(script))
    cells = (title_of(script), packages, str(len(rows)), str(len(rows) - len(failed)), told)
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def table(documented: str) -> str:
    """Return the table of all clients; ``documented`` is the document's table."""
    found = (line_of(name, script, documented) for name, script in scripts().items())
    return "\n".join((HEAD, *filter(None, found))) + "\n"


def main() -> int:
    """Print or write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    before, rest = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)
    documented, after = rest.split(END)
    made = table(documented)
    if write:
        DOCUMENT.write_text(before + BEGIN + made + END + after, encoding="utf-8")
    else:
        print(made, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
