"""Text that models of each format write, and its parsed form.

Sources: the chat templates of the models, and llama.cpp's tests/test-chat.cpp.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "exact": {"type": "boolean"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "get_time"}},
]
ROME = ("weather", {"city": "Rome", "days": 3})
TIME: tuple[str, dict[str, Any]] = ("get_time", {})
HARD = ("weather", {"city": 'Zü "x" \\ {}\n<b>', "exact": True, "tags": ["a,", "]}"]})


@dataclass(frozen=True)
class Transcript:
    """A response. ``template`` is the part of a chat template that identifies the format."""

    form: str
    template: str
    answer: str
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    text: str = ""
    reasoning: str = ""
    prompt: str = ""

    @property
    def name(self) -> str:
        """The name for test ids."""
        return f"{self.form}: {self.answer[:24]!r}"


HERMES = '<tool_call>{"name": <function-name>}'
CODER = "<tool_call><function=example><parameter=example>"
INVOKE = '<minimax:tool_call><invoke name="x"><parameter name="y">'
DSML = "{%- set dsml_token = '｜DSML｜' -%}{{ '</' + dsml_token + 'function_calls>' }}"
HARMONY = "<|channel|>analysis<|message|> <|end|>"
DEEPSEEK = "<｜tool▁call▁begin｜>"
KIMI = "<|tool_calls_section_begin|><|tool_call_begin|>"
GEMMA = '<|tool_call>call: <|"|> <|channel>thought <channel|>'
MUSE = "<atem:function_calls> to=self<|message|> <|eom|>"
MINIMAX_M3 = "]<]minimax[>[ <tool_call> <invoke name= <mm:think></mm:think>"
SOLAR = "<|think|> <|end|> <|tool_call:begin|> <|tool_call:name|>"
KIMI_K3 = "<|open|> <|close|> <|sep|> call"
ERNIE = "<think>\n</think> <response>\n <tool_call>"
LONGCAT = "<longcat_tool_call><longcat_arg_key> <longcat_think> </longcat_think>"
LONGCAT_JSON = "<longcat_tool_call> <longcat_think> </longcat_think>"
HY3 = "<tool_sep{}> :opensource"
GRANITE_32 = (
    "Write your thoughts after 'Here is my thought process:' and write your response after "
    "'Here is my response:' for each user query. <|tool_call|>"
)
GRANITE_33 = (
    "Write your thoughts between <think></think> and write your response between "
    "<response></response> for each user query. <|tool_call|>"
)
TRANSCRIPTS = [
    Transcript("general", "", "Just text.\n", text="Just text.\n"),
    Transcript("general", "", '{"name": "get_time", "arguments": {}}', [TIME]),
    Transcript("general", "", '```json\n{"name": "get_time"}\n```', [TIME]),
    Transcript("general", "", '{"city": "Rome"}', text='{"city": "Rome"}'),
    Transcript(
        "hermes", HERMES,
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 3}}\n</tool_call>',
        [ROME],
    ),
    Transcript(
        "hermes", HERMES,
        '<think>\nHm,\n<b>\n</think>\n\nI see.\n<tool_call>\n{"arguments": {"city": "Rome", "days"'
        ': 3}, "name": "weather"}\n</tool_call>\n<tool_call>\n{"name": "get_time", "arguments": {}}'
        "\n</tool_call>\n",
        [ROME, TIME], "I see.", "Hm,\n<b>",
    ),
    Transcript(
        "hermes", HERMES,
        "No, it is.\n</think>\n\nDone.",
        text="Done.", reasoning="No, it is.", prompt="<|im_start|>assistant\n<think>\n",
    ),
    Transcript(
        "hermes", HERMES,
        '<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"Rome\\", \\"days\\": 3}"}',
        [ROME],
    ),
    Transcript("hermes", HERMES, "a < b <tool", text="a < b <tool"),
    Transcript(
        "qwen-coder", CODER,
        "I look.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nZü \"x\" \\ {}\n<b>\n"
        "</parameter>\n<parameter=exact>\nTrue\n</parameter>\n<parameter=tags>\n['a,', ']}']\n"
        "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=get_time>\n</function>\n"
        "</tool_call>",
        [HARD, TIME], "I look.",
    ),
    Transcript(
        "seed", "<seed:tool_call><function=example><parameter=example></seed:think><seed:think>",
        "<seed:think>Hm</seed:think><seed:tool_call>\n<function=weather>\n<parameter=city>Rome"
        "</parameter>\n<parameter=days>3</parameter>\n</function>\n</seed:tool_call>",
        [ROME], reasoning="Hm",
    ),
    Transcript(
        "glm", "<tool_call><arg_key>",
        "<think>Hm</think>Look:\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome"
        "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"
        "<tool_call>get_time</tool_call>",
        [ROME, TIME], "Look:", "Hm",
    ),
    Transcript(
        "minimax", INVOKE,
        '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Rome</parameter>\n'
        '<parameter name="days">3</parameter>\n</invoke>\n<invoke name="get_time">\n</invoke>\n'
        "</minimax:tool_call>",
        [ROME, TIME],
    ),
    Transcript(
        "dsml", DSML,
        'Yes.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">\n<｜DSML｜parameter '
        'name="city" string="true">Rome</｜DSML｜parameter>\n<｜DSML｜parameter name="days" '
        'string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        [ROME], "Yes.",
    ),
    Transcript(
        "mistral-list", "[TOOL_CALLS]",
        '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome", "days": 3}, "id": '
        '"abcdefghi"}, {"name": "get_time", "arguments": {}}]',
        [ROME, TIME],
    ),
    Transcript(
        "mistral", "[TOOL_CALLS] [ARGS] [THINK] [/THINK]",
        '[THINK]Hm[/THINK]So:[TOOL_CALLS]weather[ARGS]{"city": "Rome", "days": 3}'
        "[TOOL_CALLS]get_time[CALL_ID]abcdefghi[ARGS]{}",
        [ROME, TIME], "So:", "Hm",
    ),
    Transcript(
        "llama", '"parameters": ipython',
        '{"name": "weather", "parameters": {"city": "Rome", "days": 3}}',
        [ROME],
    ),
    Transcript(
        "llama", '"parameters": ipython',
        '<|python_tag|>{"type": "function", "name": "weather", "parameters": {"city": "Rome", '
        '"days": 3}}; {"name": "get_time", "parameters": {}}',
        [ROME, TIME],
    ),
    Transcript(
        "llama", '"parameters": ipython',
        '<|python_tag|>weather.call(city="Rome")',
        text='<|python_tag|>weather.call(city="Rome")',
    ),
    Transcript(
        "granite", "<|tool_call|>",
        '<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome", "days": 3}}]',
        [ROME],
    ),
    Transcript(
        "granite", GRANITE_32,
        "Here is my thought process:\nHm, <b>\n\nHere is my response:\nYes.",
        text="Yes.", reasoning="Hm, <b>",
    ),
    Transcript(
        "granite", GRANITE_32,
        "Here's my thought process: Hm.\n\nHere's my response: x. Here is my response: y",
        text="x. Here is my response: y", reasoning="Hm.",
    ),
    Transcript("granite", GRANITE_32, "Here is my thought.", text="Here is my thought."),
    Transcript(
        "granite", GRANITE_33,
        "<think>Hm,\n<response>?</think>\n<response>Yes.\nNo.\n</response>\n",
        text="Yes.\nNo.", reasoning="Hm,\n<response>?",
    ),
    Transcript(
        "granite", GRANITE_33,
        "<think>Hm</think><response>```xml\n<response>x</response>\n```</response>",
        text="```xml\n<response>x</response>\n```", reasoning="Hm",
    ),
    Transcript(
        "granite", GRANITE_33,
        "<think>Hm</think><response>I look.</response>\n"
        '<|tool_call|>[{"name": "get_time", "arguments": {}}]',
        [TIME], "I look.", "Hm",
    ),
    Transcript(
        "granite", GRANITE_33, "<think>Hm</think>\nYes.</response>",
        text="Yes.</response>", reasoning="Hm",
    ),
    Transcript(
        "granite", GRANITE_33, "<think>Hm</think>\n\n<response>Yes. </resp",
        text="Yes. </resp", reasoning="Hm",
    ),
    Transcript("granite", GRANITE_33, "<think>Hm</think>\n\n<respo", reasoning="Hm"),
    Transcript(
        "granite", GRANITE_33, "<response>\n  <a/>\n</response>",
        text="<response>\n  <a/>\n</response>",
    ),
    Transcript(
        "phi", "<|tool_call|> <|/tool_call|>",
        '<|tool_call|>[{"name": "get_time", "arguments": {}}]<|/tool_call|>',
        [TIME],
    ),
    Transcript(
        "nemotron", "<TOOLCALL></TOOLCALL>",
        'A<TOOLCALL>[{"name": "get_time", "arguments": {}}]</TOOLCALL>',
        [TIME], "A",
    ),
    Transcript(
        "command", "<|START_ACTION|><|END_ACTION|><|START_THINKING|><|END_THINKING|>",
        '<|START_THINKING|>Hm<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", '
        '"tool_name": "weather", "parameters": {"city": "Rome", "days": 3}}\n]<|END_ACTION|>',
        [ROME], reasoning="Hm",
    ),
    Transcript(
        "functionary", "<function=",
        'So.<function=weather>{"city": "Rome", "days": 3}</function><function=get_time>{}'
        "</function>",
        [ROME, TIME], "So.",
    ),
    Transcript(
        "deepseek-fenced", DEEPSEEK + "```json",
        "Hm.\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n"
        '```json\n{"city": "Rome", "days": 3}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>'
        "function<｜tool▁sep｜>get_time\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [ROME, TIME], reasoning="Hm.", prompt="<｜Assistant｜><think>\n",
    ),
    Transcript(
        "deepseek", DEEPSEEK,
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "Rome", "days"'
        ": 3}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [ROME],
    ),
    Transcript(
        "kimi", KIMI,
        "Ok<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0"
        '<|tool_call_argument_begin|>{"city": "Rome", "days": 3}<|tool_call_end|>'
        "<|tool_call_begin|>functions.get_time:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>",
        [ROME, TIME], "Ok",
    ),
    Transcript(
        "gemma", GEMMA,
        '<|channel>thought\nHm<channel|><|tool_call>call:weather{city:<|"|>Zü "x" \\ {}\n<b><|"|>,'
        'exact:true,tags:[<|"|>a,<|"|>,<|"|>]}<|"|>]}<tool_call|><|tool_call>call:get_time{}'
        "<tool_call|>",
        [HARD, TIME], reasoning="Hm",
    ),
    Transcript(
        "function-gemma", "<start_function_call><escape>",
        "<start_function_call>call:weather{city:<escape>Rome<escape>,days:3}<end_function_call>",
        [ROME],
    ),
    Transcript(
        "harmony", HARMONY,
        "<|channel|>analysis<|message|>Need it.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.weather <|constrain|>json<|message|>{"city": "Rome", "days": 3}<|call|>',
        [ROME], reasoning="Need it.", prompt="<|start|>assistant",
    ),
    Transcript(
        "harmony", HARMONY,
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.get_time"
        "<|channel|>commentary json<|message|>{}",
        [TIME], "I look.", prompt="<|start|>assistant",
    ),
    Transcript(
        "harmony", HARMONY,
        "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>"
        "2 < 3\n",
        text="2 < 3\n", reasoning="Easy.", prompt="<|start|>assistant",
    ),
    Transcript(
        "lfm", "<|tool_call_start|>",
        "<think>Hm</think>I look."
        "<|tool_call_start|>[weather(city=\"Z\u00fc \\\"x\\\" \\\\ {}\\n<b>\", "
        "exact=True, tags=['a,', ']}']), get_time(), weather(city='Rome', days=3)]"
        "<|tool_call_end|>",
        [HARD, TIME, ROME], "I look.", "Hm",
    ),
    Transcript("lfm", "<|tool_list_start|>", "[weather(city)]", text="[weather(city)]"),
    Transcript(
        "lfm", "<|tool_call_start|>", "<|tool_call_start|>get_time()<|tool_call_end|>", [TIME]
    ),
    Transcript(
        "lfm", "<|tool_call_start|>",
        '<|tool_call_start|>[{"name": "get_time", "arguments": {}}]<|tool_call_end|>', [TIME],
    ),
    Transcript(
        "minicpm", '<function name=" <param name="',
        '<think>\nHm\n</think>\n\nI look.\n<function name="weather"><param name="city"><![CDATA['
        'Z\u00fc "x" \\ {}\n<b>]]></param><param name="exact">true</param>'
        '<param name="tags">["a,", "]}"]</param></function>\n'
        '<function name="get_time"></function>\n'
        '<function name="weather"><param name="city">Rome</param><param name="days"><![CDATA[3]]>'
        "</param></function>",
        [HARD, TIME, ROME], "I look.", "Hm",
    ),
    Transcript(
        "muse", MUSE,
        ' to=self<|message|>Hm<|eom|><|start|>assistant to=user<|message|>I look.<|eom|>'
        '<|start|>assistant to=weather<|message|><atem:function_calls>\n'
        '<atem:invoke name="weather">\n<atem:parameter name="city">'
        'Z\u00fc "x" \\ {}\n<b></atem:parameter>\n'
        '<atem:parameter name="exact">true</atem:parameter>\n<atem:parameter name="tags">'
        '["a,", "]}"]</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|>'
        '<|start|>assistant to=get_time<|message|><atem:function_calls>\n'
        '<atem:invoke name="get_time">\n</atem:invoke>\n</atem:function_calls>',
        [HARD, TIME], "I look.", "Hm",
    ),
    Transcript("muse", MUSE, " to=user<|message|>Just text.", text="Just text."),
    Transcript(
        "hunyuan", HY3,
        "Hm</think:opensource>I look.<tool_calls:opensource>\n<tool_call:opensource>weather"
        "<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n"
        "<arg_value:opensource>Rome</arg_value:opensource>\n<arg_key:opensource>days"
        "</arg_key:opensource>\n<arg_value:opensource>3</arg_value:opensource>\n"
        "</tool_call:opensource>\n<tool_call:opensource>get_time<tool_sep:opensource>\n"
        "</tool_call:opensource>\n</tool_calls:opensource>",
        [ROME, TIME], "I look.", "Hm", "<think:opensource>",
    ),
    Transcript(
        "longcat", LONGCAT,
        "<longcat_think>\nHm\n</longcat_think>\nI look.\n<longcat_tool_call>weather\n"
        '<longcat_arg_key>city</longcat_arg_key>\n<longcat_arg_value>Z\u00fc "x" \\ {}\n<b>'
        "</longcat_arg_value>\n<longcat_arg_key>exact</longcat_arg_key>\n"
        "<longcat_arg_value>true</longcat_arg_value>\n<longcat_arg_key>tags</longcat_arg_key>\n"
        '<longcat_arg_value>["a,", "]}"]</longcat_arg_value>\n</longcat_tool_call>\n'
        "<longcat_tool_call>get_time\n</longcat_tool_call>\n<longcat_tool_call>functions.weather\n"
        "<longcat_arg_key>city</longcat_arg_key><longcat_arg_value>Rome</longcat_arg_value>"
        "<longcat_arg_key>days</longcat_arg_key><longcat_arg_value>3</longcat_arg_value>"
        "</longcat_tool_call>",
        [HARD, TIME, ROME], "I look.", "Hm",
    ),
    Transcript(
        "longcat-json", LONGCAT_JSON,
        '<longcat_tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 3}}\n'
        '</longcat_tool_call><longcat_tool_call>\n{"name": "get_time", "arguments": {}}\n'
        '</longcat_tool_call><longcat_tool_call>{"name": "weather", "arguments": '
        + json.dumps(HARD[1]) + "}</longcat_tool_call>",
        [ROME, TIME, HARD],
    ),
    Transcript(
        "ernie", ERNIE,
        'Hm\n</think>\n\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 3}}'
        '\n</tool_call>\n<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>\n'
        '<tool_call>\n{"name": "weather", "arguments": ' + json.dumps(HARD[1])
        + "}\n</tool_call>\n",
        [ROME, TIME, HARD], reasoning="Hm", prompt="<|im_start|>assistant\n<think>\n",
    ),
    Transcript(
        "ernie", ERNIE, "Hm\n</think>\n\n\n<response>\n2 < 3\n</response>\n",
        text="2 < 3", reasoning="Hm", prompt="<|im_start|>assistant\n<think>\n",
    ),
    Transcript(
        "apertus", "<|tools_prefix|> <|tools_suffix|> <|inner_prefix|> <|inner_suffix|>",
        '<|inner_prefix|>Hm<|inner_suffix|><|tools_prefix|>[{"weather": {"city": "Rome", "days": 3}'
        '}, {"get_time": {}}]<|tools_suffix|>',
        [ROME, TIME], reasoning="Hm",
    ),
    Transcript(
        "kimi-k3", KIMI_K3,
        'Hm<|close|>think<|sep|><|open|>response<|sep|>I look.<|close|>response<|sep|>'
        '<|open|>tools<|sep|><|open|>call tool="weather" index="1"<|sep|>'
        '<|open|>argument key="city" type="string"<|sep|>Rome<|close|>argument<|sep|>'
        '<|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|>'
        '<|close|>call<|sep|><|open|>call tool="get_time" index="2"<|sep|><|open|>json '
        'type="object"<|sep|>{}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>'
        "<|close|>message<|sep|><|end_of_msg|>",
        [ROME, TIME], "I look.", "Hm", "<|open|>think<|sep|>",
    ),
    Transcript(
        "functionary-3.2", ">>>all",
        'all\nI look.\n>>>weather\n{"city": "Rome", "days": 3}>>>get_time\n{}',
        [ROME, TIME], "I look.",
    ),
    Transcript(
        "functionary-3.2", ">>>all", "all\n>>> import this\n", text=">>> import this\n"
    ),
    Transcript("functionary-3.2", ">>>all", "get_time\n{}", [TIME]),
    Transcript(
        "gigachat-3", "<|message_sep|>function call<|role_sep|>",
        'I look.<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "weather", "arguments": '
        '{"city": "Rome", "days": 3}}<|message_sep|>\n\n',
        [ROME], "I look.",
    ),
    Transcript(
        "olmo", "<function_calls>",
        "<think>Hm</think>I look.\n<function_calls>\nweather(city=\"Rome\", days=3)\nget_time()\n"
        "</function_calls>",
        [ROME, TIME], "I look.", "Hm",
    ),
    Transcript(
        "solar", SOLAR,
        "<|think|>Hm<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1b2c3d4e5"
        '<|tool_call:name|>weather<|tool_call:args|>{"city": "Rome", "days": 3}<|tool_call:end|>'
        "<|tool_call:begin|>f6g7h8i9j0<|tool_call:name|>get_time<|tool_call:args|>{}"
        "<|tool_call:end|><|calls|>",
        [ROME, TIME], reasoning="Hm",
    ),
    Transcript(
        "solar", SOLAR, "<|think|><|end|><|begin|>assistant<|content|>2 < 3<|end|>", text="2 < 3"
    ),
    Transcript(
        "minimax-m3", MINIMAX_M3,
        '<mm:think>Hm</mm:think>I look.]<]minimax[>[<tool_call>\n]<]minimax[>['
        '<invoke name="weather">]<]minimax[>[<city>Z\u00fc "x" \\ {}\n<b>]<]minimax[>[</city>'
        ']<]minimax[>[<exact>true]<]minimax[>[</exact>]<]minimax[>[<tags>'
        ']<]minimax[>[<item>a,]<]minimax[>[</item>'
        ']<]minimax[>[<item>]}]<]minimax[>[</item>]<]minimax[>[</tags>]<]minimax[>[</invoke>\n'
        ']<]minimax[>[<invoke name="get_time">]<]minimax[>[</invoke>\n]<]minimax[>[<invoke '
        'name="weather">]<]minimax[>[<city>Rome]<]minimax[>[</city>]<]minimax[>[<days>3]<]minimax[>['
        '</days>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>',
        [HARD, TIME, ROME], "I look.", "Hm",
    ),
    Transcript("minimax-m3", MINIMAX_M3, "</mm:think>Just text.", text="Just text."),
    Transcript(
        "minimax-m1", "<beginning_of_sentence><tool_calls></tool_calls>",
        '<tool_calls>\n{"name": "weather", "arguments": {"city": "Rome", "days": 3}}\n'
        '{"name": "get_time", "arguments": {}}\n</tool_calls>',
        [ROME, TIME],
    ),
]  # fmt: skip
