"""Ask the chat model questions that it was not trained on, and count what it answers.

    python scripts/measure_chat.py trinity/data/demo-chat.gguf --json answers.json

The questions are those of chat_dialogues.questions, each in a conversation of its own, answered
greedily. Counted are answers that end by themselves, answers that contain the name that was asked
for, questions about the model and the book answered as taught, and questions about something else
answered by saying that the model knows its book alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter

from chat_dialogues import DECLINED, Question, questions

import trinity

LONGEST = 80


def good(question: Question, answer: str) -> bool:
    if question.kind == "foreign":
        return answer in DECLINED
    return answer == question.names if question.kind == "talk" else question.names in answer


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the chat model's answers.")
    parser.add_argument("model", nargs="?", default=None, help="a GGUF file; else the packaged one")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", help="write every question and answer there")
    given = parser.parse_args()
    asked, right, ended, rows = Counter[str](), Counter[str](), 0, []
    with trinity.load(given.model or trinity.chat_model(), threads=given.threads) as model:
        for question in questions():
            messages = [{"role": "user", "content": question.text}]
            found = model.chat(messages, max_tokens=LONGEST, temperature=0.0)
            answer = found.text.strip()
            asked[question.kind] += 1
            right[question.kind] += good(question, answer)
            ended += found.finish_reason == "stop"
            rows.append((question.kind, question.text, answer, good(question, answer)))
    print(f"{ended} of {len(rows)} answers end by themselves")
    for kind, count in asked.items():
        print(f"{kind}: {right[kind]} of {count}")
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1, ensure_ascii=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
