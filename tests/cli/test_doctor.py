from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.cli.conftest import Run
from trinity.tools import doctor
from trinity.tools.doctor import Diagnosis, examine


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake this machine with one finding and an unmeasured bandwidth."""
    found = replace(examine(), cpu_quota=1.5, findings=(Diagnosis("the quota is low", "raise it"),))
    monkeypatch.setattr(doctor, "examine", lambda: found)
    monkeypatch.setattr(
        doctor, "measured", lambda seen: replace(seen, read_bandwidth_bytes_per_second=2e10)
    )


@pytest.mark.usefixtures("pretended")
def test_text(run: Run) -> None:
    result = run("doctor")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == "measuring memory bandwidth\n"
    lines = result.stdout.splitlines()
    rows = {line[:15].strip(): line[15:].strip() for line in lines[: lines.index("")]}
    assert rows["read bandwidth"] == "20.0 GB/s"
    assert rows["tokens/s"] == "about 4.0 with a file of 4 GB"
    assert rows["CPU quota"] == "1.5 CPUs"
    assert lines[-2:] == ["- the quota is low", "  what to do: raise it"]


@pytest.mark.usefixtures("pretended")
def test_json(run: Run) -> None:
    result = run("doctor", "--no-bandwidth", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert found["read_bandwidth_bytes_per_second"] is None
    assert found["findings"] == [{"what": "the quota is low", "do": "raise it"}]
    assert found["level"] in found["levels"]
