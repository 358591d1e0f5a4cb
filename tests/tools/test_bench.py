from __future__ import annotations

import pytest

from tests.toy_model import ToyEngine
from trinity.errors import InputError
from trinity.tools.bench import Measurement, Report, markdown, quantity, run_bench


def test_measurement() -> None:
    found = Measurement("tg10", 10, (1.0, 2.0))
    assert found.rounds == [10, 5]
    assert found.mean == 7.5
    assert found.deviation == pytest.approx(3.5355, abs=1e-4)
    assert Measurement("tg1", 1, (1.0,)).deviation == 0


def test_share_of_the_bandwidth() -> None:
    tests = (Measurement("pp4", 4, (0.1,)), Measurement("tg10", 10, (1.0,)))
    report = Report(tests, 2, "avx2", 1000.0, 50, None, None)
    assert report.bandwidth_share == 0.5
    text = markdown(report, name="toy", size=2**30, parameters=1_240_000_000)
    assert "| toy | 1.00 GiB | 1.24 B | avx2 | 2 | tg10 | 10.00 ± 0.00 |" in text
    assert "50%" in text
    assert Report(tests[:1], 2, "avx2", 1.0, 50, None, None).bandwidth_share is None


def test_what_is_evaluated() -> None:
    engine = ToyEngine(prefill_chunk=8)
    report = run_bench(engine, prompt_tokens=20, generated_tokens=5, rounds=2)  # type: ignore[arg-type]
    steps = [len(step) for step in engine.evaluated]
    warm_prompt, warm_generation = [8, 8], [1] * 5
    assert steps == [*warm_prompt, *[8, 8, 4] * 2, *warm_generation, *[1] * 10]
    assert [m.test for m in report.measurements] == ["pp20", "tg5"]
    assert report.bytes_per_token == 1002
    assert report.bandwidth_share is None


@pytest.mark.parametrize(
    "options",
    [
        {"prompt_tokens": 65},
        {"generated_tokens": -1},
        {"rounds": 0},
        {"prompt_tokens": 0, "generated_tokens": 0},
    ],
)
def test_bad_numbers(options: dict[str, int]) -> None:
    chosen = {"prompt_tokens": 4, "generated_tokens": 4, **options}
    with pytest.raises(InputError):
        run_bench(ToyEngine(), **chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "text"), [(5, "5.00"), (260_032, "260.03 K"), (2_400_000_000, "2.40 B")]
)
def test_quantity(number: int, text: str) -> None:
    assert quantity(number) == text
