"""The llama.cpp side of bench_peers.py: a process that runs measurements on request.

    python scripts/bench/llama_cpp_peer.py model.gguf --threads 2

Needs llama-cpp-python and nothing of this project. Reads one JSON object per line from standard
input, {"kind": "pp" or "tg", "count", "batch", "depth", "flash": bool}, and answers {"seconds"} on
standard output; its first line describes the build. llama.cpp's own log goes to standard error.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import random
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import llama_cpp  # type: ignore[import-not-found,unused-ignore]

CHUNK = 512  # tokens of a batch, llama.cpp's default n_ubatch
KV_TYPES = {"f16": 1, "q8_0": 8}
AUTO, DISABLED = -1, 0  # flash attention
Key = tuple[int, int, bool]


class Peer:
    """A model, and one context per number of sequences, positions, and kind of attention."""

    def __init__(self, path: str, threads: int, kv_type: str) -> None:
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        if hasattr(parameters, "load_mode"):
            parameters.load_mode = llama_cpp.LLAMA_LOAD_MODE_MMAP
        else:  # before 2026
            parameters.use_mmap = True
        self.model = llama_cpp.llama_model_load_from_file(os.fsencode(path), parameters)
        if not self.model:
            raise SystemExit(f"llama.cpp does not load {path}")
        self.threads, self.kv_type = threads, kv_type
        vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocab_size = int(llama_cpp.llama_vocab_n_tokens(vocab))
        self.contexts: dict[Key, Any] = {}
        self.filled: dict[Key, int] = {}
        self.batch = llama_cpp.llama_batch_init(CHUNK, 0, 1)

    def about(self) -> dict[str, object]:
        """Return the build and the settings that matter or differ from the defaults."""
        return {
            "package": importlib.metadata.version("llama-cpp-python"),
            "system_info": llama_cpp.llama_print_system_info().decode(),
            "threads": self.threads,
            "kv_type": self.kv_type,
            "load_mode": "mmap",
            "n_ubatch": CHUNK,
        }

    def context(self, key: Key) -> Any:
        """Return a context of so many sequences and positions, with or without flash attention."""
        batch, positions, flash = key
        if key not in self.contexts:
            parameters = llama_cpp.llama_context_default_params()
            parameters.n_ctx = batch * (-(-positions // 256) * 256)
            parameters.n_batch = parameters.n_ubatch = CHUNK
            parameters.n_seq_max = batch
            parameters.n_threads = parameters.n_threads_batch = self.threads
            parameters.type_k = parameters.type_v = KV_TYPES[self.kv_type]
            parameters.flash_attn_type = AUTO if flash else DISABLED
            parameters.no_perf = True
            found = llama_cpp.llama_init_from_model(self.model, parameters)
            if not found:
                raise SystemExit(f"llama.cpp makes no context of {batch} x {positions} positions")
            self.contexts[key], self.filled[key] = found, 0
        return self.contexts[key]

    def decode(
        self,
        context: Any,
        tokens: Sequence[int],
        positions: Sequence[int],
        sequences: Sequence[int],
    ) -> None:
        """Run one llama_decode, with logits for the last token of every sequence."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        last = dict(zip(sequences, range(len(tokens)), strict=True))
        for i, (token, position, sequence) in enumerate(
            zip(tokens, positions, sequences, strict=True)
        ):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = last[sequence] == i
        if status := llama_cpp.llama_decode(context, batch):
            raise SystemExit(f"llama_decode failed with {status}")
        llama_cpp.llama_synchronize(context)

    def fill(self, key: Key, depth: int) -> None:
        """Fill every sequence up to ``depth`` positions."""
        context = self.context(key)
        memory = llama_cpp.llama_get_memory(context)
        if self.filled[key] == depth:
            for sequence in range(key[0]):
                llama_cpp.llama_memory_seq_rm(memory, sequence, depth, -1)
            return
        llama_cpp.llama_memory_clear(memory, False)
        for sequence in range(key[0]):
            self.prompt(context, depth, 0, sequence)
        self.filled[key] = depth

    def prompt(self, context: Any, count: int, first: int, sequence: int = 0) -> None:
        """Return ``count`` random tokens from position ``first`` on."""
        for start in range(first, first + count, CHUNK):
            positions = range(start, min(start + CHUNK, first + count))
            self.decode(
                context, self.tokens(len(positions)), positions, [sequence] * len(positions)
            )

    def tokens(self, count: int) -> list[int]:
        return [random.randrange(self.vocab_size) for _ in range(count)]

    def measure(self, kind: str, count: int, batch: int, depth: int, flash: bool) -> float:
        """Return the seconds of a prompt, or of ``count`` steps of one token for each sequence."""
        key = batch, depth + count, flash
        self.fill(key, depth)
        context = self.contexts[key]
        steps = [self.tokens(batch) for _ in range(count)]
        started = perf_counter()
        if kind == "pp":
            self.prompt(context, count, depth)
        else:
            for step, tokens in enumerate(steps):
                self.decode(context, tokens, [depth + step] * batch, range(batch))
        return perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--kv-type", choices=KV_TYPES, default="f16")
    options = parser.parse_args()
    # What the library prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    random.seed(0)
    peer = Peer(options.model, options.threads, options.kv_type)
    print(json.dumps(peer.about()), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        seconds = peer.measure(**request)
        print(json.dumps({"seconds": seconds}), file=answers)


if __name__ == "__main__":
    main()
