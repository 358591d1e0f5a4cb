"""The chat page in Debian's chromium: chats, keys, what a screen reader gets, hostile answers."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.server.conftest import MakeApp, is_idle, socket_server, wait_for
from trinity.model import Model

pytest.importorskip("selenium", reason="selenium is not installed")
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None, reason="chromium and chromedriver are not installed"
)
WINDOWS = 7

# What a model may write to run a script or to have something loaded; /trap is counted.
TRAP = "/trap"
SCRIPTS = [
    "<script>window.ran=1</script>", "<img src=x onerror=window.ran=1>",
    "<svg onload=window.ran=1>", f"<img src={TRAP}>", f"![x]({TRAP})",
    f"![x](http://127.0.0.1:9{TRAP})", f"![x][r]\n\n[r]: {TRAP}", "[x](javascript:window.ran=1)",
    "[x](JaVaScRiPt:window.ran=1)", "[x](java\nscript:window.ran=1)",
    "[x](&#106;avascript:window.ran=1)", "[x](&#x6A;avascript&colon;window.ran=1)",
    "[x](data:text/html,<script>window.ran=1</script>)", "[x](vbscript:window.ran=1)",
    "<javascript:window.ran=1>", "[x](file:///etc/passwd)", "[x](blob:http://localhost/1)",
    f"<iframe src={TRAP}></iframe>", "<iframe srcdoc='<script>parent.ran=1</script>'></iframe>",
    f"<link rel=stylesheet href={TRAP}>", f"<link rel=prefetch href={TRAP}>",
    f"<style>@import '{TRAP}';</style>", f"<style>*{{background:url({TRAP})}}</style>",
    f"<div style='background:url({TRAP})'>", f"<object data={TRAP}></object>",
    f"<embed src={TRAP}>", f"<video src={TRAP} autoplay onerror=window.ran=1>",
    f"<audio src={TRAP} autoplay>", f"<meta http-equiv=refresh content='0;url={TRAP}'>",
    f"<base href={TRAP}/>", f"<form action={TRAP}><input autofocus onfocus=window.ran=1>",
    "<details open ontoggle=window.ran=1>", "<body onload=window.ran=1>",
    "<math><mtext><script>window.ran=1</script></mtext></math>",
    "<svg><animate onbegin=window.ran=1 attributeName=x dur=1s>",
    "<marquee onstart=window.ran=1>", "```html\n<script>window.ran=1</script>\n```",
    "```\"><script>window.ran=1</script>\nx\n```", "`<script>window.ran=1</script>`",
    "| <img src=x onerror=window.ran=1> |\n|---|\n| <script>window.ran=1</script> |",
    "# <img src=x onerror=window.ran=1>", "> <script>window.ran=1</script>",
    "- [ ] <img src=x onerror=window.ran=1>", "&lt;script&gt;window.ran=1&lt;/script&gt;",
    "[<img src=x onerror=window.ran=1>](http://127.0.0.1:9/)",
    "[x](http://127.0.0.1:9/ \"' onmouseover='window.ran=1\")",
    "[x](http://127.0.0.1:9/\"onclick=\"window.ran=1)",
    "</div></article></main><script>window.ran=1</script>",
    "<!--><script>window.ran=1</script>-->", "<![CDATA[<script>window.ran=1</script>]]>",
    "<template><script>window.ran=1</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=window.ran=1>'>",
    "{{constructor.constructor('window.ran=1')()}}", "<a href='javascript:window.ran=1'>x</a>",
    "> " * 3000 + "deep", "[" * 3000, "*a_" * 2000, "\u202e<script>window.ran=1</script>\u0000",
]  # fmt: skip


class Recorder:
    """An application, the paths that it was asked for, and a pause before each piece it sends."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.paths: list[str] = []
        self.pause = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        import asyncio

        async def slowly(message: Message) -> None:
            if self.pause and message["type"] == "http.response.body" and message.get("more_body"):
                await asyncio.sleep(self.pause)
            await send(message)

        if scope["type"] == "http":
            self.paths.append(scope["path"])
        await self.app(scope, receive, slowly)


