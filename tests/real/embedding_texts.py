"""The texts whose embeddings by sentence-transformers are in tests/data/real.

Drawn from a seed, so that only the vectors are stored. Nothing is imported from this project:
``tests/goldens/embedding_goldens.py`` runs where sentence-transformers is installed.
"""

from __future__ import annotations

import random

COUNT = 200
LONGEST = 480  # words, about 600 tokens
PROMPTED = 20  # texts that also have vectors with each prompt

_SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "What is the capital of France, and since when has it been?",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "She sells sea shells by the sea shore; the shells she sells are sea shells, I'm sure.",
    "In 1969, Apollo 11 landed on the Moon at 20:17:40 UTC on July 20.",
    "def add(a, b):\n    return a + b  # a comment",
    "SELECT name, COUNT(*) FROM users WHERE age >= 18 GROUP BY name;",
    "Die Würde des Menschen ist unantastbar. Straße, Übermut, Größe.",
    "L'été dernier, nous avons mangé des crêpes à Saint-Malo, près de la plage.",
    "El niño comió una manzana mañana por la mañana: ¡qué delicia!",
    "今日は天気がいいので、公園を散歩しました。",
    "机器学习是人工智能的一个分支,它使用数据来改进算法。",
    "Привет, как дела? Сегодня идёт дождь.",
    "مرحبا بالعالم، كيف حالك اليوم؟",
    "नमस्ते दुनिया, आप कैसे हैं?",
    "The price rose by 3.75% to $1,234.56 (about €1.100).",
    "See https://example.org/path?query=1&other=two#part for more; write to info@example.org.",
    "A [MASK] token, a </s> and an <eos> in a text.",
    "🙂 emojis 👩‍👩‍👧 and flags 🇩🇪 are characters, too!",
    "Supercalifragilisticexpialidocious and pneumonoultramicroscopicsilicovolcanoconiosis.",
    "  Leading spaces,\ttabs and\n\nempty lines   matter to some tokenizers.  ",
    "MIXED case, lower case, UPPER CASE and CamelCaseWords_with_underscores.",
    "He said: \"It's a dog's life\"; she didn't answer -- or did she?",
    "Transformers compute attention between all pairs of tokens of a sequence.",
)


def texts() -> list[str]:
    """COUNT texts of 0 to about 600 tokens: the first is empty, short ones are more frequent."""
    found = []
    for number in range(COUNT):
        draw = random.Random(number)
        wanted, words = round(LONGEST * (number / (COUNT - 1)) ** 2), 0
        parts: list[str] = []
        while words < wanted:
            parts.append(draw.choice(_SENTENCES))
            words += 1 + parts[-1].count(" ")
        found.append(" ".join(" ".join(parts).split(" ")[:wanted]))
    return found
