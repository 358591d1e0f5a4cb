"""Load a model and generate text twice: greedily, then sampled with a seed.

python examples/01_generate.py model.gguf
"""

import sys

import trinity

with trinity.load(sys.argv[1]) as model:
    greedy = model.generate("Once upon a time", max_tokens=24, temperature=0.0)
    print(greedy.text)
    print(f"{len(greedy.token_ids)} tokens, finished because of: {greedy.finish_reason}")

    sampled = model.generate("Once upon a time", max_tokens=24, temperature=0.8, top_p=0.95, seed=7)
    print(sampled.text)
