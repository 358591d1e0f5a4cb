"""The chat page: responses, conversations, settings, the API key."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.server.conftest import MakeApp, is_idle, socket_server, wait_for
from tests.server.page.browser import Page, Recorder, squashed
from trinity.model import Model


def test_an_answer_streams_and_is_kept(page: Page) -> None:
    page.server.chunks = chunks = threading.Semaphore(1)
    page.say("Who was Prince Andrew?")
    seen = set()
    while page.run("return document.querySelector('#send').textContent") == "Stop":
        seen.update(page.texts("article.assistant .body"))
        chunks.release()
    page.server.chunks = None
    assert len(seen) > 3
    answer = page.texts("article.assistant .body")
    assert all(squashed(answer[0]).startswith(squashed(part)) for part in seen)
    assert "tokens/s" in page.texts("article.assistant .note")[0]
    assert squashed(page.texts("#said")[0]) == squashed(f"Response: {answer[0]}")
    page.open()
    assert page.texts("article.assistant .body") == answer
    assert page.texts("article.user .body") == ["Who was Prince Andrew?"]
    assert page.texts("#conversations .open") == ["Who was Prince Andrew?"]
    # Nothing was asked of anybody else, and nothing failed.
    asked = page.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert asked
    assert all(name.startswith(f"{page.url}/") for name in asked)
    assert page.driver.get_log("browser") == []


@pytest.mark.full
def test_a_long_first_message_is_cut_to_a_title(page: Page) -> None:
    page.say("many words " * 10)
    page.idle()
    title = page.texts("#title")[0]
    assert title == ("many words " * 10)[:59].rstrip() + "…"


@pytest.mark.full
def test_escape_stops_an_answer(page: Page, model: Model) -> None:
    page.server.pause = 0.15
    page.say("Who was Prince Andrew?")
    page.until("document.querySelector('article.assistant .body')?.textContent.length > 5")
    page.find("#input").send_keys(Keys.ESCAPE)
    page.idle()
    assert page.texts("article.assistant .note") == ["stopped"]
    stopped = page.texts("article.assistant .body")
    wait_for(lambda: is_idle(model))
    page.server.pause = 0.0
    page.open()
    assert page.texts("article.assistant .body") == stopped


@pytest.mark.full
def test_a_response_is_marked_when_the_page_was_left_before_its_end(page: Page) -> None:
    page.server.pause = 0.3
    page.say("Who was Prince Andrew?")
    page.until("document.querySelector('article.assistant .body')?.textContent.length > 1")
    page.open()
    assert page.texts("article.assistant .note") == ["interrupted"]


@pytest.mark.full
def test_edit_and_regenerate(page: Page) -> None:
    page.say("Who was Natasha?")
    page.idle()
    page.say("And Pierre?")
    page.idle()
    page.answers_with(["an", "other"])
    page.driver.find_elements(By.XPATH, "//button[.='Regenerate']")[1].click()
    page.idle()
    assert page.texts("article.assistant .body")[1:] == ["another"]
    page.find("article.user .actions button:nth-child(2)").click()
    field = page.find(".editing textarea")
    assert field.get_property("value") == "Who was Natasha?"
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("Changed", Keys.ENTER)
    page.idle()
    assert page.texts("article .body") == ["Changed", "another"]


@pytest.mark.full
def test_settings_and_the_system_prompt_are_sent(page: Page) -> None:
    page.find("#settings-button").click()
    for name, value in {
        "system": "Be short.",
        "temperature": "0",
        "seed": "7",
        "max_tokens": "3",
    }.items():
        field = page.find(f"#settings [name={name}]")
        field.clear()
        field.send_keys(value)
    page.find("#settings [value=save]").click()
    page.run("""const real = fetch; window.fetch = (path, options) => {
        if (options.body) window.sent = options.body; return real(path, options); };""")
    page.say("Who was Prince Andrew?")
    page.idle()
    sent = json.loads(page.run("return window.sent"))
    assert sent["messages"][0] == {"role": "system", "content": "Be short."}
    assert (sent["temperature"], sent["seed"], sent["max_tokens"]) == (0, 7, 3)
    assert "top_p" not in sent
    assert page.texts("article.assistant .note")[0].startswith("3 tokens")


@pytest.mark.full
def test_conversations_are_renamed_and_deleted(page: Page) -> None:
    page.answers_with(["fine"])
    page.say("One")
    page.idle()
    page.find("#new").click()
    page.say("Two")
    page.idle()
    assert page.texts("#conversations .open") == ["Two", "One"]
    page.find("[aria-label='Rename Two']").click()
    field = page.find("#rename [name=name]")
    field.clear()
    field.send_keys("Another", Keys.ENTER)
    page.until("document.querySelector('#title').textContent === 'Another'")
    page.find("[aria-label='Delete Another']").click()
    page.find("#remove [value=save]").click()
    page.until("document.querySelectorAll('#conversations li').length === 1")
    page.open()
    assert page.texts("#conversations .open") == ["One"]


@pytest.mark.full
def test_a_key_is_asked_for_and_kept_in_the_tab_alone(driver: Any, make: MakeApp) -> None:
    server = Recorder(make(api_key=["a-key-of-all"]))
    with socket_server(server) as url:  # type: ignore[arg-type]
        page = Page(driver, url, server)
        page.open()
        assert "API key" in page.texts("#error")[0]
        page.find("#settings-button").click()
        page.find("#settings [name=key]").send_keys("a-key-of-all", Keys.ENTER)
        page.until("document.querySelector('#model').value === 'demo'")
        page.say("Who?")
        page.idle()
        assert page.texts("article.assistant .body")[0]
        assert "a-key-of-all" not in page.run("return JSON.stringify({...localStorage})")
        driver.get("about:blank")
    driver.get_log("browser")  # of the refusals


@pytest.mark.full
def test_a_cut_connection_loses_nothing(page: Page) -> None:
    page.say("Who?")
    page.idle()
    before = page.texts("article .body")
    page.driver.execute_cdp_cmd("Network.enable", {})
    speed = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": True, **speed})
    try:
        page.say("And then?")
        page.idle()
        page.until("document.querySelector('#error').textContent")
        assert page.texts("article .body")[:2] == before
    finally:
        online = {"offline": False, **speed}
        page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", online)
        page.driver.get_log("browser")  # of what was cut
    page.open()
    assert page.texts("article .body")[:2] == before
    page.say("And then?")
    page.idle()
    assert page.texts("article.assistant .body")[-1]


@pytest.mark.full
def test_no_request_goes_anywhere_but_home(page: Page) -> None:
    page.driver.execute_cdp_cmd("Network.enable", {})
    page.say("Who was he?")
    page.idle()
    page.find("#settings-button").click()
    asked = page.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert asked
    assert all(name.startswith(f"{page.url}/") for name in asked)
    assert page.driver.get_log("browser") == []
