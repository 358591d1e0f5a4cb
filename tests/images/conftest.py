from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.images import small_vision_models as small

NAMES = tuple(small.SPECIAL)


@pytest.fixture(scope="session")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("vision")
    return {name: small.write_directory(name, folder / name) for name in NAMES}


@pytest.fixture(scope="session")
def models(directories: dict[str, Path]) -> Iterator[dict[str, trinity.Model]]:
    loaded = {name: trinity.load(path) for name, path in directories.items()}
    yield loaded
    for model in loaded.values():
        model.close()


@pytest.fixture(scope="session")
def goldens() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).parents[1] / "data" / "images.npz") as arrays:
        return dict(arrays)
