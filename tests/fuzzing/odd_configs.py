"""Compare odd configurations of every Hugging Face class with transformers.

    python tests/fuzzing/odd_configs.py --reference PYTHON [--random 40 --seed 1] [CLASS ...]

PYTHON has torch, transformers and safetensors. In the configuration of a small model each key is
left out, null, the class's default, and extreme; with --random, up to three keys change at once.
Where transformers computes something, trinity must compute the same, or refuse the model with an
error that says why.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

import trinity  # noqa: E402
from scripts.models.make_directory import byte_tokenizer  # noqa: E402
from tests.fuzzing.hf_families import (  # noqa: E402
    BY_CLASS,
    classes,
    configuration,
    description,
    stored_tensors,
    wrappers,
)
from trinity.errors import TrinityError  # noqa: E402
from trinity.formats.checkpoint import Checkpoint  # noqa: E402

REFERENCE = ROOT / "tests" / "fuzzing" / "odd_reference.py"
LARGEST_DIFFERENCE = 1e-3
VOCAB = 258
RECORDED = 10  # logits of the last token of each case
DATA = ROOT / "tests" / "data" / "odd_configs.json"
Json = dict[str, Any]
Known = dict[tuple[int, str], NDArray[np.float32]]


def _is_compared(class_name: str) -> bool:
    """Whether transformers computes a value for each token, not a classifier's score."""
    return not class_name.endswith("ForSequenceClassification")


def reference(python: str, class_name: str, folder: Path, drawn: tuple[str, ...]) -> Json:
    """Return transformers' results for the class's cases; an earlier run may be in ``folder``.

    ``drawn`` is the number of random cases and their seed, or empty.
    """
    listed = folder / "cases.json"
    if not listed.exists():
        base = configuration(class_name, VOCAB) | {"pad_token_id": 0}
        inner = base.get("text_config", base)
        inner["sliding_window"] = 4
        base["_more"] = list(BY_CLASS.get(class_name, ()))
        (folder / "base.json").write_text(json.dumps(base), "utf-8")
        subprocess.run([python, "-W", "ignore", REFERENCE, folder, *drawn], check=True)
    found: Json = json.loads(listed.read_text("utf-8"))
    return found


def recorded(found: Json, folder: Path) -> Json:
    """Return what tests compare with: the accepted cases and some of their logits."""
    cases, logits = [], dict[int, list[float]]()
    base = found["cases"][0]["values"]
    for case in found["cases"]:
        form = _form(case, folder) if "same" in case else None
        if form is None or case["kind"] != "equal":
            continue
        number = case["same"]
        values = np.load(folder / f"{number}.npy")[-1, :RECORDED]
        logits[number] = [round(float(value), 5) for value in values]
        inner = case["values"].get("text_config", case["values"])
        change = {key: inner[key] for key in case["key"].split("+") if key in inner}
        cases.append({"key": case["key"], "change": change, "form": form, "logits": number})
    return {"base": base, "prompt": found["prompt"], "cases": cases, "logits": logits}


def _form(case: Json, folder: Path) -> int | None:
    """Return the form of a class's tensors that transformers wrote, or None for another."""
    with Checkpoint(folder / str(case["same"])) as checkpoint:
        stored = {name: checkpoint.tensor(name).shape for name in checkpoint.names()}
    for form in range(4):
        try:
            asked = {name: shape for name, shape, _ in stored_tensors(case["values"], form)}
        except TrinityError:
            return None
        if asked == stored:
            return form
    return None


