"""Train the demo model, from nothing, on one book, and write it as a GGUF file.

    pip install '.[train]'
    python scripts/training/train_demo.py war-and-peace.txt --out trinity/data/demo.gguf

A BitNet b1.58 decoder: weights ternary by the absolute mean (one scale a tensor), activations int8
by the absolute maximum of a token, gradients straight through both roundings. The first 95% of the
text are for training, the tokenizer's included; the last 5% are only measured. The same seed on
the same machine and PyTorch gives the same model. Source of the recipe: "The Era of 1-bit LLMs",
arXiv 2402.17764, and "1-bit AI Infra", arXiv 2410.16144; Muon: github.com/KellerJordan/Muon.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import tokenizers
import torch
import torch.nn.functional as functional
from demo_network import BitNet, Recipe, bits
from export_demo import (
    as_written,
    window_nlls,
    write_gguf,
    write_reference,
)
from tokenizers import decoders, models, pre_tokenizers, trainers
from torch import Tensor

BOS = "<|endoftext|>"
HELD_OUT = 0.05


def split(text: str, held_out: float = HELD_OUT) -> tuple[str, str]:
    cut = int(len(text) * (1 - held_out))
    return text[:cut], text[cut:]


def train_tokenizer(text: str, vocab_size: int) -> tokenizers.Tokenizer:
    """Train byte-level BPE with GPT-2's words."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


# --- optimizer -----------------------------------------------------------------------------------


def orthogonalize(matrices: Tensor, steps: int = 5) -> Tensor:
    """Return about U V^T of the SVD of (n, rows, columns), by Newton-Schulz iteration."""
    wide = matrices.shape[-2] <= matrices.shape[-1]
    x = matrices if wide else matrices.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x if wide else x.mT


class Muon(torch.optim.Optimizer):
    """An optimizer with orthogonalized momentum, and decay as in AdamW."""

    def __init__(self, parameters: list[Tensor], lr: float, decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "decay": decay, "momentum": 0.95})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for p in group["params"]:
                shapes.setdefault(p.shape, []).append(p)
            for same in shapes.values():
                updates = []
                for p in same:
                    state = self.state[p]
                    if not state:
                        state["momentum"] = torch.zeros_like(p)
                    state["momentum"].lerp_(p.grad, 1 - group["momentum"])
                    updates.append(p.grad.lerp(state["momentum"], group["momentum"]))
                rows, columns = same[0].shape
                size = max(1, rows / columns) ** 0.5
                directions = orthogonalize(torch.stack(updates).bfloat16()).float()
                for p, direction in zip(same, directions, strict=True):
                    p.mul_(1 - group["lr"] * group["decay"])
                    p.add_(direction, alpha=-group["lr"] * size)


def optimizers(model: BitNet) -> list[torch.optim.Optimizer]:
    recipe = model.recipe
    matrices = [p for name, p in model.named_parameters() if ".weights." in name]
    others = [p for name, p in model.named_parameters() if ".weights." not in name]
    return [
        Muon(matrices, recipe.matrix_rate, recipe.decay),
        torch.optim.AdamW(others, recipe.other_rate, (0.9, 0.95), weight_decay=0.0),
    ]


# --- training ------------------------------------------------------------------------------------


