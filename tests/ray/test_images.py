"""Images of requests on Ray: what the ingress cuts gets the rows that one process computes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.images import small_vision_models as small
from tests.matrix import some
from tests.ray.in_process import LOADING, Handle, listener_of, replicas_of, run, text_of
from trinity import load
from trinity.errors import InputError
from trinity.ray.images import with_rows
from trinity.ray.remote import RemoteModel, RemoteStream
from trinity.runtime.generation import Chunk

pytestmark = pytest.mark.usefixtures("errors_of_ray")
OPTIONS: dict[str, Any] = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}


def asked(*sizes: tuple[int, int]) -> list[dict[str, Any]]:
    images = [{"type": "image", "image": small.image(*size)} for size in sizes]
    return [{"role": "user", "content": [*images, {"type": "text", "text": "What is it?"}]}]


@pytest.mark.parametrize("name", some(tuple(small.SPECIAL), ("gemma3", "qwen2vl")))
def test_ids_and_rows_are_those_of_one_process(tmp_path: Path, name: str) -> None:
    folder = str(small.write_directory(name, tmp_path / name))
    images = [small.image(90, 40), small.image(64, 64), small.image(90, 40)]
    with (
        load(folder, threads=1) as model,
        RemoteModel(folder, Handle(), model.context_length, 4, "127.0.0.1") as remote,
    ):
        encoder, cutter = model.image_encoder, remote.image_encoder
        assert encoder is not None
        assert cutter is not None

        def tokenize(text: str, first: bool) -> list[int]:
            return model.tokenizer.encode(text, add_bos=first)

        text = encoder.mark.join("abcd")
        wanted = encoder.prompt(text, images, tokenize)
        found = cutter.prompt(text, images, tokenize)
        assert found == wanted
        assert cutter._tower is None  # it has computed nothing
        sent = pickle.loads(pickle.dumps(found))
        encoder._kept.clear()
        made = with_rows(sent, encoder)
        assert made == wanted
        for one, other in zip(made.images, wanted.images, strict=True):
            np.testing.assert_array_equal(one.rows, other.rows)
            assert one._replace(rows=None) == other._replace(rows=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", some(("gemma3", "qwen2vl"), ("gemma3",)))
def test_responses_are_those_of_one_process(tmp_path: Path, name: str) -> None:
    """Also after the loss of the replica that began the response."""
    folder = str(small.write_directory(name, tmp_path / name))
    take = RemoteStream.take

    async def test(model: RemoteModel, handle: Handle) -> None:
        assert model.reads_images
        ids = model.apply_chat_template(messages)
        for _ in handle.replicas:
            assert await text_of(model, ids, **OPTIONS) == wanted
        handle.calls.clear()

        def lost(stream: RemoteStream, chunk: Chunk) -> None:
            take(stream, chunk)
            if len(handle.calls) == 1:
                for connection in listener_of(model).connections:
                    connection.transport.abort()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RemoteStream, "take", lost)
            assert await text_of(model, ids, **OPTIONS) == wanted

    messages = asked((90, 40), (64, 64))
    with load(folder, **LOADING) as alone:
        wanted = alone.chat(messages, **OPTIONS).text
    with replicas_of(folder) as made:
        run(test, made, folder)


def test_a_replica_without_a_tower_is_an_error(tmp_path: Path) -> None:
    folder = str(small.write_directory("gemma3", tmp_path / "gemma3"))

    async def test(model: RemoteModel, handle: Handle) -> None:
        with pytest.raises(InputError, match="cannot read images"):
            await text_of(model, model.apply_chat_template(asked((64, 64))), **OPTIONS)

    with replicas_of(folder, vision=False) as made:
        run(test, made, folder)


def test_images_can_be_turned_off(tmp_path: Path) -> None:
    folder = str(small.write_directory("gemma3", tmp_path / "gemma3"))

    async def test(model: RemoteModel, handle: Handle) -> None:
        assert not model.reads_images

    with replicas_of(folder, vision=False) as made:
        run(test, made, folder, vision=False)
