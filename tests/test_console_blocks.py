"""The commands of the documents run: every console block from a fresh shell."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import trinity
from tests import hub_server
from tests.document_folder import QUANTIZED, write_folder
from tests.hub_client import environment
from trinity_kernels.code_files import cache_folder

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
# A comment before a block, or before the first heading for all blocks, says why they do not run.
BLOCK = re.compile(
    r"^(?P<not_run><!-- not run: .{15,} -->\n)?```console\n(?P<commands>.*?)^```", re.M | re.S
)
PAGE_NOT_RUN = re.compile(r"\A<!-- console blocks not run: .{15,} -->\n")
SERVE = re.compile(r"^trinity serve(.*)$", re.MULTILINE)
FAILS = re.compile(r"^(.*?) +# exit code 1: .*$", re.MULTILINE)
URL = "http://127.0.0.1:8080"  # of the documents
REPOSITORIES = ("user/repo", "microsoft/bitnet-b1.58-2B-4T-gguf")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
# The environment has what pip would install, if pyproject.toml names it.
PIP = f"""#!/bin/sh
for word; do case "$word" in
  install | . {"".join(f"| '.[{extra}]' " for extra in EXTRAS)}) ;;
  *) echo "pip: $word" >&2; exit 1 ;;
esac; done
"""
# Starts a server, waits for it, and ends the one that the block started before.
START = """
[ -z "${{server:-}}" ] || {{ kill $server; wait $server || true; }}
{command} --port {port} & server=$!
until curl --silent --output /dev/null {url}/health; do kill -0 $server; sleep 0.1; done
"""
END = '[ -z "${server:-}" ] || { kill $server; wait $server; }\n'


def blocks(document: Path) -> list[str]:
    """The commands of a document's console blocks that run, in order."""
    text = document.read_text("utf-8")
    if PAGE_NOT_RUN.match(text):
        return []
    return [found["commands"] for found in BLOCK.finditer(text) if not found["not_run"]]


# A page's blocks run in order, but where they take long and use nothing of each other.
APART = ("command_line.md",)
CASES = [
    pytest.param(run, id="-".join([document.name, *([str(number)] if number else [])]))
    for document in DOCUMENTS
    if (every := blocks(document))
    for number, run in enumerate(
        [[block] for block in every] if document.name in APART else [every]
    )
]


@pytest.fixture(scope="session")
def files(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files and programs that the documents name."""
    folder = tmp_path_factory.mktemp("documents")
    write_folder(folder, shared_data / "encoders")
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (
        ("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n'),
        ("trinity", '#!/bin/sh\nexec python -m trinity "$@"\n'),
        ("curl", f'#!/bin/sh\nexec {shutil.which("curl")} --fail-with-body "$@"\n'),
        ("pip", PIP),
    ):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that has the compiled kernels of this machine and nothing else."""
    folder = tmp_path_factory.mktemp("cache")
    if (kernels := cache_folder()) is not None:
        with contextlib.suppress(shutil.Error):  # a file that another process has just removed
            shutil.copytree(kernels, folder / kernels.name)
    return folder


@pytest.fixture(scope="session")
def hub() -> Iterator[str]:
    """The address of a hub whose repositories have a small model each."""
    content = Path(trinity.chat_model()).read_bytes()
    names = ("model-Q4_K_M.gguf", "model-Q8_0.gguf")
    with hub_server.running() as server:
        for name in REPOSITORIES:
            server.repositories[name] = hub_server.Repository(
                dict.fromkeys(names, content), revisions=("main", "v1.0")
            )
        yield server.url


def one_core() -> None:
    """Let a process use one core: threads that wait for each other delay those of other workers."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {random.choice(list(os.sched_getaffinity(0)))})


def program(block: str) -> str:
    """A block as a program for bash: its servers run until the next one starts or it ends.

    A block that sends requests but starts no server gets one with the demo models.
    """
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    if "curl" in block and not SERVE.search(block):
        block = f"trinity serve --model demo=model.gguf\n{block}"
    block = FAILS.sub(r"\1 && exit 1 || [ $? = 1 ]", block)
    block = SERVE.sub(lambda found: START.format(command=found[0], port=port, url=URL), block)
    return block.replace(URL, f"http://127.0.0.1:{port}") + END


def test_documents_hold_blocks() -> None:
    """The test below runs most blocks: an empty list would pass."""
    assert sum(len(blocks(document)) for document in DOCUMENTS) >= 50


@pytest.mark.full
@pytest.mark.parametrize("run", CASES)
def test_console_blocks_run(
    run: list[str], files: Path, cache: Path, hub: str, tmp_path: Path
) -> None:
    """The blocks run in order in one folder, each in a new shell; every command ends with 0."""
    folder = tmp_path / "folder"
    shutil.copytree(files, folder, symlinks=True)
    (cache / "weights").mkdir(exist_ok=True)
    shutil.copyfile(folder / "model.gguf", cache / "weights" / QUANTIZED)
    variables = environment(
        hub,
        tmp_path / "hub",
        PATH=os.pathsep.join([str(folder / "bin"), os.environ["PATH"]]),
        TRINITY_CACHE_DIR=str(cache),
        OLLAMA_MODELS=str(folder / "ollama"),
        TRINITY_STORE=str(folder / "created"),
    )
    for block in run:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", program(block)],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=1800,  # only ends what hangs
            preexec_fn=one_core,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
