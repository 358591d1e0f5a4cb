"""The chat page in a browser, and the server that it uses."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Recorder:
    """An application that records requested paths and can delay each chunk that it sends."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.paths: list[str] = []
        self.pause = 0.0  # seconds before each chunk
        self.chunks: threading.Semaphore | None = None  # those that may be sent; None: all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def slowly(message: Message) -> None:
            if message["type"] == "http.response.body" and message.get("more_body"):
                await asyncio.sleep(self.pause)
                while self.chunks and not self.chunks.acquire(blocking=False):
                    await asyncio.sleep(0.005)
            await send(message)

        if scope["type"] == "http":
            self.paths.append(scope["path"])
        await self.app(scope, receive, slowly)


class Page:
    """The page in a browser."""

    def __init__(self, driver: Any, url: str, server: Recorder) -> None:
        self.driver, self.url, self.server = driver, url, server

    def open(self) -> None:
        """Load the page anew."""
        self.driver.get(f"{self.url}/")
        self.until("document.body?.dataset.ready === 'true'")

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Load the page in a browser window without stored data; close the window afterwards."""
        first = self.driver.current_window_handle
        self.browser = self.driver.browser.create_user_context()
        try:
            self.go_on_in("window")
            # The demo model says much.
            sampling = json.dumps(json.dumps({"max_tokens": 40, "seed": 1}))
            script = f"if (origin !== 'null') localStorage['trinity.sampling'] ??= {sampling}"
            self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
            self.driver.get_log("browser")  # what was there before
            self.open()
            yield
        finally:
            self.driver.switch_to.window(first)
            self.driver.browser.remove_user_context(self.browser)

    def go_on_in(self, kind: str) -> None:
        """Continue in a new "tab" or "window" of the same browser."""
        made = self.driver.browsing_context.create(type=kind, user_context=self.browser)
        self.driver.switch_to.window(made)
        self.driver.set_window_size(1200, 800)

    def run(self, script: str, *values: object) -> Any:
        return self.driver.execute_script(script, *values)

    def wait(self, script: str, *values: object) -> Any:
        """Return the value that a script passes to its last argument."""
        return self.driver.execute_async_script(script, *values)

    def processor_seconds(self) -> float:
        """Return the processor time of the page's main thread."""
        self.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        found = self.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return float(next(one["value"] for one in found if one["name"] == "ThreadTime"))

    def until(self, expression: str) -> None:
        end = time.monotonic() + 60
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
        """Store a conversation in the browser, and load the page with it."""
        self.wait(
            """const [messages, title, done] = arguments;
            const request = indexedDB.open('trinity', 1);
            request.onsuccess = () => {
              const transaction = request.result.transaction('conversations', 'readwrite');
              transaction.objectStore('conversations').put(
                {id: 'kept', title, created: 1, changed: Date.now(), system: '', messages});
              transaction.oncomplete = () => { request.result.close(); done(); };
            };""",
            messages,
            title,
        )
        self.run("localStorage.setItem('trinity.chosen', 'kept')")
        self.open()

    def answers_with(self, pieces: list[str], pause_ms: int = 0) -> None:
        """Replace the next responses by these chunks, streamed as a server does."""
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
            pieces,
            pause_ms,
        )


def squashed(text: str) -> str:
    """Return a text as HTML renders it, without white space."""
    return "".join(text.split())
