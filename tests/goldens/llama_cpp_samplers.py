"""llama.cpp's samplers, as common/sampling.cpp chains them; needs llama-cpp-python and NumPy.

    python tests/goldens/llama_cpp_samplers.py

Reads one JSON object per line: the ``options`` of SamplingParams, the ``seed``, a file of
``logits`` (rows, vocabulary), the tokens before (``prompt``), the numbers of ``tokens`` of a text
and of ``draws`` after the prompt. Answers each with the text, and with the count of each token.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import llama_cpp as lib  # type: ignore[import-not-found,unused-ignore]
import numpy as np
from numpy.typing import NDArray

MODEL = Path(__file__).resolve().parents[1] / "data" / "stories260K" / "Q4_0.gguf"
CONTEXT = 4096  # tokens that penalties consider if their number is -1
Options = Mapping[str, Any]


def vocabulary() -> Any:
    """The vocabulary that breakers are searched in; the model stays open."""
    parameters = lib.llama_model_default_params()
    parameters.vocab_only = True
    return lib.llama_model_get_vocab(lib.llama_model_load_from_file(os.fsencode(MODEL), parameters))


def sampler(name: str, options: Options, vocab: Any, size: int, seed: int) -> Any:
    """A sampler of llama.cpp with these options."""
    texts = [text.encode() for text in options["dry_sequence_breakers"]]
    match name:
        case "penalties":
            last = options["penalty_last_n"]
            return lib.llama_sampler_init_penalties(
                size, last if last >= 0 else CONTEXT, options["repetition_penalty"],
                options["frequency_penalty"], options["presence_penalty"],
            )  # fmt: skip
        case "dry":
            return lib.llama_sampler_init_dry(
                vocab, options["dry_multiplier"], options["dry_base"],
                options["dry_allowed_length"], options["dry_penalty_last_n"],
                (ctypes.c_char_p * len(texts))(*texts), len(texts),
            )  # fmt: skip
        case "top_n_sigma":
            return lib.llama_sampler_init_top_n_sigma(options["top_n_sigma"])
        case "top_k":
            return lib.llama_sampler_init_top_k(options["top_k"])
        case "typ_p":
            return lib.llama_sampler_init_typical(options["typical_p"], 0)
        case "top_p":
            return lib.llama_sampler_init_top_p(options["top_p"], 0)
        case "min_p":
            return lib.llama_sampler_init_min_p(options["min_p"], 0)
        case "xtc":
            return lib.llama_sampler_init_xtc(
                options["xtc_probability"], options["xtc_threshold"], 0, seed
            )
        case _:
            return lib.llama_sampler_init_temp_ext(
                options["temperature"], options["dynatemp_range"], options["dynatemp_exponent"]
            )


class Chain:
    """The samplers of these options; ``chooses``: with the one that chooses a token."""

    def __init__(
        self, options: Options, vocab: Any, size: int, seed: int, *, chooses: bool
    ) -> None:
        self.chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        self.size, self.tokens = size, (lib.llama_token_data * size)()
        self.view = np.frombuffer(self.tokens, np.dtype("i4,f4,f4"))
        mirostat, named = options["mirostat"], options["samplers"]
        names = [] if mirostat else [name for name in named if name != "adaptive_p"]
        samplers = [sampler(name, options, vocab, size, seed) for name in names]
        tau, eta = options["mirostat_tau"], options["mirostat_eta"]
        if mirostat:
            samplers.append(lib.llama_sampler_init_temp(options["temperature"]))
        if chooses and mirostat == 1:
            samplers.append(lib.llama_sampler_init_mirostat(size, seed, tau, eta, 100))
        elif chooses and mirostat == 2:
            samplers.append(lib.llama_sampler_init_mirostat_v2(seed, tau, eta))
        elif chooses and "adaptive_p" in named:
            samplers.append(
                lib.llama_sampler_init_adaptive_p(
                    options["adaptive_target"], options["adaptive_decay"], seed
                )
            )
        elif chooses:
            samplers.append(lib.llama_sampler_init_dist(seed))
        for one in samplers:
            lib.llama_sampler_chain_add(self.chain, one)

    def close(self) -> None:
        """Free the samplers."""
        lib.llama_sampler_free(self.chain)

    def accept(self, tokens: Sequence[int]) -> None:
        """Tell the samplers which tokens come before the next one."""
        for token in tokens:
            lib.llama_sampler_accept(self.chain, token)

    def apply(self, logits: NDArray[np.float32]) -> Any:
        """The candidates that are left."""
        self.view["f0"], self.view["f1"], self.view["f2"] = np.arange(self.size), logits, 0
        found = lib.llama_token_data_array(
            ctypes.cast(self.tokens, ctypes.POINTER(lib.llama_token_data)), self.size, -1, False
        )
        lib.llama_sampler_apply(self.chain, ctypes.byref(found))
        return found

    def chosen(self, logits: NDArray[np.float32]) -> int:
        """The chosen token."""
        found = self.apply(logits)
        return int(found.data[found.selected].id)


def text(
    options: Options, vocab: Any, logits: NDArray[np.float32], prompt: Sequence[int], seed: int,
    count: int,
) -> list[int]:  # fmt: skip
    """The tokens of a text, each chosen from the next row of the logits."""
    chain = Chain(options, vocab, logits.shape[1], seed, chooses=True)
    chain.accept(prompt)
    tokens = []
    for row in range(count):
        tokens.append(chain.chosen(logits[row % len(logits)]))
        chain.accept(tokens[-1:])
    chain.close()
    return tokens


def counts(
    options: Options, vocab: Any, logits: NDArray[np.float32], prompt: Sequence[int], seed: int,
    draws: int,
) -> NDArray[np.int32]:  # fmt: skip
    """How often each token is the one after the prompt."""
    chain = Chain(options, vocab, len(logits), seed, chooses=True)
    chain.accept(prompt)
    found = np.zeros(len(logits), np.int32)
    for _ in range(draws):
        token = chain.chosen(logits)
        found[token] += 1
        if "adaptive_p" in options["samplers"]:  # only its state changes when a token is accepted
            chain.accept([token])
    chain.close()
    return found


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the library prints must not come between the answers
    vocab = vocabulary()
    for line in sys.stdin:
        asked = json.loads(line)
        options, prompt, seed = asked["options"], asked["prompt"], asked["seed"]
        logits = np.load(asked["logits"])
        answer = {
            "tokens": text(options, vocab, logits, prompt, seed, asked["tokens"]),
            "counts": counts(options, vocab, logits[0], prompt, seed, asked["draws"]).tolist(),
        }
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
