"""TeX in responses becomes MathML; wrong TeX, and TeX that would load something, stays text."""

from __future__ import annotations

import pytest

from tests.server.page.browser import Page
from tests.server.page.hostile import TRAP

REFUSED = [
    "\\href{javascript:window.ran=1}{x}", "\\url{http://127.0.0.1:9/}", "\\frac{1", "\\unknown",
    f"\\includegraphics{{{TRAP}}}", "\\class{hidden}{x}", "\\style{color:red}{x}",
    "\\def\\a{\\a\\a}\\a", "\\data{a=b}{x}", "{" * 2400,
]  # fmt: skip


def render(page: Page, text: str) -> None:
    page.answers_with([text[i : i + 7] for i in range(0, len(text), 7)])
    page.say("x")
    page.idle()


@pytest.mark.full
def test_mathematics_is_loaded_when_a_response_has_some(page: Page) -> None:
    loaded = "performance.getEntriesByType('resource').some(e => e.name.endsWith('/temml.js'))"
    render(page, "It costs $5 and $6, `$a$`, \\$7$ and $HOME/$USER.")
    assert page.run(f"return {loaded}") is False
    assert page.texts(".assistant .body")[0] == "It costs $5 and $6, $a$, $7$ and $HOME/$USER."
    render(
        page,
        "Let $x_1$ and \\(y^2\\).\n\n$$\n\\frac{a}{b}\n= c\n$$\n\n"
        "\\[\\begin{matrix}1&2\\\\3&4\\end{matrix}\\]\n",
    )
    page.until("document.querySelectorAll('#thread math').length === 4")
    assert page.run(f"return {loaded}") is True
    for part, count in {"msub": 1, "msup": 1, "mfrac": 1, "mtd": 4}.items():
        assert len(page.texts(f"#thread math {part}")) == count
    assert len(page.texts(".formula math")) == 2
    assert page.driver.get_log("browser") == []


@pytest.mark.full
def test_tex_that_is_refused_stays_text(page: Page) -> None:
    for count, tex in enumerate(REFUSED, 1):
        render(page, f"$y$ and ${tex}$")
        page.until(f"document.querySelectorAll('#thread math').length >= {count}")
        assert page.texts(".assistant .body")[-1].endswith(f"${tex}$")
        assert page.run("return window.ran") is None, tex
        assert page.run("return document.querySelector('#thread math a, #thread a')") is None, tex
        assert page.driver.get_log("browser") == [], tex
    assert TRAP not in page.server.paths
