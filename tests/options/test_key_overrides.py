"""Keys of metadata that users replace."""

from __future__ import annotations

import pytest

from trinity.errors import InputError
from trinity.options.key_overrides import check_overrides, read_overrides


def test_texts_are_llama_cpps() -> None:
    texts = ["a.b=int:-3,c=float:1e-5", "d=bool:true", "e=bool:false", "f=str:x=y:z", '"g=str:1,2"']
    assert read_overrides("--override-kv", texts) == {
        "a.b": -3, "c": 1e-5, "d": True, "e": False, "f": "x=y:z", "g": "1,2",
    }  # fmt: skip
    assert read_overrides("--override-kv", ["a=int:1", "a=int:2"]) == {"a": 2}


@pytest.mark.parametrize(
    "text", ["a", "a=3", "a=int", "a=int:x", "a=bool:1", "a=long:1", "a=float:", "=int", ""]
)
def test_other_texts_are_refused(text: str) -> None:
    if not text:
        assert read_overrides("--override-kv", [text]) == {}
        return
    with pytest.raises(InputError, match=r"--override-kv .*: write it as KEY=TYPE:VALUE"):
        read_overrides("--override-kv", [text])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([("a", 1)], "must be a dict of keys and values"),
        ({3: 1}, "has the key 3; a key is text"),
        ({"": 1}, "has the key ''"),
        ({"k" * 128: 1}, "at most 127 characters"),
        ({"a": None}, r"override_kv\['a'\] is None; a value is True or False"),
        ({"a": 2**63}, "an integer of 64 bits"),
        ({"a": float("nan")}, r"override_kv\['a'\] is nan"),
        ({"a": "x" * 128}, "text of at most 127 characters"),
    ],
)
def test_values_are_checked(value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_overrides("override_kv", value)


def test_the_dict_is_a_copy() -> None:
    given = {"a": 1, "b": -(2**63), "c": True}
    found = check_overrides("override_kv", given)
    assert found == given
    assert found is not given
