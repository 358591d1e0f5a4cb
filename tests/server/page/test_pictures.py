"""Images in the page: chosen, pasted and dropped ones are sent to models that read images."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.page.browser import Page

# The server says that its model reads images; requests for responses are kept, not sent.
VISION = """
const real = fetch;
window.sent = [];
fetch = async (path, options) => {
  if (path === 'v1/models') {
    const found = await (await real(path, options)).json();
    for (const one of found.data) one.architecture.input_modalities = ['text', 'image'];
    return Response.json(found);
  }
  if (!path.endsWith('chat/completions')) return real(path, options);
  window.sent.push(JSON.parse(options.body));
  if (window.refuse) return Response.json({error: {message: 'no'}}, {status: 400});
  const text = 'data: {"choices": [{"delta": {"content": "fine"}}]}\\n\\ndata: [DONE]\\n\\n';
  return new Response(text);
};"""
GIVE = """
const [kind, base64, name, type] = arguments;
const bytes = Uint8Array.from(atob(base64), c => c.charCodeAt(0));
const data = new DataTransfer();
data.items.add(new File([bytes], name, {type}));
const event = kind === 'paste'
  ? new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})
  : new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true});
document.querySelector('#input').dispatchEvent(event);
return event.defaultPrevented;"""


def png() -> bytes:
    """A red image of 2 by 2 pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0))
    rows = chunk(b"IDAT", zlib.compress((b"\0" + b"\xff\0\0" * 2) * 2))
    return b"\x89PNG\r\n\x1a\n" + head + rows + chunk(b"IEND", b"")


PNG = base64.b64encode(png()).decode()
URL = f"data:image/png;base64,{PNG}"


@pytest.fixture
def vision(page: Page) -> Iterator[Page]:
    add = "Page.addScriptToEvaluateOnNewDocument"
    made = page.driver.execute_cdp_cmd(add, {"source": VISION})
    try:
        page.open()
        yield page
    finally:
        page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", made)


def give(page: Page, kind: str, name: str = "a.png", type: str = "image/png") -> Any:
    return page.run(GIVE, kind, PNG, name, type)


def drafts(page: Page, count: int) -> None:
    page.until(f"document.querySelectorAll('#pictures img').length === {count}")


def sent(page: Page) -> Any:
    return page.run("return window.sent.at(-1).messages")


@pytest.mark.full
def test_images_are_sent_before_the_text_and_stay_in_the_chat(vision: Page, tmp_path: Path) -> None:
    assert give(vision, "paste") is True
    assert give(vision, "drop") is True
    (tmp_path / "b.png").write_bytes(png())
    vision.find("#image-file").send_keys(str(tmp_path / "b.png"))
    drafts(vision, 3)
    vision.find("[aria-label='Remove image 2']").click()
    drafts(vision, 2)
    vision.say("What?")
    vision.idle()
    image = {"type": "image_url", "image_url": {"url": URL}}
    question = {"role": "user", "content": [image, image, {"type": "text", "text": "What?"}]}
    assert sent(vision) == [question]
    drafts(vision, 0)
    vision.open()
    shown = "return [...document.querySelectorAll('.user .images img')].map(e => [e.src, e.alt, e.naturalWidth])"  # noqa: E501
    assert vision.run(shown) == [[URL, "Image 1", 2], [URL, "Image 2", 2]]
    vision.say("Sure?")
    vision.idle()
    assert sent(vision)[0] == question
    assert sent(vision)[2] == {"role": "user", "content": "Sure?"}


@pytest.mark.full
def test_an_image_alone_is_a_message_and_returns_if_it_is_refused(vision: Page) -> None:
    vision.run("window.refuse = true")
    give(vision, "paste")
    drafts(vision, 1)
    vision.find("#send").click()
    vision.until("document.querySelector('#error').textContent === 'no'")
    drafts(vision, 1)
    assert [part["type"] for part in sent(vision)[0]["content"]] == ["image_url"]
    assert vision.texts("article") == []


@pytest.mark.full
def test_other_files_and_text_models_are_refused_with_the_reason(page: Page) -> None:
    assert page.find("#attach").is_displayed() is False
    give(page, "paste")
    page.until("document.querySelector('#error').textContent.startsWith('This model reads only')")
    assert page.texts("#pictures img") == []


@pytest.mark.full
def test_a_file_that_is_no_image_is_refused_by_name(vision: Page) -> None:
    assert vision.find("#attach").is_displayed() is True
    for name, type in (("a.svg", "image/svg+xml"), ("b.txt", "text/plain"), ("c", "")):
        give(vision, "drop", name, type)
        start = f"{name} is not a PNG"
        vision.until(f"document.querySelector('#error').textContent.startsWith('{start}')")
        drafts(vision, 0)


@pytest.mark.full
def test_images_of_an_imported_chat_are_kept_if_they_are_images(page: Page, tmp_path: Path) -> None:
    images = [URL, "http://127.0.0.1:9/trap", "data:image/svg+xml;base64,AA", 5]
    chat = [{"role": "user", "content": "Look", "images": images}]
    (tmp_path / "chat.json").write_text(json.dumps(chat), "utf-8")
    page.find("#import-file").send_keys(str(tmp_path / "chat.json"))
    page.until("document.querySelectorAll('.user .images img').length === 1")
    assert page.run("return document.querySelector('.images img').src") == URL
