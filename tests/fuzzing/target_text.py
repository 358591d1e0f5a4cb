"""Target: tokenizer metadata, chat templates, JSON, tokenizer.model, tile tables."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.fuzzing import values, vocabularies
from tests.fuzzing.case import Case
from tests.fuzzing.gguf_draft import F32, Draft, number
from trinity.formats.json_object import parse_json_object, read_json_object
from trinity.formats.sentencepiece_model import parse_sentencepiece_model
from trinity.formats.tl_config import read_tl_config
from trinity.tokenizers import tokenizer_from_metadata
from trinity.tokenizers.chat import render_chat


def tokenizer(case: Case) -> None:
    """A vocabulary as a GGUF file has it, spoiled, asked to encode and decode."""
    rng = case.rng
    draft = Draft()
    vocabularies.add(draft, rng)
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        vocabularies.spoil(draft, rng)
    metadata: dict[str, object] = {}
    for key, value in draft.keys:
        content = value.content
        if isinstance(content, list):
            content = [c.decode("utf-8", "replace") if isinstance(c, bytes) else c for c in content]
        metadata[key] = content
        case.num_bytes += 8 + len(str(content))
    if isinstance(metadata.get("tokenizer.ggml.add_bos_token"), int):
        metadata["tokenizer.ggml.add_bos_token"] = True
    made = case.attempt("opened", tokenizer_from_metadata, metadata)
    if made is None:
        return
    for _ in range(rng.choice((1, 2))):
        text = values.prose(rng)
        ids = case.attempt("tokenized", made.encode, text, parse_special=rng.random() < 0.5)
        if ids is not None:
            case.attempt("tokenized", made.decode, ids, skip_special=rng.random() < 0.5)
    some = [rng.randrange(made.vocab_size) for _ in range(8)]
    case.attempt("tokenized", made.decode, some)


_EXPRESSIONS = (
    "m.content", "m['role']", "bos_token", "messages[0]['content']", "messages|length", "ns.t", "x",
    "raise_exception('no')", "strftime_now('%Y')", "'a' * {}", "[1] * {}", "{} ** {}",
    "range({})|list",
    "'%{}d' % 1", "'{{:{}}}'.format(1)", "x.__class__", "''.__class__.__mro__", "messages|tojson",
    "'a'|center({})", "'a'.ljust({})", "1|round({})", "'x'.join(messages)",
    "messages|map('upper')|list",
    "messages|unique|list", "(1).__add__", "self", "cycler('a').next", "lipsum({})",
    "dict(a=1)|items",
    "'a'.zfill({})", "messages|batch({})|list", "'abc'[{}:{}]", "{} // {}", "messages|sort",
    "x ~ x",
    "'a' ~ 'b' ~ m", "none.x", "f(1)", "f(f)", "loop.index", "'ab'|replace('a','b' * {})",
    "1 if x else 2",
    "m.content|trim", "m.content.split('a')", "m.content.strip()|upper", "m.content[{}:]",
    "{}|string",
    "x|list|length", "x|reverse", "m.content|indent({})", "messages|selectattr('role')|list",
    "(x,) * {}",
    "m.content|wordwrap({})", "m.content|truncate({})", "'%s' % x", "'%*d' % ({}, 1)",
    "x|tojson(indent={})",
)  # fmt: skip
_FRAGMENTS = ("{%", "%}", "{{", "}}", "{% endif %}", "{#", "{% raw %}", "(", "'", "{% break %}")
_TESTS = (
    "x",
    "m.role == 'user'",
    "loop.first",
    "x is defined",
    "messages|length > {}",
    "m.content in x",
)


def template(case: Case) -> None:
    """A chat template: statements in one another, at times with a piece too many."""
    rng = case.rng
    source = rng.choice(vocabularies.TEMPLATES) if rng.random() < 0.2 else ""
    source += _block(rng, rng.choice((1, 2, 3)))
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        at = rng.randrange(len(source) + 1)
        piece = rng.choice(_FRAGMENTS)
        source = source[:at] + piece + source[at + rng.choice((0, 0, 5)) :]
    case.num_bytes += len(source)
    messages = [
        {"role": rng.choice(("user", "assistant", "x")), "content": values.prose(rng)}
        for _ in range(rng.randrange(1, 4))
    ]
    case.attempt("rendered", render_chat, source, messages, bos_token="<s>", eos_token="</s>")


def _block(rng: random.Random, depth: int) -> str:
    """Some statements, nested up to ``depth``."""
    parts = []
    for _ in range(rng.randrange(1, 4)):
        kind = rng.randrange(9) if depth else rng.randrange(3)
        inner = _block(rng, depth - 1) if kind > 2 else ""
        expression = _filled(rng, rng.choice(_EXPRESSIONS))
        if kind == 0:
            parts.append(values.text(rng)[:40])
        elif kind == 1:
            parts.append(f"{{{{ {expression} }}}}")
        elif kind == 2:
            name = rng.choice(("x", "x", "m", "ns.t"))
            parts.append(f"{{% set ns = namespace(t='') %}}{{% set {name} = {expression} %}}")
        elif kind == 3:
            parts.append(f"{{% for m in messages %}}{inner}{{% endfor %}}")
        elif kind == 4:
            parts.append(f"{{% for x in {expression} %}}{inner}{{% else %}}none{{% endfor %}}")
        elif kind == 5:
            test = _filled(rng, rng.choice(_TESTS))
            parts.append(f"{{% if {test} %}}{inner}{{% else %}}{{{{ {expression} }}}}{{% endif %}}")
        elif kind == 6:
            parts.append(f"{{% macro f(m) %}}{inner}{{% endmacro %}}{{{{ f({expression}) }}}}")
        elif kind == 7:
            name = rng.choice(("upper", "trim", "indent(3)"))
            parts.append(f"{{% filter {name} %}}{inner}{{% endfilter %}}")
        else:
            parts.append(f"{{% generation %}}{inner}{{% endgeneration %}}")
    return "".join(parts)


def _filled(rng: random.Random, text: str) -> str:
    while "{}" in text:
        text = text.replace("{}", str(_size(rng)), 1)
    return text


def _size(rng: random.Random) -> int:
    return rng.choice((0, 1, 2, 3, 10, 100, -1, rng.choice((10**4, 10**6, 10**9, 2**63, 10**18))))


def json_text(case: Case) -> None:
    """JSON with the values and the nesting that break readers."""
    rng = case.rng
    raw = bytearray(json.dumps(any_json(rng, 4)).encode())
    kind = rng.random()
    if kind < 0.1:
        depth = rng.choice((10, 900, 5000, 100_000))
        raw = bytearray(b'{"a":' * depth + b"1" + b"}" * depth)
        if rng.random() < 0.5:
            raw = bytearray(b'{"a":' + b"[" * depth + b"]" * depth + b"}")
    elif kind < 0.6:
        for _ in range(rng.choice((1, 2, 5))):
            at = rng.randrange(len(raw) + 1)
            raw[at : at + rng.choice((0, 1, 3))] = rng.choice((
                b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\u0000", b"\\ud800", b"\\udc00",
                b"1e999", b"-",
                b"NaN", b"Infinity", b"\xff", b"\xed\xa0\x80", b"9" * rng.choice((30, 5000)),
                b"null", b"\0",
                b"\xef\xbb\xbf", b'"a":1,"a":2,', b"1.0E+2", b" ",
            ))  # fmt: skip
    elif kind < 0.7:
        del raw[rng.randrange(len(raw) + 1) :]
    if rng.random() < 0.5 and raw:
        case.attempt("read", read_json_object, str(case.write("x.json", bytes(raw))))
    else:
        case.num_bytes += len(raw)
        case.attempt("read", parse_json_object, bytes(raw), "x.json")


def any_json(rng: random.Random, depth: int) -> Any:
    """Any value, an object at the top."""
    kind = rng.random()
    if depth == 4 or (kind < 0.3 and depth):
        return {values.text(rng)[:50]: any_json(rng, depth - 1) for _ in range(rng.randrange(4))}
    if kind < 0.5 and depth:
        return [any_json(rng, depth - 1) for _ in range(rng.randrange(4))]
    real = values.real(rng)
    real = real if abs(real) < 1e300 else 0.5  # also NaN
    return rng.choice((None, True, False, values.integer(rng), real, values.text(rng)))


def sentencepiece(case: Case) -> None:
    """tokenizer.model's bytes: right fields with odd contents, then injuries."""
    raw = bytearray(sentencepiece_bytes(case.rng))
    rng = case.rng
    for _ in range(rng.choice((0, 1, 1, 3))):
        at = rng.randrange(len(raw) + 1)
        kind = rng.randrange(4)
        if kind == 0 and raw:
            raw[at % len(raw)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del raw[at:]
        elif kind == 2:
            odd = rng.choice((b"\xff" * 9 + b"\x01", b"\x80" * 12, rng.randbytes(4)))
            raw[at : at + rng.choice((0, 1, 4))] = odd
        else:
            raw += rng.randbytes(rng.randrange(8))
    case.num_bytes += len(raw)
    case.attempt("read", parse_sentencepiece_model, bytes(raw), "tokenizer.model")


def sentencepiece_bytes(rng: random.Random, sound: float = 0.5) -> bytes:
    """A model file with <unk>, <s>, </s>, bytes at times, some pieces."""
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    with_bytes = rng.random() < 0.8
    if with_bytes:
        pieces += [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
    pieces += [(word, -float(rank), 1) for rank, word in enumerate(vocabularies.WORDS)]
    is_sound = rng.random() < sound
    if not is_sound:
        for _ in range(rng.choice((1, 3, 20))):
            at = rng.randrange(len(pieces))
            text, score, kind = pieces[at]
            other = rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 2**40))
            pieces[at] = rng.choice(
                (
                    (values.text(rng), score, kind),
                    (text, values.real(rng), kind),
                    (text, score, other),
                )
            )
    out = b"".join(_piece(*piece) for piece in pieces)
    trainer = _varint_field(3, 2 if is_sound else rng.choice((1, 2, 2, 3, 4, 9))) + _varint_field(
        35, int(with_bytes)
    )
    normalizer = _varint_field(3, rng.randrange(2)) + _varint_field(4, 0) + _varint_field(5, 1)
    if not is_sound and rng.random() < 0.3:
        normalizer += _field(2, rng.randbytes(rng.choice((0, 4, 8, 100, 1000))))
    return out + _field(2, trainer) + _field(3, normalizer)


