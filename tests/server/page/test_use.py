"""Keyboard, screen readers, themes, narrow screens, the monitor, long conversations."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from tests.processor_time import slowness
from tests.server.page.browser import Page

WINDOWS = 7


class Frames:
    """Frames a second while ``script`` runs: by the clock, and by its main thread's processor time.

    Where the machine does something else, only the second one tells of the page.
    """

    def __init__(self, page: Page, script: str, *values: object) -> None:
        before = page.processor_seconds()
        count, seconds = page.wait(script, *values)
        self.by_clock = count / seconds
        self.by_processor = count / (page.processor_seconds() - before)


@pytest.mark.full
def test_keys_alone_do(page: Page) -> None:
    active: Callable[[], Any] = lambda: page.driver.switch_to.active_element  # noqa: E731
    page.run("document.activeElement.blur(); document.querySelector('.skip').focus()")
    assert page.run("return document.querySelector('.skip').getBoundingClientRect().top") >= 0
    active().send_keys(Keys.ENTER)
    assert active().get_attribute("id") == "input"
    active().send_keys("Who", Keys.SHIFT, Keys.ENTER, Keys.SHIFT, "was he?")
    assert active().get_property("value") == "Who\nwas he?"
    active().send_keys(Keys.ENTER)
    page.idle()
    page.run("document.querySelector('.skip').focus()")
    seen = []
    for _ in range(40):
        active().send_keys(Keys.TAB)
        if active().get_attribute("id") == "send":
            break
        seen.append(active().get_attribute("id") or active().text)
        outline = page.run("return getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or seen[-1] == "input"  # whose frame shows it
    for place in ("new", "monitor-button", "theme", "model", "settings-button", "scroll", "Edit",
                  "Regenerate", "input"):  # fmt: skip
        assert place in seen


@pytest.mark.full
def test_everything_has_a_name_for_a_screen_reader(page: Page) -> None:
    page.answers_with(["# T\n\n| a |\n|---|\n| 1 |\n\n```\nx\n```"])
    page.say("Who?")
    page.idle()
    nodes = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    found: dict[str, list[str]] = {}
    for node in nodes:
        if not node.get("ignored"):
            name = node.get("name", {}).get("value", "")
            found.setdefault(node["role"]["value"], []).append(name)
    for role in ("button", "textbox", "combobox", "link", "article", "navigation", "region"):
        assert found.get(role), role
        assert all(found[role]), role
    assert found["navigation"] == ["Conversations"]
    assert found["article"] == ["You", "demo"]
    assert "Message" in found["textbox"]
    assert page.run("return document.querySelector('#said').ariaLive") == "polite"


@pytest.mark.full
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_themes_and_a_phones_width(page: Page, theme: str) -> None:
    wide = "x" * 300
    page.keep([{"role": who, "content": f"{wide}\n\n```\n{wide}\n```\n\n| {wide} | b |\n|--|--|\n| 1 | 2 |"}  # noqa: E501
               for who in ("user", "assistant")], wide[:200])  # fmt: skip
    driver = page.driver
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": theme}]},
    )
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 360, "height": 720, "deviceScaleFactor": 1, "mobile": True},
    )
    try:
        back = "return getComputedStyle(document.body).backgroundColor"
        light, dark = "rgb(255, 255, 255)", "rgb(20, 22, 28)"
        assert page.run(back) == (light if theme == "light" else dark)
        for view in ("chat", "menu", "monitor"):
            if view == "menu":
                page.find("#menu").click()
                page.until("document.querySelector('#sidebar').getBoundingClientRect().left === 0")
                for switched in ("light", "dark"):
                    page.find("#theme").click()
                    assert page.run(back) == (light if switched == "light" else dark)
            if view == "monitor":
                page.find("#monitor-button").click()
                page.until("!document.querySelector('#monitor').hidden")
            for place in (
                "documentElement",
                "querySelector('#scroll')",
                "querySelector('#monitor')",
            ):
                assert page.run(f"return document.{place}.scrollWidth") <= 360
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.full
def test_the_monitor_draws_what_the_server_does(page: Page) -> None:
    page.find("#monitor-button").click()
    page.until("document.querySelectorAll('#monitor .line[points*=\" \"]').length === 6")
    names = page.texts("#monitor h2")
    assert names == ["Speed", "Running", "Queue", "Cache", "Memory", "CPU"]
    figures = dict(zip(names, page.texts("#monitor strong"), strict=True))
    assert 0.01 < float(figures["Memory"]) < 100
    page.find("#monitor-button").click()
    page.until("document.querySelector('#monitor').hidden")
    time.sleep(0.3)
    asked = page.server.paths.count("/metrics")
    time.sleep(1.5)
    assert page.server.paths.count("/metrics") == asked


@pytest.mark.full
def test_2000_messages_scroll_and_stream_fluently(page: Page) -> None:
    text = "A **message** with `code`.\n\n- one\n- two\n\n```py\nx = 1\n```\n"
    page.keep(
        [{"role": ("user", "assistant")[i % 2], "content": f"{text} {i}"} for i in range(2000)]
    )
    assert page.run("return document.querySelectorAll('article').length") == 2000
    at_end = "(s => s.scrollHeight - s.scrollTop - s.clientHeight < 60)(document.querySelector('#scroll'))"  # noqa: E501
    page.until(at_end)
    frames = """const [step, done] = arguments, scroll = document.querySelector('#scroll');
        let n = 0; const began = performance.now();
        const next = () => { n += 1; scroll.scrollTop += step;
          if (performance.now() - began < 500) requestAnimationFrame(next);
          else done([n, (performance.now() - began) / 1000]); };
        requestAnimationFrame(next);"""
    scrolled = [Frames(page, frames, -400) for _ in range(WINDOWS)]
    page.answers_with(
        ["some **words** of `text`\n\n" if i % 20 == 0 else "word " for i in range(1500)], 3
    )
    page.say("Go on")
    streamed = [Frames(page, frames, 0) for _ in range(WINDOWS)]
    assert page.texts("#send") == ["Stop"]
    assert page.run(f"return {at_end}")
    page.find("#send").click()
    for name, windows in (("scrolled", scrolled), ("streamed", streamed)):
        print(f"{name}: {median(one.by_clock for one in windows):.0f} frames/s by the clock")
        assert median(one.by_processor for one in windows) >= 30 / slowness()
