"""Targets with deliberate defects, each of which the fuzzer must find."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

from tests.fuzzing.case import SECONDS, Case
from tests.processor_time import slowness
from trinity.errors import FormatError
from trinity.formats.json_object import parse_json_object


def good(case: Case) -> None:
    """Succeed, or raise a TrinityError."""
    case.attempt("read", parse_json_object, b"{" if case.seed % 2 else b"{}", "x")


def dies(case: Case) -> None:
    """Read from an unmapped address."""
    ctypes.string_at(0)


def hangs(case: Case) -> None:
    """Run forever."""
    time.sleep(10_000)


def grows(case: Case) -> None:
    """Use 400 MB for a file of a few bytes."""
    case.write("a", b"abc")
    case.attempt("read", lambda: len(bytearray(400 << 20)))


def works_long(case: Case) -> None:
    """Use more processor time than a small file justifies."""

    def work() -> None:
        until = time.process_time() + 2 * SECONDS * slowness()
        while time.process_time() < until:
            pass

    case.attempt("loaded", work)


def raises(case: Case) -> None:
    """Raise an exception of the code under test that is not a TrinityError."""
    case.attempt("read", parse_json_object, None, "x")  # type: ignore[arg-type]


def hides(case: Case) -> None:
    """Raise a TrinityError for a lack of memory."""

    def fail() -> None:
        try:
            raise MemoryError
        except MemoryError as error:
            raise FormatError("too little") from error

    case.attempt("read", fail)


def litters(case: Case) -> None:
    """Leave a temporary file."""
    case.write(".trinity-abc.tmp", b"")


TARGETS = {
    "good": good, "dies": dies, "hangs": hangs, "grows": grows, "works_long": works_long,
    "raises": raises, "hides": hides, "litters": litters,
}  # fmt: skip


def schedule(names: Sequence[str]) -> list[str]:
    """Run one target after the other."""
    return list(names)
