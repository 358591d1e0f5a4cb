"""Write tests/data/images.npz: what transformers computes of small vision models.

    pip install torch transformers pillow tokenizers numpy numba
    python tests/goldens/image_goldens.py [MODEL ...]

The tests draw the same models and images (tests/images/small_vision_models.py).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.images import small_gemma4_models as gemma4  # noqa: E402
from tests.images import small_qwen_models as qwen  # noqa: E402
from tests.images import small_vision_models as small  # noqa: E402

IMAGE_PROCESSORS = {"idefics3": Idefics3ImageProcessorPil, "gemma3": Gemma3ImageProcessorPil}
ROWS = 16  # of a square


@torch.no_grad()
def golden(name: str, folder: Path) -> dict[str, np.ndarray]:
    """Return the ids, the rows of images, the last logits and the greedy tokens of each prompt."""
    small.write_directory(name, folder)
    if name in qwen.NAMES:
        return golden_of_qwen(name, folder)
    if name in gemma4.NAMES:
        return golden_of_gemma4(name, folder)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    images = IMAGE_PROCESSORS[name].from_pretrained(folder)
    if name == "idefics3":
        processor = transformers.Idefics3Processor(images, tokenizer, image_seq_len=ROWS)
    else:
        processor = transformers.Gemma3Processor(images, tokenizer, image_seq_length=ROWS)
    model_class = getattr(transformers, small.config(name)["architectures"][0])
    model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    content = [{"type": "image"}, {"type": "text", "text": small.QUESTION}]
    messages = [{"role": "user", "content": content}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    found: dict[str, np.ndarray] = {}
    for number, size in enumerate(small.SIZES):
        given = processor(
            text=text, images=[small.image(*size)], return_tensors="pt", add_special_tokens=False
        )
        wanted = [given["pixel_values"]]
        if "pixel_attention_mask" in given:
            wanted.append(given["pixel_attention_mask"])
        rows = model.model.get_image_features(*wanted).pooler_output
        answer = model.generate(**given, max_new_tokens=small.TOKENS, do_sample=False,
                                eos_token_id=1 << 20)  # fmt: skip
        found |= {
            f"{name}_{number}_ids": given["input_ids"][0].numpy().astype(np.int32),
            f"{name}_{number}_rows": torch.cat(list(rows)).numpy(),
            f"{name}_{number}_logits": model(**given).logits[0, -4:].numpy(),
            f"{name}_{number}_tokens": answer[0, -small.TOKENS :].numpy().astype(np.int32),
        }
    return found


def golden_of_qwen(name: str, folder: Path) -> dict[str, np.ndarray]:
    """As ``golden``; the rows are followed by those for the first layers of the text model."""
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    images = Qwen2VLImageProcessorPil.from_pretrained(folder)
    model_class = getattr(transformers, small.config(name)["architectures"][0])
    model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    mark = small.ROW_TOKENS[name]
    mark_id = tokenizer.convert_tokens_to_ids(mark)
    found: dict[str, np.ndarray] = {}
    for number, (sizes, more) in enumerate(
        [*(([size], "") for size in small.SIZES), (small.SIZES[:2], "And this? ")]
    ):
        given = images([small.image(*size) for size in sizes], return_tensors="pt")
        counts = (given["image_grid_thw"].prod(dim=1) // 4).tolist()
        shown = [f"<|vision_start|>{mark * count}<|vision_end|>" for count in counts]
        text = (
            f"<|im_start|>user\n{more.join(shown)}{small.QUESTION}<|im_end|>\n"
            "<|im_start|>assistant\n"
        )
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        inputs = {
            **given,
            "input_ids": ids,
            "mm_token_type_ids": (ids == mark_id).int(),
            "attention_mask": torch.ones_like(ids),
        }
        seen = model.model.get_image_features(given["pixel_values"], given["image_grid_thw"])
        rows = [
            torch.cat(list(part))
            for part in (seen.pooler_output, *(getattr(seen, "deepstack_features", None) or []))
        ]
        answer = model.generate(
            **inputs, max_new_tokens=small.TOKENS, do_sample=False, eos_token_id=1 << 20
        )
        found |= {
            f"{name}_{number}_ids": ids[0].numpy().astype(np.int32),
            f"{name}_{number}_rows": torch.cat(rows, dim=1).numpy(),
            f"{name}_{number}_logits": model(**inputs).logits[0, -4:].numpy(),
            f"{name}_{number}_tokens": answer[0, -small.TOKENS :].numpy().astype(np.int32),
        }
    return found


def golden_of_gemma4(name: str, folder: Path) -> dict[str, np.ndarray]:
    """As ``golden``, with the last prompt of two images."""
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    images = Gemma4ImageProcessorPil.from_pretrained(folder)
    model_class = getattr(transformers, small.config(name)["architectures"][0])
    model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    mark = small.ROW_TOKENS[name]
    mark_id = tokenizer.convert_tokens_to_ids(mark)
    found: dict[str, np.ndarray] = {}
    for number, (sizes, more) in enumerate(
        [*(([size], "") for size in small.SIZES), (small.SIZES[:2], "And this?")]
    ):
        given = images([small.image(*size) for size in sizes], return_tensors="pt")
        counts = given.pop("num_soft_tokens_per_image").tolist()
        shown = [f"\n\n<|image>{mark * count}<image|>\n\n" for count in counts]
        text = f"<bos><|turn>user\n{more.join(shown)}{small.QUESTION}<turn|>\n<|turn>model\n"
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        inputs = {
            **given, "input_ids": ids, "mm_token_type_ids": (ids == mark_id).int(),
            "attention_mask": torch.ones_like(ids),
        }  # fmt: skip
        seen = model.model.get_image_features(given["pixel_values"], given["image_position_ids"])
        answer = model.generate(
            **inputs, max_new_tokens=small.TOKENS, do_sample=False, eos_token_id=1 << 20
        )
        found |= {
            f"{name}_{number}_ids": ids[0].numpy().astype(np.int32),
            f"{name}_{number}_rows": torch.cat(list(seen.pooler_output)).numpy(),
            f"{name}_{number}_logits": model(**inputs).logits[0, -4:].numpy(),
            f"{name}_{number}_tokens": answer[0, -small.TOKENS :].numpy().astype(np.int32),
        }
    return found


def main(names: Sequence[str]) -> None:
    """Write the file; with names, only the arrays of these models are made anew."""
    path = ROOT / "tests" / "data" / "images.npz"
    arrays: dict[str, np.ndarray] = {}
    if names:
        with np.load(path) as known:
            arrays = dict(known)
    for name in names or small.SPECIAL:
        with tempfile.TemporaryDirectory() as folder:
            arrays |= golden(name, Path(folder))
    np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    main(sys.argv[1:])
