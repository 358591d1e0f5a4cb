"""`doctor` on fake machines, each with a part that slows it down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from trinity.tools import doctor
from trinity.tools.doctor import Examination, examine, measured

GROUP = "sys/fs/cgroup"
MEMORY = "MemTotal: 16000000 kB\nMemAvailable: 9000000 kB\nSwapTotal: 2000 kB\nSwapFree: 500 kB\n"
Machine = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Makes a root folder of files by their paths; the cache is empty, nobody else is at work."""
    monkeypatch.setenv("TRINITY_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("TRINITY_ISA", "NUMBA_DISABLE_JIT"):
        monkeypatch.delenv(name, raising=False)
    kernels = tmp_path / "cache" / ("0" * 16)
    kernels.mkdir(parents=True)
    (kernels / "code").write_bytes(b"x" * 100)
    monkeypatch.setattr(doctor, "cache_folder", lambda: kernels)
    monkeypatch.setattr(doctor, "_load_average", lambda: 0.0)
    monkeypatch.setattr(doctor, "_usable_cpus", lambda: 8)
    monkeypatch.setattr("os.cpu_count", lambda: 8)

    def make(files: Mapping[str, str]) -> Path:
        root = tmp_path / "root"
        for name, text in {"proc/meminfo": MEMORY, **files}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return root

    return make


def said(found: Examination) -> str:
    return "\n".join(finding.what for finding in found.findings)


def test_a_good_machine_has_no_findings(machine: Machine, tmp_path: Path) -> None:
    found = examine(machine({}))
    assert found.findings == ()
    assert (found.memory_bytes, found.available_bytes) == (16_384_000_000, 9_216_000_000)
    assert found.swapped_bytes == 1500 * 1024
    assert found.level == found.levels[0]
    assert found.threads >= 1
    assert (found.kernel_cache_bytes, found.other_kernels_bytes) == (100, 0)


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({f"{GROUP}/cpu.max": "150000 100000"}, "quota is 1.5 of 8 CPUs"),
        (
            {
                f"{GROUP}/cpu.max": "150000 100000",
                f"{GROUP}/cpu.stat": "usage_usec 1\nnr_periods 10\nnr_throttled 5",
            },
            "stopped in 50% of all periods",
        ),
        ({f"{GROUP}/memory.max": "2000000000"}, "limit is 2.00 GB of 16.38 GB"),
        ({"proc/meminfo": MEMORY.replace("9000000", "1000000")}, "only 1.02 GB of 16.38 GB"),
        ({"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n"}, "saves power"),
        ({"sys/class/power_supply/BAT0/status": "Discharging\n"}, "battery"),
        ({"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"}, "large pages"),
        (
            {"sys/devices/system/node/node0/x": "", "sys/devices/system/node/node1/x": ""},
            "2 NUMA nodes",
        ),
    ],
)
def test_what_files_show(machine: Machine, files: Mapping[str, str], what: str) -> None:
    (finding,) = examine(machine(files)).findings
    assert what in finding.what
    assert finding.do


def test_what_the_process_shows(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    root = machine({})
    monkeypatch.setattr(doctor, "_load_average", lambda: 6.5)
    assert "use 6.5 threads on 8 CPUs" in said(examine(root))
    monkeypatch.setattr(doctor, "_usable_cpus", lambda: 2)
    assert "2 of 8 CPUs" in said(examine(root))
    monkeypatch.setenv("TRINITY_ISA", "portable")
    if examine(root).levels != ("portable",):
        assert "TRINITY_ISA limits the level to portable" in said(examine(root))


def test_what_the_cache_shows(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = machine({})
    (tmp_path / "cache" / ("0" * 16) / "code").unlink()
    assert "no kernels are compiled yet" in said(examine(root))
    old = tmp_path / "cache" / ("a" * 16)
    old.mkdir()
    (old / "code").write_bytes(b"x" * 1000)
    monkeypatch.setattr(doctor, "MUCH_CODE", 999)
    assert "kernels of other versions take 0.00 MB" in said(examine(root))
    monkeypatch.setattr(doctor, "_free", lambda folder: 10**8)
    assert "0.10 GB left" in said(examine(root))
    monkeypatch.setattr(doctor, "cache_folder", lambda: None)
    assert "every run compiles them again" in said(examine(root))


def test_time_that_the_host_takes(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    root = machine({"proc/stat": "cpu 100 0 0 100 0 0 0 0 0 0\n"})

    def bandwidth(threads: int, *, nbytes: int, rounds: int) -> float:
        (root / "proc/stat").write_text("cpu 160 0 0 100 0 0 0 40 0 0\n")
        return 3e10

    monkeypatch.setattr("trinity_kernels.bandwidth.read_bandwidth", bandwidth)
    found = measured(examine(root), root)
    assert found.read_bandwidth_bytes_per_second == 3e10
    assert said(found) == "the host of this virtual machine used 40% of its time for other machines"
