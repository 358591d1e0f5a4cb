"""`trinity chat` in a pseudo-terminal with the demo model: keys in, bytes of the screen out."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_process import ENVIRONMENT
from trinity.loading import demo_model

pexpect = pytest.importorskip("pexpect")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals of POSIX")

PROMPT = "\x1b[?2004h"  # an editor that takes keys has the terminal mark pasted text
C, D, UP = "\x03", "\x04", "\x1b[A"
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
# The real command line over the toy model, whose answers go on until the context is full.
SLOW = """
import time
import trinity.loading
from tests.toy_model import ids_of, toy_model
from trinity.__main__ import main
model, engine = toy_model(context_length=2000)
import numpy as np
engine.logits_of = lambda tokens: np.eye(1, 259, ids_of("x")[0], dtype=np.float32)[0]
engine.before_forward = lambda tokens: time.sleep(0.02)
trinity.loading.load = lambda path, **options: model
main()
"""


# The same with a response and a reasoning of its own, piece by piece. The response begins when
# TYPED has arrived, which the terminal says only of lines unless its mode is changed.
TYPED = "typed meanwhile"
SAID = f"""
import fcntl
import sys
import termios
import time
import trinity.loading
from tests.toy_model import toy_model
from trinity.__main__ import main
from trinity.conversation.parts import Reasoning, Text
from trinity.tools.chat_session import Answer, ChatSession
model, engine = toy_model(context_length=2000)
trinity.loading.load = lambda path, **options: model
TEXT = "A **ternary number** is written in base *three*, with the digits `0`, `1` and `2`. " * 4

def ask(self, text, show, cancel):
    show(Reasoning("The question is about numbers. " * 8))
    mode = termios.tcgetattr(0)
    termios.tcsetattr(0, termios.TCSANOW, [*mode[:3], mode[3] & ~termios.ICANON, *mode[4:]])
    while int.from_bytes(fcntl.ioctl(0, termios.FIONREAD, bytes(4)), sys.byteorder) < {len(TYPED)}:
        time.sleep(0.01)
    for i in range(0, len(TEXT), 7):
        show(Text(TEXT[i : i + 7]))
    self.messages += [{{"role": "user", "content": text}}, {{"role": "assistant", "content": TEXT}}]
    return Answer("stop", False, 0, ())

ChatSession.ask = ask
main()
"""


class Chat:
    """`trinity chat` in its own pseudo-terminal."""

    def __init__(
        self, folder: Path, *arguments: str, code: str | None = None, term: str, columns: int = 80
    ) -> None:
        program = ["-m", "trinity"] if code is None else ["-c", code]
        # xdist sets COLUMNS and LINES, which override the terminal's size.
        inherited = {name: value for name, value in ENVIRONMENT.items()
                     if name not in ("COLUMNS", "LINES")}  # fmt: skip
        self.folder, self.opening = folder, ""
        self.child = pexpect.spawn(
            sys.executable, [*program, "chat", *arguments], cwd=str(folder), encoding="utf-8",
            dimensions=(24, columns), timeout=120,
            env={**inherited, "TERM": term, "XDG_STATE_HOME": str(folder / "state"),
                 "PROMPT_TOOLKIT_NO_CPR": "1"},
        )  # fmt: skip
        self.child.delaybeforesend = None

    def prompt(self) -> str:
        """Return the text before the next prompt, without line ends and control sequences."""
        self.child.expect_exact(PROMPT)
        plain = re.sub("\x1b\\[[?0-9;]*[a-zA-Z]", "", self.child.before)
        return " ".join(plain.split())

    def enter(self, keys: str) -> str:
        """Type at a prompt, wait for the next one, and return the output in between."""
        self.child.send(keys + "\r")
        return self.prompt()

    def expect(self, text: str) -> None:
        self.child.expect_exact(text)

    def end(self) -> int:
        """Return the exit status, or the negative signal."""
        self.child.expect(pexpect.EOF)
        self.child.wait()
        status: int | None = self.child.exitstatus
        return -self.child.signalstatus if status is None else status

    def messages(self) -> list[dict[str, Any]]:
        """Return the conversation that /save writes."""
        self.enter("/save --force saved.json")
        found: list[dict[str, Any]] = json.loads((self.folder / "saved.json").read_text("utf-8"))[
            "messages"
        ]
        return found

    def asked(self) -> list[str]:
        """Return the user's messages."""
        return [one["content"] for one in self.messages() if one["role"] == "user"]


