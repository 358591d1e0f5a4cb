"""Confined processes: limits, no rights, and they end with their user."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trinity.errors import ConfinedError, ConfinedUnavailableError, InputError
from trinity.processes.confined import Confined

ROOT = Path(__file__).resolve().parents[2]
MODULE = "tests.processes.confined_answers"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="Linux counts and locks this")
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals")


@pytest.fixture
def confined() -> Iterator[Confined]:
    made = Confined(MODULE, memory_bytes=64_000_000, seconds=0.3, reply_bytes=1 << 20)
    yield made
    made.close()


def gone(pid: int) -> bool:
    """Whether a process ends soon (a zombie has ended)."""
    for _ in range(500):
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat")
            if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


def test_values_cross(confined: Confined) -> None:
    value = [None, True, 1, -(2**70), 1.5, "a\x00é\U0001f600\ud800", [[], {}], {"": {"b": "\n"}}]
    assert confined.call(["echo", value]) == value
    assert confined.call(("echo", (1, 2))) == [1, 2]


def test_one_child_answers_all_calls(confined: Confined) -> None:
    pids, counts = zip(*[confined.call(["calls", None]) for _ in range(5)], strict=True)
    assert set(pids) != {os.getpid()}
    assert len(set(pids)) == 1
    assert counts == (1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"messages": [{"content": {1, 2}}]}, r"^messages\[0\]\.content is of type set; expected"),
        ({"a": {1: 2}}, "^a has the key '1' of type int; expected text"),
        (object(), "^the value is of type object"),
        (b"x", "of type bytes"),
        pytest.param(10**5000, "written as JSON", id="digits"),
    ],
)
def test_what_is_no_json_is_named(value: object, message: str, confined: Confined) -> None:
    with pytest.raises(InputError, match=message):
        confined.call(value)


def test_a_value_inside_itself(confined: Confined) -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InputError, match="nested more than 100 deep"):
        confined.call(value)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        pytest.param(["allocate", 10**9], "it used more than 64 MB of memory", marks=LINUX),
        (["forever", None], "it ran for more than 0.3 seconds"),
        (["text", 2 << 20], r"its answer is longer than \d+ characters"),
        pytest.param(["die", "SIGKILL"], "it was ended by SIGKILL", marks=POSIX),
        pytest.param(["segfault", None], "it was ended by SIGSEGV", marks=POSIX),
        (["leave", 3], "it ended with status 3"),
        (["recurse", None], "it failed: RecursionError"),
        (["panic", "called `unwrap`"], "it failed: Panic: called `unwrap`"),
        (["no_json", None], "it failed: TypeError: Object of type set"),
        (["lie", 1 << 60], "its answer is longer than"),
    ],
)
def test_a_breach_is_told_and_the_next_call_is_answered(
    request_: list[Any], reason: str, confined: Confined
) -> None:
    for _ in range(2):
        with pytest.raises(ConfinedError, match=reason) as caught:
            confined.call(request_)
        assert caught.value.reason.startswith("it")
        assert MODULE in str(caught.value)
        assert confined.call(["echo", 5]) == 5


def test_bytes_cross() -> None:
    module = "tests.processes.confined_bytes"
    confined = Confined(module, memory_bytes=64_000_000, seconds=0.3, reply_bytes=100, raw=True)
    assert confined.call(b"") == b""
    assert confined.call(b"\xff\n\0" * 1000) == b"\0\n\xff" * 1000
    for request, reason in ((b"\0", "ValueError: a zero"), (b"\1", "used more than 64 MB")):
        with pytest.raises(ConfinedError, match=reason):
            confined.call(request)
        assert confined.call(b"ab") == b"ba"
    confined.close()


def test_wall_clock(confined: Confined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trinity.processes.confined._CLOCK_FACTOR", 1.0)
    with pytest.raises(ConfinedError, match=r"it ran for more than 0\.3 seconds"):
        confined.call(["sleep", 60])
    monkeypatch.undo()
    assert confined.call(["echo", 5]) == 5


def test_more_seconds(confined: Confined) -> None:
    with pytest.raises(ConfinedError, match=r"it ran for more than 0\.5 seconds"):
        confined.call(["forever", None], more_seconds=0.2)


def test_no_thread_to_watch_it(confined: Confined, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    unavailable = pytest.raises(
        ConfinedUnavailableError, match="no thread can watch it: can't start"
    )
    with unavailable:
        confined.call(["echo", 1])


@pytest.mark.full
@LINUX
def test_a_long_request_has_more_of_everything(confined: Confined) -> None:
    text = "x" * 20_000_000
    assert confined.call(["echo", text]) == text


@LINUX
def test_a_child_that_has_grown_is_replaced(confined: Confined) -> None:
    first = confined.call(["keep", 1000])
    assert confined.call(["keep", 40_000_000]) == first
    assert confined.call(["keep", 40_000_000]) != first


@LINUX
def test_nothing_can_be_opened(confined: Confined, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("secret")
    errors = confined.call(["rights", str(path)])
    # Landlock, where the kernel has it, forbids what opens nothing as well.
    opens = {"open", "write", "list", "socket", "pipe", "libc", "limit"}
    assert {name for name in opens if not errors[name]} == set()
    import ctypes

    if ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) >= 6:
        assert {name for name in errors if not errors[name]} == set()
    assert path.read_text() == "secret"


def test_no_secrets_no_noise(
    confined: Confined, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("PYTHONSTARTUP", "secret")
    assert "secret" not in confined.call(["environment", None]).values()
    assert confined.call(["print", "noise"]) == "noise"
    assert capfd.readouterr() == ("", "")


@POSIX
def test_killed_while_it_waits(confined: Confined) -> None:
    pid = confined.call(["calls", None])[0]
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    assert confined.call(["calls", None])[0] != pid


@POSIX
def test_interrupted_call(confined: Confined) -> None:
    """The answer to an interrupted call is never returned to a later call."""
    confined.call(["echo", 0])
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        timer = threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
        timer.start()
        confined.call(["sleep", 5])
    timer.join()
    assert confined.call(["echo", 1]) == 1


@POSIX
def test_signals_that_the_parent_ignores_or_blocks(confined: Confined) -> None:
    before = signal.signal(signal.SIGPROF, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])
    try:
        with pytest.raises(ConfinedError, match="it ran for more"):
            confined.call(["forever", None])
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
        signal.signal(signal.SIGPROF, before)


def test_threads(confined: Confined) -> None:
    wrong: list[Any] = []

    def work(i: int) -> None:
        for j in range(20):
            if confined.call(["echo", [i, j]]) != [i, j]:
                wrong.append((i, j))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork() here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork(confined: Confined) -> None:
    """A forked process starts a child of its own and does not use its parent's."""
    pid = confined.call(["calls", None])[0]
    read, write = os.pipe()
    held = confined._processes[0].lock.acquire()  # as if another thread were in a call
    forked = os.fork()
    if not forked:
        try:
            own = confined.call(["calls", None])[0]
            confined.close()
            os.write(write, str(own).encode())
        finally:
            os._exit(0)
    if held:
        confined._processes[0].lock.release()
    os.waitpid(forked, 0)
    own = int(os.read(read, 20))
    os.close(read)
    os.close(write)
    assert own not in (0, pid)
    assert gone(own)
    assert confined.call(["calls", None]) == [pid, 2]


