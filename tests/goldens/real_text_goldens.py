"""Write tests/data/real/text_*.npz and chat_*.json: other libraries' results on published models.

    pip install torch transformers gguf llama-cpp-python
    python scripts/models/real_models.py smollm2 gemma3-270m
    python tests/goldens/real_text_goldens.py

llama.cpp gives token ids and likelihoods of the file as it is; transformers gives logits and greedy
continuations of the dequantized weights, and chat renderings. The tests need no such package.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp  # type: ignore[import-not-found,unused-ignore]
import numpy as np
import torch
from gguf import GGUFReader
from transformers import AutoModelForCausalLM
from transformers.utils.chat_template_utils import render_jinja_template

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from scripts.models.real_models import path_of  # noqa: E402
from tests.real.conversations import CONVERSATIONS  # noqa: E402
from tests.real.prompts import PROMPTS  # noqa: E402
from tests.real.texts import prose, texts  # noqa: E402

DATA = ROOT / "tests" / "data" / "real"
WINDOWS = {"smollm2": 512, "gemma3-270m": 1024}  # Gemma's attention slides over 512 tokens
NUM_GREEDY, GREEDY_LENGTH = 20, 32
LOGITS_LENGTH, NUM_COLUMNS = 64, 128


class LlamaCpp:
    """A GGUF file in llama.cpp, with one sequence."""

    def __init__(self, path: Path, context: int) -> None:
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        parameters.use_extra_bufts = False  # llama.cpp's plain kernels; those of AMX may crash
        self.model = llama_cpp.llama_model_load_from_file(os.fsencode(path), parameters)
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = options.n_batch = context
        options.n_threads = options.n_threads_batch = 1  # several spin while other work runs
        self.context = llama_cpp.llama_init_from_model(self.model, options)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(self.vocab)
        self.batch = llama_cpp.llama_batch_init(context, 0, 1)
        self.position = 0

    def tokens(self, text: str, *, bos: bool = True, special: bool = False) -> list[int]:
        """Return token ids; ``bos`` has an effect only if the file asks for BOS."""
        data = text.encode()
        out = (llama_cpp.llama_token * (len(data) + 2))()
        count = llama_cpp.llama_tokenize(self.vocab, data, len(data), out, len(out), bos, special)
        assert count >= 0, text
        return list(out[:count])

    def restart(self) -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        self.position = 0

    def logits(self, ids: Sequence[int], *, every: bool = False) -> np.ndarray[Any, Any]:
        """Return logits (tokens, vocabulary) after the next tokens, or the last one (1, ...)."""
        self.batch.n_tokens = len(ids)
        for place, token in enumerate(ids):
            self.batch.token[place], self.batch.n_seq_id[place] = token, 1
            self.batch.pos[place], self.batch.seq_id[place][0] = self.position + place, 0
            self.batch.logits[place] = every or place == len(ids) - 1
        assert llama_cpp.llama_decode(self.context, self.batch) == 0
        self.position += len(ids)
        shape = (len(ids) if every else 1, self.vocab_size)
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits(self.context), shape).copy()


def token_ids(peer: LlamaCpp) -> dict[str, Any]:
    """Return all texts' ids without BOS and their counts; with and without special tokens."""
    found: dict[str, Any] = {}
    for key, special in (("plain", False), ("special", True)):
        ids = [peer.tokens(text, bos=False, special=special) for text in texts()]
        found[f"{key}_counts"] = np.array([len(one) for one in ids], np.int32)
        found[f"{key}_ids"] = np.concatenate(ids).astype(np.int32)
    return found