Start = Callable[..., Chat]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a chat with the demo model, and wait for its prompt."""
    (tmp_path / "template").write_text(TEMPLATE)
    begun: list[Chat] = []

    def starting(
        *options: str, code: str | None = None, term: str = "xterm-256color", columns: int = 80
    ) -> Chat:
        model = ["-m", demo_model(), "--template", "template"] if code is None else ["-m", "x"]
        chat = Chat(
            tmp_path, *model, "--temp", "0", *options, code=code, term=term, columns=columns
        )
        begun.append(chat)
        chat.opening = "" if term == "dumb" else chat.prompt()
        return chat

    yield starting
    for chat in begun:
        if chat.child.isalive():
            chat.child.kill(signal.SIGKILL)
            chat.child.wait()
        chat.child.close()


def paste(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


@pytest.mark.full
def test_what_is_pasted_typed_and_edited(start: Start) -> None:
    chat = start("-n", "3")
    pasted = "def f():\n    return 1\n\n/reset\nends with \\"
    chat.enter(paste(pasted) + " and more")
    chat.enter("helo\x1b[Dl")
    chat.enter("a \\\rb")
    chat.enter('"""\r/reset\rx\r"""')
    assert chat.asked() == [pasted + " and more", "hello", "a \nb", "/reset\nx"]
    assert all(one["content"] for one in chat.messages() if one["role"] == "assistant")
    chat.child.send(D)
    assert chat.end() == 0


@pytest.mark.few(1)
def test_commands(start: Start) -> None:
    chat = start("-n", "4")
    for name in ("/system", "/regen", "/undo", "/reset", "/save", "/load", "/set", "/stats"):
        assert name in (text := chat.enter("/help")), text
    assert "there is no system message" in chat.enter("/system")
    assert "system message set" in chat.enter("/system You are Prince Andrew.")
    chat.enter("one")
    chat.enter("two")
    assert chat.asked() == ["one", "two"]
    assert "temperature 0.1" in chat.enter("/set temperature 0.1")
    assert "it must be a finite number" in chat.enter("/set temperature hot")
    assert "did you mean temperature" in chat.enter("/set temprature 1")
    assert "takes no argument" in chat.enter("/reset now")
    assert "there is no command /undu (did you mean /undo" in chat.enter("/undu")
    assert chat.asked() == ["one", "two"]
    chat.enter("/regen")
    text = chat.enter("/stats")
    assert "turns: 2; messages: 5" in text
    assert "tokens/s" in text
    assert "removed: two" in chat.enter("/undo")
    assert chat.asked() == ["one"]
    assert "cleared" in chat.enter("/reset")
    assert chat.messages() == [{"role": "system", "content": "You are Prince Andrew."}]
    chat.enter("three")
    assert "saved 3 messages to kept.json" in chat.enter("/save kept.json")
    chat.enter("/clear")
    chat.child.send("/load ke\t")  # which Tab completes; what is drawn may be the rest alone
    chat.expect("pt.json")
    assert "3 messages of kept.json" in chat.enter("")
    assert chat.asked() == ["three"]
    chat.child.send("/exit\r")
    assert chat.end() == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("columns", [80, 200])
def test_a_response_on_the_screen(start: Start, columns: int) -> None:
    """Words wrap at the edge, delimiters become styles, and what is typed meanwhile waits."""
    pyte = pytest.importorskip("pyte")
    screen = pyte.Screen(columns, 24)
    chat = start(code=SAID, columns=columns)
    chat.child.logfile_read = log = io.StringIO()
    chat.child.send("What is a ternary number?\r")
    chat.expect("numbers.")  # the response has begun
    chat.child.send(TYPED)
    chat.child.expect_exact(PROMPT)
    chat.expect("meanwhile")
    pyte.Stream(screen).feed(log.getvalue())
    lines = [line.rstrip() for line in screen.display]
    at = lines.index("(the response)")
    text = ["A ternary number is written in base three, with the digits 0, 1 and 2."] * 4
    assert " ".join(lines[at + 1 : -1]).split("> ")[0].strip() == " ".join(text)
    assert lines[at + 1] == textwrap.wrap(" ".join(text), columns - 1)[0]
    bold = {x for x in range(columns) if screen.buffer[at + 1][x].bold}
    assert "".join(lines[at + 1][x] for x in sorted(bold & set(range(20)))) == "ternarynumber"
    prompt = next(y for y, line in enumerate(lines) if line.startswith("> typed meanwhile"))
    assert screen.buffer[prompt][0].fg == "green"
    assert screen.buffer[at + 1][0].fg == "default"


@pytest.mark.full
def test_full_context_says_so_and_shifts(start: Start) -> None:
    chat = start("--ctx", "96", "--ignore-eos")
    text = chat.enter("Who was Prince Andrew?")
    assert "the response ends here: the context of 96 tokens is full" in text
    assert "/set context_shift on" in text
    text = chat.enter("And his father?")
    assert "error: the prompt has" in text
    assert "/undo removes the last turn" in text
    assert len(chat.messages()) == 2
    assert "context_shift on When" in chat.enter("/set context_shift on")
    chat.enter("/set max_tokens 60")
    text = chat.enter("And his father?")
    assert "2 messages are no longer sent; /save" in text
    assert "error" not in text
    assert len(chat.messages()) == 4


@pytest.mark.full
def test_ctrl_c_stops_an_answer_and_keeps_the_session(start: Start) -> None:
    chat = start(code=SLOW)
    chat.child.send("go\r")
    chat.expect("xxx")
    chat.child.send(C)
    chat.expect("(stopped)")
    chat.prompt()
    (question, answer) = chat.messages()
    assert question["content"] == "go"
    assert 3 <= len(answer["content"]) < 1900
    chat.child.send("unfinished" + C)
    chat.expect("(press Ctrl-C again or Ctrl-D to quit)")
    chat.prompt()
    assert len(chat.messages()) == 2  # and what was typed is gone
    chat.child.send(C)
    chat.prompt()
    chat.child.send(C)
    assert chat.end() == 130


@pytest.mark.full
def test_ctrl_c_as_an_answer_ends_ends_no_chat(start: Start) -> None:
    late = "import trinity.cli.chatting.dialogue as d\n"
    late += "d.remarks = lambda *_: (print('all', flush=True), time.sleep(0.5), [])[2]\n"
    chat = start("-n", "3", code=SLOW.replace("main()", late + "main()"))
    chat.child.send("go\r")
    chat.expect("all")
    chat.child.send(C)
    chat.prompt()
    assert chat.asked() == ["go"]
    chat.child.send(D)
    assert chat.end() == 0


@pytest.mark.full
def test_history_is_there_the_next_time(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "state" / "trinity" / "chat_history"
    chat = start("-n", "1", "--no-history")
    chat.enter("forgotten")
    chat.child.send(D)
    assert chat.end() == 0
    assert not path.exists()
    chat = start("-n", "1")
    chat.enter(paste("first\nsecond"))
    chat.child.send(D)
    assert chat.end() == 0
    assert path.stat().st_mode & 0o777 == 0o600
    chat = start("-n", "1")
    chat.enter(UP)
    assert chat.asked() == ["first\nsecond"]


@pytest.mark.full
def test_history_that_cannot_be_kept_is_a_note(start: Start, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    chat = start("-n", "1")
    assert "note: the history is not stored" in chat.opening
    chat.enter("hello")
    assert chat.asked() == ["hello"]


@pytest.mark.full
def test_sigterm_gives_the_terminal_back(start: Start) -> None:
    import termios

    chat = start(code=SLOW)
    echo = termios.ECHO | termios.ICANON
    assert not termios.tcgetattr(chat.child.child_fd)[3] & echo
    chat.child.kill(signal.SIGTERM)
    chat.expect("\x1b[?2004l")
    assert termios.tcgetattr(chat.child.child_fd)[3] & echo == echo
    assert chat.end() == -signal.SIGTERM


@pytest.mark.full
def test_terminal_that_cannot_move_its_cursor(start: Start) -> None:
    chat = start("-n", "3", term="dumb")
    chat.expect("> ")
    chat.child.sendline('"""a')
    chat.expect("... ")
    chat.child.sendline('b"""')
    chat.expect("> ")
    chat.child.sendline("/save saved.json")
    chat.expect("saved 2 messages to saved.json")
    chat.expect("> ")
    chat.child.sendcontrol("c")
    chat.expect("(press Ctrl-C again or Ctrl-D to quit)")
    chat.child.sendcontrol("d")
    assert chat.end() == 0
    assert "\x1b" not in chat.child.before
    saved = json.loads((chat.folder / "saved.json").read_text("utf-8"))
    assert saved["messages"][0]["content"] == "a\nb"
