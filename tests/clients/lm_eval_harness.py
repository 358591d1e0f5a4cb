"""lm-evaluation-harness: local-completions and local-chat-completions."""

# packages: lm-eval[api]==0.4.13

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from rows import CHAT, URL, main, row

DATA = Path(__file__).parents[1] / "data" / "real"
# transformers' results with dequantized weights (tests/goldens/question_goldens.py).
# trinity rounds activations to 8 bits, so its log-likelihoods differ by up to MOST_PER_TOKEN each.
EXPECTED = json.loads((DATA / "questions_smollm2.json").read_text(encoding="utf-8"))
QUESTIONS = json.loads((DATA / "questions.json").read_text(encoding="utf-8"))
MOST_PER_TOKEN = 0.25
END = "<|im_end|>"
CLEAR = 0.3  # difference of the two best logits from which rounding does not change a token
TASKS: dict[str, dict[str, Any]] = {
    "choices": {
        "output_type": "multiple_choice", "doc_to_text": "{{question}}",
        "doc_to_choice": "choices", "doc_to_target": "answer",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    },
    "rolling": {
        "output_type": "loglikelihood_rolling", "doc_to_text": "",
        "doc_to_target": "{{question}} {{choices[answer]}}",
        "metric_list": [{"metric": "word_perplexity"}],
    },
    "continued": {
        "output_type": "generate_until", "doc_to_text": "{{question}}",
        "doc_to_target": "{{choices[answer]}}",
        "generation_kwargs": {"until": ["<none>"], "max_gen_toks": 8, "temperature": 0},
        "metric_list": [{"metric": "exact_match"}],
    },
}  # fmt: skip


@cache
def evaluated(
    task: str, model: str, *options: str, batch: int = 1
) -> tuple[dict[str, float], list[Any]]:
    """The metrics of a task, and what the model answered to each question, in their order."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)), "utf-8")
        told = {
            "task": task,
            "dataset_path": "json",
            "test_split": "test",
            "dataset_kwargs": {"data_files": {"test": str(folder / "questions.jsonl")}},
        }
        (folder / "task.yaml").write_text(json.dumps(told | TASKS[task]), "utf-8")
        path = "chat/completions" if model == "local-chat-completions" else "completions"
        arguments = ",".join((f"model={CHAT}", f"base_url={URL}/v1/{path}", *options))
        command = [
            str(Path(sys.executable).parent / "lm_eval"), "--model", model, "--tasks", task,
            "--include_path", name, "--model_args", arguments, "--output_path", str(folder / "out"),
            "--log_samples", "--batch_size", str(batch),
        ]  # fmt: skip
        if model == "local-chat-completions":
            command.append("--apply_chat_template")
        environment = {**os.environ, "HF_HOME": name, "HF_HUB_OFFLINE": "1"}
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert ran.returncode == 0, ran.stderr[-800:]
        (results,) = (folder / "out").rglob("results_*.json")
        (samples,) = (folder / "out").rglob("samples_*.jsonl")
        metrics = json.loads(results.read_text(encoding="utf-8"))["results"][task]
        lines = map(json.loads, samples.read_text(encoding="utf-8").splitlines())
        return metrics, [one["resps"] for one in sorted(lines, key=lambda one: one["doc_id"])]


def likelihoods(*options: str, batch: int = 1) -> None:
    metrics, found = evaluated("choices", "local-completions", *options, batch=batch)
    assert len(found) == len(QUESTIONS) == len(EXPECTED)
    right = 0
    for question, expected, answers in zip(QUESTIONS, EXPECTED, found, strict=True):
        sums = [float(answer[0][0]) for answer in answers]
        for mine, wanted, count in zip(
            sums, expected["log_likelihoods"], expected["num_tokens"], strict=True
        ):
            assert abs(mine - wanted) <= MOST_PER_TOKEN * count, (question, mine, wanted)
        right += sums.index(max(sums)) == question["answer"]
    assert metrics["acc,none"] == right / len(QUESTIONS)
    theirs = [one["log_likelihoods"] for one in EXPECTED]
    assert right == sum(
        sums.index(max(sums)) == question["answer"]
        for sums, question in zip(theirs, QUESTIONS, strict=True)
    )


@row("local-completions, multiple choice, tokenizer of the server")
def _() -> None:
    likelihoods()


@row("local-completions, multiple choice, num_concurrent=4, batch_size=4")
def _() -> None:
    likelihoods("num_concurrent=4", batch=4)


@row("local-completions, multiple choice, texts instead of token ids")
def _() -> None:
    likelihoods("tokenized_requests=False")


@row("local-completions, rolling log-likelihood")
def _() -> None:
    _, found = evaluated("rolling", "local-completions")
    for expected, answers in zip(EXPECTED, found, strict=True):
        mine, wanted = float(answers[0][0]), expected["rolling"]
        assert abs(mine - wanted) <= MOST_PER_TOKEN * expected["rolling_tokens"], (mine, wanted)


def generated(model: str, key: str) -> None:
    """Texts are those of transformers up to the first token that is not clear."""
    _, found = evaluated("continued", model)
    compared = 0
    for expected, ((answer,),) in zip(EXPECTED, found, strict=True):
        clear = list(takewhile(lambda one: one[1] >= CLEAR, expected[key]))
        text = "".join(piece for piece, _ in clear).partition(END)[0].strip()
        assert answer.strip().startswith(text), (answer, text)
        compared += len(clear)
    assert compared >= 20


@row("local-completions, generate_until")
def _() -> None:
    generated("local-completions", "continuation")


@row("local-chat-completions, generate_until")
def _() -> None:
    generated("local-chat-completions", "chat")


if __name__ == "__main__":
    main()
