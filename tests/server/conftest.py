"""Fixtures: the demo model behind an application, in this process and behind a socket."""

from __future__ import annotations

import faulthandler
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

import trinity
from tests.server.held import Held, watched
from trinity.model import Model
from trinity.server.app import make_app
from trinity.server.models import Models
from trinity.server.process import Server, config, listening
from trinity.server.served import Served
from trinity.server.service import NO_DEFAULTS
from trinity.server.settings import ServerOptions

LIMIT = 120.0  # seconds of waiting before a test fails

MakeApp = Callable[..., Starlette]


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    """The demo model; its responses do not depend on other requests."""
    with trinity.load(trinity.demo_model(), threads=1, batch_invariant=True) as model:
        yield model


@pytest.fixture(scope="session")
def make(model: Model) -> MakeApp:
    """Return a function that makes an application of the demo model, named "demo".

    Its arguments are options of the server; ``defaults`` are generation options.
    """

    def made(defaults: Mapping[str, Any] = NO_DEFAULTS, **options: object) -> Starlette:
        served = Served("demo", "demo.gguf", lambda: model, model=model)
        settings = ServerOptions(**options)  # type: ignore[arg-type]
        models = Models([served], any_name=settings.any_model_name)
        models.close = _nothing  # type: ignore[method-assign]
        return make_app(models, settings, defaults=defaults)

    return made


async def _nothing() -> None:
    """Do nothing: tests share the model."""


@pytest.fixture(scope="session")
def app(make: MakeApp) -> Starlette:
    """The application with default options."""
    return make()


@pytest.fixture(scope="session")
def client(app: Starlette) -> Iterator[TestClient]:
    """A client in this process."""
    with TestClient(app, base_url="http://localhost") as client:
        yield client


@contextmanager
def socket_server(app: Starlette, **options: object) -> Iterator[str]:
    """Yield the URL of an application that runs behind a socket in a thread."""
    settings = ServerOptions(port=0, **options)  # type: ignore[arg-type]
    with listening(settings.host, settings.port) as listener:
        server = Server(config(app, settings), settings.max_connections)
        thread = threading.Thread(target=partial(server.run, sockets=[listener]))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            wait_for(lambda: server.started)
            yield url
        finally:
            server.should_exit = True
            thread.join(LIMIT)
            if thread.is_alive():
                faulthandler.dump_traceback(all_threads=True)
            assert not thread.is_alive()


@pytest.fixture
def held() -> Iterator[Held]:
    """Measures how long callbacks block the event loops of this process."""
    with watched() as found:
        yield found


@pytest.fixture(scope="session")
def url(make: MakeApp) -> Iterator[str]:
    """The URL of a server with default options behind a socket."""
    with socket_server(make()) as url:
        assert httpx.get(f"{url}/health", timeout=LIMIT).status_code == 200
        yield url


def wait_for(found: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + LIMIT
    while not found():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.005)


def is_idle(model: Model) -> bool:
    """Whether no sequence is waiting or running."""
    work = model.scheduler_stats()
    return work.waiting == work.running == 0
