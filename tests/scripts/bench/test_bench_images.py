"""bench_images.py runs; its measurements depend on the machine and are not tested."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.bench import bench_images
from scripts.models import make_tower
from trinity.formats import GGUFProvider
from trinity.formats.safetensors import SafeTensorsFile

SMALL: dict[str, Any] = {"width": 32, "inner": 48, "heads": 2, "projection": 256}
SIZES = {
    "gemma3": replace(make_tower.SIZES["gemma3"], side=8, image=(112, 112), **SMALL),
    "qwen3vl": replace(make_tower.SIZES["qwen3vl"], side=6, image=(256, 256), **SMALL),
}
# Stands in for a Python with other engines, whose rows are all 0 and which take two seconds.
FAKE_PEER = f"""#!{sys.executable}
import json, sys
assert sys.argv[1].endswith("image_peer.py")
assert sys.argv[4:] == ["--threads", "2"]
print(json.dumps({{"engine": sys.argv[2]}}), flush=True)
for line in sys.stdin:
    seconds = 2.0 if json.loads(line)["flash"] else 1.0
    print(json.dumps({{"seconds": seconds, "processor": 3.0, "sample": [0.0]}}), flush=True)
"""


@pytest.fixture(autouse=True)
def small_towers(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (make_tower, bench_images):
        monkeypatch.setattr(module, "SIZES", SIZES)


@pytest.mark.full
def test_every_engine_has_its_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake, report = tmp_path / "python", tmp_path / "report.json"
    fake.write_text(FAKE_PEER)
    fake.chmod(0o755)
    arguments = ["--models", str(tmp_path), "-t", "2", "-r", "2", "--layers", "2"]
    arguments += ["--mtmd-python", str(fake), "--transformers-python", str(fake)]
    arguments += ["--peer-attention", "flash", "plain", "--json", str(report)]
    assert bench_images.main(arguments) == 0
    found = json.loads(report.read_text("utf-8"))
    assert [tower["tower"] for tower in found["towers"]] == ["gemma3", "qwen3vl"]
    for tower in found["towers"]:
        own, flash, plain, transformers = tower["results"]
        assert [len(row["seconds"]) for row in tower["results"]] == [2] * 4
        assert own["difference"] == 0
        assert flash["difference"] == 1
        assert flash["ratio"] == 2 * plain["ratio"]
        assert transformers["median_processor"] == 3
        assert tower["peers"]["transformers"] == {"engine": "transformers"}
    assert "| gemma3, 2 layers | 112 x 112 | trinity |" in capsys.readouterr().out


def test_no_round_starts_after_the_time_given(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    arguments = ["--models", str(tmp_path), "-t", "1", "-r", "9", "--layers", "1", "--seconds", "0"]
    assert bench_images.main([*arguments, "--tower", "gemma3", "--json", str(report)]) == 0
    (row,) = json.loads(report.read_text("utf-8"))["towers"][0]["results"]
    assert len(row["seconds"]) == 1


@pytest.mark.parametrize("tower", SIZES)
def test_both_files_of_a_tower_have_the_same_values(tower: str, tmp_path: Path) -> None:
    assert make_tower.main([tower, str(tmp_path), "--layers", "2"]) == 0
    whole = SafeTensorsFile(tmp_path / make_tower.CLASS_FILE)
    size = SIZES[tower].cut(2)
    with GGUFProvider(tmp_path / "mmproj.gguf") as file:
        for name in file.tensor_names():
            if name.endswith(".1"):
                continue
            own, stored = make_tower.class_name(name, size), file.tensor(name).dequantize()
            kind = np.float16 if len(stored.shape) > 1 and "position" not in name else np.float32
            values = whole.tensor(own).data.view(kind).reshape(stored.shape[0], -1)
            if "patch_embd.weight" in name and tower == "qwen3vl":
                values = values.reshape(len(stored), 3, 2, -1)[:, :, 0].reshape(len(stored), -1)
            if "soft_emb_norm" in name:
                values = values + np.float32(1)
            np.testing.assert_array_equal(values, stored.reshape(len(stored), -1))
    whole.close()


def test_a_peer_that_dies_is_explained(tmp_path: Path) -> None:
    """The models are missing."""
    command = [sys.executable, str(bench_images.PEER), "llama.cpp", str(tmp_path), "--threads", "1"]
    with pytest.raises(SystemExit, match=r"the process of llama\.cpp ended"):
        bench_images.Answering("llama.cpp", command, tmp_path / "log")
