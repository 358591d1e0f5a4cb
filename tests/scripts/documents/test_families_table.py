"""The table of model sizes in models.md."""

from __future__ import annotations

import pytest

from scripts.documents.families_table import DOCUMENT, KNOWN, Known, cache_bytes, counts, table

# Parameters that the models' own pages give, and those that a token reads where they give them.
PUBLISHED = {
    "Qwen 3 0.6B": (0.60, None), "Gemma 3 1B": (1.00, None), "Phi-4-mini": (3.84, None),
    "Qwen 2.5 7B": (7.62, None), "Llama 3.1 8B": (8.03, None), "Qwen 3 8B": (8.19, None),
    "Gemma 2 9B": (9.24, None), "gpt-oss-20b (MXFP4)": (20.9, 3.6),
    "Qwen 3 30B-A3B": (30.5, 3.3), "Mixtral 8x7B": (46.7, 12.9), "DeepSeek V2 Lite": (15.7, 2.4),
}  # fmt: skip


def test_the_document_has_the_table() -> None:
    """`python scripts/documents/families_table.py --write` updates it."""
    assert table() in DOCUMENT.read_text("utf-8")


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_parameters_are_the_published_ones(known: Known) -> None:
    total, read = counts(known)
    assert 0 < read <= total
    if known.name in PUBLISHED:
        parameters, active = PUBLISHED[known.name]
        assert total / 1e9 == pytest.approx(parameters, rel=0.01)
        if active is not None:  # with the embedding, of which a token reads a row
            assert read / 1e9 == pytest.approx(active, rel=0.1)


def test_windows_bound_the_cache() -> None:
    gemma = next(known for known in KNOWN if known.name == "Gemma 3 1B")
    at_512, at_4096 = cache_bytes(gemma, 512), cache_bytes(gemma, 4096)
    full = 4  # of 26 layers
    assert at_4096 - at_512 == 2 * full * 512 * (4096 - 512)
