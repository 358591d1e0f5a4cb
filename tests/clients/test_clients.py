"""Each row of each client script is right, or fails for the reason that it declares (`excused`).

An excused row that is right fails the test: its excuse must be removed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.clients.environments import (
    ROOT,
    command_of,
    install,
    is_installed,
    rows_file,
    scripts,
)

MOST_SECONDS = 1200


@pytest.mark.parametrize("name", scripts())
def test_client(name: str, url: str, scripted_url: str) -> None:
    script = scripts()[name]
    if not is_installed(script):
        pytest.skip(f"not installed: python tests/clients/environments.py {name}")
    install(script)  # copies a changed script to its packages
    environment = {**os.environ, "TRINITY_URL": url, "TRINITY_SCRIPTED_URL": scripted_url,
                   "TRINITY_SPOKEN": str(ROOT / "tests" / "data" / "real" / "spoken"),
                   "TRINITY_PYTHON": sys.executable,
                   "TRINITY_PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")]),
                   "HF_HUB_OFFLINE": "1"}  # fmt: skip
    ran = subprocess.run(
        command_of(script), env=environment, capture_output=True, text=True, timeout=MOST_SECONDS
    )
    rows = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"row"')]
    assert rows, ran.stderr[-3000:]
    rows_file(name).parent.mkdir(parents=True, exist_ok=True)
    rows_file(name).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    documented = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    for row in rows:
        print(row)
        if row["error"] and row["excused"]:
            assert row["excused"] in documented, f"docs/clients.md lacks {row['excused']!r}"
    wrong = [f"{one['row']}: {one['error']}" for one in rows if one["error"] and not one["excused"]]
    wrong += [
        f"{one['row']}: now right: remove the excuse {one['excused']!r}"
        for one in rows
        if one["excused"] and not one["error"]
    ]
    assert not wrong, "\n".join(wrong)
    assert ran.returncode == 0, ran.stderr[-3000:]
