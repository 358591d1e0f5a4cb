"""Compute odd configurations of one class with transformers; runs in a Python with torch.

    python tests/fuzzing/odd_reference.py FOLDER [COUNT SEED]

FOLDER/base.json is a small model's configuration, with the names of further keys under "_more".
Each key of it and of the class is left out, null, the class's default, or extreme. With COUNT,
up to three keys change at once, as SEED draws them, until transformers accepts COUNT cases. A class
with a vision model has these keys in its text_config. Of each case that transformers accepts, the
folder gets the model's directory and the logits; FOLDER/cases.json lists all cases. Cases with
equal configurations share the logits of the first of them.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.formats.huggingface.drawn import drawn_tensor  # noqa: E402
from tests.fuzzing import published_classes  # noqa: E402
from tests.fuzzing.odd_changes import cases, changed, changes  # noqa: E402

Json = dict[str, Any]
MAX_PARAMETERS = 2_000_000
MAX_TRIES = 8  # for each case that transformers shall accept
PROMPT = [5, 250, 17, 99, 3, 42, 201, 8, 77, 130, 61, 12]
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


def is_read(key: str, config_class: Any, more: list[str]) -> bool:
    """Whether the class's configuration has the key."""
    found = getattr(config_class, key, None)
    if isinstance(found, property) and key not in more:
        return found.fset is not None
    fields = {field.name for field in dataclasses.fields(config_class)}
    return key in fields or key in config_class.attribute_map or key in more


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


def main(folder: Path, count: int | None = None, seed: int | None = None) -> None:
    base = json.loads((folder / "base.json").read_text("utf-8"))
    more = base.pop("_more")
    name = base["architectures"][0]
    model_class = getattr(published_classes, name, None) or getattr(transformers, name)
    config_class = model_class.config_class
    base["model_type"] = config_class.model_type
    inner_class = config_class.sub_configs["text_config"] if "text_config" in base else config_class
    if inner_class is not config_class:
        base["text_config"]["model_type"] = inner_class.model_type
    inner = base.get("text_config", base)
    base = changed(base, {key: ... for key in inner if not is_read(key, inner_class, more)})
    singles = list(changes(base.get("text_config", base), more, inner_class, unused))
    listed: list[Json] = []
    known: dict[str, int] = {}
    accepted = 0
    for number, (key, name, change) in enumerate(cases(singles, seed)):
        if count is not None and (accepted > count or number > MAX_TRIES * count):
            break
        values = changed(base, change)
        case: Json = {"key": key, "name": name, "values": values}
        listed.append(case)
        own = folder / str(number)
        try:
            config = config_class.from_dict(json.loads(json.dumps(values)))
            same = json.dumps(config.to_dict(), sort_keys=True, default=str)
            if same not in known:
                np.save(folder / f"{number}.npy", write(values, own, model_class))
                known[same] = number
            case["same"] = known[same]
            accepted += 1
        except Exception as error:
            case["refused"] = f"{type(error).__name__}: {error}"[:300]
            shutil.rmtree(own, ignore_errors=True)
    found = {"version": transformers.__version__, "prompt": PROMPT, "cases": listed}
    (folder / "cases.json").write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
