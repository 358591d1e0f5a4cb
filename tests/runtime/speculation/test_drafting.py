"""MTP layers propose what PyTorch proposes, and do not change the text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.runtime.speculation import drafting_model
from tests.runtime.speculation.drafting_model import LENGTHS, PROMPT, TOKENS
from trinity.errors import FormatError
from trinity.providers import open_weights
from trinity.runtime import engine_building
from trinity.runtime.engine import CPUEngine
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Rows
from trinity.runtime.pages.kv_cache import KVCache
from trinity.runtime.speculation import budget as speculation_budget
from trinity.tools.convert import convert
from trinity_kernels.isa import available_levels

GOLDEN = Path(__file__).parents[2] / "data" / "drafting.json"


PARTS = {
    "qwen3_5": "mtp.layers.0.mlp.up_proj.weight",
    "deepseek_v2": "model.layers.3.hnorm.weight",
    "glm4_moe": "model.layers.3.eh_proj.weight",
    "deepseek_v3": "model.layers.3.mlp.gate.e_score_correction_bias",
}


@pytest.fixture(scope="module", params=drafting_model.MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def base(
    request: pytest.FixtureRequest, name: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    if name in drafting_model.DRAWN:
        return drafting_model.base_of(name, Path(), tmp_path_factory.mktemp("base"))
    data: Path = request.getfixturevalue("shared_data")
    return drafting_model.base_of(name, data / "architectures", Path())


@pytest.fixture(scope="module")
def folder(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return drafting_model.write(base, tmp_path_factory.mktemp("drafting") / "model")


@pytest.fixture(scope="module")
def golden(name: str) -> Any:
    return json.loads(GOLDEN.read_text())[name]


@pytest.fixture(scope="module", params=available_levels())
def model(request: pytest.FixtureRequest, folder: Path) -> Iterator[CPUEngine]:
    with closing(open_weights(folder)) as provider:
        found = load_engine(provider, threads=2, kv_type="f32", isa=request.param)
        yield found
        found.close()


def evaluate(model: CPUEngine, cache: KVCache, tokens: list[int], size: int) -> int:
    """The model's own token behind ``tokens``, evaluated in pieces of ``size``."""
    logits = np.zeros(0, np.float32)
    for start in range(0, len(tokens), size):
        end = start + size
        following = tokens[end] if end < len(tokens) else -1
        logits = model.step([Rows(cache, tokens[start:end], following=following)])[0]
    return int(logits.argmax())


@pytest.mark.parametrize("size", [100, 20, 7])
@pytest.mark.parametrize("length", LENGTHS)
def test_drafts_are_those_of_pytorch(model: CPUEngine, golden: Any, length: int, size: int) -> None:
    golden = golden[str(length)]
    cache, chances = model.new_cache(), list[float]()
    following = evaluate(model, cache, PROMPT[:length], size)
    assert following == golden["following"]

    def wants(chance: float) -> bool:
        chances.append(chance)
        return True

    tokens = [*PROMPT[:length], following]
    assert model.draft(cache, tokens, TOKENS, wants) == golden["tokens"]
    assert chances == pytest.approx(golden["chances"], rel=1e-3)
    cache.release()


def test_a_draft_ends_where_nothing_is_wanted(model: CPUEngine, golden: Any) -> None:
    cache = model.new_cache()
    tokens = [*PROMPT, evaluate(model, cache, PROMPT, 100)]
    golden = golden[str(len(PROMPT))]
    limit = golden["chances"][1] * 1.001  # a draft has rounding of its own
    if golden["chances"][0] <= limit:
        pytest.skip("the layer believes its second token more")
    assert model.draft(cache, tokens, 3, lambda chance: chance > limit) == golden["tokens"][:1]


