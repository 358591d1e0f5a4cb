"""Write tests/data/samplers.npz: what llama.cpp's samplers leave and choose.

    pip install llama-cpp-python
    python tests/goldens/sampler_goldens.py

The chain of a case is built as common/sampling.cpp of llama.cpp builds it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp as lib  # type: ignore[import-not-found,unused-ignore]
import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.runtime.sampler_cases import (  # noqa: E402
    CASES,
    DRAWS,
    PROMPT,
    SEED,
    TOKENS,
    VOCAB,
    logits_of,
)
from trinity.runtime.sampling.sampling_params import SamplingParams  # noqa: E402

MODEL = ROOT / "tests" / "data" / "stories260K" / "Q4_0.gguf"
DECIMALS = 7


def vocabulary() -> Any:
    """The vocabulary that breakers are searched in; the model stays open."""
    parameters = lib.llama_model_default_params()
    parameters.vocab_only = True
    return lib.llama_model_get_vocab(lib.llama_model_load_from_file(os.fsencode(MODEL), parameters))


def sampler(name: str, params: SamplingParams, vocab: Any) -> Any:
    """A sampler of llama.cpp with these options."""
    texts = [text.encode() for text in params.dry_sequence_breakers]
    match name:
        case "penalties":
            return lib.llama_sampler_init_penalties(
                VOCAB, params.penalty_last_n, params.repetition_penalty,
                params.frequency_penalty, params.presence_penalty,
            )  # fmt: skip
        case "dry":
            return lib.llama_sampler_init_dry(
                vocab, params.dry_multiplier, params.dry_base, params.dry_allowed_length,
                params.dry_penalty_last_n, (ctypes.c_char_p * len(texts))(*texts), len(texts),
            )  # fmt: skip
        case "top_n_sigma":
            return lib.llama_sampler_init_top_n_sigma(params.top_n_sigma)
        case "top_k":
            return lib.llama_sampler_init_top_k(params.top_k)
        case "typ_p":
            return lib.llama_sampler_init_typical(params.typical_p, 0)
        case "top_p":
            return lib.llama_sampler_init_top_p(params.top_p, 0)
        case "min_p":
            return lib.llama_sampler_init_min_p(params.min_p, 0)
        case "xtc":
            return lib.llama_sampler_init_xtc(params.xtc_probability, params.xtc_threshold, 0, SEED)
        case _:
            return lib.llama_sampler_init_temp_ext(
                params.temperature, params.dynatemp_range, params.dynatemp_exponent
            )


class Chain:
    """The samplers of these options; ``chooses``: with the one that chooses a token."""

    def __init__(self, params: SamplingParams, vocab: Any, *, chooses: bool) -> None:
        self.chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        self.tokens = (lib.llama_token_data * VOCAB)()
        names = [] if params.mirostat else [n for n in params.samplers if n != "adaptive_p"]
        samplers = [sampler(name, params, vocab) for name in names]
        tau, eta = params.mirostat_tau, params.mirostat_eta
        if params.mirostat:
            samplers.append(lib.llama_sampler_init_temp(params.temperature))
        if chooses and params.mirostat == 1:
            samplers.append(lib.llama_sampler_init_mirostat(VOCAB, SEED, tau, eta, 100))
        elif chooses and params.mirostat == 2:
            samplers.append(lib.llama_sampler_init_mirostat_v2(SEED, tau, eta))
        elif chooses and "adaptive_p" in params.samplers:
            samplers.append(
                lib.llama_sampler_init_adaptive_p(
                    params.adaptive_target, params.adaptive_decay, SEED
                )
            )
        elif chooses:
            samplers.append(lib.llama_sampler_init_dist(SEED))
        for one in samplers:
            lib.llama_sampler_chain_add(self.chain, one)

    def accept(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            lib.llama_sampler_accept(self.chain, token)

    def apply(self, logits: NDArray[np.float32]) -> Any:
        """The candidates that are left."""
        view = np.frombuffer(self.tokens, np.dtype("i4,f4,f4"))
        view["f0"], view["f1"], view["f2"] = np.arange(VOCAB), logits, 0
        found = lib.llama_token_data_array(
            ctypes.cast(self.tokens, ctypes.POINTER(lib.llama_token_data)), VOCAB, -1, False
        )
        lib.llama_sampler_apply(self.chain, ctypes.byref(found))
        return found

    def chosen(self, logits: NDArray[np.float32]) -> int:
        found = self.apply(logits)
        return int(found.data[found.selected].id)


def golden(options: dict[str, Any], vocab: Any) -> dict[str, NDArray[Any]]:
    """The candidates after the samplers that change something, a text, and counts of draws."""
    params = SamplingParams(**options)
    found: dict[str, NDArray[Any]] = {}
    ids, logits = np.arange(VOCAB), logits_of(0)
    for count in range(1, len(params.samplers) + 1):
        prefix = SamplingParams(**{**options, "samplers": params.samplers[:count], "mirostat": 0})
        chain = Chain(prefix, vocab, chooses=False)
        chain.accept(PROMPT)
        left = chain.apply(logits_of(0))
        before = ids, logits
        ids = np.array([one.id for one in left.data[: left.size]])
        logits = np.array([one.logit for one in left.data[: left.size]], np.float32)
        if not np.array_equal(before[0], ids) or not np.array_equal(before[1], logits):
            found[f"ids {count}"], found[f"logits {count}"] = ids.astype(np.int16), logits
    chain = Chain(params, vocab, chooses=True)
    chain.accept(PROMPT)
    tokens = []
    for row in range(TOKENS):
        tokens.append(chain.chosen(logits_of(row)))
        chain.accept(tokens[-1:])
    chain = Chain(params, vocab, chooses=True)
    chain.accept(PROMPT)
    counts, logits = np.zeros(VOCAB, np.int32), logits_of(0)
    for _ in range(DRAWS):
        token = chain.chosen(logits)
        counts[token] += 1
        if "adaptive_p" in params.samplers:  # only this one's state changes when one is accepted
            chain.accept([token])
    return found | {"tokens": np.array(tokens, np.int16), "counts": counts}


if __name__ == "__main__":
    vocab = vocabulary()
    results = {
        f"{case}: {name}": array
        for case, options in CASES.items()
        for name, array in golden(options, vocab).items()
    }
    np.savez_compressed(ROOT / "tests" / "data" / "samplers.npz", **results)  # type: ignore[arg-type]
