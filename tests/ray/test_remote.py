"""An ingress and two replicas in this process, without Ray, whose calls are tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.models.adapter_files import peft_directory
from tests.ray.in_process import LOADING, PROMPT, Handle, listener_of, replicas_of, run, text_of
from tests.runtime.test_adapters import HIDDEN, pairs_of
from tests.tiny_models import write_tiny_model
from trinity import load
from trinity.errors import InputError
from trinity.loading import chat_model
from trinity.ray import channel, remote, replica
from trinity.ray.remote import RemoteModel, RemoteStream
from trinity.runtime.generation import Chunk, collect
from trinity.server.errors import ApiError

pytestmark = pytest.mark.usefixtures("errors_of_ray")


@pytest.fixture(scope="module")
def replicas() -> Iterator[list[replica.Replica]]:
    with replicas_of(chat_model()) as made:
        yield made


KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.9, "seed": 3},
    "penalties": {"temperature": 0.8, "seed": 4, "frequency_penalty": 0.5, "stop": ["zzz"]},
    "state": {"mirostat": 2, "temperature": 0.9, "seed": 5},
    "logprobs": {"temperature": 0.7, "seed": 6, "logprobs": 2},
}


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_connections_lost_in_all_phases_change_no_text(
    replicas: list[replica.Replica], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each number of chunks the connections end, and the other replica continues."""
    options = {**KINDS[kind], "max_tokens": 12, "ignore_eos": True}
    with load(chat_model(), **LOADING) as alone:
        wanted = alone.generate(PROMPT, **options)
    take = RemoteStream.take

    async def test(model: RemoteModel, handle: Handle) -> None:
        again = 0  # chunks may come together: then the last one is here before the end is known
        for lost_after in range(13):
            count = 0

            def counted(stream: RemoteStream, chunk: Chunk) -> None:
                nonlocal count
                count += 1
                if count == lost_after:  # noqa: B023
                    for connection in listener_of(model).connections:
                        connection.transport.abort()
                take(stream, chunk)

            monkeypatch.setattr(RemoteStream, "take", counted)
            handle.calls.clear()
            with await model.asubmit([PROMPT], **options) as answers:
                completion = collect([chunk async for _, chunk in answers])
            monkeypatch.setattr(RemoteStream, "take", take)
            assert completion.text == wanted.text
            assert completion.token_ids == wanted.token_ids
            assert completion.logprobs == wanted.logprobs or kind != "logprobs"
            again += len(handle.calls) - 1
        assert again >= 3

    run(test, replicas)


def test_whole_responses_and_several_streams(replicas: list[replica.Replica]) -> None:
    options: dict[str, Any] = {"temperature": 0.9, "max_tokens": 16, "ignore_eos": True}
    with load(chat_model(), **LOADING) as alone:
        wanted = [alone.generate(PROMPT, seed=seed, **options).text for seed in range(6)]

    async def test(model: RemoteModel, handle: Handle) -> None:
        calls = [text_of(model, whole=seed % 2 == 0, seed=seed, **options) for seed in range(6)]
        assert await asyncio.gather(*calls) == wanted
        assert [call.whole for call in handle.calls].count(True) == 3
        listener = listener_of(model)
        assert not listener.receivers
        assert len(listener.connections) == 2  # one for each replica

    run(test, replicas)


def test_errors_pass_and_a_client_that_leaves_ends_the_call(
    replicas: list[replica.Replica],
) -> None:
    async def test(model: RemoteModel, handle: Handle) -> None:
        with pytest.raises(InputError, match="256"):
            await text_of(model, [5] * 300)
        assert not handle.calls  # the ingress has refused it
        with await model.asubmit([PROMPT], max_tokens=200, ignore_eos=True) as answers:
            await anext(answers)
        for one in replicas:
            while one._model.engine_thread.stats().running:
                await asyncio.sleep(0.005)
        assert model.engine_thread.stats().running == 0

    run(test, replicas)


def test_replicas_that_cannot_connect_are_an_error(
    replicas: list[replica.Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "ATTEMPT_SECONDS", 0)

    async def refused(*given: Any) -> None:
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(channel.IngressConnections, "_made", refused)

    async def test(model: RemoteModel, handle: Handle) -> None:
        with pytest.raises(ApiError, match=r"connect to the ingress at 127\.0\.0\.1:.*refused"):
            await text_of(model)
        assert len(handle.calls) == remote.ATTEMPTS

    run(test, replicas)


def test_adapters(tmp_path: Path) -> None:
    model_file = str(tmp_path / "m.gguf")
    write_tiny_model(Path(model_file), type="F32", hidden_size=HIDDEN)
    lora = [
        (str(peft_directory(tmp_path / str(seed), pairs_of(seed))), 2.0 - seed) for seed in (1, 2)
    ]
    prompt, options = [5, 9, 17, 30], {"max_tokens": 8, "temperature": 0}
    scales = (None, {}, {1: 0.5}, {0: 0.3, 1: 1.0})
    with load(model_file, lora=lora, **LOADING) as alone:
        wanted = [alone.generate(prompt, lora=scale, **options).token_ids for scale in scales]
    assert len({tuple(ids) for ids in wanted}) > 2

    async def test(model: RemoteModel, handle: Handle) -> None:
        assert model.adapters == tuple(lora)
        for scale, ids in zip(scales, wanted, strict=True):
            with await model.asubmit([prompt], lora=scale, **options) as answers:
                assert collect([chunk async for _, chunk in answers]).token_ids == ids
        with pytest.raises(InputError, match="lora names adapter 2"):
            await text_of(model, prompt, lora={2: 1.0})

    with replicas_of(model_file, lora=lora) as made:
        run(test, made, model_file, adapters=lora)