def test_nothing_is_drafted_behind_another_step(model: CPUEngine) -> None:
    first, second = model.new_cache(), model.new_cache()
    tokens = [*PROMPT, evaluate(model, first, PROMPT, 100)]
    evaluate(model, second, PROMPT[:5], 100)
    assert model.draft(first, tokens, 2, lambda chance: True) == []
    assert model.draft(second, tokens, 2, lambda chance: True) == []
    assert model.draft(second, [*PROMPT[:5], 1], 0, lambda chance: True) == []
    assert len(model.draft(second, [*PROMPT[:5], 1], 2, lambda chance: True)) == 2
    # The states are used up.
    assert model.draft(second, [*PROMPT[:5], 1], 2, lambda chance: True) == []


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("sampling", "kv_type"),
    [
        ({"temperature": 0}, "f32"),
        ({"temperature": 0}, "q8_0"),
        ({"temperature": 1.5, "seed": 3}, "f32"),
    ],
)
def test_the_text_is_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, sampling: dict[str, Any], kv_type: str
) -> None:
    """Some proposals are right, others wrong, also at the end of a page."""
    monkeypatch.setattr(speculation_budget, "CHEAP", 0)
    monkeypatch.setattr(speculation_budget, "STAKE", 1e6)
    monkeypatch.setattr(speculation_budget, "MOST_CREDIT", 1e6)
    run, budget = speculation_budget.DraftRun, speculation_budget.SpeculationBudget
    monkeypatch.setattr(run, "wants", lambda run, chance: run.believed.append(chance) or 1)
    monkeypatch.setattr(budget, "drafts", lambda self, most: (most, 1e6))
    options: dict[str, Any] = {"max_tokens": 150, "ignore_eos": True, **sampling}
    drafts, expected = CPUEngine.draft, list[int]()

    def half_right(
        self: CPUEngine, cache: KVCache, tokens: list[int], most: int, wants: Any
    ) -> list[int]:
        found = drafts(self, cache, tokens, most, wants)
        at = len(tokens) - len(PROMPT)
        if at % 3:
            found[: at % 4] = expected[at : at + len(found)][: at % 4]
        return found

    with trinity.load(folder, kv_type=kv_type) as model:
        plain = model.generate(PROMPT, speculative=False, **options)
        expected = plain.token_ids
        monkeypatch.setattr(CPUEngine, "draft", half_right)
        drafted = model.generate(PROMPT, **options)
    assert drafted.token_ids == plain.token_ids
    assert drafted.text == plain.text
    assert plain.timings.proposed_tokens == 0
    assert 30 < drafted.timings.accepted_tokens < drafted.timings.proposed_tokens


def test_the_layer_goes_into_a_file(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    convert(folder, path, outtype="f32")
    found = []
    for source in (folder, path):
        with closing(open_weights(source)) as provider:
            model = load_engine(provider, threads=1, kv_type="f32")
            assert model.config.nextn_layers == 1
            cache = model.new_cache()
            tokens = [*PROMPT, evaluate(model, cache, PROMPT, 100)]
            found.append((tokens, model.draft(cache, tokens, 3, lambda chance: True)))
            model.close()
    assert found[0] == found[1]
    assert len(found[0][1]) == 3


def test_a_checkpoint_without_a_part_of_it(base: Path, name: str, tmp_path: Path) -> None:
    part = drafting_model.write(base, tmp_path / "model", PARTS[name])
    with closing(open_weights(part)) as provider:
        model = load_engine(provider, threads=1)
        assert not model.drafts
        assert model.draft(model.new_cache(), [1], 3, lambda chance: True) == []
        model.close()


def test_a_layer_too_many_is_refused(shared_data: Path, tmp_path: Path) -> None:
    """Without the key for MTP layers, the tensors do not match this config.json."""
    base = shared_data / "architectures" / "deepseek_v2" / "hf"
    path = drafting_model.write(base, tmp_path / "model") / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "num_nextn_predict_layers": 0}))
    with pytest.raises(FormatError, match=r"not used by DeepseekV2.*model\.layers\.3\."):
        open_weights(path.parent).close()


def test_what_a_token_reads_is_without_it(folder: Path, base: Path) -> None:
    found = []
    for source in (folder, base):
        with closing(open_weights(source)) as provider:
            model = engine_building.load_engine(provider, threads=1)
            found.append((model.bytes_per_token(50), len(model.linears())))
            model.close()
    assert found[0] == found[1]
