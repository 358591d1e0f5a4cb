"""A chat session: the messages it sends and keeps, and a full context."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.toy_model import BOS, EOS, FIRST_BYTE, VOCAB_SIZE, ids_of, toy_model
from trinity.conversation.parts import Part, Reasoning, Text
from trinity.errors import ContextLengthError, InputError, TrinityError
from trinity.model import Model
from trinity.tools.chat_session import ChatSession

ASSISTANT = ids_of("[assistant]")
NEVER = threading.Event()


class Toy:
    """A model that answers every prompt with ``reply``, and the texts of the prompts it got."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model, engine = toy_model(context_length=100)
        self.engine = engine
        self.reply = "yes"
        self.prompts: list[str] = []
        monkeypatch.setattr(engine, "logits_of", self.logits_of)
        stream = Model.stream

        def spy(model: Model, tokens: list[int], **options: Any) -> Any:
            names = {BOS: "<s>", EOS: "</s>"}
            text = b"".join(
                names[t].encode() if t in names else bytes([t - FIRST_BYTE]) for t in tokens
            )
            self.prompts.append(text.decode(errors="replace"))
            return stream(model, tokens, **options)

        monkeypatch.setattr(Model, "stream", spy)

    def logits_of(self, tokens: Any) -> Any:
        found = list(tokens)
        start = next(
            at + len(ASSISTANT)
            for at in range(len(found) - len(ASSISTANT), -1, -1)
            if found[at : at + len(ASSISTANT)] == ASSISTANT
        )
        said, reply = len(found) - start, [*ids_of(self.reply), EOS]
        logits = np.full(VOCAB_SIZE, -10, np.float32)
        logits[reply[min(said, len(reply) - 1)]] = 10
        return logits

    def session(self, **options: Any) -> ChatSession:
        shifts, system = options.pop("shifts", False), options.pop("system", None)
        given = {"temperature": 0.0, **options}
        return ChatSession(self.model, given, shifts=shifts, system=system)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Toy]:
    found = Toy(monkeypatch)
    with found.model:
        yield found


