"""Write tests/data/images.npz: what transformers computes of small vision models.

    pip install torch transformers pillow tokenizers numpy numba
    python tests/goldens/image_goldens.py

The tests draw the same models and images (tests/images/small_vision_models.py).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.images import small_vision_models as small  # noqa: E402

IMAGE_PROCESSORS = {"idefics3": Idefics3ImageProcessorPil, "gemma3": Gemma3ImageProcessorPil}
ROWS = 16  # of a square


@torch.no_grad()
def golden(name: str, folder: Path) -> dict[str, np.ndarray]:
    """Return the ids, the rows of images, the last logits and the greedy tokens of each prompt."""
    small.write_directory(name, folder)
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


def main() -> None:
    """Write the file."""
    arrays: dict[str, np.ndarray] = {}
    for name in small.SPECIAL:
        with tempfile.TemporaryDirectory() as folder:
            arrays |= golden(name, Path(folder))
    np.savez_compressed(ROOT / "tests" / "data" / "images.npz", **arrays)


if __name__ == "__main__":
    main()
