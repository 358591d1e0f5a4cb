"""How responses are rendered in the page, hostile ones included, also without a network."""

from __future__ import annotations

import time

import pytest

from tests.server.page.browser import Page
from tests.server.page.hostile import SCRIPTS, TRAP


@pytest.mark.full
@pytest.mark.parametrize("way", ["kept", "streamed"])
def test_hostile_answers_run_and_load_nothing(page: Page, way: str) -> None:
    if way == "kept":
        page.keep([{"role": "assistant", "content": text, "note": text, "reasoning": text} for text in SCRIPTS],  # noqa: E501
                  "<img src=x onerror=window.ran=1>")  # fmt: skip
    else:
        page.answers_with([text[i : i + 40] for text in SCRIPTS for i in range(0, len(text), 40)])
        before = page.run("return performance.getEntriesByType('resource').length")
        page.say("Do your worst")
        page.idle()
        assert page.run("return performance.getEntriesByType('resource').length") == before
        for text in SCRIPTS:
            page.answers_with([text])
            page.say("x")
            page.idle()
    page.run("document.querySelectorAll('details').forEach(e => e.open = true)")
    page.run(
        "document.querySelectorAll('article').forEach(e => e.style.contentVisibility = 'visible')"
    )
    for link in page.run(
        "return [...document.querySelectorAll('#thread a')].map(e => [e.href, e.rel])"
    ):
        assert link[0].startswith(("http://", "https://", "mailto:"))
        assert link[1] == "noopener noreferrer"
    tags = set(page.run("return [...document.querySelectorAll('#thread *')].map(e => e.localName)"))
    assert not tags & {"script", "img", "iframe", "svg", "style", "link", "form", "object", "embed",
                       "video", "audio", "meta", "base", "template", "math", "input"}  # fmt: skip
    time.sleep(0.3)
    assert page.run("return window.ran") is None
    assert TRAP not in page.server.paths
    asked = page.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert all(name.startswith(f"{page.url}/") for name in asked)
    assert page.driver.get_log("browser") == []  # the policy had nothing to refuse


@pytest.mark.full
def test_markdown_becomes_what_it_means(page: Page) -> None:
    page.keep([{"role": "assistant", "content": "# T\n\n1. **b** &amp; `c`\n2. [l](https://a.example/)\n\n"
                "| a |\n|--:|\n| 1 |\n\n```py\nx < 1\n```\n\n<b>raw</b>"}])  # fmt: skip
    assert page.texts("article h2:nth-of-type(1)") == ["Response", "T"]
    sizes = [
        page.run(f"return parseFloat(getComputedStyle(document.querySelector('{each}')).fontSize)")
        for each in ("article > h2", ".body p, .body li", ".body h2")
    ]
    assert sizes == sorted(sizes)
    assert sizes[2] > sizes[1]  # headings of a response do not look like its label
    assert page.texts("article li") == ["b & c", "l"]
    assert page.texts("article pre code") == ["x < 1"]
    assert page.texts("article td.to-right") == ["1"]
    assert page.run("return document.querySelector('#thread a').href") == "https://a.example/"
    assert "<b>raw</b>" in page.texts("article .body")[0]


@pytest.mark.full
def test_a_growing_answer_ends_as_if_it_had_come_at_once(page: Page) -> None:
    text = "\n\n".join(
        ["# A", "one\ntwo", "- a\n- b\n\n  c", "```\nx\n\ny\n```", "> q\n> r", "end **b**"] * 5
    )
    page.wait(
        """const [text, done] = arguments;
        import('/page/markdown.js').then(({Growing, render}) => {
          const [grown, whole] = [document.createElement('div'), document.createElement('div')];
          const growing = new Growing(grown);
          for (let n = 1; n <= text.length; n += 3) growing.show(text.slice(0, n));
          growing.show(text);
          render(whole, text);
          window.same = [grown, whole].map((one) => one.textContent.replace(/\\s+/g, ' '));
          done();
        });""",
        text,
    )
    grown, whole = page.run("return window.same")
    assert grown == whole
