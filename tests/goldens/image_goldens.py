"""Write tests/data/images.npz: what transformers computes of small vision models.

    pip install torch torchvision transformers pillow tokenizers numpy numba
    python tests/goldens/image_goldens.py [MODEL ...]

The tests draw the same models and images (tests/images/small_vision_models.py).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.goldens import minicpm_reference  # noqa: E402
from tests.images import small_gemma4_models as gemma4  # noqa: E402
from tests.images import small_internvl_models as internvl  # noqa: E402
from tests.images import small_lfm2_models as lfm2  # noqa: E402
from tests.images import small_llava_models as llava  # noqa: E402
from tests.images import small_minicpm_models as minicpm  # noqa: E402
from tests.images import small_pixtral_models as pixtral  # noqa: E402
from tests.images import small_qwen_models as qwen  # noqa: E402
from tests.images import small_vision_models as small  # noqa: E402

ROWS = 16  # of a square
# The images of each prompt by its name: one in each of the sizes, then two.
PROMPTS = {
    **{str(number): [small.image(*size)] for number, size in enumerate(small.SIZES)},
    str(len(small.SIZES)): [small.image(*size) for size in small.SIZES[:2]],
}
FURTHER = {"{}x{}".format(*size): [small.blocks(*size)] for size in small.FURTHER}


Prompts = Mapping[str, list[Any]]
REFUSALS = ValueError, RuntimeError  # of very narrow images, by image processors


class Kind(NamedTuple):
    """What transformers computes of models of one kind, whose prompts are written here."""

    processor: Callable[[Path], Any]
    # The texts of images, from what the processor returned, and the token of a row.
    shown: Callable[[Any, str], list[str]]
    # The prompt before the images, between them and after the question.
    begin: str
    between: str
    end: str
    # The rows of all images.
    rows: Callable[[Any, Any], torch.Tensor]
    # What the model's processor gives the image processor.
    options: Mapping[str, int] = {}


def shown_of_qwen(given: Any, mark: str) -> list[str]:
    counts = (given["image_grid_thw"].prod(dim=1) // 4).tolist()
    return [f"<|vision_start|>{mark * count}<|vision_end|>" for count in counts]


def rows_of_qwen(model: Any, given: Any) -> torch.Tensor:
    """The rows, followed by those for the first layers of the text model."""
    seen = model.model.get_image_features(given["pixel_values"], given["image_grid_thw"])
    parts = seen.pooler_output, *(getattr(seen, "deepstack_features", None) or [])
    return torch.cat([torch.cat(list(part)) for part in parts], dim=1)


def shown_of_gemma4(given: Any, mark: str) -> list[str]:
    counts = given.pop("num_soft_tokens_per_image").tolist()
    return [f"\n\n<|image>{mark * count}<image|>\n\n" for count in counts]


def rows_of_gemma4(model: Any, given: Any) -> torch.Tensor:
    seen = model.model.get_image_features(given["pixel_values"], given["image_position_ids"])
    return torch.cat(list(seen.pooler_output))


def shown_of_pixtral(given: Any, mark: str) -> list[str]:
    """As PixtralProcessor; each row of a model's own joins 2 x 2 patches of 8 pixels."""
    lines = [[mark * (width // 16)] * (height // 16) for height, width in given["image_sizes"]]
    return ["[IMG_BREAK]".join(image) + "[IMG_END]" for image in lines]


def rows_of_pixtral(model: Any, given: Any) -> torch.Tensor:
    seen = model.model.get_image_features(given["pixel_values"], given["image_sizes"])
    return torch.cat(list(seen.pooler_output))


def processor_of_lfm2(folder: Path) -> Any:
    from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor

    return Lfm2VlImageProcessor.from_pretrained(folder)


def shown_of_lfm2(given: Any, mark: str) -> list[str]:
    """As Lfm2VlProcessor; each row joins 2 x 2 patches of 8 pixels, a tile has 4 rows."""
    texts = []
    grids = zip(*(given.pop(f"image_{key}") for key in ("rows", "cols", "sizes")), strict=True)
    for rows, columns, (height, width) in grids:
        whole = mark * (int(height) // 16 * (int(width) // 16))
        tiles = [f"<|img_row_{y + 1}_col_{x + 1}|>" for y in range(rows) for x in range(columns)]
        if len(tiles) > 1:
            whole = "".join(tile + 4 * mark for tile in tiles) + "<|img_thumbnail|>" + whole
        texts.append(f"<|image_start|>{whole}<|image_end|>")
    return texts


def rows_of_lfm2(model: Any, given: Any) -> torch.Tensor:
    seen = model.model.get_image_features(
        given["pixel_values"], given["spatial_shapes"], given["pixel_attention_mask"]
    )
    return torch.cat(list(seen.pooler_output))


LFM2 = Kind(
    processor_of_lfm2, shown_of_lfm2, "<|startoftext|><|im_start|>user\n", "And this? ",
    "<|im_end|>\n<|im_start|>assistant\n", rows_of_lfm2, {"return_row_col_info": True},
)  # fmt: skip


def shown_of_12b(given: Any, mark: str) -> list[str]:
    """As ``shown_of_pixtral``, with a row for each patch."""
    lines = [[mark * (width // 8)] * (height // 8) for height, width in given["image_sizes"]]
    return ["[IMG_BREAK]".join(image) + "[IMG_END]" for image in lines]


def rows_of_12b(model: Any, given: Any) -> torch.Tensor:
    seen = model.model.get_image_features(
        given["pixel_values"], vision_feature_layer=-1, vision_feature_select_strategy="full",
        image_sizes=given["image_sizes"],
    )  # fmt: skip
    return torch.cat(list(seen.pooler_output))


QWEN = Kind(
    Qwen2VLImageProcessorPil.from_pretrained, shown_of_qwen, "<|im_start|>user\n", "And this? ",
    "<|im_end|>\n<|im_start|>assistant\n", rows_of_qwen,
)  # fmt: skip
GEMMA4 = Kind(
    Gemma4ImageProcessorPil.from_pretrained, shown_of_gemma4, "<bos><|turn>user\n", "And this?",
    "<turn|>\n<|turn>model\n", rows_of_gemma4,
)  # fmt: skip


def processor_of_12b(folder: Path) -> Any:
    """Gemma 4 12B's processor.

    In the class's forward of transformers 5.24, rows of an image see each other in all layers. Here
    they do so only in layers with a window, as in its create_masks_for_generate, in the classes of
    the other sizes (since pull request 46850), in vLLM, and in Google's own implementation.
    """
    from transformers.models.gemma4_unified import image_processing_gemma4_unified as unified
    from transformers.models.gemma4_unified import modeling_gemma4_unified as modeling

    modeling.create_masks_for_generate = modeling.create_masks_for_vision_model
    return unified.Gemma4UnifiedImageProcessor.from_pretrained(folder)


GEMMA4_12B = GEMMA4._replace(processor=processor_of_12b)
PIXTRAL = Kind(
    PixtralImageProcessorPil.from_pretrained, shown_of_pixtral, "<s>[INST]", "And this? ",
    "[/INST]", rows_of_pixtral, {"patch_size": 16},
)  # fmt: skip
MINICPM = Kind(
    minicpm_reference.Processor, minicpm_reference.shown, "<|im_start|>user\n",
    "\nAnd this? \n", "<|im_end|>\n<|im_start|>assistant\n",
    lambda model, given: model.rows(given),
)  # fmt: skip
# Models with a processor of transformers' own; those of FIRST have prompts with one image only.
FIRST = ("idefics3", "gemma3")
IMAGE_PROCESSORS = {
    "idefics3": Idefics3ImageProcessorPil, "gemma3": Gemma3ImageProcessorPil,
    **dict.fromkeys(internvl.NAMES, GotOcr2ImageProcessorPil),
    "llava": CLIPImageProcessorPil, "llava_siglip": SiglipImageProcessorPil,
    "llava_next": LlavaNextImageProcessorPil, "granite_vision": LlavaNextImageProcessorPil,
}  # fmt: skip
# Arguments of get_image_features.
KEYS = ("vision_feature_layer", "vision_feature_select_strategy")
SEEN = {
    name: {key: small.config(name)[key] for key in KEYS} for name in (*internvl.NAMES, *llava.NAMES)
}
PIXTRAL_12B = PIXTRAL._replace(shown=shown_of_12b, rows=rows_of_12b, options={"patch_size": 8})
KINDS = {
    **dict.fromkeys(qwen.NAMES, QWEN), **dict.fromkeys(gemma4.NAMES, GEMMA4),
    **dict.fromkeys(pixtral.NAMES, PIXTRAL), **dict.fromkeys(lfm2.NAMES, LFM2),
    "pixtral": PIXTRAL_12B, "gemma4_12b": GEMMA4_12B, **dict.fromkeys(minicpm.NAMES, MINICPM),
}  # fmt: skip


@torch.no_grad()
def golden(
    name: str, folder: Path, prompts: Prompts = PROMPTS, **options: object
) -> dict[str, np.ndarray]:
    """Return the ids, the rows of images, the last logits and the greedy tokens of each prompt.

    ``options`` are those of the processor.
    """
    small.write_directory(name, folder)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    if name in minicpm.NAMES:
        return golden_of_kind(name, folder, tokenizer, minicpm_reference.Model(name), prompts)
    model_class = getattr(transformers, small.config(name)["architectures"][0])
    model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    if name == "mistral3":  # of an image with one row, transformers removes that axis
        model.model.multi_modal_projector.register_forward_hook(lambda *given: given[2][None])
    if name in KINDS:
        return golden_of_kind(name, folder, tokenizer, model, prompts)
    processor = processor_of(name, folder, tokenizer)
    found: dict[str, np.ndarray] = {}
    for number, images in prompts.items():
        content = [{"type": "image"}, {"type": "text", "text": small.QUESTION}]
        if len(images) > 1 and name in FIRST:
            continue
        if len(images) > 1:
            content = [content[0], {"type": "text", "text": "And this? "}, *content]
        messages = [{"role": "user", "content": content}]
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        try:
            given = processor(
                text=text, images=images, return_tensors="pt", add_special_tokens=False, **options
            )
        except REFUSALS as error:
            print(f"{name}, {number}: {error}")
            continue
        keys = "pixel_attention_mask", "image_sizes"
        wanted = [given[key] for key in ("pixel_values", *keys) if key in given]
        rows = model.model.get_image_features(*wanted, **SEEN.get(name, {})).pooler_output
        text_config = small.config(name)["text_config"]
        # The text model of Granite Vision multiplies them as embeddings.
        scale = text_config.get("embedding_multiplier", 1.0)
        made = arrays_of(f"{name}_{number}", model, given, torch.cat(list(rows)) * scale)
        # LLaVA-NeXT's class leaves out what Granite's does to logits.
        made[f"{name}_{number}_logits"] /= text_config.get("logits_scaling", 1.0)
        found |= made
    return found


class WithoutVideos(transformers.InternVLProcessor):
    """The processor without one of videos, which would need torchvision."""

    def check_argument_for_proper_class(self, name: str, argument: object) -> type:
        return type(argument)


def processor_of(name: str, folder: Path, tokenizer: Any) -> Any:
    """Return the processor of prompts and images."""
    images = IMAGE_PROCESSORS[name].from_pretrained(folder)
    if name == "idefics3":
        return transformers.Idefics3Processor(images, tokenizer, image_seq_len=ROWS)
    if name == "gemma3":
        return transformers.Gemma3Processor(images, tokenizer, image_seq_length=ROWS)
    if name in internvl.NAMES:
        rows = small.config(name)["image_seq_length"]
        return WithoutVideos(images, tokenizer, None, image_seq_length=rows)
    strategy = small.config(name)["vision_feature_select_strategy"]
    is_next = name in llava.NEXT
    made = transformers.LlavaNextProcessor if is_next else transformers.LlavaProcessor
    return made(
        images, tokenizer, patch_size=8, vision_feature_select_strategy=strategy,
        num_additional_image_tokens=int(strategy == "default"),
    )  # fmt: skip


def golden_of_kind(
    name: str, folder: Path, tokenizer: Any, model: Any, prompts: Prompts
) -> dict[str, np.ndarray]:
    """As ``golden``, for a kind of model; what the image processor refuses is not in the result."""
    kind, mark = KINDS[name], small.ROW_TOKENS[name]
    processor = kind.processor(folder)
    mark_id = tokenizer.convert_tokens_to_ids(mark)
    found: dict[str, np.ndarray] = {}
    for number, images in prompts.items():
        try:
            given = processor(images, return_tensors="pt", **kind.options)
        except REFUSALS as error:
            print(f"{name}, {number}: {error}")
            continue
        shown = kind.between.join(kind.shown(given, mark))
        text = f"{kind.begin}{shown}{small.QUESTION}{kind.end}"
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        inputs = {**given, "input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if kind in (QWEN, GEMMA4, GEMMA4_12B):
            inputs["mm_token_type_ids"] = (ids == mark_id).int()
        found |= arrays_of(f"{name}_{number}", model, inputs, kind.rows(model, given))
    return found


def arrays_of(name: str, model: Any, inputs: Any, rows: torch.Tensor) -> dict[str, np.ndarray]:
    """What is kept of one prompt."""
    answer = model.generate(
        **inputs, max_new_tokens=small.TOKENS, do_sample=False, eos_token_id=1 << 20
    )
    return {
        f"{name}_ids": inputs["input_ids"][0].numpy().astype(np.int32),
        f"{name}_rows": rows.numpy(),
        f"{name}_logits": model(**inputs).logits[0, -4:].numpy(),
        f"{name}_tokens": answer[0, -small.TOKENS :].numpy().astype(np.int32),
    }


def further(name: str, folder: Path) -> dict[str, np.ndarray]:
    """What is kept of images in further sizes: some rows of images, and the last logits."""
    found = golden(name, folder, FURTHER)
    for key, values in found.items():
        if key.endswith("_rows"):
            found[key] = values[:: small.STEP]
        elif key.endswith("_logits"):
            found[key] = values[-1:]
    return found


def resized() -> dict[str, np.ndarray]:
    """Images that torchvision resized."""
    from torchvision.transforms.v2 import functional

    found = {}
    for (width, height), (new_width, new_height) in small.RESIZED:
        pixels = torch.from_numpy(np.array(small.image(width, height))).permute(2, 0, 1)
        for filter_name in ("bilinear", "bicubic"):
            made = functional.resize(
                pixels, [new_height, new_width], functional.InterpolationMode(filter_name)
            )
            name = f"resized_{width}_{height}_{new_width}_{new_height}_{filter_name}"
            found[name] = made.permute(1, 2, 0).numpy()
    return found


def main(names: Sequence[str]) -> None:
    """Write the file; with names, only these are made anew: models, "resized", "scanned"."""
    path = ROOT / "tests" / "data" / "images.npz"
    arrays: dict[str, np.ndarray] = {}
    if names:
        with np.load(path) as known:
            arrays = dict(known)
    if not names or "resized" in names:
        arrays |= resized()
    if not names or "scanned" in names:
        with tempfile.TemporaryDirectory() as folder:
            made = golden("gemma3", Path(folder), **small.SCANNING)
        arrays |= {f"scanned_{key}": value for key, value in made.items()}
    for name in small.SPECIAL:
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            arrays |= golden(name, Path(folder))
            arrays |= further(name, Path(folder))
    np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    main(sys.argv[1:])
