"""Infilling in llama.cpp's form: POST /infill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.server.endpoint import ASGI, Call, Endpoint
from trinity.server.endpoints.llama_answer import LlamaAnswer
from trinity.server.endpoints.llama_completion import LlamaRequest, completion
from trinity.server.errors import LLAMA, ApiError
from trinity.server.schemas import Body

if TYPE_CHECKING:
    from trinity.model import Model

# Names and the line between files as llama.cpp has them, so that prompts are the same tokens.
PROJECT, FILE, EXTRA = "myproject\n", "filename\n", "tmp"
SNIPPET = "\n\n--- snippet ---\n\n"


class ExtraFile(Body):
    """Another text of the project, and the name of its file."""

    text: str
    filename: str = EXTRA


class InfillRequest(LlamaRequest, kw_only=True):
    """The body of POST /infill, which has every parameter of /completion.

    ``prompt`` follows ``input_prefix``: the text between the start of the line and the cursor.
    No text is truncated.
    """

    input_prefix: str
    input_suffix: str
    prompt: str = ""
    input_extra: list[ExtraFile] | None = None

    def tokens(self, model: Model) -> list[int]:
        """The prompt with infill tokens. Raises: ApiError for a model without them."""
        marks = model.tokenizer.infill_ids
        if marks is None:
            raise ApiError(400, "the model has no tokens for infilling")
        before, after, middle = marks
        repository, file = model.tokenizer.file_ids

        def ids(text: str) -> list[int]:
            return model.tokenize(text, add_bos=False)

        prompt = model.tokenize("", add_eos=False)  # the token that the model begins with, if any
        if repository is not None:
            prompt += [repository, *ids(PROJECT)]
        for extra in self.input_extra or ():
            prompt += ids(SNIPPET) if file is None else [file, *ids(f"{extra.filename}\n")]
            prompt += ids(extra.text)
        if file is not None:
            prompt += [file, *ids(FILE)]
        prompt += [before, *ids(self.input_prefix), *ids(self.prompt)]
        return [*prompt, after, *ids(self.input_suffix), middle]


async def infill(call: Call[InfillRequest]) -> ASGI:
    """Generate the text between a prefix and a suffix."""
    body = call.body
    with await call.lease(body.model) as model:
        ids = await call.run(body.tokens, model)
    given = {name: getattr(body, name) for name in LlamaRequest.__struct_fields__}
    request = LlamaRequest(**{**given, "prompt": ids})
    return await completion(Call(call.service, call.caller, request, call.request, call.ignored))


ENDPOINTS = (
    Endpoint(
        "POST", "/infill", infill, "What stands between two texts, in llama.cpp's form.",
        body=InfillRequest, answer=LlamaAnswer | list[LlamaAnswer], event=LlamaAnswer,
        chosen=True, generates=True, family=LLAMA,
    ),
)  # fmt: skip
