"""Recognize files that are not language models: what they are, and what to do instead.

Sources: llama.cpp's general.architecture and general.type (gguf-py/gguf/constants.py),
ComfyUI-GGUF's architectures (loader.py, IMG_ARCH_LIST and TXT_ARCH_LIST), stable-diffusion.cpp's
tensor names (model.cpp), the class names of transformers and diffusers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

SPEECH = "whisper"  # general.architecture of speech models


class _Kind(NamedTuple):
    """``what`` a file is and ``advice``; regular expressions of architectures, classes, tensors."""

    what: str
    advice: str
    names: str
    tensors: str = "$^"


_PROJECTOR = _Kind(
    "a projector (mmproj), which encodes images or sound for a language model",
    "give the language model's own file, and this one with --mmproj (mmproj=)",
    r"clip|mmproj|projector|CLIP\w*|Siglip\w*|\w+VisionModel",
    r"v\.blk\.|a\.blk\.|mm\.\d|v\.patch_embd",
)
_KINDS = (
    _PROJECTOR,
    _Kind(
        "a diffusion model, which makes images or video",
        "run it with stable-diffusion.cpp, ComfyUI or diffusers",
        r"flux\w*|sd1|sd2|sd3\w*|sdxl|aura|auraflow|ltxv|hyvid|hunyuan_?video|wan|cosmos|hidream"
        r"|lumina2|qwen_image\w*|pixart\w*|pig|z_image|chroma|cogvideo\w*|mochi|diffusion"
        r"|stable-?diffusion\w*|UNet\w*|Autoencoder\w*|VQModel|\w+Transformer[23]DModel"
        r"|\w+Pipeline|\w*ControlNet\w*",
        r"model\.diffusion_model\.|first_stage_model\.|double_blocks\.|single_blocks\."
        r"|joint_blocks\.|down_blocks\.|input_blocks\.",
    ),
    _Kind(
        "a diffusion language model, which generates all tokens of a text together",
        "trinity generates one token after the other: choose another model",
        r"dream|llada|llada-moe|rnd1|Dream\w*|LLaDA\w*|RND1\w*",
    ),
    _Kind(
        "a part of a text-to-speech system",
        "trinity does not generate sound: run it with the program that it was made for",
        r"wavtokenizer-dec|parler-tts|kokoro|dia|csm|bark|snac|mimi|outetts\w*|qwen3-?tts\w*"
        r"|vits\w*|Vits\w*|SpeechT5\w*|Bark\w*|\w*Tts\w*|\w*TTS\w*|\w+ForTextToSpeech"
        r"|\w+ForTextToWaveform|Encodec\w*|Mimi\w*|Dac\w*|Snac\w*|Csm\w*|Dia\w+|Kokoro\w*",
    ),
    _Kind(
        "a model that recognizes or classifies speech",
        "`trinity transcribe` runs Whisper models",
        r"parakeet\w*|moonshine\w*|wav2vec2?\w*|Wav2Vec2\w*|Hubert\w*|Moonshine\w*|\w+ForCTC"
        r"|\w+ForAudioClassification|Parakeet\w*",
    ),
    _Kind(
        "a model that classifies images or finds things in them",
        "trinity runs language models, of which some read images",
        r"ViT\w*|Dinov\d\w*|Swin\w*|ResNet\w*|ConvNext\w*|\w+ForImageClassification"
        r"|\w+ForObjectDetection|\w+ForDepthEstimation|\w+ForSemanticSegmentation|\w*Sam\d?Model",
    ),
    _Kind(
        "an encoder-decoder model or its encoder, such as a text encoder of diffusion models",
        "trinity runs decoders and the encoders of models.md",
        r"t5|t5encoder|umt5|T5\w*|UMT5\w*|MT5\w*|Bart\w*|MBart\w*|Marian\w*|Pegasus\w*|M2M100\w*",
    ),
    _Kind(
        "a draft model, which proposes tokens for another model",
        "give the model that it belongs to; trinity does not support such draft models",
        r"eagle\w*|dflash\w*|medusa\w*|Eagle\w*|Medusa\w*|\w+Eagle3?\w*",
    ),
    _Kind(
        "an importance matrix for quantization",
        "pass it to `trinity quantize --imatrix` and give a model here",
        r"imatrix",
        r".*\.in_sum2",
    ),
)


def is_speech(metadata: Mapping[str, object]) -> bool:
    """Whether the keys describe a speech model."""
    name = metadata.get("general.architecture")
    return isinstance(name, str) and name == SPEECH


def other_model(
    metadata: Mapping[str, object], tensors: Collection[str] = (), class_name: str = ""
) -> str | None:
    """Return what a file is instead of a language model, with advice; None if no kind matches.

    ``metadata`` has the keys of GGUF, ``class_name`` is a class of transformers or diffusers. Type,
    architecture and class are compared first, then the names of the ``tensors``.
    """
    said = [metadata.get("general.type"), metadata.get("general.architecture"), class_name]
    for name in said:
        if not isinstance(name, str) or name in ("", "model"):
            continue
        for kind in _KINDS:
            if re.fullmatch(kind.names, name[:200]):
                return f"{kind.what}; {kind.advice}"
    for kind in _KINDS:
        if any(re.match(kind.tensors, name[:200]) for name in tensors):
            return f"{kind.what}; {kind.advice}"
    return None
