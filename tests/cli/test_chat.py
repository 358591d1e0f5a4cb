from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run, press_ctrl_c
from tests.toy_model import BOS, EOS, ToyEngine, ToyTokenizer, ids_of
from trinity.cli import chat as module
from trinity.model import Model

CHAT = ("chat", "-m", "toy.gguf", "--temp", "0", "-n", "3")


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch, engine: ToyEngine) -> list[str]:
    """The text of every prompt that is evaluated."""
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


def test_system_message_survives_reset(run: Run, prompts: list[str]) -> None:
    result = run(*CHAT, "--system", "be", input="hi\n/reset\nso\n")
    assert prompts == [
        "<s>[system]be</s>[user]hi</s>[assistant]",
        "<s>[system]be</s>[user]so</s>[assistant]",
    ]
    assert "anew" in result.stderr


def test_commands(run: Run, prompts: list[str]) -> None:
    result = run(*CHAT, input="/help\n\n/nonsense\n/exit\nhi\n")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "/reset" in result.stderr
    assert "there is no /nonsense" in result.stderr
    assert prompts == []


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
    assert "--template" in result.stderr


def test_full_context_in_a_pipe_is_1(run: Run, prompts: list[str]) -> None:
    result = run(*CHAT, input="a" * 300 + "\n")
    assert result.exit_code == 1
    assert "256" in result.stderr


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
    assert "[assistant]he</s>[user]so" in prompts[1]


class Terminal:
    """Standard input that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def typed(monkeypatch: pytest.MonkeyPatch, events: list[str | BaseException]) -> None:
    remaining: Iterator[str | BaseException] = iter(events)

    def answer(prompt: str) -> str:
        event = next(remaining)
        if isinstance(event, BaseException):
            raise event
        return event

    monkeypatch.setattr(module.sys, "stdin", Terminal())
    monkeypatch.setattr("builtins.input", answer)


def test_second_ctrl_c_in_a_row_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    c = KeyboardInterrupt()
    typed(monkeypatch, [c, "a", c, "b", c, c, "never"])
    lines = module.lines()
    assert [next(lines), next(lines)] == ["a", "b"]
    with pytest.raises(KeyboardInterrupt):
        next(lines)


def test_ctrl_d_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, ["a", EOFError()])
    assert list(module.lines()) == ["a"]
