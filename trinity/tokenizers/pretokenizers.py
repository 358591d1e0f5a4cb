"""The regular expressions that cut text into words before byte-level BPE, by name.

``tokenizer.ggml.pre`` names a set of regexes. They apply in sequence: each one cuts every piece of
the previous one into its matches and the gaps between them. The syntax is that of the `tokenizers`
library (Oniguruma).
Source: llama.cpp src/llama-vocab.cpp, and the tokenizer.json files that it was written from.
"""

from __future__ import annotations

from typing import NamedTuple

from trinity.errors import TokenizerError


class PreTokenizer(NamedTuple):
    """How one family of vocabularies splits text into words.

    ``ignore_merges``: a word that is a token is never split by merges. ``add_bos``: the default for
    files that do not say whether a BOS token is added.
    """

    name: str
    regexes: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


_WHITE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_OTHERS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LLAMA3 = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_OTHERS}|{_WHITE}"
_QWEN2 = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_OTHERS}|{_WHITE}"
_QWEN35 = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_WHITE}"
)
_MINICPM5 = (
    r"\p{N}{1,3}",
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}+|{_OTHERS}|{_WHITE}",
)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SLASHED = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_WHITE}"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    rf"|{_SLASHED}"
)
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDINGS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDINGS}?|\p{{N}}{{1,3}}|{_SLASHED}"
)
_UPPER_NOT_HAN = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LOWER_NOT_HAN = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_KIMI = (
    rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER_NOT_HAN}*{_LOWER_NOT_HAN}+{_ENDINGS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER_NOT_HAN}+{_LOWER_NOT_HAN}*{_ENDINGS}?|\p{{N}}{{1,3}}"
    rf"|{_OTHERS}|{_WHITE}"
)
_BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SEED = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_WHITE}"
_EXAONE_MOE = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# Letters with case, as hexadecimal code points and ranges.
_CASED_RANGES = """
41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376-377 37b-37d 37f 386 388-38a
38c 38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba 1cbd-1cbf
1d00-1d2b 1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d
1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4
1ff6-1ffc 2102 2107 210a-2113 2115 2119-211d 2124 2126 2128 212a-212d 212f-2134 2139 213c-213f
2145-2149 214e 2183-2184 2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2-2cf3 a640-a66d a680-a69b a722-a76f
a771-a787 a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f 104b0-104d3
104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943
"""
_CASED = "".join(
    "-".join(chr(int(end, 16)) for end in span.split("-")) for span in _CASED_RANGES.split()
)
_PUNCTUATION = "[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]"
# (?<!\s) does not change the matches of \s+$, but prevents retries inside white space.
_DEEPSEEK_LLM = (
    r"[\r\n]", rf"\s?[{_CASED}]+", rf"\s?{_PUNCTUATION}+", r"(?<!\s)\s+$", _CJK, r"\p{N}+"
)  # fmt: skip
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_WHITE}",
)

# Digits in groups of three, counted from the right; the other ranges are those of llama.cpp.
_AFMOE = (
    r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af"
    "\u1100-\u11ff]+",
    _DEEPSEEK_V3[2],
)
_YOUTU = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c"
    "\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDINGS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDINGS}?|\p{{N}}|{_SLASHED}",
)
_UFAKZEKA = rf"[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_OTHERS}|{_WHITE}"
_JAIS2 = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_OTHERS}|\s*[\r\n]+|"
    + "".join(rf"\s{{{count}}}(?!\S)|" for count in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))
    + r"\s"
)

_FAMILIES: tuple[tuple[str, tuple[str, ...], bool, bool], ...] = (
    # names, regexes, ignore_merges, add_bos
    (
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 falcon_e pixtral midm-2.0 lfm2 jina-v5-nano",
        (_LLAMA3,),
        True,
        True,
    ),
    ("dbrx smaug-bpe chatglm-bpe", (_LLAMA3,), False, False),
    ("glm4 glm5", (_LLAMA3,), True, False),
    (
        "qwen2 deepseek-r1-qwen megrez stablelm2 hunyuan solar-open grok-2 kormo f2llmv2",
        (_QWEN2,),
        False,
        False,
    ),
    ("qwen35", (_QWEN35,), False, False),
    ("minicpm5", _MINICPM5, True, False),
    (
        "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum "
        "modern-bert jina-es jina-de jina-v2-es jina-v2-de",
        (_GPT2,),
        False,
        False,
    ),
    (
        "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
        (r"\p{N}", _GPT2),
        False,
        False,
    ),
    ("falcon", (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"), False, False),
    ("deepseek-llm", _DEEPSEEK_LLM, False, False),
    ("deepseek-coder", (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}"), False, False),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", _DEEPSEEK_V3, False, False),
    ("afmoe", _AFMOE, False, False),
    ("laguna", (r"[^\n]+|\n+", _QWEN2), False, False),
    ("youtu", _YOUTU, True, False),
    ("ufakzeka", (_UFAKZEKA,), False, False),
    ("jais-2", (_JAIS2,), False, False),
    ("kimi-k2", (_KIMI,), False, False),
    ("bailingmoe bailingmoe2 llada-moe", (_BAILING,), False, False),
    ("seed-coder", (_SEED,), False, False),
    ("exaone-moe", (_EXAONE_MOE,), False, False),
    ("superbpe", (r"\p{N}+", r"(?=(\d{3})+(?!\d))"), False, False),
    ("poro-chat bloom gpt3-finnish", (_BLOOM,), False, False),
    ("viking", (_BLOOM, r"\p{N}"), False, False),
    ("tekken", (_TEKKEN,), True, True),
    ("gpt-4o llama4 kanana2 minimax-m2 talkie", (_GPT4O,), False, False),
    ("tiny_aya cohere2moe", (r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O), False, False),
    ("default", (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"), False, False),
)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    name: PreTokenizer(name, regexes, ignore_merges, add_bos)
    for names, regexes, ignore_merges, add_bos in _FAMILIES
    for name in names.split()
}

# Vocabularies that are recognized by size: tokens (from, to) and merges.
_KNOWN_SIZES = (
    (128256, 128256, 280147, "llama-bpe"),
    (151643, 152064, 151387, "qwen2"),
    (50257, 50304, 50000, "gpt-2"),
)


def pre_tokenizer_named(
    name: str | None, num_tokens: int, num_merges: int
) -> tuple[PreTokenizer, str | None]:
    """Return the pre-tokenizer of a file's ``tokenizer.ggml.pre``, and a note for the user or None.

    A missing name is inferred from the vocabulary's size: the official BitNet 2B-4T file lacks it
    and has Llama 3's vocabulary. Raises TokenizerError for an unknown name.
    """
    if name:
        if name in PRE_TOKENIZERS:
            return PRE_TOKENIZERS[name], None
        raise TokenizerError(
            f"tokenizer.ggml.pre is {name[:40]!r}, an unknown pre-tokenizer; known:"
            f" {', '.join(sorted(PRE_TOKENIZERS))}"
        )
    for low, high, merges, known in _KNOWN_SIZES:
        if low <= num_tokens <= high and num_merges == merges:
            return PRE_TOKENIZERS[known], (
                f"tokenizer.ggml.pre is missing; {num_tokens} tokens and {num_merges} merges are"
                f" those of {known!r}, which is used"
            )
    return PRE_TOKENIZERS["default"], (
        "tokenizer.ggml.pre is missing and the vocabulary is unknown: text is split by the "
        "'default' rules, which probably differ from the training's, so results may be worse; "
        "set the key to the right name"
    )
