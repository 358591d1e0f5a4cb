"""Writes tool calls in the format of each model, for tests that damage them.

Sources: the chat templates of the models, llama.cpp's tests/test-chat.cpp, vLLM's tool parsers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.conversation.transcripts import (
    CODER,
    DEEPSEEK,
    DSML,
    ERNIE,
    GEMMA,
    HARMONY,
    HERMES,
    INVOKE,
    KIMI,
    KIMI_K3,
    LONGCAT,
    LONGCAT_JSON,
    MINIMAX_M3,
    SOLAR,
)

Arguments = Mapping[str, Any]
_M3 = "]<]minimax[>["


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Writer:
    """Writes responses in the format of a model.

    ``call`` writes a call with the text of its arguments; ``values`` writes that text. Calls are
    enclosed by ``first`` and ``last`` and separated by ``between``. ``thinks`` are delimiters of
    reasoning; ``says`` precedes text and ``ends`` follows it.
    """

    form: str
    template: str
    call: Callable[[str, str], str]
    values: Callable[[Arguments], str] = dumped
    first: str = ""
    between: str = ""
    last: str = ""
    thinks: tuple[str, str] = ("<think>", "</think>")
    says: str = ""
    ends: str = ""

    def calls(self, calls: Sequence[tuple[str, Arguments]]) -> str:
        texts = [self.call(name, self.values(arguments)) for name, arguments in calls]
        return self.first + self.between.join(texts) + self.last

    def spoilt(self, name: str, arguments: str) -> str:
        """Return a call whose arguments are written differently."""
        return self.first + self.call(name, arguments) + self.last

    def thought(self, text: str) -> str:
        return self.thinks[0] + text + self.thinks[1]

    def said(self, text: str) -> str:
        return self.says + text + self.ends


def _json(key: str, opening: str = "", closing: str = "") -> Callable[[str, str], str]:
    return lambda name, text: f'{opening}{{"name": "{name}", "{key}": {text}}}{closing}'


def _tagged(before: str, end: str, newline: str = "\n") -> Callable[[Arguments], str]:
    def values(arguments: Arguments) -> str:
        texts = (
            f"{before.format(key=key, text=str(isinstance(value, str)).lower())}{newline}"
            f"{value if isinstance(value, str) else dumped(value)}{newline}{end}\n"
            for key, value in arguments.items()
        )
        return "".join(texts)

    return values


def _gemma(quote: str) -> Callable[[Arguments], str]:
    def text(value: Any) -> str:
        if isinstance(value, str):
            return f"{quote}{value}{quote}"
        if isinstance(value, list):
            return f"[{','.join(map(text, value))}]"
        if isinstance(value, dict):
            return "{" + ",".join(f"{key}:{text(one)}" for key, one in value.items()) + "}"
        return dumped(value)

    return text


def _kimi(arguments: Arguments) -> str:
    kinds = {str: "string", int: "number", float: "number", bool: "boolean", list: "array"}
    return "".join(
        f'<|open|>argument key="{key}" type="{kinds.get(type(value), "object")}"<|sep|>'
        f"{value if isinstance(value, str) else dumped(value)}<|close|>argument<|sep|>"
        for key, value in arguments.items()
    )


def _elements(arguments: Arguments) -> str:
    """Write tags as MiniMax M3's template does, and words of JSON."""

    def inner(value: Any) -> str:
        if isinstance(value, dict):
            return _elements(value)
        if isinstance(value, list):
            return "".join(_elements({"item": one}) for one in value)
        return value if isinstance(value, str) else dumped(value)

    return "".join(f"{_M3}<{key}>{inner(value)}{_M3}</{key}>" for key, value in arguments.items())


def _keywords(arguments: Arguments) -> str:
    return ", ".join(f"{key}={dumped(value)}" for key, value in arguments.items())


def _list(form: str, template: str, opening: str, closing: str = "", key: str = "arguments") -> Any:
    return Writer(form, template, _json(key), first=f"{opening}[", between=", ", last=f"]{closing}")


def _invoke(form: str, template: str, prefix: str, mark: str, attribute: str = "") -> Writer:
    return Writer(
        form,
        template,
        lambda name, text: f'<{prefix}invoke name="{name}">\n{text}</{prefix}invoke>\n',
        _tagged(f'<{prefix}parameter name="{{key}}"{attribute}>', f"</{prefix}parameter>", ""),
        first=f"<{mark}>\n",
        last=f"</{mark}>",
    )


