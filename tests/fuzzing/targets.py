"""All targets and how often each is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.fuzzing.case import Case
from tests.fuzzing.target_adapters import adapter
from tests.fuzzing.target_audio import audio
from tests.fuzzing.target_bodies import compressed, pull
from tests.fuzzing.target_gguf import gguf, split, structure, tl, wide
from tests.fuzzing.target_guard import guard
from tests.fuzzing.target_hub import hub
from tests.fuzzing.target_huggingface import huggingface, safetensors
from tests.fuzzing.target_images import image, mmproj, vision
from tests.fuzzing.target_imatrix import imatrix
from tests.fuzzing.target_packed import packed
from tests.fuzzing.target_requests import (
    chunking,
    content_type,
    multipart,
    response_fields,
    slots,
)
from tests.fuzzing.target_speech import speech
from tests.fuzzing.target_states import cached, slot_state
from tests.fuzzing.target_text import (
    json_text,
    sentencepiece,
    template,
    tl_config,
    tokenizer,
)

Target = Callable[[Case], None]

TARGETS: dict[str, Target] = {
    "gguf": gguf, "structure": structure, "split": split, "tl": tl, "wide": wide,
    "huggingface": huggingface, "safetensors": safetensors, "imatrix": imatrix,
    "adapter": adapter, "hub": hub, "packed": packed, "speech": speech,
    "tokenizer": tokenizer, "template": template, "json": json_text, "sentencepiece": sentencepiece,
    "tl_config": tl_config, "multipart": multipart, "audio": audio, "content_type": content_type,
    "chunking": chunking, "response_fields": response_fields, "slots": slots,
    "compressed": compressed, "pull": pull, "slot_state": slot_state, "cached": cached,
    "image": image, "mmproj": mmproj, "vision": vision, "guard": guard,
}  # fmt: skip

USUAL = tuple(name for name in TARGETS if name != "guard")
# Of about 1,000 cases; guard is only run when it is asked for.
SHARES = {
    "gguf": 180, "structure": 300, "split": 30, "tl": 20, "wide": 1, "huggingface": 20,
    "safetensors": 80, "adapter": 40, "hub": 20, "packed": 40, "speech": 30, "imatrix": 70,
    "tokenizer": 60, "template": 19, "json": 90, "sentencepiece": 70,
    "tl_config": 20, "multipart": 60, "audio": 40, "content_type": 40,
    "chunking": 60, "response_fields": 20, "slots": 20, "compressed": 60, "pull": 20,
    "slot_state": 60, "cached": 20, "image": 80, "mmproj": 30, "vision": 10,
    "guard": 1,
}  # fmt: skip


def schedule(names: Sequence[str]) -> list[str]:
    """Return the targets of consecutive seeds, evenly spread; it repeats."""
    places = [((i + 0.5) / SHARES[name], name) for name in names for i in range(SHARES[name])]
    return [name for _, name in sorted(places)]