def batch_at(tokens: Tensor, recipe: Recipe, step: int, bos: int) -> Tensor:
    """Windows (count, context + 1) of one step, each with BOS in its first place.

    In one pass over the text every window comes once; each pass cuts it elsewhere.
    """
    context = recipe.context // (2 if step < recipe.lengthen * recipe.steps else 1)
    count = recipe.batch // context
    windows = (len(tokens) - 1) // context - 1
    epoch, index = divmod(step, windows // count)
    generator = torch.Generator().manual_seed(hash((recipe.seed, epoch, context)))
    offset = torch.randint(context, (1,), generator=generator)
    order = torch.randperm(windows, generator=generator)[index * count : (index + 1) * count]
    starts = offset + order * context
    batch = tokens[starts[:, None] + torch.arange(context + 1)]
    batch[:, 0] = bos
    return batch


def rate(recipe: Recipe, step: int) -> float:
    left = (1 - step / recipe.steps) / (1 - recipe.cooldown)
    return min(1.0, (step + 1) / recipe.warmup, left)


def train(
    recipe: Recipe, tokens: Tensor, bos: int, checkpoint: Path, report: Callable[[BitNet], float]
) -> BitNet:
    """Train, from ``checkpoint`` if it exists; the finished model is left there."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # Else the threads add up the embedding's gradient in the order in which they come.
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(recipe.seed)
    model = BitNet(recipe).to(device)
    both = optimizers(model)
    first = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        for optimizer, state in zip(both, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        first = saved["step"]

    @functools.partial(torch.compile, dynamic=False)
    def loss_of(batch: Tensor) -> Tensor:
        logits = model(batch[:, :-1], torch.bfloat16)
        return functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())

    start, recent = time.monotonic(), 0.0
    for step in range(first, recipe.steps):
        torch.manual_seed(hash((recipe.seed, step)))
        for optimizer, peak in zip(both, (recipe.matrix_rate, recipe.other_rate), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = peak * rate(recipe, step)
        model.train()
        loss = loss_of(batch_at(tokens, recipe, step, bos).to(device))
        model.zero_grad()
        loss.backward()
        for optimizer in both:
            optimizer.step()
        recent += (loss.item() - recent) * max(0.05, 1 / (step - first + 1))
        done = step + 1
        if done % 20 == 0:
            seconds = (time.monotonic() - start) / (done - first)
            print(f"step {done}: loss {recent:.4f}, {seconds:.2f} s a step", flush=True)
        if done % 100 == 0 or done == recipe.steps:
            state = {
                "model": model.state_dict(),
                "optimizers": [optimizer.state_dict() for optimizer in both],
                "step": done,
            }
            torch.save(state, f"{checkpoint}.new")
            os.replace(f"{checkpoint}.new", checkpoint)
        if done % 400 == 0 or done == recipe.steps:
            print(f"step {done}: held-out {report(model):.4f} bits per character", flush=True)
    return model


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Train the demo model on one text, or go on from its last checkpoint."
    )
    parser.add_argument("text", type=Path)
    parser.add_argument("--out", type=Path, help="the GGUF file to write at the end")
    parser.add_argument("--reference", type=Path, help="write PyTorch's figures for some text")
    parser.add_argument("--work", type=Path, default=Path("build/demo"), help="for checkpoints")
    for name, default in asdict(Recipe()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    options = vars(parser.parse_args())
    text, out, reference, work = (options.pop(n) for n in ("text", "out", "reference", "work"))
    recipe = Recipe(**options)
    work.mkdir(parents=True, exist_ok=True)
    training, held_out = split(text.read_text(encoding="utf-8"))
    tokenizer = train_tokenizer(training, recipe.vocab_size)
    bos = tokenizer.token_to_id(BOS)
    tokens, unseen = (torch.tensor(tokenizer.encode(part).ids) for part in (training, held_out))
    print(f"{len(tokens)} tokens of {len(training)} characters; {recipe}", flush=True)

    def report(model: BitNet) -> float:
        model.eval()
        return bits(model, unseen, bos, recipe.context, torch.bfloat16) / len(held_out)

    model = as_written(train(recipe, tokens, bos, work / "checkpoint.pt", report))
    exact = bits(model, unseen, bos, recipe.context, torch.float32) / len(held_out)
    nlls = window_nlls(model, torch.cat((torch.tensor([bos]), unseen)), recipe.context, bos)
    print(f"held-out, in float32 as written: {exact:.4f} bits per character")
    print(f"perplexity {nlls.mean().exp():.4f} in windows of {recipe.context}")
    if out is not None:
        write_gguf(out, model, tokenizer, bos)
    if reference is not None:
        write_reference(reference, model, tokenizer, held_out, bos)
    return 0


if __name__ == "__main__":
    sys.exit(main())
