"""LoRA adapters give the logits of PEFT and mlx-lm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from trinity.errors import UnsupportedError
from trinity.formats import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter
from trinity.model import Model
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Rows
from trinity_kernels.isa import available_levels

LARGEST_DIFFERENCE = 1e-3
KINDS = {"peft": "peft", "mlx": "mlx", "gguf": "adapter.gguf"}
PEFT = ("all_r8", "embed_r4", "lmhead_r4", "pattern_r4", "qv_r4", "rslora_r8")
ADAPTERS = [
    *((base, name) for base in ("gemma3", "llama3_rope", "qwen3") for name in PEFT
      if (base, name) != ("llama3_rope", "lmhead_r4")),
    ("llama3_rope", "mlx_qv_r8"), ("qwen3", "mlx_all_r4"),
    ("mixtral", "experts_v4_r4"), ("mixtral", "experts_v5_r4"),
]  # fmt: skip
REFUSED = {
    ("gemma3", "dora_r4"): "use_dora is True: DoRA",
    ("llama3_rope", "dora_r4"): "use_dora is True: DoRA",
    ("llama3_rope", "modsave_r4"): r"modules_to_save is \['lm_head'\]",
    ("qwen3", "dora_r4"): "use_dora is True: DoRA",
    ("qwen3", "mlx_dora_r4"): "fine_tune_type is 'dora': DoRA",
}
# llama.cpp's converter does not know rank-stabilized scales and patterns of alpha.
OTHER_AS_GGUF = ("pattern_r4", "rslora_r8")


def base_of(shared_data: Path, name: str) -> Path:
    return shared_data / "architectures" / name / "model.gguf"


def golden_of(folder: Path) -> dict[str, Any]:
    golden: dict[str, Any] = json.loads((folder / "golden.json").read_text("utf-8"))
    return golden


def greedy(model: Model, prompt: list[int], count: int) -> list[int]:
    answer = model.generate(prompt, max_tokens=count, temperature=0.0, ignore_eos=True)
    return answer.token_ids


@pytest.mark.few(2)
@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize(("base", "name"), ADAPTERS)
def test_logits_and_greedy_tokens(base: str, name: str, level: str, shared_data: Path) -> None:
    """At both scales, and without the adapter when a request says so."""
    folder = shared_data / "adapters" / base / name
    golden = golden_of(folder)
    prompt = golden["prompt_ids"]
    plain = np.load(shared_data / "architectures" / base / "logits.npy")
    for kind, file in KINDS.items():
        if not (folder / file).exists():
            continue
        logits = "logits_gguf" if kind == "gguf" and name in OTHER_AS_GGUF else "logits"
        path = base_of(shared_data, base)
        with trinity.load(path, kv_type="f32", isa=level, lora=[folder / file]) as model:
            for scale in (1.0, 0.5):
                expected = np.load(folder / f"{logits}_{scale:g}.npy")
                found = model.logits(prompt, lora={0: scale})[-len(expected) :]
                assert np.abs(found - expected).max() < LARGEST_DIFFERENCE, (kind, scale)
            assert np.array_equal(model.logits(prompt), model.logits(prompt, lora={0: 1}))
            own = golden if logits == "logits" else golden["gguf"]
            wanted = own["scale_1"]["greedy_ids"]
            assert greedy(model, prompt, len(wanted)) == wanted
            found = model.logits(golden_of(path.parent)["prompt_ids"], lora={})
            assert np.abs(found - plain).max() < LARGEST_DIFFERENCE


@pytest.mark.parametrize("kind", ["peft", "gguf"])
@pytest.mark.parametrize("base", ["gemma3", "llama3_rope", "qwen3"])
def test_two_adapters_add_up(base: str, kind: str, shared_data: Path) -> None:
    folder = shared_data / "adapters" / base
    golden = golden_of(folder / "pair_qv_all")
    files = [
        (folder / part["adapter"] / KINDS[kind], part["weight"]) for part in golden["adapters"]
    ]
    with trinity.load(base_of(shared_data, base), kv_type="f32", lora=files) as model:
        found = model.logits(golden["prompt_ids"])
        assert greedy(model, golden["prompt_ids"], 16) == golden["greedy_ids"]
    expected = np.load(folder / "pair_qv_all" / "logits.npy")
    assert np.abs(found - expected).max() < LARGEST_DIFFERENCE


@pytest.mark.parametrize(("base", "name"), REFUSED)
def test_what_is_no_pair_is_refused(base: str, name: str, shared_data: Path) -> None:
    folder = shared_data / "adapters" / base / name
    (path,) = (folder / kind for kind in ("peft", "mlx") if (folder / kind).exists())
    with pytest.raises(UnsupportedError, match=REFUSED[base, name]):
        trinity.load(base_of(shared_data, base), lora=[path])


def test_no_folder_is_left_out(shared_data: Path) -> None:
    found = {path.parent for path in (shared_data / "adapters").glob("*/*/golden.json")}
    named = {(path.parent.name, path.name) for path in found}
    assert named - {(base, "pair_qv_all") for base, _ in named} == {*ADAPTERS, *REFUSED}


class InHalves(GGUFProvider):
    """A model whose rows of Q and K have transformers' order."""

    @property
    def rope_interleaved(self) -> bool:
        return False


@pytest.mark.parametrize("kind", ["peft", "gguf"])
def test_base_whose_rows_are_not_permuted(kind: str, shared_data: Path, tmp_path: Path) -> None:
    """Hugging Face directories that are run directly have such rows."""
    path, heads = tmp_path / "halves.gguf", {"attn_q": 6, "attn_k": 2}
    with GGUFProvider(base_of(shared_data, "llama3_rope")) as base, GGUFWriter(path) as writer:
        assert (base.config.num_heads, base.config.num_kv_heads) == tuple(heads.values())
        for key in base.metadata:
            writer.add_encoded(key, base.metadata.encoded(key))
        for name in base.tensor_names():
            values = base.tensor(name).dequantize()
            count = heads.get(name.split(".")[-2], 0)
            if count:  # GGUF's row (head, 2j + p) is transformers' (head, p * half + j)
                pairs = values.reshape(count, -1, 2, values.shape[1])
                values = pairs.swapaxes(1, 2).reshape(values.shape)
            data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
            writer.add_tensor(name, values.shape, "F32", data)
    folder = shared_data / "adapters" / "llama3_rope" / "all_r8"
    golden = golden_of(folder)
    engine = load_engine(InHalves(path), kv_type="f32", lora=[folder / KINDS[kind]])
    prompt = golden["prompt_ids"]
    found = engine.step([Rows(engine.new_cache(), prompt, len(prompt))])
    engine.close()
    assert np.abs(found - np.load(folder / "logits_1.npy")).max() < LARGEST_DIFFERENCE
