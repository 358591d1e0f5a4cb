"""Serve a model whose answers are given: for programs that need a large model's answers.

    python tests/clients/scripted.py FOLDER PORT

The model has random weights, SmolLM2's vocabulary and a context of 131,072 tokens. A grammar
constrains each answer to the text that script.json gives for the conversation. Everything else is
real: prompts are rendered and evaluated, tokens are sampled and streamed, tool calls are read from
the text.

script.json is a list of rules. A rule applies if the prompt contains every text of ``has`` and no
text of ``lacks``; the first rule that applies gives the ``answer``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from scripts.models import real_models  # noqa: E402
from scripts.models.make_synthetic import SHAPES, write_model  # noqa: E402
from trinity.grammar.grammar import Grammar  # noqa: E402
from trinity.model import Model  # noqa: E402
from trinity.server import prepared, service, serving  # noqa: E402
from trinity.server.ignored import Ignored  # noqa: E402
from trinity.server.job import ChatJob, TextJob  # noqa: E402
from trinity.server.prepared import Prepared  # noqa: E402
from trinity.server.settings import ServerOptions  # noqa: E402

CONTEXT = 131_072
OTHERWISE = "Hello! How can I help you today?"


def answer_to(prompt: str) -> str:
    """The text that the script has for a prompt; read anew each time, so that it can be edited."""
    for rule in json.loads((HERE / "script.json").read_text(encoding="utf-8")):
        if all(text in prompt for text in rule.get("has", ())) and not any(
            text in prompt for text in rule.get("lacks", ())
        ):
            return str(rule["answer"])
    return OTHERWISE


def follow_script() -> None:
    """Let the server constrain every answer to the script's text."""
    usual = prepared.prepared

    def constrained(
        ignored: Ignored, model: Model, job: ChatJob | TextJob, names: Mapping[str, Any],
        *, fitting: bool = True,
    ) -> Prepared:  # fmt: skip
        found = usual(ignored, model, job, names, fitting=fitting)
        text = answer_to(model.detokenize(list(found.prompts[0])))
        return replace(found, options={**found.options, "grammar": Grammar.choice([text])})

    service.prepared = constrained  # type: ignore[assignment]


def main(folder: Path, port: int) -> int:
    """Write the model and serve it."""
    path = folder / "scripted.gguf"
    vocabulary = real_models.path_of("smollm2")
    shape = replace(SHAPES["tiny"], hidden_size=64, num_heads=1, num_kv_heads=1, num_layers=1,
                    intermediate_size=64, context_length=CONTEXT)  # fmt: skip
    write_model(path, shape, vocab=str(vocabulary))
    follow_script()
    settings = ServerOptions(port=port)
    return serving.serve([f"scripted={path}"], settings, {"context_length": CONTEXT}, print, {})


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
