"""MiniCPM-V in PyTorch, of transformers' parts: OpenBMB's classes are not in transformers.

The image processor is transformers' of MiniCPM-V 4.6, which cuts images in the same way into
multiples of four of its patches; the tower is that of Idefics 2, which OpenBMB's towers copy. The
resampler is written here, after OpenBMB's resampler.py. The rows that llama-mtmd-cli computes of a
whole image (MTMD_DEBUG_EMBEDDINGS) agree within 0.0014 of the largest value.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn
from transformers.models.idefics2.modeling_idefics2 import Idefics2VisionTransformer
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import (
    MiniCPMV4_6ImageProcessorPil,
)

from tests.images import small_minicpm_models as minicpm
from tests.images import small_vision_models as small

_CLASSES = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
}


class Processor:
    """Cuts images: their slices as (3, height, width), and of each image the columns and rows."""

    def __init__(self, folder: Path) -> None:
        import json

        values = json.loads((folder / "preprocessor_config.json").read_text("utf-8"))
        self._values = values
        self._unit = values["patch_size"]
        self._images = MiniCPMV4_6ImageProcessorPil(
            patch_size=self._unit // 4, scale_resolution=values["scale_resolution"],
            max_slice_nums=values["max_slice_nums"], image_mean=values["norm_mean"],
            image_std=values["norm_std"],
        )  # fmt: skip

    def __call__(self, images: Any, return_tensors: str) -> dict[str, Any]:
        """Return what the model and ``shown`` need."""
        given = self._images(images, return_tensors=return_tensors)
        size, slices, start = self._unit // 4, [], 0
        for height, width in given["target_sizes"].tolist():
            end = start + height * width * size
            part = given["pixel_values"][0, :, :, start:end].reshape(3, size, height, width, size)
            slices.append(part.permute(0, 2, 1, 3, 4).reshape(3, height * size, width * size))
            start = end
        return {"slices": slices, "grids": given["grids"], "processor": self._values}


def shown(given: Any, mark: str) -> list[str]:
    """Return the prompt's text for each image; a line feed follows the last one.

    Source: OpenBMB's get_slice_image_placeholder.
    """
    values = given["processor"]
    rows = mark * values["image_feature_size"]
    texts = []
    for number, (lines, columns) in enumerate(given["grids"]):
        text = f"<image_id>{number}</image_id>" if values["use_image_id"] else ""
        text += f"<image>{rows}</image>"
        if values["use_image_id"]:
            text += "\n".join([f"<slice>{rows}</slice>" * columns] * lines)
        elif lines:
            cut = "\n".join([f"<image>{rows}</image>" * columns] * lines)
            text += f"<slice>{cut}</slice>"
        texts.append(text)
    texts[-1] += "\n"
    return texts


class Resampler(nn.Module):
    """Queries that attend to patches."""

    def __init__(self, queries: int, width: int, given: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(queries, width))
        self.kv_proj = nn.Linear(given, width, bias=False)
        self.attn = nn.MultiheadAttention(width, width // 128)
        self.ln_q, self.ln_kv, self.ln_post = (nn.LayerNorm(width, eps=1e-6) for _ in range(3))
        self.proj = nn.Parameter(torch.zeros(width, width))

    def forward(self, states: torch.Tensor, height: int, width: int) -> torch.Tensor:
        """``states``: (height * width, n)."""
        seen = self.ln_kv(self.kv_proj(states))
        places = torch.from_numpy(places_of(height, width, seen.shape[1]))
        out, _ = self.attn(self.ln_q(self.query), seen + places, seen)
        return self.ln_post(out) @ self.proj


def places_of(height: int, width: int, size: int) -> np.ndarray:
    """Sines and cosines of columns, then of rows."""
    frequencies = 1 / 10000 ** (np.arange(size // 4, dtype=np.float32) / (size / 4))
    y, x = np.mgrid[:height, :width].reshape(2, -1, 1).astype(np.float32)
    parts = [np.sin(x * frequencies), np.cos(x * frequencies)]
    parts += [np.sin(y * frequencies), np.cos(y * frequencies)]
    return np.concatenate(parts, axis=1).astype(np.float32)


class Model:
    """The tower, the resampler and the text model."""

    def __init__(self, name: str) -> None:
        values = minicpm.config(name)
        vision = values["vision_config"]
        layers = vision["num_hidden_layers"] - values["drop_vision_last_layer"]
        kept = {key: value for key, value in vision.items() if key != "model_type"}
        config = transformers.Idefics2VisionConfig(**kept | {"num_hidden_layers": layers})
        config._attn_implementation = "eager"
        self.vpm = Idefics2VisionTransformer(config)
        self.resampler = Resampler(
            values["query_num"], values["hidden_size"], vision["hidden_size"]
        )
        text = minicpm.text_config(name)
        config_class, text_class = _CLASSES[text["model_type"]]
        omitted = ("architectures", "model_type", "vision_config", "version")
        text_config = config_class(**{k: v for k, v in text.items() if k not in omitted})
        text_config._attn_implementation = "eager"
        self.llm = text_class(text_config)
        state = {key: torch.from_numpy(value) for key, value in small.tensors(name).items()}
        for part in ("vpm", "resampler", "llm"):
            module = getattr(self, part)
            own = {k[len(part) + 1 :]: v for k, v in state.items() if k.startswith(f"{part}.")}
            module.load_state_dict(own)
            module.eval()
        self._mark = 256 + minicpm.SPECIAL.index("<unk>")

    def rows(self, given: Any) -> torch.Tensor:
        """The rows of all slices."""
        found = []
        for pixels in given["slices"]:
            height, width = (side // minicpm.PATCH for side in pixels.shape[1:])
            mask = torch.ones(1, height, width, dtype=torch.bool)
            states = self.vpm(pixels[None], patch_attention_mask=mask).last_hidden_state[0]
            found.append(self.resampler(states, height, width))
        return torch.cat(found)

    def _embedded(self, input_ids: torch.Tensor, given: Any) -> torch.Tensor:
        embedded = self.llm.get_input_embeddings()(input_ids).clone()
        embedded[input_ids == self._mark] = self.rows(given)
        return embedded

    def __call__(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **given: Any) -> Any:
        """The text model's output."""
        embedded = self._embedded(input_ids, given)
        return self.llm(inputs_embeds=embedded, attention_mask=attention_mask)

    def generate(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, max_new_tokens: int,
        do_sample: bool, eos_token_id: int, **given: Any,
    ) -> Any:  # fmt: skip
        """The tokens after the prompt."""
        return self.llm.generate(
            inputs_embeds=self._embedded(input_ids, given), attention_mask=attention_mask,
            max_new_tokens=max_new_tokens, do_sample=do_sample, eos_token_id=eos_token_id,
        )  # fmt: skip
