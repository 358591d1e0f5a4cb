"""Run a suite of JSON schemas through `trinity.Grammar` without a model and report its errors.

    python scripts/bench/measure_masks.py JSON-Schema-Test-Suite/tests/draft2020-12
    python scripts/bench/measure_masks.py jsonschemabench/maskbench/data --record masks.jsonl

The first is https://github.com/json-schema-org/JSON-Schema-Test-Suite, the second
https://github.com/guidance-ai/jsonschemabench; neither is part of this project. Every instance is
written as JSON, cut into the tokens of a vocabulary, and offered token by token. Invalid instances
that get through are printed, and end in exit code 1; ``--show`` prints what is refused, too.
``--record`` writes a line for each schema; a run that was stopped goes on behind the last one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import trinity
from trinity.grammar.grammar import Grammar


@dataclass
class Case:
    """A schema and its instances: (value, whether it is valid, description)."""

    name: str
    schema: Any
    instances: list[tuple[Any, bool, str]]


@dataclass
class Result:
    """The result of one case.

    ``reason``: of a refusal. ``wrong``: invalid instances that were accepted.
    """

    name: str
    counts: dict[str, int] = field(default_factory=dict)
    reason: str = ""
    wrong: list[str] = field(default_factory=list)
    mask_us: list[float] = field(default_factory=list)
    compile_seconds: float | None = None

    def count(self, what: str) -> None:
        """Count one more."""
        self.counts[what] = self.counts.get(what, 0) + 1


def cases(folder: Path, every: int) -> Iterator[Case]:
    """Yield the cases of JSON-Schema-Test-Suite or of MaskBench."""
    for path in sorted(folder.rglob("*.json"))[::every]:
        whole = json.loads(path.read_text("utf-8"))
        name = str(path.relative_to(folder))
        if isinstance(whole, dict):
            tests = whole.get("tests", [])
            yield Case(name, whole["schema"], [(t["data"], t["valid"], "") for t in tests])
            continue
        for group in whole:
            instances = [(t["data"], t["valid"], t["description"]) for t in group["tests"]]
            yield Case(f"{name}: {group['description']}", group["schema"], instances)


def main() -> None:
    """Parse the arguments, run the cases and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default=None, help="whose vocabulary; the demo model's")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th file")
    parser.add_argument("--show", action="store_true", help="print what is refused, too")
    parser.add_argument("--record", type=Path, metavar="FILE", help="go on with these findings")
    given = parser.parse_args()
    tokenizer = trinity.load_tokenizer(given.model or trinity.demo_model())
    found = recorded(given.record)
    with open(given.record or os.devnull, "a", encoding="utf-8") as record:
        for case in cases(given.folder, given.every):
            if case.name not in found:
                found[case.name] = run(case, tokenizer, given.show)
                print(json.dumps(asdict(found[case.name])), file=record, flush=True)
    report(list(found.values()), tokenizer)
    sys.exit(any(one.wrong for one in found.values()))


def recorded(path: Path | None) -> dict[str, Result]:
    """Return the results of an earlier run by case."""
    if path is None or not path.exists():
        return {}
    lines = path.read_text("utf-8").splitlines()
    return {one.name: one for one in (Result(**json.loads(line)) for line in lines)}


def run(case: Case, tokenizer: trinity.Tokenizer, show: bool) -> Result:
    """Test one schema with its instances."""
    found = Result(case.name)
    begun = time.perf_counter()
    try:
        grammar = Grammar.json_schema(case.schema, open_objects=True)
        grammar.guide(tokenizer, tokenizer.vocab_size)
    except trinity.InputError as error:
        found.reason = str(error)
        if show:
            print(f"refused  {case.name}: {error}")
        return found
    found.compile_seconds = time.perf_counter() - begun
    complete = True
    names = property_names(case.schema)
    for value, valid, about in case.instances:
        kind = "valid" if valid else "invalid"
        found.count(f"instances {kind}")
        taken = accepts(grammar, tokenizer, value, found)
        if taken:
            found.count(f"accepted {kind}")
        in_order = ordered(value, names)
        taken_in_order = taken or accepts(grammar, tokenizer, in_order, found)
        if taken_in_order:
            found.count(f"accepted {kind} in the schema's order")
        if taken_in_order and not valid:
            found.wrong.append(f"{case.name}: {about}: {json.dumps(value)[:200]}")
        complete = complete and (taken_in_order or not valid)
        if show and valid and not taken_in_order:
            print(f"valid, not taken  {case.name}: {about}: {json.dumps(value)[:200]}")
    if complete:
        found.count("schemas with every valid instance taken")
    return found


