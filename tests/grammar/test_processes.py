"""Grammars in processes that fork, are interrupted, or end while generating."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.test_model_processes import needs_fork, run
from trinity_kernels.isa import interpreted

pytestmark = pytest.mark.skipif(interpreted(), reason="needs a team of threads")
GRAMMAR = """
    grammar = trinity.Grammar.json_schema({"type": "array", "items": {"type": "integer"}})
    def guided(model):
        return model.generate("One", grammar=grammar, max_tokens=12, temperature=0.0).token_ids
"""


@pytest.mark.full
@needs_fork
def test_forks_while_another_thread_is_guided(tmp_path: Path) -> None:
    code = f"""{GRAMMAR}
    model = trinity.load(PATH, threads=2)
    expected = guided(model)
    ended = threading.Event()
    def others():
        while not ended.is_set():
            model.generate("Two", grammar=grammar, max_tokens=30, cancel=ended)
    thread = threading.Thread(target=others)
    thread.start()
    def work():
        assert guided(model) == expected
        other = trinity.Grammar.regex("[0-9]{{3}}x")
        assert model.generate("a", grammar=other).text[3] == "x"
        model.close()
    for _ in range(3):
        time.sleep(0.05)
        assert succeeds(in_child(work))
    ended.set()
    thread.join()
    assert guided(model) == expected
    """
    run(code, tmp_path)


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["end", "interrupt"])
def test_a_process_that_ends_in_mid_answer(how: str, tmp_path: Path) -> None:
    code = f"""{GRAMMAR}
    model = trinity.load(PATH, threads=2)
    chunks = model.stream("One", grammar=grammar)
    next(chunks)
    background = threading.Thread(target=guided, args=(model,), daemon=True)
    background.start()
    if {how == "interrupt"}:
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                model.generate("One", grammar=trinity.Grammar.regex("[a-z]{{60}}"))
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert run(code, tmp_path) == ("interrupted\n" if how == "interrupt" else "")
