"""The openai package: chat completions, completions and responses."""

# packages: openai==3.57.0 pydantic

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Literal

import openai
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel
from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row

client = OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
scripted = OpenAI(base_url=f"{SCRIPTED_URL}/v1", api_key="none", max_retries=0)
HELLO: Any = [{"role": "user", "content": "Say hello."}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
FLAT: Any = {"type": "function", **WEATHER["function"]}


class Person(BaseModel):
    """A person."""

    name: Literal["Tom", "Ann"]
    age: Literal[30, 40]


def chat(**body: Any) -> Any:
    return client.chat.completions.create(
        **{"model": CHAT, "messages": HELLO, "max_tokens": 4, **body}
    )


def text(**body: Any) -> str:
    found = chat(**body).choices[0].message.content
    assert found, "the answer is empty"
    return str(found)


def raises(kind: type[Exception], call: Callable[[], object], part: str) -> None:
    told = None
    try:
        call()
    except kind as error:
        told = str(error)
    assert told is not None, f"{kind.__name__} was not raised"
    assert part in told, told


@row("chat")
def _() -> None:
    text()


@row("chat stream")
def _() -> None:
    assert "".join(one.choices[0].delta.content or "" for one in chat(stream=True))


@row("chat stream include_usage")
def _() -> None:
    *_, last = chat(stream=True, stream_options={"include_usage": True})
    assert last.usage.completion_tokens > 0


# One parameter each: the answer must come, and be a text.
PLAIN: dict[str, Any] = {
    "max_completion_tokens=8": {"max_tokens": None, "max_completion_tokens": 8},
    "max_tokens=-1": {"extra_body": {"max_tokens": -1}, "stop": ["."]},
    "seed=7": {"seed": 7}, "stop=['!']": {"stop": ["!"]}, "presence_penalty=0.5":
    {"presence_penalty": 0.5}, "frequency_penalty=0.5": {"frequency_penalty": 0.5},
    "logit_bias={'100': 5}": {"logit_bias": {"100": 5}}, "user=me": {"user": "me"},
    "store=False": {"store": False}, "store=True": {"store": True},
    "metadata={'a': 'b'}": {"metadata": {"a": "b"}}, "service_tier=auto": {"service_tier": "auto"},
    "service_tier=default": {"service_tier": "default"},
    "service_tier=flex": {"service_tier": "flex"},
    "reasoning_effort=none": {"reasoning_effort": "none"},
    "reasoning_effort=low": {"reasoning_effort": "low"},
    "reasoning_effort=xhigh": {"reasoning_effort": "xhigh"}, "verbosity=low": {"verbosity": "low"},
    "prompt_cache_key=x": {"prompt_cache_key": "x"},
    "prompt_cache_retention=24h": {"prompt_cache_retention": "24h"},
    "safety_identifier=x": {"safety_identifier": "x"},
    "parallel_tool_calls=True": {"parallel_tool_calls": True},
    "modalities=['text']": {"modalities": ["text"]},
    "prediction={'type': 'content', 'content': 'x'}":
    {"prediction": {"type": "content", "content": "x"}},
    "response_format={'type': 'text'}": {"response_format": {"type": "text"}},
    "web_search_options={}": {"web_search_options": {}},
    "tool_choice=none": {"tool_choice": "none"}, "tools=[]": {"tools": []},
    "function_call=none": {"function_call": "none"},
    "functions=[]": {"functions": []}, "moderation=None": {"extra_body": {"moderation": None}},
    "temperature=2": {"temperature": 2}, "n=1": {"n": 1},
}  # fmt: skip
# What clients of other servers send beside OpenAI's parameters.
EXTRA: dict[str, Any] = {
    "top_k": 20, "min_p": 0.1, "repetition_penalty": 1.1, "guided_json": {"type": "object",
    "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}, "guided_regex": "a{3}",
    "guided_choice": ["yes", "no"], "guided_grammar": 'root ::= "yes"', "best_of": 1,
    "use_beam_search": False, "skip_special_tokens": True, "include_stop_str_in_output": False,
    "ignore_eos": False, "structured_outputs": {"choice": ["yes", "no"]},
    "options": {"num_ctx": 8192}, "enable_thinking": False, "provider": {"order": ["x"]},
    "cache_prompt": True, "num_ctx": 8192, "stop_token_ids": [2], "min_tokens": 1,
    "spaces_between_special_tokens": True, "truncate_prompt_tokens": 100, "top_a": 0.1,
    "typical_p": 0.9, "mirostat": 2, "keep_alive": "5m", "reasoning": {"effort": "low"},
    "plugins": [], "usage": {"include": True}, "functions": None, "function_call": None,
    "guided_decoding_backend": "xgrammar", "chat_template_kwargs": {"enable_thinking": False},
    "reasoning_format": "none", "n_cmpl": 1, "top_logprobs": None, "client_metadata": {"a": "b"},
    "priority": 0, "length_penalty": 1.0, "early_stopping": False, "bad_words": [],
    "allowed_token_ids": None, "add_generation_prompt": True, "echo": False, "documents": None,
    "thinking": {"type": "disabled"}, "think": False, "models": ["a"], "transforms": [],
    "session_id": "x", "format": None, "kv_transfer_params": None, "return_token_ids": False,
}  # fmt: skip
for name, body in PLAIN.items():
    row(f"chat {name}")(lambda body=body: text(**body))
for name, value in EXTRA.items():
    row(f"chat extra_body {name} (other engines' clients)")(
        lambda name=name, value=value: text(extra_body={name: value}, temperature=0.5)
    )
row("chat extra_body top_k=-1")(lambda: text(extra_body={"top_k": -1}))


@row("chat n=2")
def _() -> None:
    assert len(chat(n=2).choices) == 2


@row("chat logprobs=True")
def _() -> None:
    (choice,) = chat(logprobs=True, top_logprobs=2).choices
    assert all(len(one.top_logprobs) == 2 for one in choice.logprobs.content)


@row("guided_choice is kept to")
def _() -> None:
    assert text(extra_body={"guided_choice": ["yes", "no"]}) in ("yes", "no")


@row("stream_options.continuous_usage_stats")
def _() -> None:
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    assert all(one.usage.total_tokens for one in chat(stream=True, stream_options=options))


@row("chat content parts, developer role, name=")
def _() -> None:
    parts = [{"type": "text", "text": "Say"}, {"type": "text", "text": "hello."}]
    text(messages=[{"role": "developer", "content": "Be short."},
                   {"role": "user", "content": parts, "name": "ann"}])  # fmt: skip


@row("chat image_url part (text model): a clear error")
def _() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    asked = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}]
    raises(openai.BadRequestError, lambda: chat(messages=asked), "images")


