"""A key cannot unload a model that other keys use."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tests.server.conftest import wait_for
from tests.server.test_models import FakeModel
from trinity.runtime.scheduling.scheduler_stats import SchedulerStats
from trinity.server.app import make_app
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.settings import ServerOptions

KEYS = ("first-key-of-all", "second-key-of-all")
UNLOADS = {
    "/models/unload": {"model": "demo"},
    "/api/generate": {"model": "demo", "keep_alive": 0},
    "/api/chat": {"model": "demo", "keep_alive": "0s"},
}


class IdleModel(FakeModel):
    """A model without requests."""

    reads_images = False

    def scheduler_stats(self) -> SchedulerStats:
        return SchedulerStats()


@pytest.mark.parametrize("path", UNLOADS)
def test_a_model_is_unloaded_once_every_key_that_used_it_asked_for_it(path: str) -> None:
    models = Models([Served("demo", "", lambda: IdleModel())])  # type: ignore[arg-type, return-value]
    app = make_app(models, ServerOptions(api_key=KEYS, preload=False))
    with TestClient(app, base_url="http://localhost") as client:

        def post(key: str, path: str, body: object) -> None:
            headers = {"Authorization": f"Bearer {key}"}
            answer = client.post(path, json=body, headers=headers)
            assert answer.status_code == 200, answer.text

        first, second = KEYS
        for key in KEYS:
            post(key, "/models/load", {"model": "demo"})
        for _ in range(2):
            post(first, path, UNLOADS[path])
            assert models.ready
            assert not models._unloading  # nothing is under way
        post(second, path, UNLOADS[path])
        wait_for(lambda: not models.ready)
        post(first, "/models/load", {"model": "demo"})  # the second key has not used it since
        post(first, path, UNLOADS[path])
        wait_for(lambda: not models.ready)
