"""Memory and time of reading a file are limited by the file's size.

The limit: at most 3 times the file and 300 MB, and 2 s and 1 s for each 100 MB, until the first
token. These tests allow four times the time, because the machine may be busy; defects take minutes.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.crafted_models import write_crafted_model
from tests.formats import raw_gguf as raw
from tests.processor_time import check_least
from trinity.tokenizers.bpe import BYTE_CHARACTERS
from trinity.tokenizers.vocabulary import _END_TEXTS

ROOT = Path(__file__).resolve().parents[1]
Probe = Callable[[str, Path], tuple[str, int, float]]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs fork and Linux's ru_maxrss")


@pytest.fixture(scope="module")
def probe() -> Iterator[Probe]:
    """Does something with a file in a process that did nothing else."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    command = [sys.executable, "-m", "tests.cost_probe"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:  # fmt: skip
        assert process.stdin
        assert process.stdout
        stdin, stdout = process.stdin, process.stdout
        assert stdout.readline() == "ready\n"

        def ask(action: str, path: Path) -> tuple[str, int, float]:
            stdin.write(json.dumps([action, str(path)]) + "\n")
            stdin.flush()
            outcome, nbytes, seconds = json.loads(stdout.readline())
            return outcome, nbytes, seconds

        yield ask
        stdin.close()


def size_of(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.iterdir())
    return path.stat().st_size


def check(probe: Probe, action: str, path: Path, expected: str) -> None:
    size = size_of(path)

    def seconds() -> float:
        outcome, nbytes, taken = probe(action, path)
        assert expected in outcome
        assert outcome.startswith(("ok", "refused")), outcome
        assert nbytes <= 3 * size + 300e6, f"{nbytes / 1e6:.0f} MB for a file of {size} bytes"
        return taken

    check_least(4 * (2 + size / 100e6), seconds)


def key(name: str, text: str) -> bytes:
    return raw.key_value(name, raw.STRING, raw.string(text))


# Structures: what is in the file, and how reading it ends.
STRUCTURES: dict[str, tuple[Callable[[], bytes], str]] = {
    "many keys": (
        lambda: raw.gguf([raw.key_value(f"{i:x}", raw.U8, b"\0") for i in range(400_000)]),
        "400000 keys",
    ),
    "many tensors": (
        lambda: raw.gguf([], [raw.info(f"{i:x}", [1], 24, 32 * i) for i in range(200_000)],
                         bytes(32 * 200_000)),
        "200000 tensors",
    ),
    "arrays in an array": (
        lambda: raw.gguf([raw.key_value("k", raw.ARRAY, raw.array(
            raw.ARRAY, 1_000_000, 1_000_000 * raw.array(raw.U8, 0)))]),
        "arrays in arrays",
    ),
    "empty strings": (
        lambda: raw.gguf([raw.key_value("k", raw.ARRAY, raw.array(
            raw.STRING, 3_000_000, bytes(24_000_000)))]),
        "strings in arrays",
    ),
    "control characters to be escaped": (
        lambda: raw.gguf([key("general.architecture", "llama"), key("k", "\1" * 30_000_000)]),
        "",
    ),
    "an architecture as long as the file": (
        lambda: raw.gguf([key("general.architecture", "a" * 30_000_000)]), "",
    ),
    "a wide character in a long text": (
        lambda: raw.gguf([key("general.name", "\U0001f600" + "a" * 20_000_000)]), "",
    ),
    "a wide character among control characters": (
        lambda: raw.gguf([key("general.architecture", "\U0001f600" + "\1" * 30_000_000)]), "",
    ),
    "keys as long as the file": (
        lambda: raw.gguf([raw.key_value("\1" * 65_000 + f"\U0001f600{i}", raw.U8, b"\0")
                          for i in range(300)]),
        "bytes of keys",
    ),
    "an architecture of the longest text": (
        lambda: raw.gguf([key("general.architecture", "\U0001f600" + "\1" * ((1 << 24) - 4))]), "",
    ),
    "tensors of as many kinds": (
        lambda: raw.gguf([key("general.architecture", "lama")],
                         [raw.info(f"blk.0.{i:x}.weight", [1], 24, 32 * i) for i in range(65_000)],
                         bytes(32 * 65_000)), "",
    ),
    "split.count": (
        lambda: raw.gguf([raw.key_value("split.count", raw.U32, raw.u32(60_000)),
                          raw.key_value("split.no", raw.U32, raw.u32(0))]),
        "60000 parts",
    ),
    "I2_S that is no whole blocks": (
        lambda: raw.gguf([key("general.architecture", "llama")],
                         [raw.info("blk.0.attn_q.weight", [68, 1], 36)], bytes(17 + 32 + 15)),
        "not a multiple of 128",
    ),
}  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "action"),
    [(name, "inspect") for name in STRUCTURES]
    + [
        ("many tensors", "verify"),
        ("an architecture as long as the file", "load"),
        ("an architecture as long as the file", "quantize"),
        ("a wide character in a long text", "quantize"),
        ("I2_S that is no whole blocks", "load"),
        ("I2_S that is no whole blocks", "verify"),
        ("I2_S that is no whole blocks", "quantize"),
    ],
)
def test_structures(probe: Probe, name: str, action: str, tmp_path: Path) -> None:
    make, expected = STRUCTURES[name]
    path = tmp_path / "model-00001-of-60000.gguf"
    path.write_bytes(make())
    check(probe, action, path, expected)


