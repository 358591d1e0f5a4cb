"""`trinity batch --ray` writes what one process writes, whatever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_batch import ROWS, answers, row, texts, write
from tests.ray.conftest import Cluster
from tests.ray.processes import descendants
from tests.ray.running import HAS_RAY
from trinity.loading import chat_model

SECONDS = 300  # a run that hangs; starting Ray takes 10 s, on a busy machine a minute


def command(source: Path, out: Path, *more: str) -> list[str]:
    model = ("--model", chat_model(), "--threads", "1")
    return [sys.executable, "-m", "trinity", "batch", str(source), str(out), *model, *more]


def run(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=SECONDS, check=False
    )


def on(cluster: Cluster) -> tuple[str, ...]:
    flags = ("--ray", "--replicas", "2", "--cores", "1", "--at-once", "4")
    return (*flags, "--ray-address", cluster.address)


@pytest.mark.full
def test_rows_are_those_of_one_process_and_a_wrong_one_fails_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    source = write(tmp_path / "in.jsonl", [row(i) for i in range(12)] + [row(12, max_tokens=-2)])
    assert run(source, tmp_path / "alone").returncode == 1
    done = run(source, tmp_path / "ray", *on(cluster))
    assert done.returncode == 1, done.stderr
    assert "1 responses are errors" in done.stderr
    found, expected = answers(tmp_path / "ray"), answers(tmp_path / "alone")
    assert found.keys() == expected.keys()
    assert found["r12"]["status_code"] == 400
    assert found["r12"]["body"]["error"] == expected["r12"]["body"]["error"]
    for key in found.keys() - {"r12"}:
        (mine,), (other,) = found[key]["body"]["choices"], expected[key]["body"]["choices"]
        assert mine == other


@pytest.mark.full
def test_every_row_once_whatever_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    """A replica, then the command itself."""
    source, out = write(tmp_path / "in.jsonl", [row(i) for i in range(ROWS)]), tmp_path / "out"
    assert run(source, tmp_path / "whole").returncode == 0
    with (tmp_path / "said").open("w+") as said:
        process = subprocess.Popen(command(source, out, *on(cluster)), stderr=said)
        for lines in (1, 20):
            limit = time.monotonic() + SECONDS
            while not out.exists() or out.read_bytes().count(b"\n") < lines:
                assert process.poll() is None, (tmp_path / "said").read_text()
                assert time.monotonic() < limit
                time.sleep(0.002)
            os.kill(
                descendants(cluster.process, b"ray::Worker")[0] if lines == 1 else process.pid,
                signal.SIGKILL,
            )
        assert process.wait() == -signal.SIGKILL
    assert 20 <= out.read_bytes().count(b"\n") < ROWS
    done = run(source, out, *on(cluster))
    assert done.returncode == 0, done.stderr
    assert texts(out) == texts(tmp_path / "whole")


@pytest.mark.full
@pytest.mark.skipif(HAS_RAY, reason="Ray is installed")
def test_without_ray(tmp_path: Path) -> None:
    done = run(write(tmp_path / "in.jsonl", [row(1)]), tmp_path / "out", "--ray")
    assert done.returncode == 1
    assert 'pip install "trinity-llm[ray]"' in done.stderr


@pytest.mark.full
def test_flags_of_ray_need_ray(tmp_path: Path) -> None:
    done = run(tmp_path / "in", tmp_path / "out", "--replicas", "2")
    assert done.returncode == 2
    assert "--replicas has no effect without --ray" in done.stderr
