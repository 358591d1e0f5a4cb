"""Models with rotated weights are refused instead of run without the rotation."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.formats import raw_gguf as raw
from trinity.errors import UnsupportedError
from trinity.formats import GGUFProvider

# Keys of Ternary-Bonsai-2-27B, whose Q2_0 form has only types that are supported.
KEYS = {
    "prism.hadamard.version": (raw.U32, struct.pack("<I", 1)),
    "prism.hadamard.transform": (raw.STRING, raw.string("normalized-sylvester-walsh-hadamard")),
    "prism.hadamard.gdn_v_grouped": (raw.BOOL, b"\1"),
}


@pytest.mark.parametrize("key", KEYS)
def test_rotated_weights_are_refused(tmp_path: Path, key: str) -> None:
    path = tmp_path / "bonsai.gguf"
    architecture = raw.key_value("general.architecture", raw.STRING, raw.string("qwen35"))
    path.write_bytes(raw.gguf([architecture, raw.key_value(key, *KEYS[key])], [], b""))
    with GGUFProvider(path) as model, pytest.raises(UnsupportedError, match=key) as caught:
        _ = model.config
    assert str(path) in str(caught.value)
    assert "rotat" in str(caught.value)