def likelihoods(peer: LlamaCpp, window: int) -> dict[str, Any]:
    """Return the mean NLL of each window's second half, as in llama.cpp's perplexity tool."""
    ids = np.array(peer.tokens(prose()))
    windows = ids[: len(ids) // window * window].reshape(-1, window)
    if llama_cpp.llama_vocab_get_add_bos(peer.vocab):
        windows[:, 0] = llama_cpp.llama_vocab_bos(peer.vocab)
    means = []
    for row in windows:
        peer.restart()
        first = window // 2
        logits = torch.from_numpy(peer.logits(row.tolist(), every=True)[first:-1])
        scores = logits.log_softmax(-1)
        means.append(-float(scores.gather(1, torch.from_numpy(row[first + 1 :, None])).mean()))
    return {"window": window, "window_nlls": np.array(means)}


def greedy(model: Any, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return greedy ids (prompts, tokens), and the margin of each logit."""
    found, margins = [], []
    for prompt in prompts:
        ids, cache = torch.tensor([prompt]), None
        for _ in range(GREEDY_LENGTH):
            done = model(ids, past_key_values=cache, use_cache=True)
            best, second = done.logits[0, -1].topk(2).values.tolist()
            ids, cache = done.logits[:, -1:].argmax(-1), done.past_key_values
            found.append(ids.item())
            margins.append(best - second)
    shape = (len(prompts), GREEDY_LENGTH)
    return {
        "greedy_ids": np.array(found, np.int32).reshape(shape),
        "greedy_margins": np.array(margins, np.float32).reshape(shape),
    }


def logits_and_deviations(model: Any, peer: LlamaCpp, ids: Sequence[int]) -> dict[str, Any]:
    """Logits of some columns (tokens, columns), the log of the sum of all exp(logits), the best,
    and the log-probability of each token after the first.

    llama.cpp rounds activations to 8 bits. ``deviations`` are the root mean squares of the
    differences of its logits to these: of the tokens as one prompt, and of one token at a time.
    """
    logits = model(torch.tensor([ids])).logits[0]
    columns = np.linspace(0, logits.shape[1] - 1, NUM_COLUMNS).astype(np.int32)
    chosen = logits[:, columns.tolist()].numpy()
    scores = logits[:-1].log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    deviations = []
    for every in (ids,), [[token] for token in ids]:
        peer.restart()
        rows = np.concatenate([peer.logits(part, every=True) for part in every])
        deviations.append(np.sqrt(np.mean((rows[:, columns] - chosen) ** 2)))
    return {
        "logits_ids": np.array(ids, np.int32),
        "logits_columns": columns,
        "logits": chosen,
        "logits_sums": logits.logsumexp(-1).numpy(),
        "logits_best": logits.amax(-1).numpy(),
        "logprobs": scores.numpy(),
        "deviations": np.array(deviations),
    }


def renderings(path: Path, peer: LlamaCpp) -> list[dict[str, Any]]:
    """Return each conversation's text by transformers, and the text's ids by llama.cpp."""
    fields = GGUFReader(path).fields
    pieces = fields["tokenizer.ggml.tokens"].contents()
    names = {
        f"{name}_token": pieces[fields[f"tokenizer.ggml.{name}_token_id"].contents()]
        for name in ("bos", "eos")
    }
    template = fields["tokenizer.chat_template"].contents()
    found = []
    for messages in CONVERSATIONS:
        for opens in (False, True):
            (text,), _ = render_jinja_template(
                [messages], chat_template=template, add_generation_prompt=opens, **names
            )
            ids = peer.tokens(text, special=True)
            found.append({"add_generation_prompt": opens, "text": text, "ids": ids})
    return found


def main() -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256("\0".join([*texts(), prose(), *PROMPTS]).encode()).hexdigest()
    for name, window in WINDOWS.items():
        path = path_of(name)
        peer = LlamaCpp(path, window)
        prompts = [peer.tokens(prompt, special=True) for prompt in PROMPTS[:NUM_GREEDY]]
        model = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
        )
        with torch.no_grad():
            found = {
                **greedy(model, prompts),
                **logits_and_deviations(model, peer, peer.tokens(prose())[:LOGITS_LENGTH]),
            }
        found |= token_ids(peer) | likelihoods(peer, window)
        np.savez_compressed(DATA / f"text_{name}.npz", inputs=digest, **found)
        if "tokenizer.chat_template" in GGUFReader(path).fields:
            lines = ",\n".join(json.dumps(case) for case in renderings(path, peer))
            (DATA / f"chat_{name}.json").write_text(f"[\n{lines}\n]\n")
        print(name, flush=True)


if __name__ == "__main__":
    main()
