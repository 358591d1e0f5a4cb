"""Browsers without storage or clipboard, two tabs, and keyboard focus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from selenium.webdriver.common.keys import Keys

from tests.server.page.browser import Page

QUESTION = {"role": "user", "content": "one"}
ANSWER = {"role": "assistant", "content": "two"}


@contextmanager
def before_each_page(page: Page, script: str) -> Iterator[None]:
    """Run a script before those of each page that is loaded."""
    made = page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    try:
        page.open()
        yield
    finally:
        page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", made)


@pytest.mark.full
@pytest.mark.parametrize("name", ["localStorage", "sessionStorage"])
def test_a_browser_that_forbids_storage_chats_all_the_same(page: Page, name: str) -> None:
    forbids = f"Object.defineProperty(window, '{name}', {{get() {{ throw new Error('no'); }}}});"
    with before_each_page(page, forbids):
        page.find("#settings-button").click()
        page.find("[name=max_tokens]").clear()
        page.find("[name=max_tokens]").send_keys("3")
        page.find("[name=key]").send_keys("a key", Keys.ENTER)
        page.find("#theme").click()
        page.say("Who?")
        page.until("document.querySelectorAll('.note').length > 1")
        page.idle()
        assert page.find("#theme").text == "Theme: light"
        assert "3 tokens" in "".join(page.texts("article.assistant .note"))
        assert "token limit" in "".join(page.texts("article.assistant .note"))


@pytest.mark.full
def test_a_browser_without_a_database_says_so(page: Page) -> None:
    with before_each_page(page, "indexedDB.open = () => { throw new Error('forbidden'); };"):
        assert "cannot save chats: forbidden" in page.find("#error").text


@pytest.mark.full
def test_copying_without_a_clipboard(page: Page) -> None:
    """Pages that are served by plain HTTP from another machine have no clipboard."""
    page.run(
        "Object.defineProperty(navigator, 'clipboard', {value: undefined});"
        "document.addEventListener('copy', () => (window.copied = getSelection().toString()));"
    )
    page.answers_with(["```\ncode\n```"])
    page.say("Who?")
    page.idle()
    for selector, text in (
        ("article.assistant .actions button", "```\ncode\n```"),
        (".copy", "code"),
    ):
        page.find(selector).click()
        assert page.run("return window.copied").strip() == text
        assert page.run("return document.activeElement.textContent").startswith("Cop")
    assert page.texts("body > textarea") == []


@pytest.mark.full
def test_the_focus_stays_in_the_list(page: Page) -> None:
    page.keep([QUESTION, ANSWER], "first")
    page.find("#new").click()
    page.run("document.querySelectorAll('#conversations .open')[1].focus()")
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert page.find("#title").text == "first"
    assert page.driver.switch_to.active_element.text == "first"


@pytest.mark.full
def test_the_menu_of_a_phone_says_that_it_is_closed(page: Page) -> None:
    page.keep([QUESTION, ANSWER])
    page.driver.set_window_size(500, 700)
    try:
        page.until("innerWidth < 760")
        page.find("#menu").click()
        assert page.find("#menu").get_attribute("aria-expanded") == "true"
        # The menu slides in; what is outside the window cannot be clicked.
        place = "document.querySelector('#conversations .open').getBoundingClientRect()"
        page.until(f"{place}.left >= 0")
        page.find("#conversations .open").click()
        assert page.find("#menu").get_attribute("aria-expanded") == "false"
        assert page.driver.switch_to.active_element.get_attribute("id") == "menu"
    finally:
        page.driver.set_window_size(1200, 800)


@pytest.mark.full
def test_the_monitors_title_stays_when_an_answer_ends(page: Page) -> None:
    page.answers_with(["a"] * 5, 50)
    page.say("Who?")
    page.find("#monitor-button").click()
    page.idle()
    assert page.find("#title").text == "Monitor"
    assert all(one for one in page.run(
        "return [...document.querySelectorAll('#monitor svg')].map(e => e.ariaLabel)"))  # fmt: skip


@pytest.mark.full
def test_another_tabs_messages_are_not_written_over(page: Page) -> None:
    page.keep([QUESTION, ANSWER])
    first = page.driver.current_window_handle
    page.go_on_in("tab")
    try:
        page.open()
        page.answers_with(["of the other tab"])
        page.say("two tabs")
        page.until("document.querySelectorAll('article').length === 4")
        page.idle()
    finally:
        page.driver.close()
        page.driver.switch_to.window(first)
    page.until("document.querySelectorAll('article').length === 4")
    assert page.texts("article .body")[-1] == "of the other tab"


@pytest.mark.full
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_frames_of_fields_can_be_seen(page: Page, theme: str) -> None:
    page.run("document.documentElement.dataset.theme = arguments[0]", theme)
    ratio = page.run(
        """const light = (color) => color.match(/[\\d.]+/g).slice(0, 3).map((one) => one / 255)
             .map((one) => one <= .04045 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4)
             .reduce((sum, one, i) => sum + one * [.2126, .7152, .0722][i], 0.05);
           const back = light(getComputedStyle(document.body).backgroundColor);
           return ['.field', '#model'].map((one) =>
             light(getComputedStyle(document.querySelector(one)).borderTopColor))
             .map((one) => Math.max(one, back) / Math.min(one, back));"""
    )
    assert min(ratio) >= 3  # WCAG 2.2, 1.4.11
