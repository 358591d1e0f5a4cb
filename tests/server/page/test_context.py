"""A full context keeps the conversation usable; the page says what a response waits for."""

from __future__ import annotations

import json

import pytest
from selenium.webdriver.common.keys import Keys

from tests.server.page.browser import Page

QUESTION = {"role": "user", "content": "Who is Pierre?"}
ANSWER = {"role": "assistant", "content": "A count."}
FULL = {"error": {"message": "too long", "code": "context_length_exceeded"}}


def refuse(page: Page, status: int, body: object) -> None:
    """Refuse requests for responses from now on; their bodies are recorded."""
    page.run(
        """const [status, body] = arguments, real = window.real ??= window.fetch;
        window.sent = [];
        window.fetch = async (path, options) => {
          if (!path.endsWith('chat/completions')) return real(path, options);
          window.sent.push(JSON.parse(options.body));
          return Response.json(body, {status});
        };""",
        status,
        body,
    )


def press(page: Page, label: str) -> None:
    """Press the button of the error that has this label."""
    page.driver.find_element("xpath", f"//*[@id='error']//button[.='{label}']").click()


@pytest.mark.full
def test_a_question_that_does_not_fit_returns_to_the_input(page: Page) -> None:
    page.keep([QUESTION, ANSWER])
    refuse(page, 400, FULL)
    page.say("And Natasha?")
    page.until("document.querySelectorAll('#error button').length === 2")
    page.idle()
    assert page.texts("article .body") == ["Who is Pierre?", "A count."]
    assert page.run("return document.querySelector('#input').value") == "And Natasha?"
    page.open()
    assert page.texts("article .body") == ["Who is Pierre?", "A count."]  # nor is it stored


@pytest.mark.full
def test_a_full_context_offers_a_new_chat(page: Page) -> None:
    page.keep([QUESTION, ANSWER])
    refuse(page, 400, FULL)
    page.say("And Natasha?")
    page.until("document.querySelectorAll('#error button').length === 2")
    press(page, "New chat")
    assert page.texts("article .body") == []
    assert page.run("return document.querySelector('#input').value") == "And Natasha?"
    page.answers_with(["A countess."])
    page.find("#input").send_keys(Keys.ENTER)
    page.idle()
    assert page.texts("article .body") == ["And Natasha?", "A countess."]


@pytest.mark.full
def test_the_oldest_messages_can_be_omitted(page: Page) -> None:
    page.keep(
        [QUESTION, ANSWER, {"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    )
    refuse(page, 400, FULL)
    page.say("And Natasha?")
    page.until("document.querySelectorAll('#error button').length === 2")
    press(page, "Omit the oldest messages")
    page.until("window.sent.length === 2")
    page.idle()
    sent = [[one["content"] for one in body["messages"]] for body in page.run("return window.sent")]
    assert sent == [
        ["Who is Pierre?", "A count.", "x", "y", "And Natasha?"],
        ["x", "y", "And Natasha?"],
    ]
    assert len(page.texts("article .body")) == 4  # all are still shown


@pytest.mark.full
def test_a_message_that_alone_is_too_long_says_so(page: Page) -> None:
    refuse(page, 400, FULL)
    page.say("word " * 30)
    page.until("!document.querySelector('#error').hidden")
    page.idle()
    assert page.texts("#error") == ["too long"]
    assert page.texts("#title") == ["New chat"]


@pytest.mark.full
def test_a_failed_regeneration_restores_the_response(page: Page) -> None:
    page.keep([QUESTION, ANSWER])
    refuse(page, 500, {"error": {"message": "broken"}})
    page.driver.find_element("xpath", "//button[.='Regenerate']").click()
    page.until("document.querySelector('#error').textContent === 'broken'")
    page.idle()
    assert page.texts("article .body") == ["Who is Pierre?", "A count."]


@pytest.mark.full
def test_a_draft_belongs_to_its_chat(page: Page) -> None:
    page.keep([QUESTION, ANSWER])
    page.find("#input").send_keys("half a")
    page.find("#new").click()
    assert page.run("return document.querySelector('#input').value") == ""
    page.find("#conversations li:nth-child(2) .open").click()
    assert page.run("return document.querySelector('#input').value") == "half a"


@pytest.mark.full
def test_the_context_and_the_model_are_shown(page: Page) -> None:
    page.say("Who was Prince Andrew?")
    page.idle()
    (shown,) = page.texts("#context label")
    used, length = (int(word) for word in shown.split() if word.isdigit())
    assert 40 <= used < length == 512
    assert page.run("return document.querySelector('#gauge').value") == pytest.approx(used / length)
    assert page.texts("article h2") == ["You", "demo"]
    page.open()
    assert page.texts("article h2") == ["You", "demo"]
    assert page.texts("#context label") == [shown]


@pytest.mark.full
def test_what_a_response_waits_for_is_said(page: Page) -> None:
    page.run(
        """const real = window.fetch; window.fetch = async (path, options) => {
          if (path.endsWith('v1/models')) return Response.json({data: [
            {id: 'demo', loaded: false, status: {value: 'loading'}, context_length: null}]});
          if (!path.endsWith('chat/completions')) return real(path, options);
          const lines = new TransformStream(), writer = lines.writable.getWriter();
          const encoder = new TextEncoder();
          window.send = (event) => writer.write(encoder.encode(`data: ${event}\\n\\n`));
          return new Response(lines.readable);
        };"""
    )
    page.say("Who?")
    page.until("document.querySelector('.assistant .waiting').textContent === 'Loading demo'")
    progress = {"choices": [], "prompt_progress": {"processed": 3, "total": 9}}
    page.run("window.send(arguments[0])", json.dumps(progress))
    page.until("document.querySelector('.assistant .waiting').textContent.includes('3 of 9')")
    page.run("window.send(arguments[0])", json.dumps({"choices": [{"delta": {"content": "He"}}]}))
    page.until("document.querySelector('.assistant .waiting').hidden")
    page.run("window.send('[DONE]')")
    page.idle()
    assert page.texts("article.assistant .body") == ["He"]
