"""A conversation with a model: its messages, its options, and the prompt of each turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.conversation.messages import read_messages, take_images
from trinity.conversation.parts import Part, Text
from trinity.errors import InputError
from trinity.runtime.generation import Chunk, FinishReason, Timings
from trinity.runtime.options import Cancel, Request

if TYPE_CHECKING:
    from trinity.conversation.prompt import ChatPrompt
    from trinity.formats.defaults import ChatTemplate
    from trinity.model import Model

Message = Mapping[str, Any]
Show = Callable[[Part], None]
FREED = 4  # dropping turns frees at least 1 / FREED of the context
_LEADING = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Answer:
    """How a response ended, in addition to the message that it became."""

    finish_reason: FinishReason  # as in ``Completion``
    full: bool  # whether it ended because the context is full
    forgotten: int  # messages that are no longer sent since this response
    timings: tuple[Timings, ...]  # of its parts; several if turns were dropped within the response


class ChatSession:
    """A conversation; for one thread at a time.

    ``messages`` have the format of OpenAI's API. ``options`` are those of ``GenerationOptions``
    that were given, and may be changed between responses. ``template`` replaces the model's. With
    ``shifts``, the oldest turns are dropped when the context is full: they stay in ``messages`` but
    are no longer sent. ``unsent`` counts them, after the messages that the conversation begins
    with. A turn is a user message with all that follows it. ``answers`` describes how each response
    ended. ``images`` are data URLs of images that the next message of the user gets.
    """

    def __init__(
        self, model: Model, options: Mapping[str, Any], *, template: ChatTemplate | None = None,
        system: str | None = None, shifts: bool = False,
    ) -> None:  # fmt: skip
        self.model = model
        self.options = dict(options)
        self.template = template
        self.shifts = shifts
        self.messages: list[Message] = []
        self.unsent = 0
        self.answers: list[Answer] = []
        self.images: list[str] = []
        self.system = system

    @property
    def system(self) -> str | None:
        """The text of the system message, if the conversation begins with one."""
        if not self._head():
            return None
        content = read_messages(take_images(self.messages[:1])[0])[0]["content"]
        return str(content or "")

    @system.setter
    def system(self, text: str | None) -> None:
        message = [] if text is None else [{"role": "system", "content": text}]
        self.messages[: self._head()] = message

    @property
    def turns(self) -> int:
        """The number of turns, including those that are no longer sent."""
        return sum(message["role"] == "user" for message in self.messages)

    def ask(self, text: str, show: Show, cancel: Cancel) -> Answer:
        """Add a message and generate a response; ``show`` is called with its parts as they arrive.

        A response that ``cancel`` stops stays in the conversation. Raises as ``Model.chat_stream``;
        the conversation is then unchanged.
        """
        content: object = text
        if self.images:
            shown = [{"type": "image_url", "image_url": {"url": url}} for url in self.images]
            content = [*shown, {"type": "text", "text": text}]
        message = {"role": "user", "content": content}
        answer = self._answered([*self.messages, message], show, cancel)
        self.images = []
        return answer

    def answer_again(self, show: Show, cancel: Cancel) -> Answer:
        """Generate another response to the user's last message; it replaces the old one."""
        return self._answered(self.messages[: self._newest() + 1], show, cancel)

    def undo(self) -> Message:
        """Remove the last turn, and return its first message.

        Raises InputError if there is none.
        """
        place = self._newest()
        taken = self.messages[place]
        del self.messages[place:]
        if self._head() + self.unsent >= len(self.messages):
            self.unsent = 0  # no message is left to send
        return taken

    def reset(self) -> None:
        """Remove all messages but those that the conversation begins with."""
        del self.messages[self._head() :]
        self.unsent = 0

    def load(self, messages: Sequence[Message]) -> None:
        """Replace the conversation. Raises InputError for malformed messages."""
        read_messages(take_images(messages)[0])
        self.messages = list(messages)
        self.unsent = 0

    def _head(self) -> int:
        """Return the number of messages before the first turn."""
        roles = (message["role"] for message in self.messages)
        return next((i for i, role in enumerate(roles) if role not in _LEADING), len(self.messages))

    def _newest(self) -> int:
        """Return the index of the user's last message. Raises InputError if there is none."""
        for place in range(len(self.messages) - 1, -1, -1):
            if self.messages[place]["role"] == "user":
                return place
        raise InputError("the conversation has no message from you")

    def _answered(self, messages: list[Message], show: Show, cancel: Cancel) -> Answer:
        before, unsent = self.messages, self.unsent
        self.messages = messages
        said: list[str] = []
        try:
            answer = self._streamed(said, show, cancel)
        except BaseException:
            self.messages, self.unsent = before, unsent
            raise
        self.messages = [*messages, {"role": "assistant", "content": "".join(said)}]
        self.answers.append(answer)
        return answer

    def _streamed(self, said: list[str], show: Show, cancel: Cancel) -> Answer:
        """Generate the response into ``said``, with as many prompts as necessary."""
        unsent = self.unsent
        prompt = self._fitting()
        reader = prompt.reader()
        given = {**self.model.defaults.options, **self.options}
        limit = Request.of(**given).limits.max_tokens
        ids: list[int] = []
        timings: list[Timings] = []

        def take(parts: Sequence[Part]) -> None:
            said.extend(part.text for part in parts if isinstance(part, Text))
            for part in parts:
                show(part)

        while True:
            options = {**self.options, "cancel": cancel, "skip_special": prompt.skip_special}
            if limit is not None:
                options["max_tokens"] = limit - len(ids)
            last = None
            with closing(self.model.stream(prompt.ids + ids, **options)) as chunks:
                for chunk in chunks:
                    if chunk.finish_reason is not None:
                        last = chunk
                        break
                    ids.extend(chunk.token_ids)
                    take(reader.push(chunk.text))
            assert last is not None
            assert last.finish_reason is not None
            assert last.timings is not None
            timings.append(last.timings)
            full = self._is_full(last, None if limit is None else limit - len(ids))
            shorter = self._shifted(len(ids)) if full and self.shifts else None
            if shorter is None:
                break
            prompt = shorter  # text that the last chunk held back is sampled again
        take(reader.push(last.text))
        take(reader.finish())
        return Answer(last.finish_reason, full, max(0, self.unsent - unsent), tuple(timings))

    def _is_full(self, last: Chunk, left: int | None) -> bool:
        """Whether generation ended because the context is full; ``left`` tokens were allowed."""
        timings = last.timings
        assert timings is not None
        if last.finish_reason != "length" or (left is not None and len(last.token_ids) >= left):
            return False
        return timings.prompt_tokens + timings.completion_tokens >= self.model.context_length

    def _fitting(self) -> ChatPrompt:
        """Return the prompt; drop turns if it is too long and that is allowed."""
        prompt = self._prompt()
        if self.shifts and len(prompt.ids) > self.model.context_length:
            return self._shifted(0) or prompt
        return prompt

    def _shifted(self, answer: int) -> ChatPrompt | None:
        """Drop the oldest turns until a part of the context is free beyond ``answer`` tokens.

        The user's last message is always sent. Returns None if no turn can be dropped.
        """
        room = self.model.context_length - self.model.context_length // FREED
        prompt = None
        for place in range(self._head() + self.unsent + 1, self._newest() + 1):
            if self.messages[place]["role"] == "user":
                self.unsent = place - self._head()
                prompt = self._prompt()
                if len(prompt.ids) + answer <= room:
                    break
        return prompt

    def _prompt(self) -> ChatPrompt:
        head = self._head()
        sent = [*self.messages[:head], *self.messages[head + self.unsent :]]
        return self.model.chat_prompt(sent, template=self.template)
