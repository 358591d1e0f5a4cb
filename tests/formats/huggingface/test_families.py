"""Every registered class: its tensors make a valid model, and hostile values give clear errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.formats.raw_safetensors import write_safetensors
from tests.fuzzing.hf_families import classes, configuration, stored_tensors
from trinity.errors import TrinityError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.configuration import config_from_metadata
from trinity.formats.huggingface.metadata import model_metadata
from trinity.formats.huggingface.packed.logical import LogicalCheckpoint
from trinity.formats.huggingface.weights import check_stored
from trinity.models import decoder_of, read_model
from trinity.providers.huggingface_tensors import hf_tensors

VOCAB = 40
HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 3, -1, 7, 1.5, -0.5, 1e-40, 1e300, 10**400, 2**31, "", "x", [], {},
    [1], ["sliding_attention"], ["full_attention", "full_attention"], {"rope_type": "yarn"},
    {"rope_type": 5}, {"full_attention": {}, "sliding_attention": 1}, {"0": 5}, {"1": {}},
)  # fmt: skip


EXPERTS = (
    "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "n_group",
    "num_experts_per_tok", "moe_k", "moe_topk", "top_k_experts", "topk_group",
)  # fmt: skip


def has_experts(class_name: str) -> bool:
    return read_model(configuration(class_name, VOCAB), "x").config.experts is not None


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize("class_name", classes())
def test_the_tensors_of_a_class_are_those_of_its_architecture(
    class_name: str, form: int, tmp_path: Path
) -> None:
    check_tensors(configuration(class_name, VOCAB), form, tmp_path)


PAIRS = ("PhiMoEForCausalLM", "PhimoeForCausalLM")  # each token has two experts


@pytest.mark.parametrize(
    "class_name", [name for name in classes() if has_experts(name) and name not in PAIRS]
)
def test_the_tensors_of_one_expert(class_name: str, tmp_path: Path) -> None:
    """The only expert's matrix has no axis of experts."""
    values = configuration(class_name, VOCAB)
    check_tensors(values | {key: 1 for key in values if key in EXPERTS}, 0, tmp_path)


def check_tensors(values: dict[str, Any], form: int, tmp_path: Path) -> None:
    model = read_model(values, "config.json")
    arrays = {
        name: np.zeros(shape, np.uint8 if is_bytes else np.float32)
        for name, shape, is_bytes in stored_tensors(values, form)
    }
    write_safetensors(tmp_path / "model.safetensors", arrays)
    with Checkpoint(tmp_path) as opened:
        checkpoint = LogicalCheckpoint(opened)
        tensors = hf_tensors(model, checkpoint)
        for tensor in tensors:
            check_stored(tensor, None, checkpoint)
            array = checkpoint.tensor(tensor.source).elements()
            seen = [view(array) for view in tensor.stored.views]
            if not tensor.stored.blocks:
                size = len(tensor.stored.names) * sum(part.size for part in seen)
                assert size == np.prod(tensor.shape), tensor.name
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    shapes |= {name: divisors.shape for name, divisors in model.rope_factors().items()}
    read = config_from_metadata(model_metadata(model, "x"), shapes, source="x")
    decoder_of(read, shapes, shapes.__getitem__, "x")


@pytest.mark.few(2)
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("class_name", classes())
def test_hostile_values(class_name: str, part: int, tmp_path: Path) -> None:
    """Every value of every key is read or refused with an error, and needs bounded memory."""
    write_safetensors(tmp_path / "model.safetensors", {"a": np.zeros(1, np.float32)})
    plain = configuration(class_name, VOCAB)
    more = ("layer_types", "rope_parameters", "rope_scaling", "per_layer_config", "rope_theta",
            "quantization_config", "tie_word_embeddings", "sliding_window_pattern")  # fmt: skip
    with Checkpoint(tmp_path) as checkpoint:
        for key in dict.fromkeys((*plain, *more)):
            for value in HOSTILE[part::3]:
                with pytest.raises(TrinityError):  # at the latest, that there are no tensors
                    describe({**plain, key: value}, checkpoint)


def describe(values: dict[str, Any], checkpoint: Checkpoint) -> None:
    model = read_model(values, "config.json")
    model_metadata(model, "x")
    hf_tensors(model, LogicalCheckpoint(checkpoint))