SIZES: dict[str, tuple[dict[str, object], str]] = {
    "heads of 65,536 that are not there": (
        {"head_dim": 1 << 16, "without": ("attn_q", "attn_k")}, "no tensor 'blk.0.attn_q",
    ),
    "heads of 65,536 that are there": ({"head_dim": 1 << 16}, "ok"),
    "many narrow heads": ({"num_layers": 8, "num_heads": 2048, "num_kv_heads": 2048,
                           "head_dim": 2}, "ok"),
    "more heads than any model": ({"num_layers": 1, "num_heads": 8192, "num_kv_heads": 8192,
                                   "head_dim": 2}, "a whole number from 1 to 4096"),
    "a wide feed-forward layer": ({"intermediate_size": 1 << 18}, "ok"),
    "a context without end": ({"context_length": (1 << 31) - 1}, "ok"),
    "many layers": ({"num_layers": 200}, "ok"),
    "as many layers as are read": (
        {"num_layers": 512, "hidden_size": 32, "intermediate_size": 32, "head_dim": 32,
         "type": "F16"}, "ok",
    ),
}  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("name", SIZES)
def test_sizes(probe: Probe, name: str, tmp_path: Path) -> None:
    sizes, expected = SIZES[name]
    path = tmp_path / "model.gguf"
    write_crafted_model(path, **sizes)  # type: ignore[arg-type]
    check(probe, "load", path, expected)


@pytest.mark.parametrize("action", ["inspect", "load"])
def test_the_longest_name_that_is_read(probe: Probe, action: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_crafted_model(path, metadata={"general.name": "\U0001f600" + "\1" * ((1 << 24) - 4)})
    check(probe, action, path, "ok")


def spm(words: list[str], kind: int = 1) -> dict[str, object]:
    tokens = ["<unk>", "<s>", "</s>", *words]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": -np.arange(len(tokens), dtype=np.float32),
        "tokenizer.ggml.token_type": np.array([2, 3, 3] + [kind] * len(words), np.int32),
    }


def bpe(words: list[str], merges: list[str], kind: int = 1) -> dict[str, object]:
    tokens = [*BYTE_CHARACTERS.values(), *words]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([1] * 256 + [kind] * len(words), np.int32),
        "tokenizer.ggml.merges": merges or ["a b"],
        "tokenizer.ggml.add_bos_token": False,
    }


def _merged() -> dict[str, object]:
    """Texts that end an answer, as words, and 150,000 merges that do not make them."""
    words = [f"{i:x}" for i in range(150_000)]
    words = [word for word in words if len(word) > 1]
    return bpe([*_END_TEXTS, *words], [f"{w[0]} {w[1:]}" for w in words if len(w) == 2])


