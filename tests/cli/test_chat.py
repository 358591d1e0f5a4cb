"""`trinity chat` with piped lines: messages, commands and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run, press_ctrl_c
from tests.toy_model import BOS, EOS, ToyEngine, ToyTokenizer, ids_of
from trinity.cli.chatting.commands import COMMANDS
from trinity.formats.defaults import Defaults
from trinity.model import Model

CHAT = ("chat", "-m", "toy.gguf", "--temp", "0", "-n", "3")


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch, engine: ToyEngine) -> list[str]:
    """Records the text of every prompt."""
    seen: list[str] = []
    stream = Model.stream

    def spy(self, tokens, **options):  # type: ignore[no-untyped-def]
        engine.answer_at = len(tokens)
        names = {BOS: "<s>", EOS: "</s>"}
        seen.append("".join(names.get(t) or chr(t - 3) for t in tokens))
        return stream(self, tokens, **options)

    monkeypatch.setattr(Model, "stream", spy)
    return seen


def test_turns_carry_the_history(run: Run, engine: ToyEngine, prompts: list[str]) -> None:
    result = run(*CHAT, input="hi\nso\n")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "hel\nhel\n"
    first = "<s>[user]hi</s>"
    assert prompts == [
        f"{first}[assistant]",
        f"{first}[assistant]hel</s>[user]so</s>[assistant]",
    ]
    # The second turn evaluated only what was new: all tokens once, but for the last answer's last.
    assert sum(map(len, engine.evaluated)) <= len(ids_of(prompts[-1])) + 4


def test_several_lines_are_one_message(run: Run, prompts: list[str]) -> None:
    run(*CHAT, input='"""\na\n/reset\n"""\nb\\\nc\n')
    assert "[user]a\n/reset</s>" in prompts[0]
    assert prompts[1].endswith("[user]b\nc</s>[assistant]")
    assert len(prompts) == 2


def test_system_message_survives_reset(run: Run, prompts: list[str]) -> None:
    result = run(*CHAT, "--system", "be", input="hi\n/reset\nso\n")
    assert prompts == [
        "<s>[system]be</s>[user]hi</s>[assistant]",
        "<s>[system]be</s>[user]so</s>[assistant]",
    ]
    assert "conversation cleared" in result.stderr


def test_help_lists_every_command(run: Run, prompts: list[str]) -> None:
    result = run(*CHAT, input="/help\n\n/exit\nhi\n")
    assert result.exit_code == 0
    assert result.stdout == ""
    for command in COMMANDS:
        for name in (command.name, *command.also):
            assert f"/{name}" in result.stderr
    assert prompts == []


@pytest.mark.parametrize("name", ["?", "quit", "bye", "EXIT"])
def test_other_names(run: Run, prompts: list[str], name: str) -> None:
    result = run(*CHAT, input=f"/{name}\n/exit\nhi\n")
    assert (result.exit_code, prompts) == (0, [])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/sytem be brief", "there is no command /sytem (did you mean /system"),
        ("/nonsense", "there is no command /nonsense; /help lists all"),
        ("/", "there is no command /;"),
        ("/reset now", "/reset takes no argument, but 'now' was given"),
        ("/exit now", "/exit takes no argument"),
        ("/save", "/save needs a file name: /save [--force] FILE"),
        ("/load", "/load needs a file name: /load FILE"),
        ("/load no-such.json", "no-such.json: cannot be read"),
        ("/save x.json", "no messages yet"),
        ("/undo", "no message from you"),
        ("/regen", "no message from you"),
        ("/set temperature hot", "temperature is 'hot'; it must be a finite number"),
        ("/set temprature 1", "there is no option 'temprature' (did you mean temperature"),
        ('"""\nopen', "within a block"),
    ],
)
def test_what_is_wrong_ends_a_pipe_and_reaches_no_model(
    run: Run, prompts: list[str], line: str, message: str
) -> None:
    result = run(*CHAT, input=f"{line}\nhi\n")
    assert (result.exit_code, prompts) == (1, [])
    assert message in result.stderr


def test_unreadable_input_is_1(run: Run, engine: ToyEngine) -> None:
    result = run(*CHAT, input=b"a\xff\n")
    assert result.exit_code == 1
    assert "not UTF-8" in result.stderr


def test_system(run: Run, prompts: list[str]) -> None:
    result = run(*CHAT, input='/system\n/system """be\nbrief"""\n/system\nhi\n/system none\nhi\n')
    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines()[1:5] == [
        "(there is no system message)",
        "(system message set)",
        "be",
        "brief",
    ]
    assert prompts[0] == "<s>[system]be\nbrief</s>[user]hi</s>[assistant]"
    assert prompts[1].startswith("<s>[user]hi</s>[assistant]hel</s>")


def test_system_message_that_comes_with_the_model(
    run: Run, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Model, "defaults", property(lambda self: Defaults(system="be good")))
    result = run(*CHAT, input="/system\n/system mine\n/system\n")
    assert result.stderr.splitlines()[1:] == [
        "(of the model's own)",
        "be good",
        "(system message set)",
        "mine",
    ]


def test_regen_and_undo(run: Run, prompts: list[str]) -> None:
    result = run(*CHAT, input="hi\n/regen\n/undo\nso\n")
    assert result.exit_code == 0, result.stderr
    assert prompts == ["<s>[user]hi</s>[assistant]"] * 2 + ["<s>[user]so</s>[assistant]"]
    assert "(removed: hi)" in result.stderr


