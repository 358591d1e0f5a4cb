"""The connection to a cluster, with a module in the place of Ray."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from trinity.errors import InputError
from trinity.ray.cluster import FEWER_WAKEUPS, Replicas, connected


class Ray(SimpleNamespace):
    """Starts, or raises ``error``; ``given`` are the arguments of ``init``."""

    error: Exception | None = None
    given: dict[str, Any] | None = None

    def is_initialized(self) -> bool:
        return False

    def init(self, **given: Any) -> None:
        self.given = given
        if self.error is not None:
            raise self.error

    def shutdown(self) -> None:
        self.given = None


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    stub = Ray()
    monkeypatch.setitem(sys.modules, "ray", stub)  # type: ignore[arg-type]
    for name in (*FEWER_WAKEUPS, "RAY_ADDRESS", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, "")  # restored after the test
        monkeypatch.delenv(name)
    return stub


def test_a_cluster_started_here_wakes_up_less_often(ray: Ray) -> None:
    os.environ["RAY_SERVE_CONTROL_LOOP_INTERVAL_S"] = "1"
    with connected(Replicas(2, 3)):
        assert ray.given is not None
        assert ray.given["num_cpus"] == 6
        assert {name: os.environ[name] for name in FEWER_WAKEUPS} == {
            **FEWER_WAKEUPS, "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "1"
        }  # fmt: skip
    assert ray.given is None


def test_another_cluster_keeps_its_values(ray: Ray) -> None:
    with connected(Replicas(2, 3, "10.0.0.1:6379")):
        assert ray.given is not None
        assert "num_cpus" not in ray.given
    assert not FEWER_WAKEUPS.keys() & os.environ.keys()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionError("refused"), "there is no Ray cluster at local: refused"),
        (Exception("The current node timed out"), "Ray does not start: The current node timed"),
    ],
)
def test_a_cluster_that_does_not_start(ray: Ray, error: Exception, message: str) -> None:
    ray.error = error
    with pytest.raises(InputError, match=message), connected(Replicas()):
        raise AssertionError


def test_other_errors_of_ray_stay(ray: Ray) -> None:
    ray.error = KeyError("x")
    with pytest.raises(KeyError), connected(Replicas()):
        raise AssertionError
