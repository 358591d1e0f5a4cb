"""llama.cpp's presets: `trinity serve --models-preset FILE`."""

from __future__ import annotations

from pathlib import Path

import pytest

from trinity.cli.presets import read_presets, with_presets
from trinity.cli.serve import DEFAULTS
from trinity.errors import InputError
from trinity.server.model_refs import GLOBAL, Preset

# The example of llama.cpp's documentation; its options were replaced by some that trinity has.
DOCUMENT = """version = 1

; (Optional) This section provides global settings shared across all presets.
[*]
c = 8192
n-gpu-layers = 8

[ggml-org/MY-MODEL-GGUF:Q8_0]
; string value
kv-type = q8_0
; flag value
jinja = true
# shorthand argument
c = 4096
; environment variable name
LLAMA_ARG_THREADS = 3
LLAMA_ARG_CACHE_RAM = 0
temp = 0.5
no-context-shift = true
load-on-startup = true

[custom_model]
model = /models/my = model.gguf
alias = a, b
np = 2

[hub]
hf-repo = user/repo:Q8_0
hf-file = x.gguf
"""


@pytest.fixture
def notes() -> list[str]:
    return []


def read(tmp_path: Path, text: str, notes: list[str]) -> dict[str, Preset]:
    path = tmp_path / "models.ini"
    path.write_text(text, encoding="utf-8")
    return read_presets(str(path), DEFAULTS, notes.append)


def test_llama_cpps_document(tmp_path: Path, notes: list[str]) -> None:
    found = read(tmp_path, DOCUMENT, notes)
    assert found[GLOBAL] == Preset(loading={"context_length": 8192})
    assert found["ggml-org/MY-MODEL-GGUF:Q8_0"] == Preset(
        loading={"context_length": 4096, "kv_type": "q8_0", "threads": 3},
        generation={"temperature": 0.5, "context_shift": False},
        at_start=True,
    )
    assert found["custom_model"] == Preset(
        "/models/my = model.gguf", {"context_length": 8192, "max_sequences": 2}, aliases=("a", "b")
    )
    assert found["hub"].ref == "hf:user/repo:x.gguf"
    assert [note.rpartition(": ")[2] for note in notes] == [
        f"{key} has no effect" for key in ("n-gpu-layers", "jinja", "LLAMA_ARG_CACHE_RAM")
    ]
    refs = with_presets(["own=x.gguf"], ["hub=y.gguf", "z.gguf"], found, notes.append)
    assert refs == [
        "own=x.gguf", "custom_model=/models/my = model.gguf", "hub=hf:user/repo:x.gguf", "z.gguf"
    ]  # fmt: skip
    assert "no model 'ggml-org/MY-MODEL-GGUF:Q8_0'" in notes[-1]


def test_a_chat_template(tmp_path: Path, notes: list[str]) -> None:
    (tmp_path / "t.jinja").write_text("{{ messages }}")
    found = read(tmp_path, f"[m]\nchat-template-file = {tmp_path / 't.jinja'}\n", notes)
    template = found["m"].template
    assert template is not None
    assert template.text == "{{ messages }}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("c = 1\n[m", r"line 2 is '\[m.*'; expected \[NAME OF A MODEL\] or OPTION = VALUE"),
        ("[m]\nnonsense\n", "line 2 is 'nonsense.*'; expected"),
        ("[m]\nc = 1\nc = 2\n", r"\[m\] has the option c twice"),
        ("[m]\n[m]\n", r"there are two sections \[m\]"),
        ("[m]\nctx-sise = 4096\n", r"\[m\]: 'ctx-sise' is not an option of a model"),
        ("[m]\nc = many\n", r"\[m\]: c is 'many'; it must be a number"),
        ("[m]\nc = 0\n", r"\[m\]: --ctx is 0"),
        ("[m]\nnp = 0\n", r"\[m\]: np is 0"),
        ("[m]\nno-context-shift = maybe\n", "must be true or false"),
        ("[m]\ntemp = -1\n", r"\[m\]: .*temp"),
        ("[m]\nhf-token = secret\n", "is not an option of a model"),
        ("[m]\ncache-type-k = q8_0\n", "use --kv-type"),
        ("[m]\nchat-template = /no/such/file\n", "cannot be read"),
        ("[*]\nmodel = a.gguf\n", "belong into its own section"),
        ("[a b]\nmodel = a.gguf\n", "the name of a model has"),
        ("[m]\nmodel = \0\n" + ";" * (1 << 20), "more than 1048576"),
    ],
)
def test_what_is_refused(tmp_path: Path, notes: list[str], text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read(tmp_path, text, notes)


def test_a_byte_order_mark_is_skipped(tmp_path: Path, notes: list[str]) -> None:
    assert set(read(tmp_path, "\ufeff[m]\r\nc = 8\r\n", notes)) == {"*", "m"}


def test_a_file_that_cannot_be_read(tmp_path: Path, notes: list[str]) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_presets(str(tmp_path / "none"), DEFAULTS, notes.append)
    (tmp_path / "x").write_bytes(b"\xff")
    with pytest.raises(InputError, match="not UTF-8"):
        read_presets(str(tmp_path / "x"), DEFAULTS, notes.append)