class Page:
    """The page in a browser."""

    def __init__(self, driver: Any, url: str, server: Recorder) -> None:
        self.driver, self.url, self.server = driver, url, server

    def open(self) -> None:
        """Load it, as new."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/")
        self.until("document.body?.dataset.ready === 'true'")

    def empty(self) -> None:
        """Load it with nothing kept."""
        self.driver.get(f"{self.url}/")
        self.driver.execute_cdp_cmd(
            "Storage.clearDataForOrigin", {"origin": self.url, "storageTypes": "all"}
        )
        self.run("sessionStorage.clear()")
        # The demo model says much.
        self.run("localStorage.setItem('trinity.sampling', '{\"max_tokens\": 40, \"seed\": 1}')")
        self.open()
        self.driver.get_log("browser")  # what was there before

    def run(self, script: str, *values: object) -> Any:
        return self.driver.execute_script(script, *values)

    def wait(self, script: str, *values: object) -> Any:
        """What a script gives its last argument."""
        return self.driver.execute_async_script(script, *values)

    def until(self, expression: str) -> None:
        end = time.monotonic() + 20
        while not self.run(f"return {expression}"):
            assert time.monotonic() < end, expression
            time.sleep(0.02)

    def find(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        found: list[str] = self.run(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
        )
        return found

    def say(self, text: str) -> None:
        self.find("#input").send_keys(text, Keys.ENTER)

    def idle(self) -> None:
        self.until("document.querySelector('#send').textContent === 'Send'")

    def keep(self, messages: list[dict[str, str]], title: str = "kept") -> None:
        """Put a conversation into the browser, and load the page with it."""
        self.wait(
            """const [messages, title, done] = arguments;
            const request = indexedDB.open('trinity', 1);
            request.onsuccess = () => {
              const transaction = request.result.transaction('conversations', 'readwrite');
              transaction.objectStore('conversations').put(
                {id: 'kept', title, created: 1, changed: Date.now(), system: '', messages});
              transaction.oncomplete = () => { request.result.close(); done(); };
            };""",
            messages, title,
        )  # fmt: skip
        self.run("localStorage.setItem('trinity.chosen', 'kept')")
        self.open()

    def answers_with(self, pieces: list[str], pause_ms: int = 0) -> None:
        """Let the next answers be these pieces, as a server would stream them."""
        self.run(
            """const [pieces, pause] = arguments, real = window.real ??= window.fetch;
            window.fetch = async (path, options) => {
              if (!path.endsWith('chat/completions')) return real(path, options);
              const encoder = new TextEncoder();
              return new Response(new ReadableStream({async start(stream) {
                for (const content of pieces) {
                  const data = JSON.stringify({choices: [{delta: {content}}]});
                  stream.enqueue(encoder.encode(`data: ${data}\\n\\n`));
                  if (pause) await new Promise(resolve => setTimeout(resolve, pause));
                }
                stream.enqueue(encoder.encode('data: [DONE]\\n\\n'));
                stream.close();
              }}));
            };""",
            pieces, pause_ms,
        )  # fmt: skip


def squashed(text: str) -> str:
    """A text as HTML shows it, without its spaces."""
    return "".join(text.split())


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                 "--disable-background-networking", "--window-size=1200,800"):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(30)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def loaded(driver: Any, make: MakeApp) -> Iterator[Page]:
    server = Recorder(make())
    with socket_server(server) as url:  # type: ignore[arg-type]
        driver.get(f"{url}/")
        yield Page(driver, url, server)
        driver.get("about:blank")


@pytest.fixture
def page(loaded: Page) -> Iterator[Page]:
    loaded.empty()
    yield loaded
    loaded.server.pause = 0.0


def test_an_answer_streams_and_is_kept(page: Page) -> None:
    page.server.pause = 0.03
    page.say("Who was Prince Andrew?")
    seen = set()
    while page.run("return document.querySelector('#send').textContent") == "Stop":
        seen.update(page.texts("article.assistant .body"))
    assert len(seen) > 3
    answer = page.texts("article.assistant .body")
    assert all(squashed(answer[0]).startswith(squashed(part)) for part in seen)
    assert "tokens/s" in page.texts("article.assistant .note")[0]
    assert squashed(page.texts("#said")[0]) == squashed(f"Answer: {answer[0]}")
    page.open()
    assert page.texts("article.assistant .body") == answer
    assert page.texts("article.user .body") == ["Who was Prince Andrew?"]
    assert page.texts("#conversations .open") == ["Who was Prince Andrew?"]
    # Nothing was asked of anybody else, and nothing failed.
    asked = page.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert asked
    assert all(name.startswith(f"{page.url}/") for name in asked)
    assert page.driver.get_log("browser") == []


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


def test_markdown_becomes_what_it_means(page: Page) -> None:
    page.keep([{"role": "assistant", "content": "# T\n\n1. **b** &amp; `c`\n2. [l](https://a.example/)\n\n"
                "| a |\n|--:|\n| 1 |\n\n```py\nx < 1\n```\n\n<b>raw</b>"}])  # fmt: skip
    assert page.texts("article h2:nth-of-type(1)") == ["Answer", "T"]
    assert page.texts("article li") == ["b & c", "l"]
    assert page.texts("article pre code") == ["x < 1"]
    assert page.texts("article td.to-right") == ["1"]
    assert page.run("return document.querySelector('#thread a').href") == "https://a.example/"
    assert "<b>raw</b>" in page.texts("article .body")[0]


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
    )  # fmt: skip
    grown, whole = page.run("return window.same")
    assert grown == whole


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
    assert found["article"] == ["You", "Answer"]
    assert "Message" in found["textbox"]
    assert page.run("return document.querySelector('#said').ariaLive") == "polite"


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


def test_the_monitor_draws_what_the_server_does(page: Page) -> None:
    page.find("#monitor-button").click()
    page.until("document.querySelectorAll('#monitor .line[points*=\" \"]').length === 6")
    names = page.texts("#monitor h2")
    assert names == ["Speed", "Running", "Queue", "Cache", "Memory", "Processor"]
    figures = dict(zip(names, page.texts("#monitor strong"), strict=True))
    assert 0.01 < float(figures["Memory"]) < 100
    page.find("#monitor-button").click()
    page.until("document.querySelector('#monitor').hidden")
    time.sleep(0.3)
    asked = page.server.paths.count("/metrics")
    time.sleep(1.5)
    assert page.server.paths.count("/metrics") == asked


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
          else done(n / (performance.now() - began) * 1000); };
        requestAnimationFrame(next);"""
    scrolled = [page.wait(frames, -400) for _ in range(WINDOWS)]
    page.answers_with(
        ["some **words** of `text`\n\n" if i % 20 == 0 else "word " for i in range(1500)], 3
    )
    page.say("Go on")
    streamed = [page.wait(frames, 0) for _ in range(WINDOWS)]
    assert page.texts("#send") == ["Stop"]
    assert page.run(f"return {at_end}")
    page.find("#send").click()
    print(f"frames/s: scrolled {scrolled}, streamed {streamed}")
    assert median(scrolled) >= 30
    assert median(streamed) >= 30
