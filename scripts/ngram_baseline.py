"""What an interpolated Kneser-Ney model of characters needs for the demo model's held-out text.

    python scripts/ngram_baseline.py war-and-peace.txt --order 5

Modified Kneser-Ney (three discounts an order), interpolated down to the uniform distribution.
Source: Chen and Goodman, "An Empirical Study of Smoothing Techniques for Language Modeling", 1998.
"""

from __future__ import annotations

import argparse
import lzma
import math
from collections import Counter, defaultdict
from pathlib import Path

HELD_OUT = 0.05


def discounts(counts: Counter[str]) -> tuple[float, float, float, float]:
    """For n-grams seen 0, 1, 2 and 3 or more times."""
    of_count = Counter(counts.values())
    n1, n2, n3, n4 = (of_count[n] for n in range(1, 5))
    if n1 and n2 and n3:
        y = n1 / (n1 + 2 * n2)
        found = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
        if min(found) > 0:
            return 0.0, *found
    return 0.0, 0.5, 0.75, 0.9  # too little text to estimate them


class KneserNey:
    """P(character | the order - 1 before it)."""

    def __init__(self, text: str, order: int) -> None:
        self.order = order
        self.uniform = 1 / len(set(text))
        counts = Counter(text[i : i + order] for i in range(len(text) - order + 1))
        self.levels: list[tuple[Counter[str], Counter[str], dict[str, float], tuple[float, ...]]]
        self.levels = []
        for _ in range(order):
            drop = discounts(counts)
            totals: Counter[str] = Counter()
            taken: dict[str, float] = defaultdict(float)
            for gram, count in counts.items():
                totals[gram[:-1]] += count
                taken[gram[:-1]] += drop[min(count, 3)]
            self.levels.append((counts, totals, taken, drop))
            # A shorter n-gram counts once for each character that it was seen after.
            counts = Counter(gram[1:] for gram in counts)

    def probability(self, context: str, character: str) -> float:
        result = self.uniform
        for length in range(self.order):
            counts, totals, taken, drop = self.levels[self.order - 1 - length]
            before = context[len(context) - length :]
            total = totals.get(before)
            if not total:
                break
            count = counts.get(before + character, 0)
            result = (count - drop[min(count, 3)] + taken[before] * result) / total
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Bits per character of simpler models.")
    parser.add_argument("text", type=Path)
    parser.add_argument("--order", type=int, default=5, help="characters of an n-gram")
    options = parser.parse_args()
    text = options.text.read_text(encoding="utf-8")
    cut = int(len(text) * (1 - HELD_OUT))
    training, held_out = text[:cut], text[cut:]
    model, last = KneserNey(training, options.order), options.order - 1
    joined = training[-last:] + held_out if last else held_out
    bits = -sum(
        math.log2(model.probability(joined[i : i + last], joined[i + last]))
        for i in range(len(held_out))
    )
    print(f"{options.order}-gram: {bits / len(held_out):.4f} bits per character")
    packed = [len(lzma.compress(part.encode(), preset=9)) for part in (training, text)]
    print(
        f"xz, the held-out text after the rest: {(packed[1] - packed[0]) * 8 / len(held_out):.4f}"
    )


if __name__ == "__main__":
    main()
