"""axe-core finds no barrier; skipped unless TRINITY_AXE is the path of its axe.min.js."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.server.page.browser import Page

AXE = os.environ.get("TRINITY_AXE", "")
TEXT = "# T\n\n| a |\n|---|\n| 1 |\n\nand\n\n| b |\n|---|\n| 2 |\n\n"
TEXT += "```python\ndef f(x):  # c\n    return 'a' + str(1)\n```\n[l](http://a.b)"
TEXT += " $x^2$\n\n$$y$$\n\n$$z$$"


@pytest.mark.skipif(not AXE, reason="TRINITY_AXE is not set")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_no_violation(page: Page, theme: str, width: int) -> None:
    driver = page.driver
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        for view in ("empty", "chat", "error", "settings", "menu", "monitor"):
            if view == "chat":
                page.answers_with([TEXT])
                page.say("Who?")
                page.idle()
            elif view == "error":
                page.run("window.fetch = async () => { throw new TypeError('no'); }")
                page.say("And?")
                page.until("document.querySelector('#error').textContent")
                page.idle()
            elif view == "settings":
                page.open()
                page.find("#settings-button").click()
            elif view == "menu":
                page.run("document.querySelector('#settings').close()")
                if width < 600:
                    page.find("#menu").click()
            elif view == "monitor":
                page.find("#monitor-button").click()
                page.until(
                    "document.querySelectorAll('#monitor .line[points*=\" \"]').length === 6"
                )
            page.run(Path(AXE).read_text("utf-8"))
            found = page.wait(
                "const done = arguments[0]; axe.run().then((result) => done(result.violations.map("
                "one => `${one.id}: ${one.nodes.map(node => node.html).join(' ')}`)))"
            )
            assert found == [], view
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        driver.get_log("browser")
