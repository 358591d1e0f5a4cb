"""The options of ``trinity.load``. This module does not need NumPy."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Annotated, TypedDict

from trinity.errors import InputError
from trinity.options.adapter_files import AdapterFile, check_adapters, parse_adapters
from trinity.options.checks import parse_bytes
from trinity.options.key_overrides import KeyValue, check_overrides, read_overrides
from trinity.options.option import API_ONLY, Option, check_options, path

MOST_THREADS = 1024
LONGEST_CONTEXT = (1 << 31) - 1  # positions are int32

_yarn = partial(Option, low=1e-6, high=1e6, none=-1)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Options of ``trinity.load`` and of every command that loads a model.

    Raises InputError for a value of the wrong type or out of range. ``isa`` and ``tl_config`` are
    checked when the model is loaded: the levels depend on the machine.
    """

    threads: Annotated[
        int | None,
        Option(
            "Number of threads; default: the fast physical cores.",
            ("--threads", "-t"),
            low=1,
            high=MOST_THREADS,
        ),
    ] = None
    context_length: Annotated[
        int | None,
        Option(
            "Context length in tokens; default: the model's own, at most 4096 (serve: as memory "
            "allows).",
            ("--ctx", "-c", "--ctx-size"),
            low=1,
            high=LONGEST_CONTEXT,
        ),
    ] = None
    kv_type: Annotated[
        str,
        Option(
            "Type of the KV cache: f16, q8_0 (about half of the memory) or f32.",
            choices=("f16", "q8_0", "f32"),
        ),
    ] = "f16"
    kv_memory: Annotated[
        int | None,
        Option(
            "Maximum size of the KV cache of all requests, such as 2G; default: by context and "
            "free memory.",
            low=1,
            read=parse_bytes,
            metavar="SIZE",
        ),
    ] = None
    max_sequences: Annotated[
        int | None,
        Option(
            "Maximum number of concurrently running requests; default: as many as fit into "
            "kv_memory.",
            API_ONLY,
            low=1,
        ),
    ] = None
    batch_size: Annotated[
        int | None,
        Option("Maximum number of prompt tokens per step; default: up to 512.", API_ONLY, low=1),
    ] = None
    batch_invariant: Annotated[
        bool,
        Option(
            "Compute each token as if it were alone, so that a response does not depend "
            "on other requests; prompts are slower."
        ),
    ] = False
    reuse_answers: Annotated[
        bool,
        Option(
            "Reuse the KV cache of an earlier response in a prompt: the next turn of a chat starts "
            "sooner, but may differ from the one with an empty cache."
        ),
    ] = False
    isa: Annotated[
        str | None,
        Option(
            "Instruction-set level; default: the best of this CPU.",
            values="a level that this CPU has",
        ),
    ] = None
    head_sketch: Annotated[
        str,
        Option(
            "Compute the best logits with a small copy of the output head, same results: auto "
            "where measured to be faster, on, or off.",
            choices=("auto", "on", "off"),
        ),
    ] = "auto"
    i2s_layout: Annotated[
        str,
        Option("Layout of I2_S: x86, or arm for files quantized on ARM.", choices=("x86", "arm")),
    ] = "x86"
    tl_config: Annotated[
        str | os.PathLike[str] | None,
        path("The kernel_config.ini with which a TL1 or TL2 file was made.", "FILE"),
    ] = None

    weight_scale: Annotated[
        str | None,
        Option(
            "Multiply or divide packed ternary weights of Hugging Face's format by weight_scale, "
            "if config.json is wrong about it.",
            choices=("multiply", "divide"),
        ),
    ] = None

    quantize: Annotated[
        str | None,
        Option(
            "Quantize the weights while loading, to a type such as Q4_K_M; the cache keeps the "
            "result.",
            values="a type of `trinity quantize`",
        ),
    ] = None

    lora: Annotated[
        Sequence[AdapterFile] | None,
        Option(
            "LoRA adapters: a GGUF file, or a directory of PEFT or mlx-lm, and its weight; 1 if "
            "not given.",
            check=check_adapters,
            values="files, or pairs (file, scale)",
            read=parse_adapters,
            repeated=True,
            metavar="FILE[:SCALE]",
        ),
    ] = None

    rope_scaling: Annotated[
        str | None,
        Option(
            "How rotary frequencies are scaled: none, linear or yarn; default: as the model says.",
            choices=("none", "linear", "yarn"),
        ),
    ] = None
    rope_scale: Annotated[
        float | None,
        Option(
            "Factor by which rotary scaling expands the context; default: the model's.",
            low=1e-3,
            high=1e6,
        ),
    ] = None
    rope_freq_base: Annotated[
        float | None,
        Option("Base of the rotary frequencies; default: the model's.", low=1, high=1e15, none=0),
    ] = None
    rope_freq_scale: Annotated[
        float | None,
        Option("Factor of the rotary frequencies, 1 / --rope-scale.", low=1e-6, high=1e3, none=0),
    ] = None
    yarn_orig_ctx: Annotated[
        int | None,
        Option(
            "YaRN: context length that the model was trained with; default: the model's.",
            low=1,
            high=LONGEST_CONTEXT,
            none=0,
        ),
    ] = None
    yarn_ext_factor: Annotated[
        float | None,
        Option(
            "YaRN: share of extrapolation; 0: scale all frequencies; default: 1 with yarn.",
            low=0,
            high=1e6,
            none=-1,
        ),
    ] = None
    yarn_attn_factor: Annotated[
        float | None,
        _yarn("Attention factor if --yarn-ext-factor is 0; otherwise YaRN computes it."),
    ] = None
    yarn_beta_slow: Annotated[
        float | None,
        _yarn("YaRN: turns in the original context up to which a frequency is scaled fully."),
    ] = None
    yarn_beta_fast: Annotated[
        float | None,
        _yarn("YaRN: turns in the original context from which a frequency is not scaled."),
    ] = None
    override_kv: Annotated[
        Mapping[str, KeyValue] | None,
        Option(
            "Replace keys of a GGUF file's metadata; the types are int, float, bool and str.",
            check=check_overrides,
            values="a dict of keys and values",
            read=read_overrides,
            repeated=True,
            metavar="KEY=TYPE:VALUE",
        ),
    ] = field(default=None, hash=False)
    mmproj: Annotated[
        str | os.PathLike[str] | None,
        path("The vision tower of a GGUF model (mmproj file), with which it reads images.", "FILE"),
    ] = None
    vision: Annotated[
        bool,
        Option("Read images, if the model has a vision tower.", ("--mmproj-auto/--no-mmproj",)),
    ] = True
    draft_model: Annotated[
        str | os.PathLike[str] | None,
        Option(
            "A smaller model with the same vocabulary, whose proposed tokens the model verifies: "
            "the same text, faster where they are often right.",
            values="a name of a model, as for load",
            metavar="MODEL",
        ),
    ] = None

    @property
    def rotary(self) -> list[str]:
        """The names of the given options of rotary positions."""
        names = [each.name for each in fields(self) if each.name.startswith(("rope_", "yarn_"))]
        return [name for name in names if getattr(self, name) is not None]

    def __post_init__(self) -> None:
        check_options(self)
        if self.rope_scale is not None and self.rope_freq_scale is not None:
            raise InputError(
                "rope_freq_scale is 1 / rope_scale; give only one of them", "rope_freq_scale"
            )
        if self.mmproj is not None and not self.vision:
            raise InputError(
                "mmproj is given, but images are turned off (vision, --no-mmproj)", "mmproj"
            )