def outcome(case: Json, prompt: list[int], folder: Path, known: Known) -> tuple[str, str]:
    """Return the result of a case: "skipped", "equal", "refused" or "differs"; and details."""
    if "same" not in case:
        return "skipped", case["refused"]
    own, expected = folder / str(case["same"]), np.load(folder / f"{case['same']}.npy")
    has_logits = expected.shape[-1] == case["values"].get("vocab_size", VOCAB)
    (own / "config.json").write_text(json.dumps(case["values"]), "utf-8")
    tokenizer = byte_tokenizer() if "Gemma4" not in folder.name else _fallback_tokenizer()
    (own / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    try:
        same = case["same"], description(case["values"])
        if same not in known:
            context = context_of(case["values"], len(prompt))
            with trinity.load(own, kv_type="f32", threads=1, context_length=context) as model:
                known[same] = model.logits(prompt) if has_logits else _vectors(model, prompt)
    except TrinityError as error:
        return "refused", str(error).replace(str(own), "")
    if not has_logits:
        expected = np.stack([expected[0], expected.mean(0), expected[-1]])
    difference = float(np.abs(known[same] - expected).max())
    return "equal" if difference < LARGEST_DIFFERENCE else "differs", f"by {difference:.3g}"


def _fallback_tokenizer() -> Json:
    """Return a tokenizer.json of bytes as characters fall back to them, as Gemma 4 has it."""
    texts = [*(f"<0x{byte:02X}>" for byte in range(256)), "<unk>", "<eos>"]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": i, "content": texts[i], "special": True, **flags} for i in (256, 257)]
    return {
        "added_tokens": added, "pre_tokenizer": None,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "model": {
            "type": "BPE", "byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>",
            "vocab": {text: i for i, text in enumerate(texts)}, "merges": [],
        },
    }  # fmt: skip


def _vectors(model: trinity.Model, prompt: list[int]) -> NDArray[np.float32]:
    """Return hidden states: of the first token, the mean, of the last token."""
    poolings: tuple[Literal["cls", "mean", "last"], ...] = ("cls", "mean", "last")
    return np.stack(
        [model.embed([prompt], one, normalize=False, truncate=False)[0] for one in poolings]
    )


def context_of(values: Json, length: int) -> int | None:
    """The context to load with; None for the model's own.

    With longrope it selects the factors; transformers selects them by the length of the text.
    """
    original = values.get("original_max_position_embeddings")
    scaling = values.get("rope_scaling") or values.get("rope_parameters") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    of_text = kind == "longrope" and original is not None
    return int(original) if of_text and length <= original else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("classes", nargs="*", metavar="CLASS")
    parser.add_argument("--reference", required=True, metavar="PYTHON")
    parser.add_argument("--random", metavar="COUNT", help="cases of several keys; not each key")
    parser.add_argument("--seed", default="0", help="of --random")
    parser.add_argument("--keep", help="folder that keeps what transformers computed")
    parser.add_argument("--write", action="store_true", help=f"record the results in {DATA.name}")
    parser.add_argument("--show", default="differs", help="outcomes to list, comma-separated")
    arguments = parser.parse_args()
    failed, written = False, json.loads(DATA.read_text("utf-8"))
    for class_name in arguments.classes or filter(_is_compared, (*classes(), *wrappers())):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(arguments.keep or name) / class_name
            folder.mkdir(parents=True, exist_ok=True)
            try:
                drawn = (arguments.random, arguments.seed) if arguments.random else ()
                found = reference(arguments.reference, class_name, folder, drawn)
            except subprocess.CalledProcessError:
                print(f"{class_name}: transformers computes nothing", flush=True)
                continue
            counts: Counter[str] = Counter()
            known: Known = {}
            for case in found["cases"]:
                kind, details = outcome(case, found["prompt"], folder, known)
                counts[kind] += 1
                case["kind"] = kind
                if kind in arguments.show.split(","):
                    print(f"  {kind}: {case['key']} {case['name']}: {details}", flush=True)
            if arguments.write:
                written["transformers"] = found["version"]
                written[class_name] = recorded(found, folder)
        failed |= counts["differs"] > 0
        print(f"{class_name}: {dict(counts)}", flush=True)
    if arguments.write:
        lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in written.items())
        DATA.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    sys.exit(failed)


if __name__ == "__main__":
    main()
