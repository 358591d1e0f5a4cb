"""Write tests/data/ranks.json: other libraries' tokens and scores of small rerankers.

    pip install torch transformers sentence-transformers numpy numba gguf
    python tests/goldens/rank_goldens.py

Classifiers of pairs and of texts answer by transformers, those with a template of their own and
models with LogitScore by sentence-transformers; a file of llama.cpp's converter by the formula of
llm_graph_context::build_pooling over transformers' logits. The tests need none of these: they draw
the same models (tests/formats/huggingface/rank_models.py). What texts with special tokens become is
told by transformers' tokenizers of the reference data, in shared/data beside the checkout.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    pipeline,
)

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.formats.huggingface.rank_models import (  # noqa: E402
    CLASSIFIERS,
    CONFIGS,
    FILE,
    LABELS,
    NO,
    PAIRS,
    PLACES,
    YES,
    write,
)

FORM = {"dtype": torch.float32, "attn_implementation": "eager"}
IN_PAIRS = ("qwen3_classifier", "qwen2_classifier", "qwen3_ended")
TOKENIZERS = ("bert_cls", "nomic_bert", "qwen3_embedding")
TEXTS = (
    "a [MASK] b", "[SEP]", "x[MASK]y", "[CLS] a [SEP]", "[mask] [PAD] [UNK]",
    "a <|endoftext|> b<|im_end|>", "<|endoftext|>",
)  # fmt: skip


def in_pairs(folder: Path) -> tuple[list[list[int]], list[float]]:
    """Score with transformers, with the texts one after the other."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, **FORM).eval()
    ids = [tokenizer(*pair)["input_ids"] for pair in PAIRS]
    scores = [float(model(torch.tensor([one])).logits[0, 0]) for one in ids]
    padding = model.config.pad_token_id  # behind what the score is of
    return [one[:-1] if one[-1] == padding else one for one in ids], scores


def by_roles(folder: Path, name: str) -> tuple[list[list[int]], list[float]]:
    """Score with sentence-transformers and a template of two roles; without a sigmoid."""
    model = CrossEncoder(str(folder), device="cpu", model_kwargs=FORM)
    ids = [
        [int(i) for i in row[mask.bool()]]
        for pair in PAIRS
        for inputs in [model.preprocess([pair])]
        for row, mask in zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
    ]
    raw = torch.nn.Identity() if name in ("qwen3_roles", "qwen3_one_logit") else None
    return ids, [float(model.predict([pair], activation_fn=raw)[0]) for pair in PAIRS]


def of_file(folder: Path) -> tuple[list[list[int]], list[float]]:
    """Return the softmax of the logits of two tokens after the filled template."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, **FORM).eval()
    ids, scores = [], []
    for query, text in PAIRS:
        before, between = PLACES.split("{query}")
        between, after = between.split("{document}")
        ids.append(tokenizer(before + query + between + text + after)["input_ids"])
        logits = model(torch.tensor([ids[-1]])).logits[0, -1]
        scores.append(float(torch.softmax(logits[[YES, NO]], 0)[0]))
    return ids, scores


def labelled(folder: Path) -> dict[str, Any]:
    """Return the token ids of texts, and the probabilities of all labels."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, **FORM).eval()
    run = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
    texts = [text for _, text in PAIRS]
    found = [{one["label"]: one["score"] for one in labels} for labels in run(texts)]
    return {
        "ids": [tokenizer(text)["input_ids"] for text in texts],
        "probabilities": [[one[label] for label in LABELS] for one in found],
    }


@torch.no_grad()
def main() -> None:
    found: dict[str, Any] = {}
    classified: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in CONFIGS:
            folder = write(name, Path(temporary) / name)
            found[name] = in_pairs(folder) if name in IN_PAIRS else by_roles(folder, name)
        for name in CLASSIFIERS:
            classified[name] = labelled(write(name, Path(temporary) / name))
        found[FILE] = of_file(Path(temporary) / "qwen3_logits")
    texts = {}
    for name in TOKENIZERS:
        folder = ROOT.parent / "shared" / "data" / "encoders" / name / "hf"
        tokenizer = AutoTokenizer.from_pretrained(folder)
        texts[name] = {text: tokenizer(text)["input_ids"] for text in TEXTS}
    known: dict[str, Any] = {"texts": texts, **classified}
    known |= {name: {"ids": ids, "scores": scores} for name, (ids, scores) in found.items()}
    (ROOT / "tests" / "data" / "ranks.json").write_text(json.dumps(known) + "\n")


if __name__ == "__main__":
    main()