class LoadKeywords(TypedDict, total=False):
    """Options of ``trinity.load``; all are optional."""

    threads: int | None
    """The number of threads (default: the fast physical cores that this process may use)."""
    context_length: int | None
    """The context in tokens (default: the model's own, at most 4096)."""
    kv_type: str
    """The type of the KV cache, "f16", "q8_0" or "f32" (default "f16")."""
    kv_memory: int | None
    """The maximum size in bytes of the KV cache of all requests together.

    By default it depends on the context and on the free memory.
    """
    max_sequences: int | None
    """The number of requests that run at the same time; others wait (default: as many as fit)."""
    batch_size: int | None
    """The maximum number of prompt tokens per step (default: up to 512)."""
    batch_invariant: bool
    """Compute each token as if it were alone (default False).

    Responses then do not depend on other requests, and prompts are slower.
    """
    reuse_answers: bool
    """Let a prompt reuse what was computed for an earlier response in it (default False).

    The next turn of a chat starts sooner, but may differ from the one with an empty cache.
    """
    isa: str | None
    """The instruction-set level, such as "avx2" (default: the best of this CPU)."""
    head_sketch: str
    """Compute the best logits with a small copy of the output head: "auto", "on" or "off".

    The tokens are the same. "auto" (the default) uses it where it is measured to be faster.
    """
    i2s_layout: str
    """ "arm" for I2_S files that bitnet.cpp's quantizer wrote on ARM (default "x86")."""
    tl_config: str | os.PathLike[str] | None
    """The kernel_config.ini of a TL1 or TL2 file (default None).

    It is needed if bitnet.cpp publishes no tiles for the file's shapes.
    """
    weight_scale: str | None
    """ "multiply" or "divide" packed ternary weights of Hugging Face's format by weight_scale.

    By default, config.json decides.
    """
    quantize: str | None
    """Quantize the weights to a type such as "Q4_K_M" (default None).

    The cache keeps the result for the next start.
    """
    lora: Sequence[AdapterFile] | None
    """LoRA adapters: GGUF files, or directories of PEFT or mlx-lm (default None).

    Each is a file, or a pair (file, scale). A request's own ``lora`` overrides the scales.
    """
    rope_scaling: str | None
    """How rotary frequencies are scaled: "none", "linear" or "yarn" (default: as the model says).

    Models with sliding windows, or with scaling of the kind "longrope", take none of the options
    ``rope_*`` and ``yarn_*``.
    """
    rope_scale: float | None
    """The factor by which rotary scaling expands the context (default: the model's)."""
    rope_freq_base: float | None
    """The base of the rotary frequencies (default: the model's)."""
    rope_freq_scale: float | None
    """1 / ``rope_scale``, as llama.cpp also names it."""
    yarn_orig_ctx: int | None
    """YaRN: the context length that the model was trained with (default: the model's)."""
    yarn_ext_factor: float | None
    """YaRN: the share of extrapolation; 0 scales all frequencies (default: 1 with "yarn")."""
    yarn_attn_factor: float | None
    """The factor of rotated values, if ``yarn_ext_factor`` is 0; YaRN has its own (default: 1)."""
    yarn_beta_slow: float | None
    """YaRN: turns in the original context up to which a frequency is scaled fully (default: 1)."""
    yarn_beta_fast: float | None
    """YaRN: turns in the original context from which a frequency is not scaled (default: 32)."""
    override_kv: Mapping[str, KeyValue] | None
    """Values that replace keys of a GGUF file's metadata, or add keys (default None)."""
    mmproj: str | os.PathLike[str] | None
    """The vision tower of a GGUF model, a file of its own (default None).

    A Hugging Face directory has it among its tensors.
    """
    vision: bool
    """Read images, if the model has a vision tower (default True)."""
    draft_model: str | os.PathLike[str] | None
    """A smaller model with the same vocabulary that proposes tokens (default None).

    It changes the speed but not the text.
    """
