"""Slightly wrong tool calls that models of a format write, and how they are parsed.

Sources: llama.cpp's tests/test-chat.cpp and common/parsers, vLLM's tests/tool_parsers.
"""

from __future__ import annotations

import pytest

from tests.conversation.test_crafted import ROME, TIME, Crafted, check, one
from tests.conversation.writers import WRITERS

CITY = "<parameter=city>\nRome\n</parameter>\n"
DAYS = "<parameter=days>\n3\n</parameter>\n"
GLM = "<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n"
WEATHER = '{"name": "weather", "arguments": {"city": "Rome", "days": 3}}'
JUST_ROME = one("Rome")
M3 = "]<]minimax[>["
NO_QUOTES = (
    "<minimax:tool_call>\n<invoke name=weather>\n<parameter name=city>Rome</parameter>\n</invoke>\n"
    "</minimax:tool_call>"
)
SLIPS: list[tuple[str, str, Crafted]] = [
    # Qwen 3 Coder leaves out <tool_call>: llama.cpp's common/parsers/qwen3-coder.cpp.
    ("qwen-coder", "no <tool_call>",
     Crafted(f"<function=weather>\n{CITY}{DAYS}</function>\n</tool_call>", [ROME])),
    ("qwen-coder", "text, no <tool_call>",
     Crafted(f"I look.\n\n<function=weather>\n{CITY}{DAYS}</function>\n</tool_call>", [ROME],
             "I look.")),
    ("qwen-coder", "no <tool_call> at all",
     Crafted(f"<function=weather>\n{CITY}{DAYS}</function>", [ROME])),
    ("qwen-coder", "two functions in one call",
     Crafted(f"<tool_call>\n<function=weather>\n{CITY}{DAYS}</function>\n<function=get_time>\n"
             "</function>\n</tool_call>", [ROME, TIME])),
    ("qwen-coder", "no </parameter>",
     Crafted("<tool_call>\n<function=weather>\n<parameter=city>\nRome\n<parameter=days>\n3\n"
             "</function>\n</tool_call>", [ROME])),
    ("qwen-coder", "no </function>",
     Crafted(f"<tool_call>\n<function=weather>\n{CITY}{DAYS}</tool_call>", [ROME])),
    ("qwen-coder", "no ends at all",
     Crafted(f"<tool_call>\n<function=weather>\n{CITY}{DAYS}", [ROME])),
    ("qwen-coder", "a value in one line",
     Crafted("<tool_call><function=weather><parameter=city>Rome</parameter><parameter=days>3"
             "</parameter></function></tool_call>", [ROME])),
    ("qwen-coder", "a line feed at a value's end",
     Crafted("<tool_call>\n<function=weather>\n<parameter=city>\n#include\n\n</parameter>\n"
             "</function>\n</tool_call>", one("#include\n"))),
    ("qwen-coder", "spaces at a value's beginning",
     Crafted("<tool_call>\n<function=weather>\n<parameter=city>\n    x\n</parameter>\n"
             "</function>\n</tool_call>", one("    x"))),
    ("qwen-coder", "JSON as arguments",
     Crafted('<tool_call>\n<function=weather>\n{"city": "Rome", "days": 3}\n</function>\n'
             "</tool_call>", [ROME])),
    ("qwen-coder", "a call as JSON", Crafted(f"<tool_call>\n{WEATHER}\n</tool_call>", [ROME])),
    ("qwen-coder", "names in quotes",
     Crafted('<tool_call>\n<function="weather">\n<parameter="city">\nRome\n</parameter>\n'
             "</function>\n</tool_call>", JUST_ROME)),
    ("qwen-coder", "text between arguments",
     Crafted(f"<tool_call>\n<function=weather>\n{CITY}and\n{DAYS}</function>\n</tool_call>",
             [ROME], "and")),
    ("qwen-coder", "text after a function's name",
     Crafted("Write <function=weather> and text.", text="Write <function=weather> and text.")),
    ("qwen-coder", "a value that is of another type",
     Crafted("<tool_call>\n<function=weather>\n<parameter=days>\nthree\n</parameter>\n"
             "</function>\n</tool_call>", [("weather", {"days": "three"})])),
    ("qwen-coder", "an argument nobody declared",
     Crafted("<tool_call>\n<function=weather>\n<parameter=zone>\nCET\n</parameter>\n"
             "</function>\n</tool_call>", [("weather", {"zone": "CET"})])),
    ("minimax", "no mark around", Crafted(
        '<invoke name="weather">\n<parameter name="city">Rome</parameter>\n</invoke>', JUST_ROME)),
    ("minimax", "no quotes", Crafted(NO_QUOTES, text=NO_QUOTES)),
    ("dsml", "no word on the kind", Crafted(
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">\n'
        '<｜DSML｜parameter name="days">3'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        [("weather", {"days": 3})])),
    ("minimax-m3", "no token before an end", Crafted(
        f'{M3}<tool_call>\n{M3}<invoke name="weather">{M3}<city>Rome</city>{M3}<days>3</days>'
        f"{M3}</invoke>\n{M3}</tool_call>", [ROME])),
    ("minimax-m3", "no end of a value", Crafted(
        f'{M3}<invoke name="weather">{M3}<city>Rome{M3}<days>3{M3}</invoke>', [ROME])),
    ("minimax-m3", "the end of another value", Crafted(
        f'{M3}<invoke name="weather">{M3}<city>Rome{M3}</town>{M3}<days>3{M3}</invoke>', [ROME])),
    ("minimax-m3", "no end of an item", Crafted(
        f'{M3}<invoke name="weather">{M3}<tags>{M3}<item>a{M3}<item>b{M3}</tags>{M3}<days>3'
        f"{M3}</days>{M3}</invoke>", [("weather", {"tags": ["a", "b"], "days": 3})])),
    ("minimax-m3", "a list that is JSON", Crafted(
        f'{M3}<invoke name="weather">{M3}<tags>["a"]{M3}</tags>{M3}</invoke>',
        [("weather", {"tags": ["a"]})])),
    ("minimax-m3", "items of another name", Crafted(
        f'{M3}<invoke name="weather">{M3}<tags>{M3}<tag>a{M3}</tag>{M3}<tag>b{M3}</tag>{M3}</tags>'
        f"{M3}</invoke>", [("weather", {"tags": ["a", "b"]})])),
    ("minimax-m3", "an object with line feeds", Crafted(
        f'{M3}<invoke name="get_time">\n{M3}<zone>\n{M3}<a>{M3}<a>1{M3}</a>{M3}</a>\n{M3}<b>x'
        f"{M3}</b>\n{M3}</zone>\n{M3}</invoke>",
        [("get_time", {"zone": {"a": {"a": 1}, "b": "x"}})])),
    ("minimax-m3", "a list of objects and nothing", Crafted(
        f'{M3}<invoke name="get_time">{M3}<zone>{M3}<item>{M3}<a>1{M3}</a>{M3}</item>{M3}<item>'
        f"{M3}</item>{M3}</zone>{M3}</invoke>", [("get_time", {"zone": [{"a": 1}, {}]})])),
    ("olmo", "no lines", Crafted(
        '<function_calls>[get_time(), weather(city="Rome", days=3)]</function_calls>',
        [TIME, ROME])),
    ("solar", "no id", Crafted(
        "<|tool_call:begin|>weather<|tool_call:args|>" + '{"city": "Rome", "days": 3}', [ROME])),
    ("glm", "a key without a value", Crafted(
        f"<tool_call>weather\n{GLM}<arg_key>days</arg_key>\n</tool_call>", JUST_ROME, "days")),
    ("glm", "a key before another", Crafted(
        f"<tool_call>weather\n<arg_key>days</arg_key>\n{GLM}</tool_call>", JUST_ROME, "days")),
    ("glm", "no <arg_value>", Crafted(
        "<tool_call>weather\n<arg_key>city</arg_key>Rome</arg_value>\n</tool_call>", JUST_ROME)),
    ("glm", "no </arg_value>", Crafted(
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome\n<arg_key>days</arg_key>\n"
        "<arg_value>3</tool_call>", [ROME])),
    ("glm", "no </arg_key>", Crafted(
        "<tool_call>weather\n<arg_key>city\n<arg_value>Rome</arg_value>\n</tool_call>", JUST_ROME)),
    ("glm", "no line feeds", Crafted(
        "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>",
        JUST_ROME)),
    ("glm", "no </tool_call>", Crafted(f"<tool_call>weather\n{GLM}", JUST_ROME)),
    ("glm", "a stray </arg_value>", Crafted(
        f"<tool_call>weather\n{GLM}</arg_value></tool_call>", JUST_ROME)),
    ("glm", "a call as JSON", Crafted(f"<tool_call>{WEATHER}</tool_call>", [ROME])),
    # What LongCat-Flash-Lite was seen to write.
    ("longcat", "arguments in parentheses", Crafted(
        '<longcat_tool_call>functions.weather({city: "Rome", days: 3})', [ROME])),
    ("longcat", "JSON instead of a key", Crafted(
        '<longcat_tool_call>weather\n<longcat_arg_key>{"city": "Rome", "days": 3}', [ROME])),
    ("longcat", "JSON as a key", Crafted(
        '<longcat_tool_call>weather\n<longcat_arg_key>{"city": "Rome", "days": 3}'
        "</longcat_arg_key>\n</longcat_tool_call>", [ROME])),
    ("longcat", "a call as JSON", Crafted(
        f"<longcat_tool_call>\n{WEATHER}\n</longcat_tool_call>", [ROME])),
    ("ernie", "no end of reasoning", Crafted(
        "Hm.\n<response>\nYes.\n</response>", text="Yes.", reasoning="Hm.",
        prompt="<think>\n")),
    ("ernie", "no tags of text", Crafted(
        "Hm.\n</think>\n\nYes.", text="Yes.", reasoning="Hm.", prompt="<think>\n")),
    # vLLM's test_gemma4_regex_and_bare_calls.py and test_gemma4_tool_parser.py
    ("gemma", "plain quotes", Crafted(
        '<|tool_call>call:weather{city:"Rome, Italy",days:3}<tool_call|>',
        [("weather", {"city": "Rome, Italy", "days": 3})])),
    ("gemma", "no quotes", Crafted(
        "<|tool_call>call:weather{city:Rome, Italy,days:3}<tool_call|>",
        [("weather", {"city": "Rome, Italy", "days": 3})])),
    ("gemma", "no quotes, and brackets", Crafted(
        "<|tool_call>call:weather{city:a{b}c}<tool_call|>", one("a{b}c"))),
    ("gemma", "quotes within quotes", Crafted(
        '<|tool_call>call:weather{city:"the "eternal" one"}<tool_call|>',
        one('the "eternal" one'))),
    ("gemma", "keys in quotes", Crafted(
        '<|tool_call>call:weather{"city":<|"|>Rome<|"|>,<|"|>days<|"|>:3}<tool_call|>', [ROME])),
    ("gemma", "a stray colon", Crafted(
        '<|tool_call>:call:weather{city:<|"|>Rome<|"|>}<tool_call|>', JUST_ROME)),
    ("gemma", "no mark after reasoning", Crafted(
        '<|channel>thought\nHm.<channel|>call:weather{city:<|"|>Rome<|"|>}', JUST_ROME,
        reasoning="Hm.")),
    ("gemma", "no call:", Crafted(
        '<|tool_call>weather{city:<|"|>Rome<|"|>}<tool_call|>', JUST_ROME)),
    ("gemma", "no end of a text", Crafted(
        '<|tool_call>call:weather{city:<|"|>Rome', JUST_ROME)),
    ("gemma", "no value", Crafted("<|tool_call>call:weather{city:}<tool_call|>",
                                  [("weather", {"city": None})])),
    ("gemma", "a number of a text", Crafted(
        "<|tool_call>call:weather{city:00123}<tool_call|>", one("00123"))),
    ("gemma", "a number that ends with a point", Crafted(
        "<|tool_call>call:get_time{left:108.,right:22.8}<tool_call|>",
        [("get_time", {"left": 108.0, "right": 22.8})])),
    ("gemma", "white space", Crafted(
        '<|tool_call>call:weather { city: <|"|>Rome<|"|> , days: 3 } <tool_call|>', [ROME])),
    ("gemma", "a list without quotes", Crafted(
        "<|tool_call>call:weather{tags:[a, b]}<tool_call|>", [("weather", {"tags": ["a", "b"]})])),
    ("gemma", "a call as JSON", Crafted(f"<|tool_call>{WEATHER}<tool_call|>", [ROME])),
    ("hermes", "no tags", Crafted(WEATHER, [ROME])),
    ("hermes", "no tags, two", Crafted(f"{WEATHER}\n{WEATHER}", [ROME, ROME])),
    ("hermes", "a fence", Crafted(f"```json\n{WEATHER}\n```", [ROME])),
    ("hermes", "a fence in tags",
     Crafted(f"<tool_call>\n```json\n{WEATHER}\n```\n</tool_call>", [ROME])),
    ("hermes", "a brace too many", Crafted(f"<tool_call>\n{WEATHER}}}\n</tool_call>", [ROME])),
    ("hermes", "a brace too few", Crafted(f"<tool_call>\n{WEATHER[:-1]}\n</tool_call>", [ROME])),
    ("hermes", "two braces too few",
     Crafted(f"<tool_call>\n{WEATHER[:-2]}\n</tool_call>", [ROME])),
    ("hermes", "a name with a prefix",
     Crafted('<tool_call>{"name": "functions.get_time", "arguments": {}}</tool_call>', [TIME])),
    ("hermes", "a list", Crafted(f"<tool_call>[{WEATHER}, {WEATHER}]</tool_call>", [ROME, ROME])),
    ("hermes", "OpenAI's form", Crafted(
        '<tool_call>{"type": "function", "function": {"name": "weather", "arguments": '
        '"{\\"city\\": \\"Rome\\"}"}}</tool_call>', JUST_ROME)),
    ("hermes", "other names of keys",
     Crafted('<tool_call>{"function": "weather", "args": {"city": "Rome"}}</tool_call>',
             JUST_ROME)),
    ("hermes", "arguments beside the name",
     Crafted('<tool_call>{"name": "weather", "city": "Rome"}</tool_call>', JUST_ROME)),
    ("hermes", "a name before an object",
     Crafted('<tool_call>weather\n{"city": "Rome"}\n</tool_call>', JUST_ROME)),
    ("hermes", "Python's form", Crafted(
        "<tool_call>{'name': 'weather', 'arguments': {'city': 'Rome'}}</tool_call>", JUST_ROME)),
    ("hermes", "the wrong closing tag",
     Crafted(f"<tool_call>\n{WEATHER}\n<tool_call>", [ROME])),
    ("hermes", "text after a call",
     Crafted(f"<tool_call>{WEATHER}</tool_call>\nDone.", [ROME], "Done.")),
    ("hermes", "a closing tag in text", Crafted("a </tool_call> b", text="a </tool_call> b")),
    ("hermes", "a closing tag that breaks off",
     Crafted(f"<tool_call>\n{WEATHER}\n</tool_c", [ROME])),
    ("general", "a fence", Crafted(f"```\n{WEATHER}\n```", [ROME])),
    ("llama", "a list", Crafted(f"[{WEATHER}]", [ROME])),
    ("llama", "<function=", Crafted('<function=weather>{"city": "Rome"}</function>', JUST_ROME)),
    ("mistral", "no [ARGS]", Crafted('[TOOL_CALLS]weather{"city": "Rome"}', JUST_ROME)),
    ("mistral", "no [TOOL_CALLS]", Crafted('weather[ARGS]{"city": "Rome"}', JUST_ROME)),
    ("mistral", "white space", Crafted('[TOOL_CALLS] weather [ARGS] {"city": "Rome"}', JUST_ROME)),
    ("mistral", "a list", Crafted(f"[TOOL_CALLS][{WEATHER}]", [ROME])),
    ("mistral-list", "no ]", Crafted(f"[TOOL_CALLS][{WEATHER}", [ROME])),
    ("mistral-list", "no [", Crafted(f"[TOOL_CALLS]{WEATHER}", [ROME])),
    ("deepseek", "no first mark", Crafted(
        '<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "Rome"}<｜tool▁call▁end｜>',
        JUST_ROME)),
    ("deepseek", "a fence", Crafted(
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>'
        '```json\n{"city": "Rome"}\n'
        "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", JUST_ROME)),
    ("deepseek-fenced", "no function", Crafted(
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather\n```json\n{"city": "Rome"}\n```'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>", JUST_ROME)),
    ("deepseek-fenced", "no ends", Crafted(
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
        '{"city": "Rome"}', JUST_ROME)),
    ("kimi", "no number", Crafted(
        '<|tool_call_begin|>weather<|tool_call_argument_begin|>{"city": "Rome"}<|tool_call_end|>',
        JUST_ROME)),
    ("kimi", "no middle mark", Crafted(
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0{"city": "Rome"}'
        "<|tool_call_end|><|tool_calls_section_end|>", JUST_ROME)),
    ("kimi", "no arguments", Crafted(
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_time:0"
        "<|tool_call_argument_begin|><|tool_call_end|><|tool_calls_section_end|>", [TIME])),
    ("harmony", "no <|message|>", Crafted(
        '<|channel|>commentary to=functions.weather <|constrain|>json{"city": "Rome"}<|call|>',
        JUST_ROME)),
    ("harmony", "no arguments",
     Crafted("<|channel|>commentary to=functions.get_time<|call|>", [TIME])),
    ("harmony", "in the analysis", Crafted(
        '<|channel|>analysis to=functions.weather code<|message|>{"city": "Rome"}<|call|>',
        JUST_ROME)),
    ("harmony", "no end of the analysis", Crafted(
        "<|channel|>analysis<|message|>Hm.<|start|>assistant<|channel|>final<|message|>Yes.",
        text="Yes.", reasoning="Hm.")),
    ("functionary", "no end", Crafted('<function=weather>{"city": "Rome"}', JUST_ROME)),
    ("command", "no list", Crafted(
        '<|START_ACTION|>{"tool_name": "weather", "parameters": {"city": "Rome"}}<|END_ACTION|>',
        JUST_ROME)),
    ("granite", "no mark", Crafted(f"[{WEATHER}]", [ROME])),
]  # fmt: skip


@pytest.mark.few(30)
@pytest.mark.parametrize(
    ("form", "crafted"),
    [pytest.param(form, crafted, id=f"{form}: {name}") for form, name, crafted in SLIPS],
)
def test_what_models_of_one_form_do(form: str, crafted: Crafted) -> None:
    check(next(writer for writer in WRITERS if writer.form == form), crafted)
