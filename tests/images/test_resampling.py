"""Resizing as torchvision does it."""

from __future__ import annotations

import numpy as np
import pytest
from PIL.Image import Resampling

from tests.images import small_vision_models as small
from trinity.images.resampling import resize


@pytest.mark.parametrize("resample", [Resampling.BILINEAR, Resampling.BICUBIC])
@pytest.mark.parametrize(("size", "new"), small.RESIZED)
def test_values_are_those_of_torchvision(
    size: tuple[int, int], new: tuple[int, int], resample: Resampling,
    goldens: dict[str, np.ndarray],
) -> None:  # fmt: skip
    name = "resized_{}_{}_{}_{}_{}".format(*size, *new, resample.name.lower())
    made = np.asarray(resize(small.image(*size), new, resample))
    np.testing.assert_array_equal(made, goldens[name])


def test_other_filters_are_pillows() -> None:
    image = small.image(30, 20)
    made = np.asarray(resize(image, (17, 31), Resampling.LANCZOS))
    np.testing.assert_array_equal(made, image.resize((17, 31), Resampling.LANCZOS))