@row("chat tools auto")
def _() -> None:
    chat(tools=[WEATHER])


def check_call(answer: Any) -> None:
    (choice,) = answer.choices
    (call,) = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls"
    assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")


@row("chat tools required")
def _() -> None:
    check_call(chat(tools=[WEATHER], tool_choice="required", max_tokens=100))


@row("chat tools named, stream")
def _() -> None:
    choice = {"type": "function", "function": {"name": "get_weather"}}
    found = ""
    for one in chat(tools=[WEATHER], tool_choice=choice, stream=True, max_tokens=100):
        for call in one.choices[0].delta.tool_calls or ():
            found += call.function.arguments
    assert json.loads(found)["city"] in ("Paris", "Rome")


@row("chat tools strict + allowed_tools")
def _() -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    allowed = {"mode": "required", "tools": [named]}
    choice: Any = {"type": "allowed_tools", "allowed_tools": allowed}
    check_call(chat(tools=[WEATHER], tool_choice=choice, max_tokens=100))


@row("chat custom tool")
def _() -> None:
    tool: Any = {"type": "custom", "custom": {"name": "say", "description": "Say a word."}}
    answer = chat(tools=[tool], tool_choice=tool, max_tokens=200, stop=['"}'])
    (call,) = answer.choices[0].message.tool_calls
    assert (call.type, call.custom.name) == ("custom", "say")
    assert call.custom.input


@row("chat functions, function_call (deprecated)")
def _() -> None:
    body: Any = {"functions": [WEATHER["function"]], "function_call": {"name": "get_weather"}}
    (choice,) = chat(**body, max_tokens=100).choices
    assert choice.finish_reason == "function_call"
    assert json.loads(choice.message.function_call.arguments)["city"] in ("Paris", "Rome")


@row("chat tools of unknown types are left out")
def _() -> None:
    tools: Any = [WEATHER, {"type": "web_search"}, {"type": "mcp", "server_label": "x"}]
    chat(tools=tools)


@row("chat tool round trip")
def _() -> None:
    asked: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
    first = scripted.chat.completions.create(model=SCRIPTED, messages=asked, tools=[WEATHER])
    (call,) = first.choices[0].message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "18 degrees"}
    for message in (first.choices[0].message, first.choices[0].message.model_dump()):
        second = scripted.chat.completions.create(
            model=SCRIPTED, messages=[*asked, message, result], tools=[WEATHER]
        )
        assert second.choices[0].message.content == "It is 18 degrees in Paris."


@row("chat message object re-sent (model_dump)")
def _() -> None:
    first = chat().choices[0].message.model_dump()
    text(messages=[*HELLO, first, {"role": "user", "content": "Again."}])


@row("chat message object re-sent (as object)")
def _() -> None:
    first = chat().choices[0].message
    text(messages=[*HELLO, first, {"role": "user", "content": "Again."}])


