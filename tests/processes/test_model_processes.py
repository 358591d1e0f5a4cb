"""Models in forked, spawned and interrupted processes, and on a file that is truncated.

Each case is a process of its own with a time limit that kills, so that a hang fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.matrix import some
from trinity_kernels.isa import interpreted

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300  # the machine may be busy, and kernels may have to be compiled
PROLOGUE = """
import os, signal, sys, threading, time, warnings
import trinity

PATH = trinity.demo_model()
LONG = {"max_tokens": 100000, "ignore_eos": True}

def answer(model):
    return model.generate("Prince Andrew", max_tokens=8, temperature=0.0).token_ids

def in_child(work):
    # Python's warning of threads is the caller's business, and known here.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child

def succeeds(child):
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False
"""

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
pytestmark = pytest.mark.skipif(interpreted(), reason="needs a team of threads")


def run(code: str, folder: Path, *flags: str) -> str:
    """Return a program's standard output; output to standard error is a failure."""
    program = folder / "program.py"
    program.write_text(PROLOGUE + textwrap.dedent(code), encoding="utf-8")
    path = os.pathsep.join((str(ROOT), str(ROOT / "kernels")))
    process = subprocess.Popen(
        [sys.executable, *flags, str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, 9)
        process.kill()
        process.communicate()
        pytest.fail(f"no end after {SECONDS} s")
    assert process.returncode == 0, err
    assert err == ""
    return out


@pytest.mark.full
@needs_fork
def test_forked_children_compute_as_their_parent(tmp_path: Path) -> None:
    """A server loads before it forks; children and parent compute at the same time."""
    code = """
    model = trinity.load(PATH, threads=2)
    expected = answer(model)
    def work():
        assert answer(model) == expected
        assert model.logits([1, 2, 3]).shape[0] == 3
        assert succeeds(in_child(lambda: answer(model) == expected or 1 / 0))
        model.close()
    children = [in_child(work) for _ in range(3)]
    assert answer(model) == expected
    assert all([succeeds(child) for child in children])
    assert answer(model) == expected
    model.close()
    """
    run(code, tmp_path)


@pytest.mark.full
@needs_fork
@pytest.mark.parametrize("computes", [False, True])
def test_a_child_that_ends_as_usual_waits_for_no_thread(computes: bool, tmp_path: Path) -> None:
    """Its finalizers run; the parent's threads do not exist in it and are not joined."""
    code = f"""
    model = trinity.load(PATH, threads=2)
    expected = answer(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        if {computes}:
            assert answer(model) == expected
        sys.exit(0)
    assert succeeds(child)
    model.close()
    """
    run(code, tmp_path)


@pytest.mark.full
@needs_fork
def test_forks_in_the_middle_of_another_threads_call(tmp_path: Path) -> None:
    code = """
    model = trinity.load(PATH, threads=2)
    expected = answer(model)
    stop = threading.Event()
    def work():
        model.generate("It was", cancel=stop, **LONG)
        while not stop.is_set():
            model.generate("It was a fine day " * 20, max_tokens=3, cache_prompt=False)
    worker = threading.Thread(target=work)
    worker.start()
    for _ in range(10):
        time.sleep(0.03)
        def child():
            assert answer(model) == expected
            model.close()
        assert succeeds(in_child(child))
    stop.set()
    worker.join()
    assert answer(model) == expected
    model.close()
    """
    run(code, tmp_path)


@pytest.mark.full
@needs_fork
def test_a_parents_stream_does_not_go_on_in_the_child(tmp_path: Path) -> None:
    code = """
    model = trinity.load(PATH, threads=2)
    expected = answer(model)
    whole = [chunk.text for chunk in model.stream("Prince", max_tokens=30, seed=1)]
    chunks = model.stream("Prince", max_tokens=30, seed=1)
    texts = [next(chunks).text for _ in range(3)]
    def child():
        try:
            next(chunks)
        except trinity.InputError as error:
            assert "before the process forked" in str(error), error
        else:
            raise AssertionError
        assert answer(model) == expected
        chunks.close()
        assert answer(model) == expected
        model.close()
    assert succeeds(in_child(child))
    assert texts + [chunk.text for chunk in chunks] == whole
    model.close()
    """
    run(code, tmp_path)


@pytest.mark.full
@needs_fork
def test_forks_while_another_thread_loads(tmp_path: Path) -> None:
    """A fork waits for the compiler, because the child could not use its locks."""
    code = """
    model = trinity.load(PATH, threads=2)
    expected = answer(model)
    stop = threading.Event()
    def work():
        while not stop.is_set():
            trinity.load(PATH, threads=2, kv_type="f32").close()
    worker = threading.Thread(target=work)
    worker.start()
    def child():
        with trinity.load(PATH, threads=2, kv_type="f32") as mine:
            answer(mine)
        assert answer(model) == expected
    for _ in range(6):
        time.sleep(0.02)
        assert succeeds(in_child(child))
    stop.set()
    worker.join()
    model.close()
    """
    run(code, tmp_path)


@pytest.mark.parametrize("method", some(["fork", "forkserver", "spawn"], ["fork"]))
def test_pools(method: str, tmp_path: Path) -> None:
    """With ``fork`` workers inherit the model; otherwise the initializer loads it."""
    if method != "spawn" and not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    code = f"""
    import concurrent.futures, multiprocessing
    model = None
    def load():
        global model
        model = model or trinity.load(PATH, threads=2)
    def work(_):
        return answer(model)
    if __name__ == "__main__":
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
        context = multiprocessing.get_context({method!r})
        load()
        expected = answer(model)
        if {method!r} != "fork":
            model.close()
        with context.Pool(2, initializer=load) as pool:
            assert pool.map(work, range(4)) == [expected] * 4
            pool.close()
            pool.join()
        with concurrent.futures.ProcessPoolExecutor(
            2, mp_context=context, initializer=load
        ) as executor:
            assert list(executor.map(work, range(4))) == [expected] * 4
        model.close()
    """
    run(code, tmp_path)


@pytest.mark.full
def test_a_model_cannot_be_pickled(tmp_path: Path) -> None:
    code = """
    import pickle
    with trinity.load(PATH, threads=2) as model:
        try:
            pickle.dumps(model)
        except trinity.InputError as error:
            assert "initializer" in str(error)
        else:
            raise AssertionError
    """
    run(code, tmp_path)


@pytest.mark.full
def test_no_warning_in_development_mode(tmp_path: Path) -> None:
    code = """
    import asyncio, gc
    with trinity.load(PATH, threads=2) as model:
        answer(model)
        for _ in model.stream("Prince", max_tokens=4):
            break
        async def drain():
            asyncio.get_running_loop().slow_callback_duration = 60  # speed is no matter here
            return [chunk.text async for chunk in model.astream("Prince", max_tokens=4)]
        assert asyncio.run(drain())
        model.logits([1, 2, 3])
    forgotten = trinity.load(PATH, threads=2)
    answer(forgotten)
    del forgotten
    gc.collect()
    left = trinity.load(PATH, threads=2)  # the interpreter's end finds it open
    """
    run(code, tmp_path, "-X", "dev", "-W", "error")


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="the handler of bus errors is for Linux")
@pytest.mark.parametrize(
    "flags",
    [(), pytest.param(("-X", "dev"), marks=pytest.mark.full)],
    ids=["plain", "faulthandler"],
)
def test_a_file_cut_while_a_model_runs(flags: tuple[str, ...], tmp_path: Path) -> None:
    code = """
    import random, shutil
    path = os.path.join(os.path.dirname(sys.argv[0]), "model.gguf")
    other = trinity.load(PATH, threads=2)
    expected = answer(other)
    for number in range(20):
        shutil.copyfile(PATH, path)
        model = trinity.load(path, threads=2)
        assert answer(model) == expected
        size = random.Random(number).randrange(0, os.path.getsize(path))
        cutter = threading.Timer(0.02 * (number % 5), os.truncate, (path, size))
        cutter.start()
        for _ in range(2):
            try:
                while True:
                    model.generate("It was", max_tokens=1000, ignore_eos=True)
            except trinity.FormatError as error:
                assert path in str(error)
        cutter.join()
        model.close()
        assert answer(other) == expected
        os.remove(path)
    other.close()
    """
    run(code, tmp_path, *flags)


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="Windows lets nobody write to a mapped file")
def test_a_file_that_is_overwritten_is_refused_and_one_that_is_replaced_is_not(
    tmp_path: Path,
) -> None:
    code = """
    import shutil
    path = os.path.join(os.path.dirname(sys.argv[0]), "model.gguf")
    shutil.copyfile(PATH, path)
    with trinity.load(path, threads=2) as model:
        expected = answer(model)
        with open(path + ".new", "wb") as file:
            file.write(b"other")
        os.replace(path + ".new", path)
        time.sleep(0.2)
        assert answer(model) == expected
    shutil.copyfile(PATH, path)
    with trinity.load(path, threads=2) as model:
        with open(path, "r+b") as file:
            file.seek(1000000)
            file.write(b"other")
        os.utime(path, ns=(1, 1))
        time.sleep(0.2)
        try:
            answer(model)
        except trinity.FormatError as error:
            assert "written to" in str(error)
        else:
            raise AssertionError
    """
    run(code, tmp_path)


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to oneself")
def test_interrupts_at_any_moment(tmp_path: Path) -> None:
    """Some of the interrupts that tests/soak/torture.py sends."""
    report = run_script("--interrupts", "40", "--cycles", "3", "--compiling", "0")
    assert "wrong answers: 0" in report
    assert report.splitlines()[-1].endswith("0 failures")


def run_script(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "soak" / "torture.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "kernels")))},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.full
def test_nothing_is_imported_from_the_current_folder(tmp_path: Path) -> None:
    """A downloaded model's folder may have Python files in it."""
    for name in ("typer", "typing", "json", "numpy", "numba", "enum", "re", "trinity_kernels"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name}.py was imported')")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    for arguments in (["--help"], ["tokenize", "x"], ["inspect", "missing.gguf"]):
        ran = subprocess.run(
            [sys.executable, "-m", "trinity", *arguments], cwd=tmp_path, capture_output=True,
            text=True, timeout=SECONDS, env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
        assert "was imported" not in ran.stdout + ran.stderr
        assert ran.returncode == (1 if "missing.gguf" in arguments else 0), ran.stderr