def _function(form: str, template: str, prefix: str, newline: str) -> Writer:
    return Writer(
        form,
        template,
        lambda name, text: (
            f"<{prefix}tool_call>\n<function={name}>\n{text}</function>\n</{prefix}tool_call>"
        ),
        _tagged("<parameter={key}>", "</parameter>", newline),
        between="\n",
        thinks=(f"<{prefix}think>", f"</{prefix}think>"),
    )


WRITERS = [
    Writer("general", "", _json("arguments", "<tool_call>\n", "\n</tool_call>"), between="\n"),
    Writer("hermes", HERMES, _json("arguments", "<tool_call>\n", "\n</tool_call>"), between="\n"),
    _list("granite", "<|tool_call|>", "<|tool_call|>"),
    _list("phi", "<|tool_call|> <|/tool_call|>", "<|tool_call|>", "<|/tool_call|>"),
    _list("nemotron", "<TOOLCALL></TOOLCALL>", "<TOOLCALL>", "</TOOLCALL>"),
    _list("apriel", "<tool_calls></tool_calls>", "<tool_calls>", "</tool_calls>"),
    _list("command", "<|START_ACTION|><|END_ACTION|>", "<|START_ACTION|>", "<|END_ACTION|>",
          "parameters"),
    _list("mistral-list", "[TOOL_CALLS]", "[TOOL_CALLS]"),
    Writer("gigachat", "<|function_call|>", _json("arguments", "<|function_call|>")),
    Writer("mistral", "[TOOL_CALLS] [ARGS] [THINK] [/THINK]",
           lambda name, text: f"[TOOL_CALLS]{name}[ARGS]{text}", thinks=("[THINK]", "[/THINK]")),
    Writer("llama", '"parameters": ipython', _json("parameters"), first="<|python_tag|>",
           between="; "),
    Writer("functionary", "<function=", lambda name, text: f"<function={name}>{text}</function>"),
    Writer("deepseek", DEEPSEEK,
           lambda name, text: f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{text}<｜tool▁call▁end｜>",
           first="<｜tool▁calls▁begin｜>", last="<｜tool▁calls▁end｜>"),
    Writer("deepseek-fenced", DEEPSEEK + "```json",
           lambda name, text: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>"
           f"{name}\n```json\n{text}\n"
           "```<｜tool▁call▁end｜>",
           first="<｜tool▁calls▁begin｜>", between="\n", last="<｜tool▁calls▁end｜>"),
    Writer("kimi", KIMI,
           lambda name, text: f"<|tool_call_begin|>functions.{name}:0"
           f"<|tool_call_argument_begin|>{text}<|tool_call_end|>",
           first="<|tool_calls_section_begin|>", last="<|tool_calls_section_end|>"),
    Writer("harmony", HARMONY,
           lambda name, text: f"<|channel|>commentary to=functions.{name} <|constrain|>json"
           f"<|message|>{text}<|call|>",
           between="<|start|>assistant", thinks=("<|channel|>analysis<|message|>", "<|end|>"),
           says="<|channel|>final<|message|>", ends="<|end|>"),
    _function("qwen-coder", CODER, "", "\n"),
    _function("seed", "<seed:tool_call><function=><parameter=></seed:think><seed:think>", "seed:",
              ""),
    _invoke("minimax", INVOKE, "", "minimax:tool_call"),
    _invoke("dots", "<dots_function_call>", "", "dots_function_call"),
    _invoke("dsml", DSML, "｜DSML｜", "｜DSML｜function_calls", ' string="{text}"'),
    _invoke("dsml-tools", DSML.replace("function_calls", "tool_calls"), "｜DSML｜",
            "｜DSML｜tool_calls", ' string="{text}"'),
    Writer("glm", "<tool_call><arg_key>",
           lambda name, text: f"<tool_call>{name}\n{text}</tool_call>",
           _tagged("<arg_key>{key}</arg_key>\n<arg_value>", "</arg_value>", ""), between="\n"),
    Writer("longcat", LONGCAT,
           lambda name, text: f"<longcat_tool_call>{name}\n{text}</longcat_tool_call>",
           _tagged("<longcat_arg_key>{key}</longcat_arg_key>\n<longcat_arg_value>",
                   "</longcat_arg_value>", ""), thinks=("<longcat_think>", "</longcat_think>")),
    Writer("longcat-json", LONGCAT_JSON,
           _json("arguments", "<longcat_tool_call>\n", "\n</longcat_tool_call>"),
           thinks=("<longcat_think>", "</longcat_think>")),
    Writer("ernie", ERNIE, _json("arguments", "<tool_call>\n", "\n</tool_call>"), between="\n",
           says="<response>\n", ends="\n</response>\n"),
    Writer("hunyuan", "<tool_sep{}> :opensource",
           lambda name, text: f"<tool_call:opensource>{name}<tool_sep:opensource>\n{text}"
           "</tool_call:opensource>\n",
           _tagged("<arg_key:opensource>{key}</arg_key:opensource>\n<arg_value:opensource>",
                   "</arg_value:opensource>", ""),
           first="<tool_calls:opensource>\n", last="</tool_calls:opensource>",
           thinks=("<think:opensource>", "</think:opensource>")),
    Writer("kimi-k3", KIMI_K3,
           lambda name, text: f'<|open|>call tool="{name}" index="1"<|sep|>{text}'
           "<|close|>call<|sep|>",
           _kimi,
           first="<|open|>tools<|sep|>", last="<|close|>tools<|sep|>",
           thinks=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
           says="<|open|>response<|sep|>", ends="<|close|>response<|sep|>"),
    Writer("muse", "<atem:function_calls> to=self<|message|> <|eom|>",
           lambda name, text: f'to={name}<|message|><atem:function_calls>\n'
           f'<atem:invoke name="{name}">\n{text}</atem:invoke>\n</atem:function_calls>',
           _tagged('<atem:parameter name="{key}">', "</atem:parameter>", ""),
           between="<|eom|><|start|>assistant ", thinks=(" to=self<|message|>", "<|eom|>"),
           says=" to=user<|message|>", ends="<|eom|><|start|>assistant"),
    Writer("minicpm", '<function name=" <param name="',
           lambda name, text: f'<function name="{name}">{text}</function>',
           _tagged('<param name="{key}">', "</param>", "")),
    Writer("lfm", "<|tool_call_start|>", lambda name, text: f"{name}({text})", _keywords,
           first="<|tool_call_start|>[", between=", ", last="]<|tool_call_end|>"),
    Writer("olmo", "<function_calls>", lambda name, text: f"{name}({text})", _keywords,
           first="<function_calls>\n", between="\n", last="\n</function_calls>"),
    Writer("solar", SOLAR,
           lambda name, text: "<|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>"
           f"{name}<|tool_call:args|>{text}<|tool_call:end|>",
           first="<|tool_calls|>", last="<|calls|>",
           thinks=("<|think|>", "<|end|>"), says="<|begin|>assistant<|content|>", ends="<|end|>"),
    Writer("apertus", "<|tools_prefix|> <|tools_suffix|> <|inner_prefix|> <|inner_suffix|>",
           lambda name, text: f'{{"{name}": {text}}}', first="<|tools_prefix|>[", between=", ",
           last="]<|tools_suffix|>", thinks=("<|inner_prefix|>", "<|inner_suffix|>")),
    Writer("minimax-m3", MINIMAX_M3,
           lambda name, text: f'{_M3}<invoke name="{name}">{text}{_M3}</invoke>\n',
           _elements, first=f"{_M3}<tool_call>\n", last=f"{_M3}</tool_call>",
           thinks=("<mm:think>", "</mm:think>")),
    Writer("minimax-m1", "<beginning_of_sentence><tool_calls></tool_calls>", _json("arguments"),
           first="<tool_calls>\n", between="\n", last="\n</tool_calls>"),
    Writer("gigachat-3", "<|message_sep|>function call<|role_sep|>",
           _json("arguments", "<|message_sep|>\n\nfunction call<|role_sep|>\n")),
    Writer("functionary-3.2", ">>>all", lambda name, text: f">>>{name}\n{text}",
           says=">>>all\n"),
    Writer("gemma", GEMMA, lambda name, text: f"<|tool_call>call:{name}{text}<tool_call|>",
           _gemma('<|"|>'), thinks=("<|channel>thought\n", "<channel|>")),
    Writer("function-gemma", "<start_function_call><escape>",
           lambda name, text: f"<start_function_call>call:{name}{text}<end_function_call>",
           _gemma("<escape>")),
]  # fmt: skip
JSON_WRITERS = [one for one in WRITERS if one.values is dumped]
