"""The part of a page that a layer has, and how many parts a sequence needs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trinity.models.operations import Attention
from trinity.runtime.pages.page_layout import PageLayout, PartSizes, Window
from trinity_kernels.ops.kv_layout import PAGE, layer_bytes

LAYER = Attention(4, 2, 32, 1.0)
F16, F32 = (layer_bytes(kind, 2, 32, 32) for kind in ("F16", "F32"))


def layers(*windows: int) -> list[Attention]:
    return [replace(LAYER, window=window) for window in windows]


def test_without_windows_a_page_is_one_part() -> None:
    layout = PageLayout(layers(0, 0, 0), 4096, 512)
    assert layout.window is None
    assert not any(layout.windowed)
    assert layout.offsets("F16") == [0, F16, 2 * F16]
    assert layout.sizes("F32") == PartSizes(3 * F32, 0)
    assert layout.sequence_bytes("F16", 4096) == 32 * 3 * F16


def test_windowed_layers_lie_in_a_part_of_their_own() -> None:
    layout = PageLayout(layers(512, 0, 512, 256), 4096, 512)
    assert layout.window == Window(512, 512)  # the largest counts
    assert layout.windowed == [True, False, True, True]
    assert layout.offsets("F16") == [0, 0, F16, 2 * F16]
    assert layout.sizes("F16") == PartSizes(F16, 3 * F16)
    assert layout.sequence_bytes("F16", 4096) == 32 * F16 + 9 * 3 * F16
    assert layout.sequence_bytes("F16", 300) == 3 * F16 + 3 * 3 * F16


def test_all_layers_may_be_windowed() -> None:
    assert PageLayout(layers(100, 100), 4096, 64).sizes("F16") == PartSizes(0, 2 * F16)


@pytest.mark.parametrize(("window", "context"), [(4096, 4096), (2048, 2048), (3500, 4096)])
def test_a_window_that_saves_nothing_is_none(window: int, context: int) -> None:
    layout = PageLayout(layers(window, 0), context, 512)
    assert layout.window is None
    assert layout.sizes("F16") == PartSizes(2 * F16, 0)


def test_one_of_two_windows_saves_nothing() -> None:
    layout = PageLayout(layers(128, 4000, 0), 4096, 512)
    assert layout.windowed == [True, False, False]
    assert layout.window == Window(128, 512)


def test_layers_that_read_the_cache_of_another() -> None:
    """They store no keys; if one of them has no window, all positions are kept."""
    shared = [*layers(64, 64, 0), replace(LAYER, window=64, cache_of=0)]
    layout = PageLayout([*shared, replace(LAYER, cache_of=2)], 4096, 64)
    assert layout.windowed == [True, True, False, True, False]
    assert layout.offsets("F16") == [0, F16, 0, 0, 0]
    assert layout.sizes("F16") == PartSizes(F16, 2 * F16)
    layout = PageLayout([*shared, replace(LAYER, cache_of=1)], 4096, 64)
    assert layout.windowed == [True, False, False, True, False]
    assert layout.offsets("F16") == [0, 0, F16, 0, 0]


@given(st.integers(1, 1000), st.integers(1, 600), st.integers(0, 5000))
def test_what_the_tokens_of_a_step_see(positions: int, rows: int, length: int) -> None:
    window = Window(positions, rows)
    first = max(0, length - positions + 1)  # the token at ``length`` sees so many with itself
    assert window.first_page(length) == first // PAGE
    pages = (length + rows - 1) // PAGE - first // PAGE + 1
    assert pages <= window.most_pages
    most = max(
        (at + rows - 1) // PAGE - max(0, at - positions + 1) // PAGE + 1
        for at in range(positions, positions + PAGE)
    )
    assert most == window.most_pages