def accepts(grammar: Grammar, tokenizer: trinity.Tokenizer, value: Any, found: Result) -> bool:
    """Whether the grammar accepts a value, written as Grammar writes JSON, as a complete text."""
    text = json.dumps(value, ensure_ascii=False)
    guide = grammar.guide(tokenizer, tokenizer.vocab_size)
    try:
        for token in tokenizer.encode(text, add_bos=False, continuation=True):
            if guide.complete:
                return False
            begun = time.thread_time()
            allowed = guide.allowed()
            found.mask_us.append(round(1e6 * (time.thread_time() - begun), 1))
            if not allowed[token]:
                # The grammar may force other tokens for the same text.
                return accepts_bytes(grammar, text)
            guide.accept([token])
        return guide.complete or any(guide.allowed()[i] for i in tokenizer.eog_ids)
    except trinity.InputError:
        return False


def accepts_bytes(grammar: Grammar, text: str) -> bool:
    """Whether the grammar accepts a complete text, however it is divided into tokens."""
    from llguidance import LLTokenizer

    matcher = grammar.compiled(LLTokenizer("byte"), {})
    raw = list(text.encode("utf-8", "surrogatepass"))
    taken: int = matcher.try_consume_tokens(raw)
    return taken == len(raw) and bool(matcher.is_accepting())


def property_names(schema: Any) -> dict[str, int]:
    """Return the names of a schema's properties in its order."""
    found: dict[str, int] = {}

    def look(node: Any) -> None:
        if isinstance(node, dict):
            for key, part in node.items():
                if key == "properties" and isinstance(part, dict):
                    for name in part:
                        found.setdefault(name, len(found))
                if key == "required" and isinstance(part, list):
                    for name in part:
                        found.setdefault(str(name), len(found))
                look(part)
        elif isinstance(node, list):
            for part in node:
                look(part)

    look(schema)
    return found


def ordered(value: Any, names: dict[str, int]) -> Any:
    """Return a value with the properties of its objects in the schema's order."""
    if isinstance(value, list):
        return [ordered(part, names) for part in value]
    if isinstance(value, dict):
        keys = sorted(value, key=lambda name: names.get(name, len(names)))
        return {key: ordered(value[key], names) for key in keys}
    return value


def reason(message: str) -> str:
    """Return the reason of a refusal: the keyword, or the beginning of the message."""
    path, _, rest = message.removeprefix("the JSON schema cannot be enforced: ").partition(": ")
    return f"{path.rpartition('/')[2] if path.startswith('#/') else ''}: {rest[:60]}"


def report(found: list[Result], tokenizer: trinity.Tokenizer) -> None:
    """Print the summary."""
    counts = Counter({"schemas": len(found), "schemas refused": 0})
    for one in found:
        counts.update(one.counts)
        counts["schemas refused"] += bool(one.reason)
    for name in sorted(counts):
        print(f"{counts[name]:8} {name}")
    reasons = Counter(reason(one.reason) for one in found if one.reason)
    for name, count in reasons.most_common(25):
        print(f"{count:8} refused: {name}")
    masks = sorted(us for one in found for us in one.mask_us)
    made = [one.compile_seconds for one in found if one.compile_seconds is not None]
    if masks:
        at = {share: masks[min(int(share * len(masks)), len(masks) - 1)] for share in (0.5, 0.99)}
        print(
            f"{len(masks)} masks over {tokenizer.vocab_size} tokens: mean "
            f"{statistics.fmean(masks):.0f} us, median {at[0.5]:.0f} us, 99% below "
            f"{at[0.99]:.0f} us, longest {masks[-1]:.0f} us of processor time; "
            f"a grammar is made in {statistics.median(made) * 1e3:.1f} ms (median)"
        )
    for one in found:
        for line in one.wrong:
            print(f"WRONGLY ACCEPTED  {line}")


if __name__ == "__main__":
    main()
