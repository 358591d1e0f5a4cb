"""make_goldens.py writes the committed files; needs the extra `goldens`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tools.golden_models import FOLDER, NAMES

pytest.importorskip("transformers", reason="needs the extra goldens")
pytestmark = pytest.mark.filterwarnings("ignore")

LARGEST_TOTAL = 1_500_000


def test_the_committed_files_are_small() -> None:
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) < LARGEST_TOTAL


@pytest.mark.parametrize("name", NAMES)
def test_the_script_writes_the_committed_files(name: str, tmp_path: Path) -> None:
    """The bytes are equal; logits agree as well as other CPUs and versions allow."""
    from tests.goldens.make_goldens import main

    assert main([str(tmp_path), "--only", name]) == 0
    made = {path.name: path for path in (tmp_path / name).iterdir()}
    assert sorted(made) == sorted(path.name for path in (FOLDER / name).iterdir())
    for path in (FOLDER / name).iterdir():
        if path.suffix != ".npz":
            assert made[path.name].read_bytes() == path.read_bytes(), path.name
            continue
        with np.load(path) as old, np.load(made[path.name]) as new:
            np.testing.assert_array_equal(new["tokens"], old["tokens"])
            np.testing.assert_array_equal(new["text_ids"], old["text_ids"])
            np.testing.assert_allclose(new["logits"], old["logits"], atol=1e-4)
