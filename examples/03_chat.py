"""A conversation of two turns; the second reuses the cached tokens of the first.

python examples/03_chat.py model.gguf
"""

import sys

import trinity

messages: list[dict[str, str]] = [{"role": "system", "content": "Answer in one sentence."}]

with trinity.load(sys.argv[1]) as model:
    for question in ("What is a ternary number?", "Give an example."):
        messages.append({"role": "user", "content": question})
        answer = model.chat(messages, max_tokens=32, temperature=0.0)
        messages.append({"role": "assistant", "content": answer.text})
        print(f"> {question}\n{answer.text}\n")
