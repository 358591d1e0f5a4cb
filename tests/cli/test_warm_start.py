"""A start with compiled kernels imports neither a compiler nor modules of other features."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.kernels.process import KERNELS, ROOT
from trinity_kernels.isa import interpreted
from trinity_kernels.loaded_code import supported

# Packages and modules that a plain `trinity generate` of a GGUF file does without.
UNUSED = (
    "numba", "llvmlite", "sentencepiece", "jinja2", "rich", "prompt_toolkit", "huggingface_hub",
    "starlette", "uvicorn", "msgspec", "prometheus_client", "llguidance", "soundfile",
    "typer", "click", "pydantic", "asyncio", "configparser", "statistics", "tempfile", "shutil",
    "numpy.ma", "numpy.random", "importlib.resources",
    "trinity.cli.application", "trinity.cli.serve", "trinity.server",
    "trinity.conversation", "trinity.grammar", "trinity.quantization", "trinity.tools",
    "trinity.hub.model", "trinity.providers.huggingface", "trinity.providers.ollama_tensors",
    "trinity.formats.checkpoint", "trinity.formats.ollama.model", "trinity.formats.adapters",
    "trinity.formats.huggingface.quantization", "trinity.formats.huggingface.packed",
    "trinity.formats.gguf_writer", "trinity.formats.huggingface.rope",
    "trinity.formats.speech_config", "trinity.runtime.adapters", "trinity.runtime.profile",
    "trinity.runtime.records.adapters", "trinity.runtime.likelihoods.text_scorer",
    "trinity.models.gemma", "trinity.models.adapter_base", "trinity.models.nearest",
    "trinity.speech.model", "trinity.tokenizers.huggingface", "trinity.tokenizers.chat",
)  # fmt: skip
MOST_MODULES = 310  # of trinity and trinity_kernels


@pytest.mark.skipif(interpreted() or not supported(), reason="Numba loads the code here")
def test_only_what_a_plain_generate_needs_is_imported() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "trinity", "generate"]
    command += ["--prompt", "Prince Andrew", "-n", "4"]
    paths = os.pathsep.join((str(KERNELS), str(ROOT)))
    for first in (True, False):
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=300,
            env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        if first:  # compiles what the cache lacks
            continue
        imported = set(re.findall(r"\|\s+(\S+)$", done.stderr, re.MULTILINE))
        assert "trinity_kernels.team" in imported
        unused = {
            name for name in imported if f"{name}.".startswith(tuple(f"{u}." for u in UNUSED))
        }
        assert unused == set()
        own = {
            name for name in imported if name.partition(".")[0] in ("trinity", "trinity_kernels")
        }
        assert len(own) <= MOST_MODULES
