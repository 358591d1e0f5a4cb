"""SmolLM2 and Gemma 3 270M, as quantized and published by others."""

from __future__ import annotations

import trinity
from tests.real.conftest import GetModel


def test_smollm2_knows_a_capital(real_model: GetModel) -> None:
    with trinity.load(real_model("smollm2")) as model:
        answer = model.generate("The capital of France is", max_tokens=1, temperature=0)
    assert answer.text == " Paris"
