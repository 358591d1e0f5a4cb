"""Run language models on a CPU, especially quantized and ternary ones.

    import trinity

    with trinity.load("model.gguf") as model:
        print(model.generate("Once upon a time", max_tokens=64))
        for chunk in model.chat_stream([{"role": "user", "content": "Hello"}]):
            print(chunk.text, end="", flush=True)

Names are imported when they are first used, so that ``import trinity`` costs nothing.
"""

from __future__ import annotations

import sys

# `python -m trinity` searches the current folder first. A downloaded model's folder may have files
# such as typer.py in it, so nothing is imported from there.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    del sys.path[0]


def _is_command_line() -> bool:
    """Whether this process is the command line: ``trinity`` or ``python -m trinity``."""
    if sys.argv[:1] == ["-m"]:
        words = sys.orig_argv
        return "-m" in words and words[words.index("-m") + 1 :][:1] == ["trinity"]
    name = sys.argv[0] if sys.argv else ""
    return name.replace("\\", "/").rpartition("/")[2] in ("trinity", "trinity.exe")


if _is_command_line():  # Ctrl-C is quiet before anything else is imported
    from trinity.processes.command_line import begin as _begin

    _begin()

from trinity.cache.kernel_cache import secure as _secure  # noqa: E402

_secure()

__version__ = "0.1.0"

TYPE_CHECKING = False  # not of typing, whose import takes as long as all the rest
if TYPE_CHECKING:
    from typing import Any

    from trinity.config import ModelConfig
    from trinity.errors import (
        ConfigError,
        ConfinedError,
        ConfinedUnavailableError,
        ContextLengthError,
        FormatError,
        InputError,
        KernelError,
        TokenizerError,
        TrinityError,
        UnsupportedError,
    )
    from trinity.formats.provider import Tensor, WeightProvider
    from trinity.grammar.grammar import Grammar
    from trinity.loading import chat_model, demo_model, generate, load, load_tokenizer, open_weights
    from trinity.model import Model
    from trinity.quantization import Quantization, quantize
    from trinity.runtime.generation import Chunk, Completion, FinishReason, Timings
    from trinity.runtime.likelihoods.perplexity import Perplexity
    from trinity.runtime.options import GenerationOptions
    from trinity.runtime.sampling.logprobs import TokenLogprob
    from trinity.runtime.sampling.sampling_params import SamplingParams
    from trinity.speech.model import SpeechModel, transcribe
    from trinity.speech.transcript import Segment, Transcript
    from trinity.tokenizers import Tokenizer

__all__ = [
    "Chunk",
    "Completion",
    "ConfigError",
    "ConfinedError",
    "ConfinedUnavailableError",
    "ContextLengthError",
    "FinishReason",
    "FormatError",
    "GenerationOptions",
    "Grammar",
    "InputError",
    "KernelError",
    "Model",
    "ModelConfig",
    "Perplexity",
    "Quantization",
    "SamplingParams",
    "Segment",
    "SpeechModel",
    "Tensor",
    "Timings",
    "TokenLogprob",
    "Tokenizer",
    "TokenizerError",
    "Transcript",
    "TrinityError",
    "UnsupportedError",
    "WeightProvider",
    "__version__",
    "chat_model",
    "demo_model",
    "generate",
    "load",
    "load_tokenizer",
    "open_weights",
    "quantize",
    "transcribe",
]

_HOMES = {
    "trinity.config": ("ModelConfig",),
    "trinity.errors": (
        "ConfigError",
        "ConfinedError",
        "ConfinedUnavailableError",
        "ContextLengthError",
        "FormatError",
        "InputError",
        "KernelError",
        "TokenizerError",
        "TrinityError",
        "UnsupportedError",
    ),
    "trinity.formats.provider": ("Tensor", "WeightProvider"),
    "trinity.grammar.grammar": ("Grammar",),
    "trinity.loading": (
        "chat_model",
        "demo_model",
        "generate",
        "load",
        "load_tokenizer",
        "open_weights",
    ),
    "trinity.model": ("Model",),
    "trinity.runtime.generation": ("Chunk", "Completion", "FinishReason", "Timings"),
    "trinity.runtime.options": ("GenerationOptions",),
    "trinity.runtime.likelihoods.perplexity": ("Perplexity",),
    "trinity.runtime.sampling.logprobs": ("TokenLogprob",),
    "trinity.runtime.sampling.sampling_params": ("SamplingParams",),
    "trinity.speech.model": ("SpeechModel", "transcribe"),
    "trinity.speech.transcript": ("Segment", "Transcript"),
    "trinity.tokenizers": ("Tokenizer",),
    "trinity.quantization": ("Quantization", "quantize"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module 'trinity' has no attribute {name!r}")
    import sys
    from importlib import import_module

    from trinity_kernels.uninterrupted import uninterrupted

    _secure()
    module = sys.modules.get(_HOME[name])
    if module is None or not hasattr(module, name):
        # Neither NumPy nor Python's own lock on imports survives a Ctrl-C in the middle.
        module = uninterrupted(import_module, _HOME[name])
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
