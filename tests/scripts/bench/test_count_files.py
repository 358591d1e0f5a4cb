"""The number of files that a reader must open to follow one token or one chat request.

The shortest of several walks counts: it has no work that is due only now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import CodeType

import trinity
from scripts.bench.count_files import files_of, outside_kernels, request_walks, token_walks

MOST_FILES_OF_TOKEN = 18
MOST_FILES_OF_REQUEST = 70


def fewest(walks: Sequence[Sequence[CodeType]]) -> list[str]:
    return min((outside_kernels(files_of(walk)) for walk in walks), key=len)


def test_token_passes_through_few_files() -> None:
    files = fewest(token_walks(trinity.demo_model()))
    assert "trinity/runtime/engine.py" in files
    assert len(files) <= MOST_FILES_OF_TOKEN, files


def test_chat_request_passes_through_few_files() -> None:
    files = fewest(asyncio.run(request_walks(trinity.chat_model())))
    assert "trinity/server/endpoints/chat_completions.py" in files
    assert len(files) <= MOST_FILES_OF_REQUEST, files
