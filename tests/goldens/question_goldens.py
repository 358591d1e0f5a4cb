"""Write tests/data/real/questions_smollm2.json: transformers' results on questions.json.

    pip install torch transformers gguf llama-cpp-python
    python scripts/models/real_models.py smollm2
    python tests/goldens/question_goldens.py

The weights are those of SmolLM2's file, dequantized. Texts are cut into tokens as
lm-evaluation-harness does it: an answer's tokens are those of question and answer together, without
as many as the question has alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils.chat_template_utils import render_jinja_template

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from gguf import GGUFReader  # noqa: E402

from tests.goldens.real_text_goldens import DATA, LlamaCpp, path_of  # noqa: E402

CONTINUED = 8  # tokens that continue a question


class Reference:
    """SmolLM2 in transformers."""

    def __init__(self, path: Path) -> None:
        self.tokens = LlamaCpp(path, 512).tokens
        self.model = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
        )

    def log_likelihood(self, context: list[int], ids: list[int]) -> float:
        """Return the sum of the tokens' log-probabilities after a context."""
        logits = self.model(torch.tensor([context + ids])).logits[0, len(context) - 1 : -1]
        return float(logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None]).sum())

    def continued(self, prompt: list[int]) -> list[tuple[int, float]]:
        """Return the greedy tokens after a prompt, each with the margin of its logit."""
        ids, cache, found = torch.tensor([prompt]), None, list[tuple[int, float]]()
        for _ in range(CONTINUED):
            done = self.model(ids, past_key_values=cache, use_cache=True)
            best, cache = done.logits[0, -1].topk(2), done.past_key_values
            ids = best.indices[None, :1]
            found.append((int(ids[0, 0]), round(float(best.values[0] - best.values[1]), 4)))
        return found


def results(reference: Reference, fields: Any, case: dict[str, Any]) -> dict[str, Any]:
    """Return log-likelihoods of the choices and greedy continuations for one question."""
    pieces = fields["tokenizer.ggml.tokens"].contents()
    bos = fields["tokenizer.ggml.bos_token_id"].contents()
    names = {
        f"{name}_token": pieces[fields[f"tokenizer.ggml.{name}_token_id"].contents()]
        for name in ("bos", "eos")
    }
    (chat,), _ = render_jinja_template(
        [[{"role": "user", "content": case["question"]}]],
        chat_template=fields["tokenizer.chat_template"].contents(),
        add_generation_prompt=True,
        **names,
    )

    def cut(text: str) -> list[int]:
        return reference.tokens(text, bos=False, special=True)

    question = cut(case["question"])
    whole = [cut(f"{case['question']} {choice}") for choice in case["choices"]]

    def continued(prompt: list[int]) -> list[tuple[str, float]]:
        return [
            (pieces[token].replace("Ġ", " ").replace("Ċ", "\n"), margin)
            for token, margin in reference.continued(prompt)
        ]

    return {
        "log_likelihoods": [
            round(reference.log_likelihood(ids[: len(question)], ids[len(question) :]), 5)
            for ids in whole
        ],
        "num_tokens": [len(ids) - len(question) for ids in whole],
        "rolling": round(reference.log_likelihood([bos], whole[case["answer"]]), 5),
        "rolling_tokens": len(whole[case["answer"]]),
        "continuation": continued(question),
        "chat": continued(cut(chat)),
    }


def main() -> None:
    path = path_of("smollm2")
    reference, fields = Reference(path), GGUFReader(path).fields
    cases = json.loads((DATA / "questions.json").read_text(encoding="utf-8"))
    with torch.no_grad():
        found = [results(reference, fields, case) for case in cases]
    lines = ",\n".join(json.dumps(one) for one in found)
    (DATA / "questions_smollm2.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
