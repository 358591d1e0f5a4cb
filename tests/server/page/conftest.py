"""Fixture: Debian's chromium; tests that need it are skipped without it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from selenium import webdriver

from tests.server.conftest import MakeApp, socket_server
from tests.server.page.browser import Page, Recorder

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    """A browser that can reach only this machine."""
    if BROWSER is None or DRIVER is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                 "--disable-background-networking", "--window-size=1200,800",
                 "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.enable_bidi = True  # for windows that share no storage
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(30)
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def loaded(driver: Any, make: MakeApp) -> Iterator[Page]:
    server = Recorder(make())
    with socket_server(server) as url:  # type: ignore[arg-type]
        yield Page(driver, url, server)


@pytest.fixture
def page(loaded: Page) -> Iterator[Page]:
    with loaded.fresh():
        yield loaded
    loaded.server.pause = 0.0
    loaded.server.chunks = None
