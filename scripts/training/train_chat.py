"""Teach the demo model to answer questions about its book, and write it as a GGUF file.

    pip install '.[train]'
    python scripts/training/train_chat.py war-and-peace.txt --out trinity/data/demo-chat.gguf

A second stage of train_demo.py: it starts at the ternary weights of the demo model and goes on
quantization-aware, on conversations of chat_dialogues.py (the loss is on answers and their ends)
and now and then on the book. The last 5% of the text are for nothing here either. The same seed on
the same machine and PyTorch gives the same model.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tokenizers
import torch
import torch.nn.functional as functional
from chat_dialogues import Dialogues
from demo_network import BitNet, Recipe
from export_demo import LINEARS, NORMS, as_written, write_gguf
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor
from train_demo import split

import trinity
from trinity_kernels.quants import TYPES

END = "<|end|>"
ROLES = {role: f"<|{role}|>" for role in ("system", "user", "assistant")}
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] | trim + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
SAMPLING = {"general.sampling.temp": 0.2, "general.sampling.top_k": 20}
IGNORED = -100


@dataclass(frozen=True)
class Stage:
    """``batch`` windows of ``context`` tokens a step, ``book`` (a share) of them of the text."""

    steps: int = 300
    context: int = 160
    batch: int = 6
    book: float = 0.1
    rate: float = 0.0015
    warmup: int = 20
    decay: float = 0.0
    seed: int = 1


# --- the demo model, read back -------------------------------------------------------------------


def latent(written: Tensor, generator: torch.Generator) -> Tensor:
    """Weights that are rounded to ``written`` (codes -1, 0, 1 times a scale), as training has them.

    Zeros lie within half a scale of zero and the others beyond it, so that some are near a change,
    and the mean of the absolute values is the scale again.
    """
    scale = written.abs().max()
    nonzero = written != 0
    inside = torch.rand(written.shape, generator=generator) * 0.49 * scale
    beyond = torch.randn(written.shape, generator=generator).abs()
    short = scale * written.numel() - inside[~nonzero].sum()
    beyond *= (short / nonzero.sum() - 0.51 * scale) / beyond[nonzero].mean()
    signs = torch.randint(2, written.shape, generator=generator) * 2 - 1
    return torch.where(nonzero, written.sign() * (0.51 * scale + beyond), signs * inside)


def read_demo(path: str, seed: int) -> tuple[BitNet, tokenizers.Tokenizer]:
    """Return the demo model with rows for the new tokens, and its tokenizer with them."""
    provider = trinity.open_weights(path)
    metadata = provider.metadata
    vocabulary, merges = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"]
    tokenizer = tokenizers.Tokenizer(
        models.BPE(
            {token: i for i, token in enumerate(vocabulary)}, [tuple(m.split(" ")) for m in merges]
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    bos = vocabulary[metadata["tokenizer.ggml.bos_token_id"]]
    tokenizer.add_special_tokens([bos, *ROLES.values(), END])
    model = BitNet(Recipe(vocab_size=tokenizer.get_vocab_size(), dropout=0.0))

    def values(name: str) -> Tensor:
        tensor = provider.tensor(name)
        read = TYPES[tensor.type].dequantize(tensor.data, tensor.shape)
        return torch.from_numpy(np.array(read, np.float32))

    generator = torch.Generator().manual_seed(seed)
    embedding = values("token_embd.weight")
    new = tokenizer.get_vocab_size() - len(embedding)
    noise = torch.randn(new, embedding.shape[1], generator=generator) * embedding.std()
    state = {
        "token_embd": torch.cat((embedding, noise)),
        "output_norm": values("output_norm.weight"),
    }
    for layer in range(model.recipe.num_layers):
        for name in NORMS:
            state[f"layers.{layer}.{name}"] = values(f"blk.{layer}.{name}.weight")
        for name, place in LINEARS.items():
            written = values(f"blk.{layer}.{name}.weight")
            state[f"layers.{layer}.{place}"] = latent(written, generator)
    provider.close()
    model.load_state_dict(state)
    return model, tokenizer


# --- windows -------------------------------------------------------------------------------------


class Windows:
    """Inputs and targets (batch, context); only responses and the book have targets."""

    def __init__(self, text: str, tokenizer: tokenizers.Tokenizer, bos: int, stage: Stage) -> None:
        self.dialogues = Dialogues(text, stage.seed)
        self.tokenizer, self.bos, self.stage = tokenizer, bos, stage
        self.tokens = tokenizer.encode(text).ids

    def batch(self) -> tuple[Tensor, Tensor]:
        book = round(self.stage.book * self.stage.batch * 10)
        draw = self.dialogues.random
        rows = [
            self.passage() if draw.randrange(self.stage.batch * 10) < book else self.conversation()
            for _ in range(self.stage.batch)
        ]
        places, scored = (torch.tensor(part) for part in zip(*rows, strict=True))
        return places[:, :-1], places[:, 1:].masked_fill(~scored[:, 1:], IGNORED)

    def passage(self) -> tuple[list[int], list[bool]]:
        size = self.stage.context
        start = self.dialogues.random.randrange(len(self.tokens) - size)
        return [self.bos, *self.tokens[start : start + size]], [True] * (size + 1)

    def conversation(self) -> tuple[list[int], list[bool]]:
        places, scored = [self.bos], [False]

        def add(role: str, content: str) -> None:
            ids = self.tokenizer.encode(f"{content}{END}").ids
            places.extend((self.tokenizer.token_to_id(ROLES[role]), *ids))
            scored.extend([False] + [role == "assistant"] * len(ids))

        system = self.dialogues.system()
        if system is not None:
            add("system", system)
        for question, answer in self.dialogues.conversation():
            add("user", question)
            add("assistant", answer)
            if len(places) > self.stage.context:
                break
        size = self.stage.context + 1
        return places[:size], scored[:size]


# --- training ------------------------------------------------------------------------------------


def train(model: BitNet, windows: Windows, stage: Stage, checkpoint: Path | None) -> BitNet:
    torch.use_deterministic_algorithms(True)
    matrices = [p for name, p in model.named_parameters() if ".weights." in name]
    others = [p for name, p in model.named_parameters() if ".weights." not in name]
    groups = [{"params": matrices, "weight_decay": stage.decay}, {"params": others}]
    optimizer = torch.optim.AdamW(groups, stage.rate, (0.9, 0.98), weight_decay=0.0)
    start, recent = time.monotonic(), 0.0
    model.train()
    for step in range(stage.steps):
        rate = min((step + 1) / stage.warmup, 1 - step / stage.steps)
        for group in optimizer.param_groups:
            group["lr"] = stage.rate * rate
        inputs, targets = windows.batch()
        logits = model(inputs)
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recent += (loss.item() - recent) * max(0.05, 1 / (step + 1))
        done = step + 1
        if done % 20 == 0:
            seconds = (time.monotonic() - start) / done
            print(f"step {done}: loss {recent:.4f}, {seconds:.2f} s a step", flush=True)
        if checkpoint is not None and (done % 50 == 0 or done == stage.steps):
            torch.save(model.state_dict(), checkpoint)
    return model


@torch.no_grad()
def write_reference(
    path: Path, model: BitNet, tokenizer: tokenizers.Tokenizer, conversation: list[tuple[str, str]]
) -> None:
    """A conversation as text and tokens, PyTorch's log-likelihood of every token after the first,
    and its greedy answer to the last message."""
    text = "<|endoftext|>" + "".join(f"{ROLES[r]}{content}{END}" for r, content in conversation)
    ids = tokenizer.encode(text + ROLES["assistant"]).ids
    logits = model(torch.tensor([ids]))[0].double()
    nlls = functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none")
    answer: list[int] = []
    end = tokenizer.token_to_id(END)
    while not answer or (answer[-1] != end and len(answer) < 60):
        answer.append(int(model(torch.tensor([ids + answer]))[0, -1].argmax()))
    reference = {
        "made_by": "scripts/training/train_chat.py --reference: PyTorch, float32",
        "messages": [{"role": role, "content": content} for role, content in conversation],
        "text": text + ROLES["assistant"],
        "token_ids": ids,
        "nlls": [round(value, 6) for value in nlls.tolist()],
        "answer": tokenizer.decode(answer[:-1]),
        "answer_ids": answer,
    }
    path.write_text(json.dumps(reference, ensure_ascii=False) + "\n", encoding="utf-8")


EXAMPLE = [
    ("user", "Who is Natasha?"),
    (
        "assistant",
        "Natasha is the younger daughter of Count Rostov.",
    ),
    ("user", "What do you know about Kutuzov?"),
]


def main() -> int:
    parser = argparse.ArgumentParser(description="Teach the demo model to answer questions.")
    parser.add_argument("text", type=Path)
    parser.add_argument("--demo", default=trinity.demo_model(), help="the model to start with")
    parser.add_argument("--out", type=Path, help="the GGUF file to write at the end")
    parser.add_argument("--reference", type=Path, help="write PyTorch's figures for some text")
    parser.add_argument("--checkpoint", type=Path, help="kept every 50 steps")
    parser.add_argument("--written", type=Path, help="write this checkpoint, without training")
    for name, default in asdict(Stage()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    options = vars(parser.parse_args())
    text, demo, out, reference, checkpoint, written = (
        options.pop(n) for n in ("text", "demo", "out", "reference", "checkpoint", "written")
    )
    stage = Stage(**options)
    training, _ = split(text.read_text(encoding="utf-8"))
    model, tokenizer = read_demo(demo, stage.seed)
    bos = tokenizer.token_to_id("<|endoftext|>")
    if written is not None:
        model.load_state_dict(torch.load(written))
    else:
        print(stage, flush=True)
        model = train(model, Windows(training, tokenizer, bos, stage), stage, checkpoint)
    model = as_written(model)
    if out is not None:
        write_gguf(
            out, model, tokenizer, bos,
            {
                "general.name": "trinity demo chat",
                "general.description": "The demo model, taught to answer questions about its book. "
                "See models.md.",
                "tokenizer.ggml.eos_token_id": tokenizer.token_to_id(END),
                "tokenizer.ggml.eot_token_id": tokenizer.token_to_id(END),
                "tokenizer.chat_template": TEMPLATE,
                **SAMPLING,
            },
        )  # fmt: skip
    if reference is not None:
        write_reference(reference, model, tokenizer, EXAMPLE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