@POSIX
def test_it_ends_when_it_is_closed_or_forgotten(confined: Confined) -> None:
    pid = confined.call(["calls", None])[0]
    confined.close()
    assert gone(pid)
    other = Confined(MODULE, memory_bytes=64_000_000, seconds=1)
    pid = other.call(["calls", None])[0]
    del other
    gc.collect()
    assert gone(pid)


SCRIPT = """
    import sys
    from trinity.processes.confined import Confined
    confined = Confined("{module}", memory_bytes=64_000_000, seconds=1)
    print(confined.call(["calls", None])[0], flush=True)
"""


def script(code: str, *options: str, **environment: str) -> subprocess.Popen[str]:
    code = textwrap.dedent(code).format(module=MODULE)
    return subprocess.Popen(
        [sys.executable, *options, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.few(2)
@POSIX
@pytest.mark.parametrize(
    "end",
    [
        "",
        "sys.exit(0)",
        "import os; os._exit(0)",
        "import os; os.kill(os.getpid(), 9)",
        "import threading; threading.Thread(target=confined.call, args=(['sleep', 1],)).start()",
        "import threading; threading.Thread(target=confined.call, args=(['sleep', 9],),"
        " daemon=True).start()",
    ],
)
def test_it_ends_with_its_parent(end: str) -> None:
    with script(SCRIPT + f"    {end}\n", "-X", "dev", "-W", "error") as process:
        out, error = process.communicate(timeout=60)
    if "daemon" not in end:  # a thread that is killed in its call may print an error
        assert error == ""
    assert gone(int(out))


@POSIX
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_with_closed_standard_streams(closed: tuple[int, ...]) -> None:
    code = f"""
    import os
    for file in {closed}:
        os.close(file)
    from trinity.processes.confined import Confined
    confined = Confined("{{module}}", memory_bytes=64_000_000, seconds=1)
    os._exit(confined.call(["echo", 77]))
    """
    with script(code) as process:
        process.communicate(timeout=60)
    assert process.returncode == 77


@POSIX
def test_from_a_folder_with_spaces_while_the_current_one_is_gone(tmp_path: Path) -> None:
    """trinity may be installed there; the interpreter's safe-path option is set as well."""
    site = tmp_path / "a folder, installed é"
    (site / "trinity").mkdir(parents=True)
    for path in (ROOT / "trinity").glob("*.py"):
        shutil.copy(path, site / "trinity")
    bytecode = shutil.ignore_patterns("__pycache__")  # another process may just write it
    for package in ("cache", "processes"):
        shutil.copytree(ROOT / "trinity" / package, site / "trinity" / package, ignore=bytecode)
    shutil.copy(Path(__file__).with_name("confined_answers.py"), site / "answers of its own.py")
    (tmp_path / "cwd").mkdir()
    code = f"""
    import os, sys
    os.chdir({str(tmp_path / "cwd")!r})
    os.rmdir(os.getcwd())
    sys.path[:] = ["", {str(site)!r}, *(p for p in sys.path if p != {str(ROOT)!r})]
    import trinity
    from trinity.processes.confined import Confined
    assert trinity.__file__.startswith({str(site)!r})
    confined = Confined("answers of its own", memory_bytes=64_000_000, seconds=1)
    print(confined.call(["echo", "found"]))
    """
    with script(code, PYTHONSAFEPATH="1") as process:
        out, error = process.communicate(timeout=60)
    assert (out.strip(), error) == ("found", "")


def test_a_child_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfinedError, match="it failed: ModuleNotFoundError: No module named 'no"):
        Confined("no.such", memory_bytes=1 << 26, seconds=1).call(1)
    for executable in ("", "/no/such/python", "/bin/false"):
        monkeypatch.setattr("multiprocessing.spawn.get_executable", lambda: executable)  # noqa: B023
        with pytest.raises(ConfinedUnavailableError, match="it did not start"):
            Confined(MODULE, memory_bytes=1 << 26, seconds=1).call(["echo", 1])
