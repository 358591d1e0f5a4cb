"""The other engines' side of bench_images.py: a process that encodes images on request.

    python scripts/bench/image_peer.py llama.cpp FOLDER --threads 2
    python scripts/bench/image_peer.py transformers FOLDER --threads 2

FOLDER has the files of make_tower.py. llama.cpp's multimodal library (mtmd) is used through
llama-cpp-python, and transformers in float32. Needs nothing of this project. Reads a JSON object
per line from standard input, {"seed", "width", "height", "flash"}, makes the image of that seed,
and answers {"seconds", "processor", "sample"} on standard output: the time from pixels to rows, the
processor time, and some values of the rows. The first line describes the library.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

AUTO, DISABLED = -1, 0  # flash attention
HEADS = 16  # of both towers


def image_of(seed: int, width: int, height: int) -> Any:
    """Random pixels, (height, width, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def sample_of(rows: Any) -> list[float]:
    """Some values of each sixteenth row."""
    return [float(value) for value in rows[::16, ::101].ravel()]


def measured(encode: Callable[[Any], Any], pixels: Any) -> dict[str, Any]:
    """Encode an image and return the times and a sample."""
    started, used = time.perf_counter(), time.process_time()
    rows = encode(pixels)
    seconds, processor = time.perf_counter() - started, time.process_time() - used
    return {"seconds": seconds, "processor": processor, "sample": sample_of(rows)}


class LlamaCpp:
    """llama.cpp's mtmd, with a context for each kind of attention."""

    def __init__(self, folder: Path, threads: int) -> None:
        # Importing it loads the library, from MTMD_CPP_LIB if that is set.
        import llama_cpp  # type: ignore[import-not-found,unused-ignore]
        from llama_cpp import mtmd_cpp

        self.llama, self.mtmd, self.folder, self.threads = llama_cpp, mtmd_cpp, folder, threads
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        text = os.fsencode(folder / "text.gguf")
        self.text = llama_cpp.llama_model_load_from_file(text, parameters)
        if not self.text:
            raise SystemExit("llama.cpp does not load the text model")
        self.contexts: dict[bool, Any] = {}

    def about(self) -> dict[str, object]:
        """Return the build and the settings."""
        return {
            "package": f"llama-cpp-python {importlib.metadata.version('llama-cpp-python')}",
            "system_info": self.llama.llama_print_system_info().decode(),
            "threads": self.threads,
        }

    def context(self, flash: bool) -> Any:
        """Return the context with this kind of attention."""
        if flash not in self.contexts:
            parameters = self.mtmd.mtmd_context_params_default()
            parameters.use_gpu = parameters.warmup = parameters.print_timings = False
            parameters.n_threads = self.threads
            parameters.flash_attn_type = AUTO if flash else DISABLED
            path = os.fsencode(self.folder / "mmproj.gguf")
            found = self.mtmd.mtmd_init_from_file(path, self.text, parameters)
            if not found:
                raise SystemExit("mtmd does not load the tower")
            self.contexts[flash] = found
        return self.contexts[flash]

    def encode(self, pixels: Any, flash: bool) -> Any:
        """Return the rows of an image."""
        mtmd, context = self.mtmd, self.context(flash)
        height, width, _ = pixels.shape
        data = pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        bitmap = mtmd.mtmd_bitmap_init(width, height, data)
        chunks = mtmd.mtmd_input_chunks_init()
        try:
            marker = mtmd.mtmd_default_marker()
            text = mtmd.mtmd_input_text()
            text.text, text.text_len = marker, len(marker)
            text.add_special = text.parse_special = True
            bitmaps = (ctypes.c_void_p * 1)(bitmap)
            if mtmd.mtmd_tokenize(context, chunks, ctypes.byref(text), bitmaps, 1):
                raise SystemExit("mtmd does not cut the image")
            for number in range(mtmd.mtmd_input_chunks_size(chunks)):
                chunk = mtmd.mtmd_input_chunks_get(chunks, number)
                if mtmd.mtmd_input_chunk_get_type(chunk) != mtmd.MTMD_INPUT_CHUNK_TYPE_IMAGE:
                    continue
                if mtmd.mtmd_encode_chunk(context, chunk):
                    raise SystemExit("mtmd does not encode the image")
                shape = (
                    mtmd.mtmd_input_chunk_get_n_tokens(chunk),
                    self.llama.llama_model_n_embd_inp(self.text),
                )
                rows = mtmd.mtmd_get_output_embd(context)
                return np.ctypeslib.as_array(rows, shape).copy()
        finally:
            mtmd.mtmd_input_chunks_free(chunks)
            mtmd.mtmd_bitmap_free(bitmap)
        raise SystemExit("mtmd finds no image in the prompt")


class Transformers:
    """The classes of transformers, in float32, with PyTorch's attention."""

    def __init__(self, folder: Path, threads: int) -> None:
        import torch  # type: ignore[import-not-found,unused-ignore]
        from safetensors.torch import load_file  # type: ignore[import-not-found,unused-ignore]

        self.torch, self.threads = torch, threads
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        state = load_file(folder / "tower.safetensors")
        build = _gemma3 if "vision_tower.post_layernorm.weight" in state else _qwen3vl
        self.model, self.encode_pixels = build(state)
        missing, unknown = self.model.load_state_dict(state, strict=False)
        if unknown or any("language_model" not in name for name in missing):
            raise SystemExit(f"not the tensors of transformers' class: {missing} {unknown}")
        self.model.eval()

    def about(self) -> dict[str, object]:
        """Return the versions."""
        packages = {name: importlib.metadata.version(name) for name in ("torch", "transformers")}
        return {**packages, "threads": self.threads}

    def encode(self, pixels: Any, flash: bool) -> Any:
        """Return the rows of an image."""
        return self.encode_pixels(self.model, pixels).numpy()


def _layers(state: dict[str, Any], before: str) -> int:
    return 1 + max(int(name.split(before)[1].split(".")[0]) for name in state if before in name)


def _gemma3(state: dict[str, Any]) -> tuple[Any, Callable[[Any, Any], Any]]:
    from transformers import Gemma3Config, Gemma3Model  # type: ignore[import-not-found]
    from transformers.models.gemma3.image_processing_pil_gemma3 import (  # type: ignore[import-not-found]
        Gemma3ImageProcessorPil,
    )

    d, width = state["multi_modal_projector.mm_input_projection_weight"].shape
    text = {"hidden_size": width, "num_hidden_layers": 1, "intermediate_size": 64, "vocab_size": 64}
    embeddings = "vision_tower.embeddings."
    patch = state[f"{embeddings}patch_embedding.weight"].shape[-1]
    side = patch * math.isqrt(len(state[f"{embeddings}position_embedding.weight"]))
    vision = {
        "hidden_size": d, "intermediate_size": 4304, "num_attention_heads": HEADS,
        "patch_size": patch, "num_hidden_layers": _layers(state, "encoder.layers."),
        "image_size": side, "vision_use_head": False,
    }  # fmt: skip
    model = Gemma3Model(Gemma3Config(text_config=text, vision_config=vision))
    size = {"height": side, "width": side}
    processor = Gemma3ImageProcessorPil(size=size, image_mean=[0.5] * 3, image_std=[0.5] * 3)

    def encode(model: Any, pixels: Any) -> Any:
        values = processor(pixels, return_tensors="pt")["pixel_values"]
        return model.get_image_features(values).pooler_output[0]

    return model, encode


def _qwen3vl(state: dict[str, Any]) -> tuple[Any, Callable[[Any, Any], Any]]:
    import torch
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (  # type: ignore[import-not-found]
        Qwen2VLImageProcessorPil,
    )
    from transformers.models.qwen3_vl import modeling_qwen3_vl  # type: ignore[import-not-found]
    from transformers.models.qwen3_vl.configuration_qwen3_vl import (  # type: ignore[import-not-found]
        Qwen3VLVisionConfig,
    )

    depth, count = _layers(state, "blocks."), 0
    if any("deepstack" in name for name in state):
        count = _layers(state, "deepstack_merger_list.")
    read = [8, 16, 24] if count == 3 else [8, 16][:count] if depth > 8 else [depth - 1][:count]
    config = Qwen3VLVisionConfig(
        depth=depth, out_hidden_size=len(state["merger.linear_fc2.bias"]),
        deepstack_visual_indexes=read,
    )  # fmt: skip
    model = modeling_qwen3_vl.Qwen3VLVisionModel._from_config(config)
    processor = Qwen2VLImageProcessorPil(
        patch_size=16, merge_size=2, image_mean=[0.5] * 3, image_std=[0.5] * 3,
        size={"shortest_edge": 1 << 16, "longest_edge": 1 << 24},
    )  # fmt: skip

    def encode(model: Any, pixels: Any) -> Any:
        given = processor(pixels, return_tensors="pt")
        seen = model(given["pixel_values"], given["image_grid_thw"])
        return torch.cat([seen.pooler_output, *seen.deepstack_features], dim=1)

    return model, encode


ENGINES = {"llama.cpp": LlamaCpp, "transformers": Transformers}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    # What the library prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    peer = ENGINES[options.engine](options.folder, options.threads)
    print(json.dumps(peer.about()), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        flash = request.pop("flash")
        pixels = image_of(**request)
        found = measured(lambda image, flash=flash: peer.encode(image, flash), pixels)
        print(json.dumps(found), file=answers)


if __name__ == "__main__":
    main()
