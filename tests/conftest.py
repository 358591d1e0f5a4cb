"""Fixtures that test folders share, and the marks of tests that `make test` does not run."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from scripts.models import real_models
from tests.kept_processes import kept_processes
from tests.matrix import COMPARED, select_cases
from tests.speech.small_whisper import write_short_model
from trinity.runtime import engine_building
from trinity.runtime.thread_count import usable_threads
from trinity.speech import model as speech
from trinity_kernels.cores import default_threads

SIGNALS = {
    getattr(signal, name): signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
    for name in ("SIGINT", "SIGHUP", "SIGQUIT")
    if hasattr(signal, name)
}
MARKED_FOLDERS = ("real", "clients")  # each has a target in the Makefile that runs it
HERE = Path(__file__).resolve().parent
SHARED_DATA = HERE.parents[1] / "shared" / "data"
GetModel = Callable[[str], Path]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real models, vocabularies and goldens; skips the test if it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"needs the reference data in {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture(scope="session")
def real_model() -> GetModel:
    """Return a function from a name of real_models.py to the path of that model.

    It skips the test if the model is not installed; no test downloads anything.
    """

    def path(name: str) -> Path:
        if not real_models.folder_of(name).is_dir():
            pytest.skip(f"{name} is not installed: python scripts/models/real_models.py {name}")
        return real_models.path_of(name)

    return path


@pytest.fixture(scope="session", params=COMPARED)
def levels(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The levels whose results a test compares: all. `make test` leaves them to .ci/run."""
    names: tuple[str, ...] = request.param
    return names


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    """Check that a test ends the threads that it starts."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive() or not thread.name.startswith("trinity")


@pytest.fixture(scope="session")
def short_whisper(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random speech model, ``hf``, whose texts are short, and ``audio.wav``."""
    source = shared_data / "encoders" / "whisper"
    folder = tmp_path_factory.mktemp("whisper")
    write_short_model(folder / "hf", source / "hf")
    (folder / "audio.wav").write_bytes((source / "audio.wav").read_bytes())
    return folder


@pytest.fixture(scope="session", autouse=True)
def _libraries_answer_in_one_process() -> Iterator[None]:
    with kept_processes():
        yield


@pytest.fixture(scope="session", autouse=True)
def _workers_share_the_cores() -> Iterator[None]:
    """Give a model as many threads as its worker has cores, unless a test says how many.

    Threads wait for each other in loops, so two workers that use all cores delay each other.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    share = max(1, default_threads() // workers)

    def usable(wanted: int | None, progress: Callable[[str], None] | None) -> int:
        return share if wanted is None else usable_threads(wanted, progress)

    with pytest.MonkeyPatch.context() as patch:
        for module in (engine_building, speech):
            patch.setattr(module, "usable_threads", usable)
        yield


@pytest.fixture(autouse=True)
def _usual_signals() -> Iterator[None]:
    """Restore the default signal handlers, which nohup and `&` may have disabled."""
    ignored = [name for name in SIGNALS if signal.getsignal(name) is signal.SIG_IGN]
    for name in ignored:
        signal.signal(name, SIGNALS[name])
    yield
    for name in ignored:
        signal.signal(name, signal.SIG_IGN)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collection makes stays to the end: the garbage collector would search it in vain."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Generator[None, object, object]:
    """Tests that collect garbage do not search what collection of the tests has made."""
    gc.freeze()
    try:
        return (yield)
    finally:
        gc.unfreeze()


def left_out(config: pytest.Config) -> set[str]:
    """Return the marks that -m excludes whatever else a case has: of "not a and not b", a and b."""
    terms = [term.strip() for term in config.getoption("markexpr").split(" and ")]
    if not all(re.fullmatch(r"(not )?\w+", term) for term in terms):
        return set()
    return {term.removeprefix("not ") for term in terms if term.startswith("not ")}


def folder_of(path: Path) -> str:
    """Return the folder in tests/ that a path is in, or nothing."""
    return path.relative_to(HERE).parts[0] if HERE in path.parents else ""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no test file whose tests -m excludes."""
    folder = folder_of(collection_path)
    return True if folder in MARKED_FOLDERS and folder in left_out(config) else None


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, object, object]:
    """Mark the cases that only `make test-all`, `make test-real` or `make test-clients` run.

    Cases that -m excludes are dropped here, because pytest takes longer to pass them on.
    """
    found = yield
    if not isinstance(found, list):
        return found
    select_cases(found)
    if (folder := folder_of(collector.path)) in MARKED_FOLDERS:
        for item in found:
            item.add_marker(folder)
    dropped = left_out(collector.config)
    return [item for item in found if not any(mark.name in dropped for mark in item.iter_markers())]
