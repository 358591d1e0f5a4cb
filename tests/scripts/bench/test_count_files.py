"""The number of files that a reader must open to follow one token or one chat request."""

from __future__ import annotations

import asyncio

import trinity
from scripts.bench.count_files import files_of, outside_kernels, request_walk, token_walk

MOST_FILES_OF_TOKEN = 18
MOST_FILES_OF_REQUEST = 70


def test_token_passes_through_few_files() -> None:
    files = outside_kernels(files_of(token_walk(trinity.demo_model())))
    assert "trinity/runtime/engine.py" in files
    assert len(files) <= MOST_FILES_OF_TOKEN, files


def test_chat_request_passes_through_few_files() -> None:
    files = outside_kernels(files_of(asyncio.run(request_walk(trinity.chat_model()))))
    assert "trinity/server/endpoints/chat_completions.py" in files
    assert len(files) <= MOST_FILES_OF_REQUEST, files
