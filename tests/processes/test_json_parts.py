"""JSON in parts is the text of json.dumps."""

from __future__ import annotations

import json
from collections import UserList
from typing import Any

import pytest

from trinity.processes.json_parts import AT_ONCE, dumps

MANY = [{"role": "user", "content": f'"é\n{i}', "parts": [i, None, True, 0.5]} for i in range(200)]
VALUES: list[Any] = [
    None, "é", [], {}, {"a": 1}, MANY, {"messages": MANY}, {"é": MANY, "b": {"c": MANY}, "d": None},
    {"messages": tuple(MANY), "few": MANY[:2]}, {"a": MANY[:AT_ONCE]}, {"a": MANY[: AT_ONCE + 1]},
    {"a": MANY[: 2 * AT_ONCE]}, {"a": [[]] * 130},
]  # fmt: skip


@pytest.mark.parametrize("ensure_ascii", [True, False])
@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_parts_join_to_the_whole(value: Any, ensure_ascii: bool) -> None:
    assert dumps(value, ensure_ascii=ensure_ascii) == json.dumps(value, ensure_ascii=ensure_ascii)


def test_a_long_list_is_encoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, encode = list[int](), json.dumps

    def watched(value: Any, **named: Any) -> str:
        lengths.append(len(value) if isinstance(value, list) else 0)
        return encode(value, **named)

    monkeypatch.setattr(json, "dumps", watched)
    dumps({"messages": MANY})
    assert max(lengths) == AT_ONCE
    assert sum(lengths) == len(MANY)


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError):
        dumps({"messages": [*MANY, UserList()]})