@row("chat reasoning, id, annotations in replayed messages; arguments as an object")
def _() -> None:
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "get_weather", "arguments": {"city": "Paris"}},
    }
    text(messages=[
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "Hm", "id": "x",
         "annotations": [], "audio": None, "function_call": None, "refusal": None},
        {"role": "tool", "tool_call_id": "c", "content": "18"},
    ])  # fmt: skip


@row("parse() pydantic")
def _() -> None:
    for api in (client.chat, client.beta.chat):
        answer = api.completions.parse(model=CHAT, messages=HELLO, response_format=Person)
        assert answer.choices[0].message.parsed.age in (30, 40)


@row("parse() with pydantic_function_tool")
def _() -> None:
    tool = openai.pydantic_function_tool(Person)
    answer = client.chat.completions.parse(
        model=CHAT, messages=HELLO, tools=[tool], tool_choice="required", max_tokens=100
    )
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.parsed_arguments.age in (30, 40)


@row("chat.completions.stream() helper with pydantic")
def _() -> None:
    with client.chat.completions.stream(
        model=CHAT, messages=HELLO, response_format=Person
    ) as stream:
        for _event in stream:
            pass
        assert stream.get_final_completion().choices[0].message.parsed.age in (30, 40)


@row("json_object")
def _() -> None:
    answer = chat(response_format={"type": "json_object"}, max_tokens=300, stop=["}"])
    assert answer.choices[0].message.content.startswith("{")


@row("json_schema from model_json_schema(), not strict, no additionalProperties")
def _() -> None:
    form = {
        "type": "json_schema",
        "json_schema": {"name": "p", "schema": Person.model_json_schema()},
    }
    Person.model_validate_json(text(response_format=form, max_tokens=100))


# Other places in which clients put a schema.
SCHEMA = Person.model_json_schema()
for name, form in {
    "schema beside type": {"type": "json_schema", "schema": SCHEMA},
    "json_schema without type": {"json_schema": {"schema": SCHEMA}},
    "json_schema without name": {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
    "json_object with schema": {"type": "json_object", "schema": SCHEMA},
}.items():
    row(f"response_format: {name}")(
        lambda form=form: Person.model_validate_json(text(response_format=form, max_tokens=100))
    )


@row("tools and response_format together")
def _() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA}}
    message = chat(tools=[WEATHER], response_format=form, max_tokens=100).choices[0].message
    assert message.tool_calls or Person.model_validate_json(message.content)


@row("with_raw_response, with_streaming_response")
def _() -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=CHAT, messages=HELLO, max_tokens=4, verbosity="low"
    )
    assert raw.headers["x-trinity-ignored"] == "verbosity"
    with client.chat.completions.with_streaming_response.create(
        model=CHAT, messages=HELLO, max_tokens=4
    ) as streamed:
        assert streamed.parse().choices


@row("unknown model -> NotFoundError")
def _() -> None:
    raises(openai.NotFoundError, lambda: chat(model="nope"), "nope")


@row("usual model names where one model is loaded")
def _() -> None:
    for name in ("gpt-3.5-turbo", "gpt-4o"):
        answer = scripted.chat.completions.create(model=name, messages=HELLO)
        assert answer.model == SCRIPTED


@row("completions")
def _() -> None:
    assert client.completions.create(model=CHAT, prompt="Once upon", max_tokens=8).choices[0].text


@row("completions stream, n=2, logprobs, echo")
def _() -> None:
    body: Any = {"prompt": "Once upon", "max_tokens": 4, "n": 2, "logprobs": 1, "echo": True}
    assert len(client.completions.create(model=CHAT, **body).choices) == 2
    found = ["", ""]
    for one in client.completions.create(model=CHAT, stream=True, **body):
        for choice in one.choices:
            found[choice.index] += choice.text
    assert all(one.startswith("Once upon") for one in found)


@row("completions token ids prompt")
def _() -> None:
    assert client.completions.create(model=CHAT, prompt=[100, 200], max_tokens=4).choices[0].text


@row("completions best_of, suffix=None, max_tokens=None")
def _() -> None:
    answer = client.completions.create(
        model=CHAT, prompt="Once", best_of=1, suffix=None, max_tokens=4
    )
    assert answer.choices


def respond(**body: Any) -> Any:
    return client.responses.create(
        model=CHAT, **{"input": "Say hello.", "max_output_tokens": 16, **body}
    )


@row("responses.create")
def _() -> None:
    assert respond().output_text


@row("responses.stream helper")
def _() -> None:
    with scripted.responses.stream(model=SCRIPTED, input="Hi.") as stream:
        for _event in stream:
            pass
        final = stream.get_final_response()
    assert final.output_text == "Hello! How can I help you today?"


