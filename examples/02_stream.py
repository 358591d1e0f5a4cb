"""Print text while it is generated, and stop at a word.

python examples/02_stream.py model.gguf
"""

import sys

import trinity

with trinity.load(sys.argv[1]) as model:
    for piece in model.stream("Once upon a time", max_tokens=48, temperature=0.0, stop=["The end"]):
        print(piece.text, end="", flush=True)
    print()
