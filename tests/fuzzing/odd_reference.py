"""Compute odd configurations of one class with transformers; runs in a Python with torch.

    python tests/fuzzing/odd_reference.py FOLDER

FOLDER/base.json is a small model's configuration, with the names of further keys under "_more".
Each key of it and of the class is left out, set
to null, to the class's default and to extreme values. Of each case that transformers accepts, the
folder gets the model's directory and the logits; FOLDER/cases.json lists them all. Cases that give
equal configurations share the logits of the first of them.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.formats.huggingface.drawn import drawn_tensor  # noqa: E402

Json = dict[str, Any]
MAX_PARAMETERS = 2_000_000
PROMPT = [5, 250, 17, 99, 3, 42, 201, 8, 77, 130, 61, 12]
# Names of older configurations, which transformers still reads.
OLDER = (
    "rope_theta", "rope_scaling", "rope_local_base_freq", "partial_rotary_factor", "rotary_pct",
    "sliding_window_pattern",
)  # fmt: skip
# What no logits depend on, and what names the class.
WITHOUT = {
    "transformers_version", "use_cache", "initializer_range", "bos_token_id", "eos_token_id",
    "pad_token_id", "vocab_size", "output_router_logits", "router_aux_loss_coef", "pretraining_tp",
    "use_mamba_kernels", "mamba_chunk_size", "chunk_size", "rescale_prenorm_residual",
    "residual_in_fp32", "aux_loss_alpha", "seq_aux", "router_jitter_noise", "text_config",
    "num_logits_to_keep", "tokenizer_class", "embd_pdrop", "time_step_min", "time_step_max",
    "time_step_floor",
}  # fmt: skip
WITHOUT |= {field.name for field in dataclasses.fields(transformers.PreTrainedConfig)}


def unused(key: str) -> bool:
    """Whether a key has no effect on logits."""
    return key in WITHOUT or "dropout" in key or key.endswith("pdrop") or key.startswith("_")


def values_of(key: str, base: Json, defaults: Json) -> Iterator[tuple[str, object]]:
    """Yield the odd values of a key, each after its name; Ellipsis removes the key."""
    yield "absent", ...
    yield "null", None
    default = defaults.get(key)
    if key in defaults and default is not None:
        yield "default", default
    like = base.get(key, default)
    if isinstance(like, bool):
        yield "flipped", not like
    elif isinstance(like, int):
        yield "zero", 0
        yield "double", 2 * like
    elif isinstance(like, float):
        yield "zero", 0.0
        yield "large", 3 * like


def cases(base: Json, more: list[str], config_class: Any) -> Iterator[tuple[str, str, Json]]:
    """Yield the key, the kind of odd value, and the configuration."""
    yield "", "base", base
    found = {field.name: field for field in dataclasses.fields(config_class)}
    defaults = {
        name: field.default
        if field.default is not dataclasses.MISSING
        else field.default_factory()
        if field.default_factory is not dataclasses.MISSING
        else None
        for name, field in found.items()
    }
    read = (key for key in base if key in found or key in config_class.attribute_map)
    for key in dict.fromkeys((*read, *found, *OLDER, *more)):
        if unused(key):
            continue
        for name, value in values_of(key, base, defaults):
            values = {**base, key: value} if value is not ... else dict(base)
            if value is ...:
                values.pop(key, None)
            try:
                json.dumps(values)
            except TypeError:
                continue
            if name != "absent" or key in base:
                yield key, name, values


def write(values: Json, folder: Path, model_class: Any) -> np.ndarray:
    """Write the directory of a model with drawn weights, and its logits."""
    folder.mkdir(parents=True)
    file = folder / "config.json"
    file.write_text(json.dumps(values), "utf-8")
    config = model_class.config_class.from_pretrained(folder)
    with torch.device("meta"):
        count = sum(p.numel() for p in model_class(config).parameters())
    if count > MAX_PARAMETERS:
        raise ValueError(f"{count} parameters are too many")
    torch.manual_seed(0)
    model_class(config).save_pretrained(folder)
    weights = folder / "model.safetensors"
    shapes = {name: array.shape for name, array in load_file(weights).items()}
    drawn = {name: drawn_tensor(name, shape) for name, shape in shapes.items()}
    save_file(drawn, weights, metadata={"format": "pt"})
    file.write_text(json.dumps(values), "utf-8")
    model, info = model_class.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    wrong = {key: list(found) for key, found in info.items() if found}
    if wrong:
        raise ValueError(f"transformers does not read what it wrote: {wrong}")
    with torch.no_grad():
        out = model.eval()(torch.tensor([PROMPT]))
    found = out.logits if hasattr(out, "logits") else out.last_hidden_state
    logits: np.ndarray = found[0].float().numpy()
    if not np.isfinite(logits).all():
        raise ValueError("the logits are not finite")
    return logits


def main(folder: Path) -> None:
    base = json.loads((folder / "base.json").read_text("utf-8"))
    more = base.pop("_more")
    model_class = getattr(transformers, base["architectures"][0])
    base["model_type"] = model_class.config_class.model_type
    listed: list[Json] = []
    known: dict[str, int] = {}
    for number, (key, name, values) in enumerate(cases(base, more, model_class.config_class)):
        case: Json = {"key": key, "name": name, "values": values}
        listed.append(case)
        own = folder / str(number)
        try:
            config = model_class.config_class.from_dict(dict(values))
            same = json.dumps(config.to_dict(), sort_keys=True, default=str)
            if same in known:
                case["same"] = known[same]
                continue
            np.save(folder / f"{number}.npy", write(values, own, model_class))
            case["same"] = known[same] = number
        except Exception as error:
            case["refused"] = f"{type(error).__name__}: {error}"[:300]
            shutil.rmtree(own, ignore_errors=True)
    found = {"version": transformers.__version__, "prompt": PROMPT, "cases": listed}
    (folder / "cases.json").write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    main(Path(sys.argv[1]))
