"""The openai package's WebSocket for responses: `client.responses.connect()`."""

# packages: openai[realtime]==3.57.0

from __future__ import annotations

import asyncio
from typing import Any

from openai import AsyncOpenAI, OpenAI
from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row
from websockets.exceptions import InvalidStatus

client = OpenAI(base_url=f"{URL}/v1", api_key="none")
scripted = OpenAI(base_url=f"{SCRIPTED_URL}/v1", api_key="none")
HELLO = "Hello! How can I help you today?"
LAST = ("response.completed", "response.incomplete", "response.failed", "error")
WEATHER: Any = {
    "type": "function", "name": "get_weather", "strict": True,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                   "required": ["city"], "additionalProperties": False},
}  # fmt: skip


def until_the_end(connection: Any) -> list[Any]:
    events = []
    for event in connection:
        events.append(event)
        if event.type in LAST:
            break
    return events


@row("a response")
def _() -> None:
    with scripted.responses.connect() as connection:
        connection.response.create(model=SCRIPTED, input="Hi.")
        events = until_the_end(connection)
    text = "".join(one.delta for one in events if one.type == "response.output_text.delta")
    assert text == events[-1].response.output_text == HELLO
    assert events[0].type == "response.created"
    assert events[-1].response.usage.output_tokens > 0


@row("async, two responses over one connection, by handlers of events")
def _() -> None:
    async def run() -> list[str]:
        texts: list[str] = []
        api = AsyncOpenAI(base_url=f"{SCRIPTED_URL}/v1", api_key="none")
        async with api.responses.connect() as connection:

            @connection.on("response.completed")
            async def _(event: Any) -> None:
                texts.append(event.response.output_text)
                if len(texts) == 2:
                    await connection.close()
                else:
                    await connection.response.create(model=SCRIPTED, input="Hi.")

            await connection.response.create(model=SCRIPTED, input="Hi.")
            await connection.dispatch_events()
        return texts

    assert asyncio.run(run()) == [HELLO, HELLO]


@row("a tool call and its output, after a response that is not stored")
def _() -> None:
    with scripted.responses.connect() as connection:
        given: Any = {"model": SCRIPTED, "tools": [WEATHER], "store": False}
        connection.response.create(input="What is the weather in Paris?", **given)
        first = until_the_end(connection)[-1].response
        [call] = [one for one in first.output if one.type == "function_call"]
        assert call.arguments == '{"city": "Paris"}'
        output: Any = {"type": "function_call_output", "call_id": call.call_id,
                       "output": "18 degrees in Paris"}  # fmt: skip
        connection.response.create(input=[output], previous_response_id=first.id, **given)
        last = until_the_end(connection)[-1].response
    assert last.output_text == "It is 18 degrees in Paris."


@row("a prompt in advance, with generate=False")
def _() -> None:
    with client.responses.connect() as connection:
        connection.response.create(model=CHAT, instructions="Be brief.", input=[], generate=False)
        error = until_the_end(connection)[-1]
        assert error.type == "error", error  # no message to respond to
        connection.response.create(model=CHAT, input="Say hello. " * 20, generate=False)
        first = until_the_end(connection)[-1].response
        assert first.output == []
        connection.response.create(
            model=CHAT, input="In French.", previous_response_id=first.id, max_output_tokens=16
        )
        last = until_the_end(connection)[-1].response
    assert last.usage.input_tokens_details.cached_tokens > 20


@row("two lanes")
def _() -> None:
    with client.responses.connect() as connection:
        for lane in "ab":
            connection.response.create(
                model=CHAT, input="Count to five.", max_output_tokens=16, stream_id=lane
            )
        done: list[str] = []
        for event in connection:
            if event.type in LAST:
                done.append(event.stream_id)
                if len(done) == 2:
                    break
    assert sorted(done) == ["a", "b"]


@row("errors: an unknown model, an unknown response")
def _() -> None:
    with client.responses.connect() as connection:
        connection.response.create(model="none", input="Hi.")
        error = until_the_end(connection)[-1]
        assert (error.type, error.status, error.error.code) == ("error", 404, "model_not_found")
        connection.response.create(model=CHAT, input="Hi.", previous_response_id="resp_none")
        error = until_the_end(connection)[-1]
        assert error.error.code == "previous_response_not_found"


@row("an address without a WebSocket")
def _() -> None:
    other = OpenAI(base_url=f"{URL}/v1/chat", api_key="none")
    refused: Any = None
    try:
        with other.responses.connect():
            pass
    except InvalidStatus as error:
        refused = error.response
    assert refused.status_code == 404
    assert b"there is no WebSocket at /v1/chat/responses" in refused.body


if __name__ == "__main__":
    main()
