"""bench_peers.py runs; its measurements depend on the machine and are not tested."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from scripts.bench import bench_peers
from trinity.providers import open_weights

ROOT = Path(__file__).resolve().parents[3]
BOTH = ["--peer-attention", "flash", "plain"]
QUICK = ["-p", "16", "-n", "4", "-t", "2", "-r", "2"]
# Stands in for a Python with llama-cpp-python: a test takes it two seconds, or one without flash
# attention.
FAKE_PEER = f"""#!{sys.executable}
import json, sys
assert sys.argv[1].endswith("llama_cpp_peer.py")
assert sys.argv[3:] == ["--threads", "2", "--kv-type", "f16"]
print(json.dumps({{"system_info": "fake", "model": sys.argv[2]}}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    print(request, file=sys.stderr, flush=True)
    print(json.dumps({{"seconds": 2.0 if request["flash"] else 1.0}}), flush=True)
"""


@pytest.fixture(autouse=True)
def quick_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real measurement takes a gigabyte."""
    monkeypatch.setattr(bench_peers, "read_bandwidth", lambda threads: 1e9)


def measure(folder: Path, *arguments: str) -> Any:
    report = folder / "report.json"
    assert (
        bench_peers.main([*QUICK, "--models", str(folder), "--json", str(report), *arguments]) == 0
    )
    return json.loads(report.read_text("utf-8"))


@pytest.mark.full
def test_trinity_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = measure(tmp_path, "-s", "tiny", "--no-peer", "-b", "3", "-d", "20")
    rows = found["shapes"][0]["results"]
    assert [row["test"] for row in rows] == ["pp16", "tg4", "tg4 b3", "tg4 @ d20"]
    assert all(len(row["trinity_rounds"]) == 2 and row["ratio"] is None for row in rows)
    assert ["bandwidth_share" in row for row in rows] == [False, True, False, True]
    assert {"machine", "versions", "threads"} <= found.keys()
    output = capsys.readouterr().out
    assert "| tiny | tg4 b3 |" in output
    assert "tiny: 2 threads can read 1.0 GB/s" in output


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="the fake is a script with a #! line")
def test_peer_takes_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = tmp_path / "python"
    fake.write_text(FAKE_PEER)
    fake.chmod(0o755)
    found = measure(tmp_path, "-s", "tiny-bitnet", "-b", "16", "--peer-python", str(fake))
    (shape,) = found["shapes"]
    assert shape["peer"]["system_info"] == "fake"
    assert shape["peer"]["model"].endswith("tiny-bitnet-peer.gguf")
    assert [row["llama_cpp"] for row in shape["results"]] == [8, 2, 32]
    for row in shape["results"]:
        assert row["ratio"] == pytest.approx(row["trinity"] / row["llama_cpp"])
    asked = (tmp_path / "llama.cpp.log").read_text().splitlines()
    assert len(asked) == 9  # three tests in two rounds and a warm-up
    assert ast.literal_eval(asked[2]) == {
        "kind": "tg",
        "count": 4,
        "batch": 16,
        "depth": 0,
        "flash": True,
    }
    assert "| tiny-bitnet | tg4 |" in capsys.readouterr().out
    with closing(open_weights(tmp_path / "tiny-bitnet-peer.gguf")) as provider:
        assert provider.config.architecture == "bitnet"
        assert provider.tensor("blk.0.attn_q.weight").type == "TQ2_0"


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="the fake is a script with a #! line")
def test_better_mode_of_the_peer_counts(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text(FAKE_PEER)
    fake.chmod(0o755)
    found = measure(tmp_path, "-s", "tiny", "--peer-python", str(fake), *BOTH)
    for row in found["shapes"][0]["results"]:
        modes = row["llama_cpp_rounds"]
        assert row["llama_cpp"] == modes["plain"][0] == 2 * modes["flash"][0]


def test_peer_that_dies_is_explained(tmp_path: Path) -> None:
    """Either llama_cpp or the model is missing."""
    with pytest.raises(SystemExit, match=r"the process of llama\.cpp ended"):
        bench_peers.Peer(sys.executable, tmp_path / "missing.gguf", 1, tmp_path / "log")


@pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed"
)
def test_with_llama_cpp(tmp_path: Path) -> None:
    found = measure(tmp_path, "-s", "tiny", "-s", "tiny-bitnet", "-d", "20", *BOTH)
    for shape in found["shapes"]:
        assert "CPU" in shape["peer"]["system_info"]
        assert all(len(row["llama_cpp_rounds"]["plain"]) == 2 for row in shape["results"])


@pytest.mark.skipif(sys.platform == "win32", reason="the fake is a script with a #! line")
def test_peer_that_dies_later_is_explained(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text(
        f"#!{sys.executable}\nimport sys\nprint({{}}, flush=True)\nsys.exit('no more')\n"
    )
    fake.chmod(0o755)
    peer = bench_peers.Peer(str(fake), tmp_path / "model.gguf", 1, tmp_path / "log")
    peer.process.wait()
    with pytest.raises(SystemExit, match=r"ended with 1:\nno more"):
        peer.measure(bench_peers.Test("tg", 4), "flash")


@pytest.mark.full
def test_runs_as_a_script() -> None:
    script = ROOT / "scripts" / "bench" / "bench_peers.py"
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    done = subprocess.run(
        [sys.executable, str(script), "--help"],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    assert "--peer-python" in done.stdout