def _piece(text: str, score: float, kind: int) -> bytes:
    raw = _field(1, text.encode("utf-8", "surrogatepass"))
    return _field(1, raw + b"\x15" + number(F32, score) + _varint_field(3, kind))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint_field(tag: int, value: int) -> bytes:
    return _varint(tag << 3) + _varint(value)


def _field(tag: int, raw: bytes) -> bytes:
    return _varint(tag << 3 | 2) + _varint(len(raw)) + raw


def tl_config(case: Case) -> None:
    """kernel_config.ini alone."""
    rng = case.rng
    lines = []
    for i in range(rng.randrange(1, 4)):
        odd = rng.choice(("[DEFAULT]", "[x]", "[]", "[a", ""))
        lines.append(f"[Kernels_{i}]" if rng.random() < 0.9 else odd)
        keys = ["m", "k", "bm", "bk", "bmm", *rng.choice(([], ["x"], ["m"]))]
        for key in keys if rng.random() < 0.9 else keys[:3]:
            texts = ("%(m)s", "%(bm", "1_000", "\u0663", values.text(rng), str(values.integer(rng)))
            value = "32" if rng.random() < 0.93 else rng.choice(texts)
            lines.append(f"{key}{rng.choice((' = ', '=', ': '))}{value}")
    raw = "\n".join(lines).encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        raw += rng.randbytes(10)
    if rng.random() < 0.002:
        raw *= rng.choice((100, 10_000))
    case.attempt("read", read_tl_config, case.write("kernel_config.ini", raw))
