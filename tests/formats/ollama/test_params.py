"""Parameters of models in Ollama's store become trinity's options."""

from __future__ import annotations

import pytest

from trinity.errors import ConfigError
from trinity.formats.ollama.params import read_params


def test_every_parameter_has_its_option() -> None:
    found = read_params(
        {
            "num_ctx": 4096, "num_thread": 3, "num_predict": 100, "seed": 7, "top_k": 20.0,
            "repeat_last_n": -1, "temperature": 0, "top_p": 0.5, "min_p": 0.1,
            "repeat_penalty": 1.1, "presence_penalty": -0.5, "frequency_penalty": 0.25,
            "stop": ["a", "", "b"],
        },
        ConfigError,
    )  # fmt: skip
    assert found.loading == {"context_length": 4096, "threads": 3}
    assert found.options == {
        "max_tokens": 100, "seed": 7, "top_k": 20, "penalty_last_n": -1, "temperature": 0,
        "top_p": 0.5, "min_p": 0.1, "repetition_penalty": 1.1, "presence_penalty": -0.5,
        "frequency_penalty": 0.25, "stop": ["a", "b"],
    }  # fmt: skip
    assert found.notices == []


def test_numbers_that_leave_it_to_the_engine() -> None:
    params = {"num_ctx": 0, "num_thread": 0, "num_predict": -1, "seed": -1, "temperature": None}
    found = read_params({**params, "top_k": -1}, ConfigError)
    assert (found.options, found.loading) == ({"top_k": 0}, {})


def test_what_is_not_known_is_told() -> None:
    found = read_params(
        {"num_gpu": 1, "use_mmap": True, "tfs_z": 0.5, "penalize_newline": True}, ConfigError
    )
    assert (found.options, found.loading) == ({}, {})
    assert len(found.notices) == 2
    assert "tfs_z" in found.notices[0]
    assert "penalize_newline" in found.notices[1]


def test_samplers_are_options() -> None:
    params = {"mirostat": 2.0, "mirostat_tau": 4, "mirostat_eta": 0.2, "typical_p": 0.5}
    found = read_params(params, ConfigError)
    assert (found.options, found.notices) == (params, [])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", "hot"), ("temperature", True), ("top_k", [1]), ("seed", 10**400),
        ("stop", "text"), ("stop", [1]), ("num_ctx", {}), ("typical_p", "x"), ("top_p", 1e300),
    ],
)  # fmt: skip
def test_wrong_types_are_errors(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{key} is .*; expected"):
        read_params({key: value}, ConfigError)