VOCABULARIES: dict[str, tuple[Callable[[], dict[str, object]], str]] = {
    "a control token of 16 kB": (lambda: bpe(["c" * 16_000, "ab"], [], 3), "ok"),
    "a control token of 40 kB": (lambda: bpe(["c" * 40_000, "ab"], [], 3), "40000 characters"),
    "a token of 1 MB": (lambda: spm(["a" * 1_000_000]), "1000000 characters"),
    "many long tokens": (lambda: spm(["a" * 3000 + str(i) for i in range(1000)]), ""),
    "prefixes one in another": (lambda: spm(["a" * i for i in range(1, 400)]), "ok"),
    "prefixes of names that are not used": (
        lambda: spm(["\1" * i + "unused " for i in range(1, 400)]
                    + [f"c{i}" for i in range(20_000)]), "ok",
    ),
    "one prefix of all": (lambda: spm([f"aaaaaaaa{i}" for i in range(100_000)]), "ok"),
    "one text for all": (lambda: spm(["a"] * 100_000), "ok"),
    "user-defined tokens": (lambda: spm([f"u{i}" for i in range(60_000)], 4), "ok"),
    "more special tokens than any model": (
        lambda: spm([f"u{i}" for i in range(70_000)], 4), "control or user-defined",
    ),
    "words that are ends": (_merged, "ok"),
    "merges of nothing": (lambda: bpe([], ["zz zz"] * 10_000), "refused"),
    "doubling merges": (
        lambda: bpe(["a" * (1 << i) for i in range(1, 14)],
                    ["a" * (1 << i) + " " + "a" * (1 << i) for i in range(13)]), "ok",
    ),
    "wide characters": (
        lambda: spm([f"\U0001f600{'a' * 1000}{i}" for i in range(32_000)]), "ok",
    ),
    "wide characters, more than any model": (
        lambda: bpe([f"\U0001f600{'a' * 1000}{i}" for i in range(34_000)], []), "bytes",
    ),
    "NUL characters": (lambda: spm(["\0", "a\0", "\0" * 50]), "ok"),
}  # fmt: skip


@pytest.mark.few(4)
@pytest.mark.parametrize("name", VOCABULARIES)
def test_vocabularies(probe: Probe, name: str, tmp_path: Path) -> None:
    make, expected = VOCABULARIES[name]
    path = tmp_path / "model.gguf"
    write_crafted_model(
        path, type="F16", hidden_size=32, intermediate_size=32, head_dim=32, vocabulary=make()
    )
    check(probe, "load", path, expected)


_LETTERS = [chr(19968 + i) for i in range(250)]
TEMPLATES = {
    "special tokens in a row": (
        lambda: spm([a + b for a in _LETTERS for b in _LETTERS], 3),
        "{% for i in range(250) %}{% for j in range(250) %}{{ '%c%c' % (19968 + i, 19968 + j) }}"
        "{% endfor %}{% endfor %}",
    ),
    "special tokens of many lengths": (
        lambda: spm(["a" * i + "b" for i in range(250)], 3),
        "{{ ('a' * 249 + 'c') * 524 }}",
    ),
    "one text after another": (lambda: spm(["<x>"], 3), "{{ '<x>a' * 30000 }}"),
    "wide characters": (lambda: spm(["a"]), "{{ '\U0001f600' * 131072 }}"),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", TEMPLATES)
def test_templates(probe: Probe, name: str, tmp_path: Path) -> None:
    """The rendered word is tokenized before its length is refused."""
    make, template = TEMPLATES[name]
    path = tmp_path / "model.gguf"
    metadata = {"tokenizer.chat_template": template}
    write_crafted_model(path, type="F16", hidden_size=32, intermediate_size=32, head_dim=32,
                        vocabulary=make(), metadata=metadata)  # fmt: skip
    check(probe, "chat", path, "the prompt has")


JSONS = {
    "empty lists": b'{"a": [' + b",".join([b"[]"] * 1_000_000) + b"]}",
    "empty objects": b'{"a": [' + b",".join([b"{}"] * 1_000_000) + b"]}",
    "small numbers": b'{"a": [' + b",".join([b"999"] * 1_000_000) + b"]}",
    "names": b'{"a": {' + b",".join(b'"%x":[]' % i for i in range(200_000)) + b"}}",
    "nests": b'{"a":' * 800_000,
}


@pytest.mark.parametrize("content", JSONS.values(), ids=JSONS)
@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "model.safetensors.index.json", "header"]
)
def test_json(probe: Probe, name: str, content: bytes, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    directory.mkdir()
    if name == "header":
        head = struct.pack("<Q", len(content)) + content
        (directory / "model.safetensors").write_bytes(head)
    else:
        (directory / name).write_bytes(content)
    check(probe, "convert", directory, "refused")


def test_text_that_refers_to_itself(probe: Probe, tmp_path: Path) -> None:
    lines = [f"k{i} = " + f"%(k{i + 1})s" * 12 for i in range(9)]
    path = tmp_path / "kernel_config.ini"
    path.write_text("\n".join(["[DEFAULT]", *lines, "k9 = 1", "[a]", "m = %(k0)s"]))
    check(probe, "tl_config", path, "refused")


def test_imatrix_of_many_entries(probe: Probe, tmp_path: Path) -> None:
    entries = [struct.pack("<i8sii", 8, b"%08x" % i, 1, 1) + bytes(4) for i in range(300_000)]
    path = tmp_path / "imatrix.dat"
    path.write_bytes(struct.pack("<i", len(entries)) + b"".join(entries))
    check(probe, "imatrix", path, "300000 entries")