class Heard:
    """What is shown of an answer."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    def __call__(self, part: Part) -> None:
        self.parts.append(part)

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_turns(toy: Toy) -> None:
    session, heard = toy.session(system="be"), Heard()
    answer = session.ask("hi", heard, NEVER)
    assert heard.text == "yes"
    assert (answer.finish_reason, answer.full, answer.forgotten) == ("stop", False, 0)
    toy.reply = "no"
    session.ask("so", heard, NEVER)
    assert session.messages == [
        {"role": "system", "content": "be"},
        user("hi"),
        assistant("yes"),
        user("so"),
        assistant("no"),
    ]
    assert toy.prompts[1] == (
        "<s>[system]be</s>[user]hi</s>[assistant]yes</s>[user]so</s>[assistant]"
    )
    assert (session.turns, len(session.answers)) == (2, 2)
    assert session.answers[1].timings[0].cached_tokens > 0


def test_answer_again_replaces_the_answer(toy: Toy) -> None:
    session = toy.session()
    with pytest.raises(InputError, match="no message from you"):
        session.answer_again(Heard(), NEVER)
    session.ask("hi", Heard(), NEVER)
    toy.reply = "no"
    session.answer_again(Heard(), NEVER)
    assert session.messages == [user("hi"), assistant("no")]
    assert toy.prompts[0] == toy.prompts[1]


def test_undo_and_reset(toy: Toy) -> None:
    session = toy.session(system="be")
    for text in ("a", "b", "c"):
        session.ask(text, Heard(), NEVER)
    assert session.undo() == user("c")
    assert session.messages[-2:] == [user("b"), assistant("yes")]
    session.reset()
    assert session.messages == [{"role": "system", "content": "be"}]
    with pytest.raises(InputError, match="no message from you"):
        session.undo()
    assert session.system == "be"


def test_system_message_is_set_changed_and_removed(toy: Toy) -> None:
    session = toy.session()
    assert session.system is None
    session.ask("hi", Heard(), NEVER)
    for text in ("one", "two", None):
        session.system = text
        assert session.system == text
    assert session.messages == [user("hi"), assistant("yes")]


def test_cancelled_answer_stays(toy: Toy) -> None:
    class Soon:
        """Asked before each step; set after some."""

        asked = 0

        def is_set(self) -> bool:
            self.asked += 1
            return self.asked > 6

    session, heard = toy.session(), Heard()
    toy.reply = "abcdefgh"
    answer = session.ask("hi", heard, Soon())
    assert answer.finish_reason == "cancelled"
    assert session.messages[-1] == assistant(heard.text)
    assert toy.reply.startswith(heard.text)
    assert 1 <= len(heard.text) < 8


def test_reasoning_is_shown_and_not_kept(toy: Toy) -> None:
    session, heard = toy.session(), Heard()
    toy.reply = "<think>hm</think>yes"
    session.ask("hi", heard, NEVER)
    thought = "".join(part.text for part in heard.parts if isinstance(part, Reasoning))
    assert (thought, heard.text) == ("hm", "yes")
    assert session.messages[-1] == assistant("yes")


def test_most_tokens_are_no_full_context(toy: Toy) -> None:
    session = toy.session(max_tokens=2)
    answer = session.ask("hi", Heard(), NEVER)
    assert (answer.finish_reason, answer.full) == ("length", False)
    # 1 + 9 + 11 of the prompt: as many tokens as there are positions.
    session = toy.session(max_tokens=79, shifts=True)
    toy.reply = "x" * 90
    answer = session.ask("hi", Heard(), NEVER)
    assert (answer.finish_reason, answer.full) == ("length", False)
    assert session.messages[-1] == assistant("x" * 79)


def test_full_context_says_so(toy: Toy) -> None:
    session, heard = toy.session(), Heard()
    toy.reply = "x" * 90
    answer = session.ask("hi", heard, NEVER)
    assert (answer.finish_reason, answer.full, answer.forgotten) == ("length", True, 0)
    assert heard.text == "x" * 79
    before = list(session.messages)
    with pytest.raises(ContextLengthError) as error:
        session.ask("more", heard, NEVER)
    assert (error.value.length, error.value.limit) == (123, 100)
    assert session.messages == before
    session.undo()
    toy.reply = "yes"
    assert session.ask("hi", heard, NEVER).finish_reason == "stop"


def test_shift_before_an_answer_forgets_whole_turns(toy: Toy) -> None:
    """The beginning has 12 tokens and a turn 24: the fourth question does not fit."""
    session = toy.session(system="be", shifts=True)
    for text in ("t1", "t2", "t3"):
        assert session.ask(text, Heard(), NEVER).forgotten == 0
    answer = session.ask("t4", Heard(), NEVER)
    # 75 tokens at most are left: one turn and the question.
    assert answer.forgotten == 4
    assert toy.prompts[-1] == (
        "<s>[system]be</s>[user]t3</s>[assistant]yes</s>[user]t4</s>[assistant]"
    )
    assert session.turns == 4  # nothing is lost
    assert session.unsent == 4
    session.ask("t5", Heard(), NEVER)
    assert toy.prompts[-1].startswith("<s>[system]be</s>[user]t3</s>")
    for _ in range(2):
        session.undo()
    assert session.unsent == 4
    session.undo()  # of t3: nothing would be sent
    assert session.unsent == 0


@pytest.mark.parametrize("reply", ["0123456789" * 6, "\u00e4\u4e2d\U0001f600x" * 6])
def test_shift_within_an_answer_changes_nothing_of_it(toy: Toy, reply: str) -> None:
    session, heard = toy.session(system="be", shifts=True), Heard()
    session.ask("t1", heard, NEVER)
    session.ask("t2", heard, NEVER)
    toy.reply, heard = reply, Heard()
    answer = session.ask("go", heard, NEVER)
    assert (answer.finish_reason, answer.full) == ("stop", False)
    assert heard.text == reply
    assert session.messages[-1] == assistant(reply)
    assert answer.forgotten == session.unsent > 0
    assert len(answer.timings) > 1
    assert toy.prompts[-1].startswith("<s>[system]be</s>[user]")
    assert "[user]t1" not in toy.prompts[-1]


def test_shift_keeps_to_most_tokens(toy: Toy) -> None:
    session, heard = toy.session(shifts=True), Heard()
    for _ in range(3):
        session.ask("t", heard, NEVER)
    toy.reply = "x" * 90
    session.options["max_tokens"] = 40
    answer = session.ask("go", heard, NEVER)
    assert (answer.finish_reason, answer.full) == ("length", False)
    assert session.messages[-1] == assistant("x" * 40)
    assert len(answer.timings) > 1


def test_one_turn_that_is_too_long_cannot_be_shifted(toy: Toy) -> None:
    session, heard = toy.session(shifts=True), Heard()
    session.ask("hi", heard, NEVER)
    before, toy.reply = list(session.messages), "x" * 200
    with pytest.raises(ContextLengthError):
        session.ask("long" * 30, heard, NEVER)
    assert (session.messages, session.unsent) == (before, 0)
    answer = session.ask("go", heard, NEVER)
    assert answer.full
    assert session.unsent == 2


def test_error_in_the_middle_leaves_the_conversation(toy: Toy) -> None:
    session, heard = toy.session(), Heard()
    session.ask("hi", heard, NEVER)
    before = list(session.messages)

    def fail(tokens: list[int]) -> None:
        raise TrinityError("broken")

    toy.engine.before_forward = fail
    with pytest.raises(TrinityError, match="broken"):
        session.ask("so", heard, NEVER)
    assert session.messages == before


def test_load(toy: Toy) -> None:
    session = toy.session(system="be")
    with pytest.raises(InputError, match="message 0"):
        session.load([{"content": "x"}])
    assert session.system == "be"
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    session.load([{"role": "user", "content": parts}])
    assert session.system is None
    session.answer_again(Heard(), NEVER)
    assert toy.prompts[-1] == "<s>[user]a\nb</s>[assistant]"
    assert session.messages[0]["content"] == parts  # as it was loaded
