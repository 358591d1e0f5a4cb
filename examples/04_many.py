"""Generate from several prompts in shared steps, which takes little longer than one prompt.

python examples/04_many.py model.gguf
"""

import sys

import trinity

prompts = ["Once upon a time", "One day", "There was a"]

with trinity.load(sys.argv[1]) as model:
    for place, answer in model.generate_batch(prompts, max_tokens=24, temperature=0.0):
        print(prompts[place] + answer.text)

    for answer in model.generate("Once upon a time", n=3, max_tokens=24, seed=7):
        print(answer.text)
