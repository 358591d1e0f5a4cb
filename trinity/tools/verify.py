"""Verify a file's tensors: checksums, and signs of damage or of a faulty converter.

Scales are read from the blocks without dequantizing, so a gigabyte takes seconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod

import numpy as np
from numpy.typing import NDArray

from trinity.formats.mapping_table import TABLE
from trinity.formats.provider import Tensor, WeightProvider
from trinity_kernels.bus_errors import catch_bus_errors
from trinity_kernels.quants import TYPES, QuantType

Progress = Callable[[int, int, str], None]

# No known model has block scales this large.
LARGEST_SCALE = 1024.0
_STEP_BYTES = 16 << 20
_EXPONENTS = {"F16": 0x7C00, "BF16": 0x7F80}


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault in ``count`` blocks of a tensor; the first one is ``block`` in ``row``."""

    tensor: str
    count: int
    block: int
    row: int
    found: str
    expected: str

    def __str__(self) -> str:
        more = f" and {self.count - 1:,} more" if self.count > 1 else ""
        return (
            f"{self.tensor}: block {self.block:,} (row {self.row:,}){more}: found {self.found}, "
            f"expected {self.expected}"
        )


@dataclass(frozen=True, slots=True)
class Checked:
    """The checksum of one tensor's bytes in the file."""

    name: str
    type: str
    nbytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Verification:
    """All tensors in file order. ``sha256`` is over names, types, shapes and bytes of all."""

    tensors: list[Checked]
    sha256: str
    findings: list[Finding]
    notes: list[str] = field(default_factory=list)


def verify(
    provider: WeightProvider, progress: Progress = lambda done, total, name: None
) -> Verification:
    """Read every tensor once. ``progress``: bytes done, all bytes, the tensor."""
    catch_bus_errors(TABLE)
    names = provider.tensor_names()
    total = sum(provider.tensor(name).nbytes for name in names)
    whole = hashlib.sha256()
    checked: list[Checked] = []
    findings: list[Finding] = []
    done = 0
    same: dict[str, str] = {}
    notes = []
    for name in names:
        tensor = provider.tensor(name)
        digest = hashlib.sha256()
        whole.update(f"{name} {tensor.type} {tensor.shape}\n".encode())
        quant = TYPES.get(tensor.type)
        first: dict[tuple[str, str], Finding] = {}
        for start, part in _parts(tensor, quant):
            progress(done, total, name)
            digest.update(part.data)
            whole.update(part.data)
            done += len(part)
            for finding in _findings(tensor, quant, start, part) if quant else ():
                key = finding.found.partition(" ")[0], finding.expected
                known = first.get(key)
                first[key] = finding if known is None else _joined(known, finding)
        findings.extend(first.values())
        if quant is None:
            notes.append(f"{name}: {tensor.type} has no check, only a checksum")
        elif quant.tensor_scale:
            findings.extend(_tensor_scale(tensor, quant))
        provider.check()  # a truncated file would read as zeros
        text = digest.hexdigest()
        checked.append(Checked(name, tensor.type, tensor.nbytes, text))
        if len(tensor.shape) > 1 and tensor.nbytes:
            if text in same:
                notes.append(f"{name} has the same bytes as {same[text]}")
            same.setdefault(text, name)
    progress(total, total, "")
    return Verification(checked, whole.hexdigest(), findings, notes)


def _parts(tensor: Tensor, quant: QuantType | None) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yield the tensor's bytes in pieces of whole blocks, each with its position."""
    data = tensor.data.reshape(-1).view(np.uint8)
    size = quant.type_size if quant else 1
    step = max(1, _STEP_BYTES // size) * size
    for start in range(0, len(data), step):
        yield start, data[start : start + step]


def _joined(known: Finding, other: Finding) -> Finding:
    count = known.count + other.count
    return Finding(known.tensor, count, known.block, known.row, known.found, known.expected)


def _findings(
    tensor: Tensor, quant: QuantType, start: int, part: NDArray[np.uint8]
) -> Iterator[Finding]:
    """Yield the faults in a piece of a tensor's blocks."""
    count = prod(tensor.shape) // quant.block_size - start // quant.type_size
    blocks = part[: min(len(part) // quant.type_size, count) * quant.type_size].view(quant.block)
    if not len(blocks):
        return

    def finding(bad: NDArray[np.bool_], describe: Callable[[int], str], expected: str) -> Finding:
        at = int(bad.argmax())
        block = start // quant.type_size + at
        row = block * quant.block_size // max(tensor.shape[-1] if tensor.shape else 1, 1)
        return Finding(tensor.name, int(bad.sum()), block, row, describe(at), expected)

    if quant.name in _EXPONENTS:
        mask = np.uint16(_EXPONENTS[quant.name])
        bad = (blocks.view(np.uint16) & mask) == mask
        if bad.any():
            values = quant.decode_blocks(blocks[bad][:1])
            yield finding(bad, lambda at: f"the value {values[0, 0]}", "finite values")
        return
    for name in quant.block.names or ():
        scales = blocks[name]
        if scales.dtype.kind != "f":
            continue
        what = "value" if quant.block_size == 1 else f"{name} ="
        bad = ~np.isfinite(scales)
        if bad.any():
            yield finding(bad, _shown(what, scales), "finite numbers")
        if quant.block_size > 1:
            bad = np.isfinite(scales) & (np.abs(scales) > LARGEST_SCALE)
            if bad.any():
                expected = f"scales up to {LARGEST_SCALE:.0f} in magnitude"
                yield finding(bad, _shown(what, scales), expected)
    if quant.unused:
        unused = quant.unused
        bad = unused.found(blocks)
        if bad.any():
            yield finding(bad, lambda at: unused.what, unused.expected)


def _shown(what: str, scales: NDArray[np.floating]) -> Callable[[int], str]:
    return lambda at: f"{what} {scales[at]}"


def _tensor_scale(tensor: Tensor, quant: QuantType) -> Iterator[Finding]:
    """Yield faults of I2_S's scale, which follows the codes."""
    at = prod(tensor.shape) // quant.block_size * quant.type_size
    scale = float(tensor.data.reshape(-1)[at : at + 4].view("<f4")[0])
    if not 0 < abs(scale) <= LARGEST_SCALE:  # false for NaN
        expected = f"a finite scale, not 0, up to {LARGEST_SCALE:.0f} in magnitude"
        yield Finding(tensor.name, 1, 0, 0, f"the tensor's scale {scale}", expected)
