"""The chat model's training data: loss only on responses, no held-out questions."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import trinity

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts" / "training"
BOOK = '"I shall come to you tomorrow evening," said Pierre. ' + (
    "The old prince walked up and down the long room, and he did not look at his daughter. "
    "He was silent. "
)


@pytest.fixture
def dialogues(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(SCRIPTS)
    import chat_dialogues

    return chat_dialogues


@pytest.fixture
def train(dialogues: Any) -> Any:
    pytest.importorskip("torch", reason="needs the extra `train`")
    import train_chat

    return train_chat


def test_the_text_gives_quotations_and_sentences(dialogues: Any) -> None:
    assert dialogues.quotations(BOOK) == [("Pierre", "I shall come to you tomorrow evening.")]
    ((beginning, end),) = dialogues.sentences(BOOK)
    assert f"{beginning} {end}" in BOOK


def test_one_seed_gives_one_conversation(dialogues: Any) -> None:
    first, again, other = (
        list(islice(dialogues.Dialogues(BOOK, seed).conversation(), 50)) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_held_out_phrasings_and_topics_are_in_no_conversation(dialogues: Any) -> None:
    turns = [turn for turn, _ in islice(dialogues.Dialogues(BOOK, 3).conversation(), 20_000)]
    text = "\n".join(turns).lower()
    assert len(set(turns)) > 1000
    for topic in dialogues.chat_facts.FOREIGN_TOPICS.split("|")[-5:]:
        assert f"essay about {topic.lower()}" not in text
        assert f"explain {topic.lower()}" not in text
    assert "more is there" not in text


def test_the_demo_model_is_read_back_as_it_was(train: Any) -> None:
    """The ternary values equal the file's, and new tokens come last."""
    import torch
    from demo_network import ternary

    model, tokenizer = train.read_demo(trinity.demo_model(), seed=1)
    provider = trinity.open_weights(trinity.demo_model())
    tensor = provider.tensor("blk.3.ffn_down.weight")
    written = torch.tensor(train.TYPES[tensor.type].dequantize(tensor.data, tensor.shape))
    provider.close()
    codes, scale = ternary(model.layers[3].ffn_down.weights[0].detach())
    torch.testing.assert_close(codes * scale, written, rtol=1e-4, atol=0)
    assert [tokenizer.id_to_token(2048 + i) for i in range(4)] == [*train.ROLES.values(), train.END]


def test_answers_and_their_ends_are_scored(train: Any) -> None:
    _, tokenizer = train.read_demo(trinity.demo_model(), seed=1)
    windows = train.Windows(BOOK * 20, tokenizer, 0, train.Stage(book=0.0, context=120))
    places, scored = windows.conversation()
    assert len(places) == len(scored) == 121
    text = tokenizer.decode(
        [place for place, counts in zip(places, scored, strict=True) if counts],
        skip_special_tokens=False,
    )
    assert train.END in text
    assert not any(role in text for role in train.ROLES.values())
