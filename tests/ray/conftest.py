"""One Ray cluster for the tests that start none themselves."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import pytest

from tests.ray.in_process import TaskError
from tests.ray.running import HAS_RAY

# A cluster that Ray starts refuses commands that do not have its token.
AUTHENTICATION = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
PROGRAM = """
import json, sys
import ray

ray.init(num_cpus=8, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
print(json.dumps(ray.get_runtime_context().gcs_address), flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Cluster:
    """A cluster that is not the server's."""

    address: str
    process: int  # which started the others


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Skips the test if Ray is not installed."""
    if not HAS_RAY:
        pytest.skip("Ray is not installed (extra ray)")
    with pytest.MonkeyPatch.context() as environment, subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", **AUTHENTICATION},
    ) as process:  # fmt: skip
        for name, value in AUTHENTICATION.items():
            environment.setenv(name, value)
        assert process.stdout is not None
        yield Cluster(json.loads(process.stdout.readline()), process.pid)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


@pytest.fixture
def errors_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces Ray's errors by those of tests/ray/in_process.py."""
    names = {
        "ray.exceptions": ("RayActorError", "RayTaskError"),
        "ray.serve.exceptions": ("DeploymentUnavailableError",),
    }
    if not HAS_RAY:
        monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
        monkeypatch.setitem(sys.modules, "ray.serve", ModuleType("ray.serve"))
    for module, errors in names.items():
        stub = ModuleType(module)
        for error in errors:
            kind = TaskError if error == "RayTaskError" else type(error, (Exception,), {})
            setattr(stub, error, kind)
        monkeypatch.setitem(sys.modules, module, stub)
