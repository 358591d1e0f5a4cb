"""Chats as files, coloured code, the defaults of settings, and what the demo says of itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.server.page.browser import Page

PYTHON = 'def f(x):  # a comment\n    return "def" + str(1.5)\n'
REFUSED = [
    ("{", "not valid JSON"),
    ('{"a": 1}', 'has no list "messages"'),
    ('[{"role": "tool", "content": "x"}]', "message 1 is not a text of the user"),
    ('[{"role": "user", "content": [1]}]', "message 1 is not a text of the user"),
    ("null", 'has no list "messages"'),
]


def choose_file(page: Page, path: Path, text: str) -> None:
    """Choose a file in the page's dialog of files."""
    path.write_text(text, "utf-8")
    page.find("#import-file").send_keys(str(path))


@pytest.mark.full
def test_an_exported_chat_can_be_imported(page: Page, tmp_path: Path) -> None:
    page.answers_with(["fine"])
    page.say("How are you?")
    page.idle()
    page.run("URL.createObjectURL = (file) => { window.file = file; return 'about:blank'; };")
    page.run(
        "HTMLAnchorElement.prototype.click = () => {};"
        "document.querySelector('[aria-label^=Export]').click()"
    )
    text = page.wait("window.file.text().then(arguments[0])")
    page.run("document.querySelector('[aria-label^=Delete]').click()")
    page.find("#remove [value=save]").click()
    page.until("document.querySelectorAll('article').length === 0")
    choose_file(page, tmp_path / "chat.json", text)
    page.until("document.querySelectorAll('article').length === 2")
    page.open()
    assert page.texts("article .body") == ["How are you?", "fine"]
    assert page.texts("#title") == ["How are you?"]


@pytest.mark.full
def test_a_chat_of_the_terminal_can_be_imported(page: Page, tmp_path: Path) -> None:
    roles = [("system", "Be short."), ("user", "Who?"), ("assistant", "He.")]
    messages = [{"role": role, "content": content} for role, content in roles]
    messages[2]["reasoning_content"] = "hm"
    choose_file(page, tmp_path / "saved.json", json.dumps({"messages": messages}))
    page.until("document.querySelectorAll('article').length === 2")
    assert page.texts("#title") == ["saved"]
    assert page.run("return document.querySelector('.assistant .thinking').textContent") == "hm"
    page.find("#settings-button").click()
    assert page.find("#settings [name=system]").get_property("value") == "Be short."


@pytest.mark.full
def test_another_file_is_refused_with_its_name(page: Page, tmp_path: Path) -> None:
    for number, (text, finding) in enumerate(REFUSED):
        name = f"other{number}.json"
        choose_file(page, tmp_path / name, text)
        page.until(f"document.querySelector('#error').textContent.startsWith('{name}')")
        assert not page.run("return document.querySelector('#error').hidden")
        (error,) = page.texts("#error")
        assert finding in error
        assert len(page.texts("#conversations li")) == 1


@pytest.mark.full
def test_code_has_colours_and_its_text_is_unchanged(page: Page) -> None:
    page.answers_with([f"```python\n{PYTHON}```\n\n```unknown\n{PYTHON}```"])
    page.say("Code?")
    page.idle()
    assert page.texts(".body pre code") == [PYTHON.rstrip("\n")] * 2
    assert page.texts(".is-word") == ["def", "return"]
    assert page.texts(".is-comment") == ["# a comment"]
    assert page.texts(".is-string") == ['"def"']
    assert page.texts(".is-number") == ["1.5"]


@pytest.mark.full
def test_settings_show_the_servers_defaults(page: Page) -> None:
    page.find("#settings-button").click()
    names = "temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"
    shown = [page.find(f"#settings [name={name}]").get_property("placeholder") for name in names]
    assert shown == ["0.8", "0.95", "40", "0.05", "no limit", "random"]


@pytest.mark.full
@pytest.mark.parametrize("folder", ["/lib/trinity/data", "C:\\trinity\\data"])
def test_the_demo_says_what_it_knows(page: Page, folder: str) -> None:
    assert page.texts("#about") == [""]
    path = folder + folder[-5] + "demo-chat.gguf"
    script = (
        "const real = fetch; fetch = async (path, options) => {"
        f"  if (path !== 'props') return real(path, options); const model_path = {json.dumps(path)};"  # noqa: E501
        "  return Response.json({model_path, default_generation_settings: {params: {}}}); };"
    )
    made = page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    try:
        page.open()
        assert "War and Peace" in page.texts("#about")[0]
    finally:
        page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", made)
