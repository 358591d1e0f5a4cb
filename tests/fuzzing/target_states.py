"""Targets: files that trinity itself writes and reads again: saved slots and quantized weights."""

from __future__ import annotations

import random
import struct
import tempfile
import zlib
from functools import cache
from unittest.mock import patch

import trinity
from tests.fuzzing import models, weights
from tests.fuzzing.case import Case, Finding
from tests.fuzzing.target_requests import injure
from trinity.formats import GGUFProvider
from trinity.quantization import MIXES
from trinity.quantization import cached as cached_weights
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Engine, Rows
from trinity.runtime.pages import slot_file
from trinity.runtime.pages.page import Domain

# Attention to all positions, in a window, with one head for keys and values, and recurrent layers.
_FAMILIES = ("llama", "gemma3", "deepseek2", "qwen35")
_KV_TYPES = ("f16", "f32", "q8_0")
_CONTEXT = 300
_WHOLE = {weights.file_type_id(name) for name in ("F32", "F16", "BF16")}
_SLOT = Domain(0)


def slot_state(case: Case) -> None:
    """A slot is saved and restored, sound or damaged, by the same model or another."""
    rng = case.rng
    family, kv_type = rng.choice(_FAMILIES), rng.choice(_KV_TYPES)
    engine = _engine(family, kv_type)
    tokens = [
        rng.randrange(engine.config.vocab_size) for _ in range(rng.choice((1, 20, 128, 150, 203)))
    ]
    cache = engine.new_cache(domain=_SLOT)
    engine.step([Rows(cache, tokens, prompt=True)])
    expected = engine.step([Rows(cache, [0])])
    cache.truncate(0)
    engine.step([Rows(cache, tokens, prompt=True)])
    cache.remember()
    cache.release()
    path = case.folder / "slot"
    if case.attempt("converted", slot_file.save, engine, _SLOT, str(path)) is None:
        if len(tokens) > 1:
            raise Finding("refused", f"a slot of {family}: {case.refusals}")
        return
    sound = bytearray(path.read_bytes())
    case.num_bytes += len(sound)
    content = bytearray(sound)
    for _ in range(rng.choice((0, 0, 1, 1, 3))):
        _damage(rng, content)
    path.write_bytes(content)
    same = rng.random() < 0.8
    other = engine if same else _engine(rng.choice(_FAMILIES), rng.choice(_KV_TYPES))
    found = case.attempt("loaded", slot_file.restore, other, _SLOT, str(path))
    if found is None:
        if same and content == sound:
            raise Finding("refused", f"a saved slot of {family} in {kv_type}: {case.refusals}")
        return
    cache = other.new_cache(domain=_SLOT)
    with_cache = [*tokens, 0]
    start = cache.reuse(with_cache)
    logits = other.step([Rows(cache, with_cache[start:])])
    cache.release()
    case.reached.add("token")
    # Another engine may hold the slot in the saved type, which its sequences do not use.
    if other is engine and content == sound and logits.tobytes() != expected.tobytes():
        raise Finding("bits", f"{family} in {kv_type}: other logits after a slot was restored")


def _damage(rng: random.Random, content: bytearray) -> None:
    """Damage a saved slot; mostly with a checksum that fits."""
    piece = rng.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"Q8_0", b"F16", b"\0\x7e", b"]", b"9"))
    if rng.random() < 0.3:
        injure(rng, content, (piece,))
    else:
        at = rng.randrange(max(1, min(len(content), rng.choice((16, 1500, 1 << 30)))))
        content[at : at + len(piece)] = piece
    if rng.random() < 0.2 or len(content) < 16:
        return
    words = struct.unpack_from("<I", content, 8)[0]
    start = 12 + 4 * words
    counted = content[24:start] + content[start + 4 : -4]
    content[-4:] = struct.pack("<I", zlib.crc32(counted))


@cache
def _engine(family: str, kv_type: str) -> Engine:
    """Return an engine of a small model, with pages for a few sequences."""
    draft = models.model(random.Random(family), 0.0, family=family, context=_CONTEXT, scaled=False)
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        file.write(bytes(draft.encode()[0]))
        file.flush()
        provider = GGUFProvider(file.name)
        return load_engine(provider, threads=1, context_length=_CONTEXT, kv_type=kv_type)


def cached(case: Case) -> None:
    """A model is quantized when it is loaded; the cached file is damaged and read again."""
    rng = case.rng
    draft = models.model(rng, 0.0, main="F32", scaled=False)
    for tensor in draft.tensors:
        if tensor.type_id not in _WHOLE:
            tensor.type_id = weights.file_type_id("F16")
            tensor.data = weights.content("F16", tensor.dims, rng, 0.0)
    path = case.write("model.gguf", bytes(draft.encode()[0]))
    folder = case.folder / "cache"
    options = {"quantize": rng.choice(list(MIXES)), "threads": 1, "context_length": 16}
    with patch.object(cached_weights, "cache_folder", lambda kind: folder):
        for _ in range(2):
            options["head_sketch"] = rng.choice(("auto", "on", "off"))
            options["kv_type"] = rng.choice(_KV_TYPES)
            model = case.attempt("quantized", trinity.load, path, **options)
            if model is None:
                return
            case.num_bytes += sum(file.stat().st_size for file in folder.iterdir())
            with model:
                case.attempt("token", model.generate, [0, 1], max_tokens=2, temperature=0.0)
            for file in folder.iterdir():
                content = bytearray(file.read_bytes())
                for _ in range(rng.choice((0, 1, 3))):
                    injure(rng, content, (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\x7e", b"GGUF"))
                file.write_bytes(content)