@row("responses.parse pydantic")
def _() -> None:
    answer = client.responses.parse(model=CHAT, input="Invent a person.", text_format=Person)
    assert answer.output_parsed.age in (30, 40)


@row("responses tools + output sent back")
def _() -> None:
    asked: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
    first = scripted.responses.create(model=SCRIPTED, input=asked, tools=[FLAT])
    (call,) = [one for one in first.output if one.type == "function_call"]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"}
    second = scripted.responses.create(
        model=SCRIPTED, input=[*asked, *first.output, result], tools=[FLAT]
    )
    assert second.output_text == "It is 18 degrees in Paris."
    third = scripted.responses.create(
        model=SCRIPTED, input=[result], previous_response_id=first.id, tools=[FLAT]
    )
    assert third.output_text == second.output_text


@row("responses default store (SDK users never set store)")
def _() -> None:
    assert respond().status in ("completed", "incomplete")


@row("responses store=True")
def _() -> None:
    assert respond(store=True).output_text


@row("responses previous_response_id")
def _() -> None:
    first = respond(input="My name is Ann.")
    again = respond(input="What is my name?", previous_response_id=first.id)
    assert again.usage.input_tokens > first.usage.input_tokens


@row("responses.retrieve")
def _() -> None:
    made = respond()
    assert client.responses.retrieve(made.id).output_text == made.output_text


@row("responses.input_items.list, delete")
def _() -> None:
    made = respond()
    assert [one.content[0].text for one in client.responses.input_items.list(made.id)]
    client.responses.delete(made.id)
    raises(openai.NotFoundError, lambda: client.responses.retrieve(made.id), made.id)


@row("responses background=True, retrieve, cancel")
def _() -> None:
    made = respond(background=True)
    while made.status in ("queued", "in_progress"):
        made = client.responses.retrieve(made.id)
    assert made.output_text == respond().output_text
    assert client.responses.cancel(made.id).status == made.status


# One parameter each of the responses.
for name, body in {
    "reasoning effort/summary": {"reasoning": {"effort": "low", "summary": "detailed"}},
    "truncation=auto": {"truncation": "auto"},
    "text.verbosity": {"text": {"verbosity": "low"}},
    "service_tier=flex": {"service_tier": "flex"},
    "include": {"include": ["web_search_call.action.sources"]},
    "prompt_cache_retention": {"prompt_cache_retention": "24h"},
    "client_metadata": {"extra_body": {"client_metadata": {"a": "b"}}},
    "tool namespace": {"tools": [{"type": "namespace", "name": "x", "tools": []}]},
    "tool local_shell": {"tools": [{"type": "local_shell"}]},
    "tool mcp": {"tools": [{"type": "mcp", "server_label": "x", "server_url": "http://x"}]},
    "custom tool": {"tools": [{"type": "custom", "name": "say"}]},
    "built-in tool web_search (left out)": {"tools": [{"type": "web_search"}]},
}.items():
    row(f"responses {name}")(lambda body=body: respond(**body).output[0].id)


@row("responses built-in tool web_search, forced (clear refusal)")
def _() -> None:
    body: Any = {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}
    raises(openai.BadRequestError, lambda: respond(**body), "tool_choice")


@row("responses.input_tokens.count")
def _() -> None:
    counted = client.responses.input_tokens.count(model=CHAT, input="Say hello.")
    assert counted.input_tokens == respond().usage.input_tokens


@row("beta.responses.create")
def _() -> None:
    api = getattr(client.beta, "responses", client.responses)
    assert api.create(model=CHAT, input="Say hello.", max_output_tokens=8).output


@row("models.list / retrieve")
def _() -> None:
    assert CHAT in [one.id for one in client.models.list()]
    assert client.models.retrieve(CHAT).id == CHAT


@row("moderations (clear 404)")
def _() -> None:
    raises(openai.NotFoundError, lambda: client.moderations.create(input="x"), "moderations")


@row("files + batches (clear 501 without --state)")
def _() -> None:
    raises(openai.InternalServerError, lambda: client.files.list(), "--state")
    raises(openai.InternalServerError, lambda: client.batches.list(), "--state")


@row("beta.assistants (clear 404)")
def _() -> None:
    raises(openai.NotFoundError, lambda: client.beta.assistants.list(), "assistants")


@row("async client, 4 at once")
def _() -> None:
    async def run() -> list[Any]:
        async with AsyncOpenAI(base_url=f"{URL}/v1", api_key="none") as many:
            return await asyncio.gather(
                *(
                    many.chat.completions.create(model=CHAT, messages=HELLO, max_tokens=8)
                    for _ in range(4)
                )
            )

    assert all(one.choices[0].message.content for one in asyncio.run(run()))


if __name__ == "__main__":
    main()
