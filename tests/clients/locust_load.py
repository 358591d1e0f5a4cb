"""locust, a load tester: 8 users at once."""

# packages: locust==2.47.0

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

from rows import SCRIPTED_URL, main, row

USERS = """
from locust import HttpUser, task

class Asks(HttpUser):
    @task
    def chat(self):
        messages = [{"role": "user", "content": "Hi."}]
        self.client.post("/v1/chat/completions", json={"messages": messages})

    @task
    def health(self):
        self.client.get("/health")
"""


@row("8 users, chat + /health, 10 s")
def _() -> None:
    folder = Path(tempfile.mkdtemp())
    (folder / "locustfile.py").write_text(USERS, encoding="utf-8")
    command = [
        str(Path(sys.executable).parent / "locust"), "--headless", "--host", SCRIPTED_URL,
        "-u", "8", "-r", "8", "-t", "10s", "--csv", "out",
    ]  # fmt: skip
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-800:]
    with (folder / "out_stats.csv").open(encoding="utf-8") as file:
        (total,) = [one for one in csv.DictReader(file) if one["Name"] == "Aggregated"]
    assert int(total["Request Count"]) > 10
    assert int(total["Failure Count"]) == 0


if __name__ == "__main__":
    main()
