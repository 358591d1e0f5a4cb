"""A model's chat format: conversations become prompts by its chat template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from trinity.errors import InputError, TokenizerError, UnsupportedError, about
from trinity.formats.defaults import ChatTemplate, Defaults
from trinity.options.keywords import unknown_keyword
from trinity.runtime.options import PromptOptions
from trinity.runtime.prompts import Messages, check_length

if TYPE_CHECKING:
    from trinity.conversation.prompt import ChatPrompt, Tokenize
    from trinity.conversation.rendering import Rendered
    from trinity.tokenizers import Tokenizer


class ImagePrompts(Protocol):
    """Turns images into rows of a prompt."""

    @property
    def mark(self) -> str:
        """The text that the model's chat templates write for an image."""
        ...

    @property
    def joint(self) -> str:
        """The text between an image and other parts in chat templates that read only text."""
        ...

    def prompt(
        self, text: str, images: Sequence[Any], tokenize: Callable[[str, bool], list[int]]
    ) -> list[int]:
        """The ids of a prompt in which ``mark`` stands for each image."""
        ...


class ChatFormat:
    """Renders conversations by a model's chat templates and tokenizes them.

    ``path`` names the file of the templates in errors. ``images`` turns images into rows of the
    prompt; a model without it reads only text.
    """

    def __init__(
        self, tokenizer: Tokenizer, defaults: Defaults, path: str = "",
        images: ImagePrompts | None = None,
    ) -> None:  # fmt: skip
        self._tokenizer = tokenizer
        self._images = images
        self._opened = defaults.opened if defaults.system or defaults.messages else None
        self._templates = defaults.templates
        self._path = path

    @property
    def templates(self) -> tuple[ChatTemplate, ...]:
        """All templates of the model. The first one that can be rendered is used."""
        own = self._tokenizer.chat_template
        return self._templates + (() if own is None else (ChatTemplate(own),))

    def use(self, template: ChatTemplate) -> None:
        """Replace the templates of the model by this one."""
        self._templates, self._path = (template,), template.source
        self._tokenizer.chat_template = None
        self._tokenizer.chat_templates = {}

    def ids(
        self, messages: Messages, options: PromptOptions, *, add_generation_prompt: bool
    ) -> list[int]:
        """The token ids of a conversation. Raises: as ``Model.apply_chat_template``."""
        rendered, tokenize = self._render(messages, options, add_generation_prompt, general=False)
        return tokenize(rendered.text)

    def prompt(
        self, messages: Messages, options: PromptOptions, *, tool_choice: str,
        parallel_tool_calls: bool | None, add_generation_prompt: bool, most_tokens: int | None,
    ) -> ChatPrompt:  # fmt: skip
        """A conversation as a prompt; see ``Model.chat_prompt``.

        ``most_tokens``: a long prompt that must have more tokens is refused before it is tokenized.
        Raises: as ``Model.chat_prompt``.
        """
        from trinity.conversation.prompt import prompt_of

        tools = options.get("tools") or ()
        if tool_choice == "none":
            options = {**options, "tools": ()}
        rendered, tokenize = self._render(messages, options, add_generation_prompt, general=True)
        if most_tokens is not None:
            check_length(rendered.text, self._tokenizer, most_tokens)
        return prompt_of(
            rendered, self._tokenizer, tools, tool_choice, parallel_tool_calls, tokenize
        )

    def _render(
        self, messages: Messages, options: PromptOptions, add_generation_prompt: bool, *,
        general: bool,
    ) -> tuple[Rendered, Tokenize]:  # fmt: skip
        """The text of a conversation, and what gives its tokens."""
        from trinity.conversation.messages import take_images
        from trinity.conversation.prompt import rendered_ids
        from trinity.conversation.rendering import render_conversation
        from trinity.conversation.written_marks import WrittenMarks
        from trinity.tokenizers.chat import RefusedHistoryError

        tokenizer = self._tokenizer
        unknown = options.keys() - PromptOptions.__annotations__.keys()
        if unknown:
            raise unknown_keyword(unknown, PromptOptions.__annotations__)
        template, tools = options.get("template"), options.get("tools") or ()
        given = ChatTemplate(template) if isinstance(template, str) else template
        templates = self.templates if given is None else (given,)
        if not templates:
            raise InputError(
                "the model's file has no chat template: pass one as template= (Jinja2 text), or "
                "write the prompt in the model's own format and use generate()"
            )
        for_tools = tokenizer.chat_templates.get("tool_use")
        if tools and template is None and for_tools is not None:
            templates = (ChatTemplate(for_tools), *templates)
        bos, eos = (
            "" if token is None else tokenizer.token_text(token)
            for token in (tokenizer.bos_id, tokenizer.eos_id)
        )
        mark, joint, tokenize = "", "", partial(rendered_ids, tokenizer=tokenizer)
        messages, given_images = take_images(messages)
        if given_images:
            if self._images is None:
                raise InputError(
                    "the messages have an image, but the model reads only text: load a vision "
                    "model, such as SmolVLM"
                )
            mark, joint = self._images.mark, self._images.joint
            written = WrittenMarks(mark, tokenizer)
            messages = written.guarded(messages)
            tokenize = partial(self._images.prompt, images=given_images, tokenize=written.ids)
        try:
            rendered = render_conversation(
                templates,
                messages,
                mark=mark,
                joint=joint,
                opened=self._opened,
                tools=tools,
                variables=options.get("variables"),
                general=general,
                bos_token=bos,
                eos_token=eos,
                add_generation_prompt=add_generation_prompt,
            )
            return rendered, tokenize
        except RefusedHistoryError:
            raise  # the messages are wrong, not the model's file
        except (TokenizerError, UnsupportedError):
            with about(self._path if template is None else getattr(template, "source", "")):
                raise