def test_save_and_load(run: Run, prompts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a talk.json"
    saved = run(*CHAT, "--system", "be", input=f"hi\n/save {path}\nso\n/save {path}\n")
    assert saved.exit_code == 0, saved.stderr
    assert json.loads(path.read_text("utf-8"))["messages"] == [
        {"role": "system", "content": "be"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hel"},
        {"role": "user", "content": "so"},
        {"role": "assistant", "content": "hel"},
    ]
    result = run(*CHAT, input=f"/load {path}\n/undo\n/save {path}\nyo\n")
    assert result.exit_code == 0, result.stderr
    assert f"(5 messages of {path})" in result.stderr
    assert prompts[-1] == ("<s>[system]be</s>[user]hi</s>[assistant]hel</s>[user]yo</s>[assistant]")
    assert len(json.loads(path.read_text("utf-8"))["messages"]) == 3
    refused = run(*CHAT, input=f"hi\n/save {path}\n")  # another session's file
    assert refused.exit_code == 1
    assert "the file exists already; give another name, or --force" in refused.stderr
    forced = run(*CHAT, input=f"hi\n/save --force {path}\n")
    assert forced.exit_code == 0, forced.stderr
    assert len(json.loads(path.read_text("utf-8"))["messages"]) == 2


def test_load_of_a_request(run: Run, prompts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "body.json"
    path.write_text('{"model": "m", "messages": [{"role": "user", "content": "hi"}]}')
    result = run(*CHAT, input=f"/load {path}\n/regen\n")
    assert "(not used from the file: model)" in result.stderr
    assert "/regen generates one" in result.stderr
    assert prompts == ["<s>[user]hi</s>[assistant]"]


def test_set(run: Run, prompts: list[str], engine: ToyEngine) -> None:
    result = run(*CHAT, input="/set\n/set max-tokens 1\nhi\n/set max_tokens none\n/regen\n")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "h\nhello\n"
    # Each line: name, value and help text; the help text is free to change.
    shown = [line.split(maxsplit=2)[:2] for line in result.stderr.splitlines()]
    assert ["temperature", "0"] in shown
    assert ["max_tokens", "1"] in shown
    assert "it reached max_tokens" in result.stderr


def test_stats(run: Run, prompts: list[str]) -> None:
    result = run(*CHAT, input="/stats\nhi\n/stats\n")
    lines = result.stderr.splitlines()
    assert "turns: 0; messages: 0" in lines
    assert "turns: 1; messages: 2" in lines
    # 21 tokens of the prompt, and 3.
    assert "context: 24 of 256 tokens after the last response" in lines
    assert any(line.startswith("last response: prompt 21 tokens computed") for line in lines)


def test_reasoning_goes_to_standard_error(run: Run, engine: ToyEngine, prompts: list[str]) -> None:
    engine.says("<think>a\n\tb</think>yes", after=3)
    result = run("chat", "-m", "toy.gguf", "--temp", "0", input="hi\n")
    assert result.stdout == "yes\n"
    assert "(thinking)\na\n\tb\n(the response)\n" in result.stderr


def test_template_of_ones_own(run: Run, prompts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "template.jinja"
    path.write_text("{{ messages[-1].content }}:")
    run(*CHAT, "--template", str(path), input="hi\n")
    assert prompts == ["<s>hi:"]


def test_template_too_long_is_1(run: Run, prompts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "template.jinja"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a sparse one: reading it would take for ever
    result = run(*CHAT, "--template", str(path), input="hi\n")
    assert result.exit_code == 1
    assert "template.jinja: has more than" in result.stderr


def test_no_template_is_1(run: Run, engine: ToyEngine, tokenizer: ToyTokenizer) -> None:
    tokenizer.chat_template = None
    result = run(*CHAT, input="hi\n")
    assert result.exit_code == 1
    assert "--chat-template" in result.stderr


def test_full_context_in_a_pipe_is_1(run: Run, prompts: list[str]) -> None:
    result = run(*CHAT, input="a" * 300 + "\n")
    assert result.exit_code == 1
    assert "256" in result.stderr


def test_answer_that_fills_the_context(run: Run, engine: ToyEngine, prompts: list[str]) -> None:
    engine.says("x" * 300, after=3)
    result = run("chat", "-m", "toy.gguf", "--temp", "0", input="hi\n")
    assert result.stdout == "x" * 235 + "\n"
    assert "the response ends here: the context of 256 tokens is full" in result.stderr
    assert "/set context_shift on" in result.stderr


def test_context_shift(run: Run, prompts: list[str]) -> None:
    lines = "".join(f"{'a' * 60}{i}\n" for i in range(6))
    result = run(*CHAT, "--context-shift", "--system", "be", input=lines)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "hel\n" * 6
    assert "messages are no longer sent; /save still includes them" in result.stderr
    assert all(prompt.startswith("<s>[system]be</s>[user]") for prompt in prompts)
    assert f"{'a' * 60}0" not in prompts[-1]


def test_ctrl_c_stops_the_answer_not_the_program(
    run: Run, engine: ToyEngine, prompts: list[str]
) -> None:
    presses = iter([True])

    def press(tokens: list[int]) -> None:
        if tokens == ids_of("h") and next(presses, False):
            press_ctrl_c()

    engine.before_forward = press
    result = run(*CHAT, input="hi\nso\n")
    assert result.exit_code == 0
    assert result.stdout == "he\nhel\n"
    assert "(stopped)" in result.stderr
    assert "[assistant]he</s>[user]so" in prompts[1]
