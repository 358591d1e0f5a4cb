"""Records of Whisper's operations, over buffers of float32 rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.formats.speech_config import EPS
from trinity.runtime.kernel_choice import KernelChoice
from trinity.runtime.memory import enough_memory, row_bytes
from trinity.runtime.weights import Weight
from trinity_kernels import record as slots
from trinity_kernels._jit import Kernel
from trinity_kernels.ops import activation, attention, byte_attention, copy, kv_layout, norm, rope
from trinity_kernels.ops.matmul import activation_tiles, operands, quantize, variants
from trinity_kernels.ops.matmul.activations import activation_bytes, tile_bytes
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.ops.matmul.tile_layout import int8_tile_types
from trinity_kernels.ops.matmul.tiles import matmul_tiles
from trinity_kernels.record import RECORD, float_bits

KV_TYPE = "F32"
ADVICE = "close other programs or take a smaller model"


class SpeechBuffer:
    """A buffer of ``count`` rows of ``width`` float32, zeros, aligned for the widest vectors."""

    def __init__(self, count: int, width: int, stride: int | None = None) -> None:
        self.stride = row_bytes(width) if stride is None else stride
        with enough_memory("for speech", ADVICE):
            memory = np.zeros(count * self.stride // 4 + 16, np.float32)
        start = -(memory.ctypes.data // 4) % 16
        self._rows = memory[start : start + count * self.stride // 4]
        self.values = self._rows.reshape(count, -1)[:, :width]

    def at(self, row: int = 0) -> SpeechView:
        """Where the rows from ``row`` on lie."""
        return SpeechView(int(self._rows.ctypes.data) + row * self.stride, self.stride)


class SpeechView(NamedTuple):
    """Where rows lie: the address of the first, and bytes from one to the next."""

    address: int
    stride: int


class Pages:
    """Keys and values of ``layers`` layers at ``positions`` positions, in pages of the kernels."""

    def __init__(self, layers: int, positions: int, heads: int, head_dim: int) -> None:
        self.layer_bytes = kv_layout.layer_bytes(KV_TYPE, heads, head_dim, head_dim)
        self.count = -(-positions // kv_layout.PAGE)
        with enough_memory("for speech", ADVICE):
            self._memory = np.zeros(self.count * layers * self.layer_bytes // 8 + 8, np.int64)
        start = -(-self._memory.ctypes.data // 64) * 64
        step = layers * self.layer_bytes
        self.table = np.array([start + page * step for page in range(self.count)], np.int64)

    @property
    def address(self) -> int:
        """That of the table of pages."""
        return int(self.table.ctypes.data)


class Heads(NamedTuple):
    """The heads of an attention."""

    number: int
    dim: int


class SpeechPlan(NamedTuple):
    """Records for a team, and what they hold addresses of."""

    records: NDArray[np.void]
    kept: tuple[object, ...]


class Recorder:
    """Appends records; each works on as many rows as the int64 ``rows`` says at that time.

    ``most``: no step has more rows than these.
    """

    def __init__(self, choice: KernelChoice, threads: int) -> None:
        self._choice = choice
        self._threads = threads
        self._records: list[NDArray[np.int64]] = []
        self._kept: list[object] = []
        self._buffers: dict[tuple[str, int, int], SpeechBuffer] = {}
        self.rows, self.most = self.number(0), 0

    def number(self, value: int) -> NDArray[np.int64]:
        """An int64 that records hold the address of."""
        made = np.array([value], np.int64)
        self._kept.append(made)
        return made

    def take(self) -> SpeechPlan:
        """The records so far; the next ones begin another plan."""
        records = np.zeros(len(self._records), RECORD)
        records["slots"] = self._records
        self._records = []
        return SpeechPlan(records, (*self._kept, *self._buffers.values()))

    def norm(
        self,
        x: SpeechView,
        weight: NDArray[np.float32],
        bias: NDArray[np.float32],
        out: SpeechView,
        index: NDArray[np.int32] | None = None,
    ) -> None:
        """Layer norm, of the rows that ``index`` names where it is given."""
        op = norm
        self._kept += [weight, bias, index]
        self._record(op.norm, "layer", {
            op.X: x.address, op.X_STRIDE: x.stride, op.WEIGHT: weight.ctypes.data,
            op.BIAS: bias.ctypes.data, op.OUT: out.address, op.OUT_STRIDE: out.stride,
            op.K: len(weight), op.EPS: float_bits(EPS), op.GROUPS: 1,
            op.INDEX: 0 if index is None else index.ctypes.data,
        })  # fmt: skip

    def linear(self, x: SpeechView, *outputs: tuple[Weight, SpeechView], add: bool = False) -> None:
        """out = x W^T + b for each weight and place, or added onto what is there.

        Quantized weights multiply codes of x, which are made once for weights of the same form.
        """
        for form in sorted({weight.form for weight, _ in outputs}):
            group = [output for output in outputs if output[0].form == form]
            self._products(x, form, group, add)

    def _products(
        self, x: SpeechView, form: str, group: list[tuple[Weight, SpeechView]], add: bool
    ) -> None:
        op, choice = operands, self._choice
        kinds, k = {weight.type for weight, _ in group}, group[0][0].k
        kernel = variants.choose_kernel(choice.level, kinds, choice.work)
        if not all(variants.serves(kernel, kind) for kind in kinds):
            kernel = matmul
        held, packed = x, dict[int, int]()
        if form != "f32":
            held = self._buffer(f"{form} codes", self.most, activation_bytes(form, k))
            limit = 0
            if kernel is matmul_tiles and not any(weight.n % 16 for weight, _ in group):
                limit = op.TILE_ROWS + 1
            self._record(quantize.quantizer_of(form), "none", {
                quantize.X: x.address, quantize.X_STRIDE: x.stride, quantize.K: k,
                quantize.OUT: held.address, quantize.OUT_STRIDE: held.stride,
                quantize.FEWER_THAN: limit,
            })  # fmt: skip
        if kernel is not matmul:
            room = max(variants.scratch_bytes(kernel, kind, k) for kind in kinds)
            scratch = self._buffer("scratch", self._threads, -(-room // 64) * 64)
            packed = {op.SCRATCH: scratch.address, op.SCRATCH_STRIDE: scratch.stride}
        if kernel is matmul_tiles:
            tiles = self._buffer("tiles", 1, tile_bytes(form, k, self.most))
            packed[op.TILES] = tiles.address
            self._record(activation_tiles.tiles_of(form), "none", {
                op.X: x.address, op.X_STRIDE: x.stride, op.K: k, op.CODES: held.address,
                op.CODES_STRIDE: held.stride, op.FLOATS: bool(kinds - int8_tile_types()), **packed,
            })  # fmt: skip
        for weight, out in group:
            self._kept.append(weight)
            self._record(kernel, weight.type, {
                op.X: held.address, op.X_STRIDE: held.stride,
                op.W: weight.data.ctypes.data, op.W_STRIDE: weight.stride, op.N: weight.n,
                op.K: k, op.OUT: out.address, op.OUT_STRIDE: out.stride, op.ADD: add,
                op.SCALE: float_bits(weight.scale),
                op.BIAS: 0 if weight.bias is None else weight.bias.ctypes.data, **packed,
            }, weight is group[-1][0])  # fmt: skip

    def _buffer(self, use: str, rows: int, stride: int) -> SpeechView:
        """Memory that one linear needs while it works: the next one of its sizes has the same."""
        key = use, rows, stride
        if key not in self._buffers:
            self._buffers[key] = SpeechBuffer(rows, stride // 4)
        return self._buffers[key].at()

    def activation(self, name: str, x: SpeechView, width: int) -> None:
        """x = act(x)."""
        op = activation
        self._record(
            op.gated,
            name,
            {op.GATE: x.address, op.OUT: x.address, op.STRIDE: x.stride, op.K: width},
        )

    def copy(
        self, x: SpeechView, x_step: int, out: SpeechView, out_step: int, groups: int, width: int,
        barrier: bool,
    ) -> None:  # fmt: skip
        """Pieces of rows from x to out; steps are bytes."""
        op = copy
        self._record(op.copy, "none", {
            op.X: x.address, op.X_STRIDE: x.stride, op.X_STEP: x_step, op.OUT: out.address,
            op.OUT_STRIDE: out.stride, op.OUT_STEP: out_step, op.GROUPS: groups, op.WIDTH: width,
        }, barrier)  # fmt: skip

    def store(
        self, key: SpeechView, value: SpeechView, heads: Heads, positions: NDArray[np.int32],
        caches: NDArray[np.int64], offset: int,
    ) -> None:  # fmt: skip
        """Keys and values into their pages, without a rotation."""
        op = rope
        self._kept += [positions, caches]
        self._record(op.rope_store, KV_TYPE, {
            op.KEY: key.address, op.KEY_STRIDE: key.stride, op.VALUE: value.address,
            op.VALUE_STRIDE: value.stride, op.POSITIONS: positions.ctypes.data,
            op.CACHES: caches.ctypes.data, op.LAYER_OFFSET: offset, op.KV_HEADS: heads.number,
            op.HEAD_DIM: heads.dim, op.VALUE_DIM: heads.dim,
        })  # fmt: skip

    def attention(
        self,
        q: SpeechView,
        heads: Heads,
        group: int,
        out: SpeechView,
        positions: NDArray[np.int32],
        caches: NDArray[np.int64],
        offset: int,
        few: int = 0,
        longest: int = 0,
    ) -> None:
        """Each row's queries, ``group`` for each head, over the positions up to ``positions``.

        ``few``: at most so many rows, whose blocks of ``longest`` positions are shared out.
        """
        op = attention
        stride = -(-op.scratch_bytes(heads.dim) // 64) * 64
        scratch = SpeechBuffer(self._threads, stride // 4)
        self._kept += [positions, caches, scratch]
        values = {
            op.Q: q.address, op.Q_STRIDE: q.stride, op.POSITIONS: positions.ctypes.data,
            op.CACHES: caches.ctypes.data, op.LAYER_OFFSET: offset, op.HEAD_DIM: heads.dim,
            op.VALUE_DIM: heads.dim, op.HEADS: group * heads.number, op.KV_HEADS: heads.number,
            op.OUT: out.address, op.OUT_STRIDE: out.stride,
            op.SCALE: float_bits(float(np.float32(heads.dim**-0.5))),
            op.SCRATCH: scratch.at().address, op.SCRATCH_STRIDE: stride,
        }  # fmt: skip
        if few:
            blocks = -(-longest // op.BLOCK)
            parts = SpeechBuffer(few * blocks, group * heads.number * op.part_bytes(heads.dim) // 4)
            self._kept.append(parts)
            values[op.PARTS] = parts.at().address
            self._record(op.attention_parts, KV_TYPE, values)
            self._record(op.attention_merge, "none", values)
        else:
            self._record(op.attention, KV_TYPE, values)

    def has_byte_attention(self) -> bool:
        """Whether attention over bytes works here and is faster than that of float32."""
        op, choice = byte_attention, self._choice
        kernels = (op.pack_bytes, op.byte_attention)
        return choice.level in op.LEVELS and all(choice.work(one, ["none"]) for one in kernels)

    def byte_attention(
        self, q: SpeechView, k: SpeechView, v: SpeechView, heads: Heads, out: SpeechView
    ) -> None:
        """Every row's queries over all rows' keys and values, brought to bytes; rows are ``most``.

        The places have one stride.
        """
        op, most = byte_attention, self.most
        packed = self._buffer("heads", heads.number, op.head_bytes(most, heads.dim))
        stride = -(-op.scratch_bytes(most, heads.dim) // 64) * 64
        scratch = self._buffer("scratch", self._threads, stride)
        values = {
            op.Q: q.address, op.K: k.address, op.V: v.address, op.STRIDE: q.stride,
            op.OUT: out.address, op.OUT_STRIDE: out.stride, op.PACKED: packed.address,
            op.HEADS: heads.number, op.HEAD_DIM: heads.dim,
            op.SCALE: float_bits(float(np.float32(heads.dim**-0.5))),
            op.SCRATCH: scratch.address, op.SCRATCH_STRIDE: stride,
        }  # fmt: skip
        self._record(op.pack_bytes, "none", values)
        self._record(op.byte_attention, "none", values)

    def _record(
        self, kernel: Kernel, tag: str, values: dict[int, int], barrier: bool = True
    ) -> None:
        row = np.zeros(slots.SLOTS, np.int64)
        row[slots.KERNEL] = self._choice.address(kernel, tag)
        row[slots.BARRIER] = barrier
        row[slots.ROWS] = self.rows.ctypes.data
        for slot, value in values.items():
            row[slot] = value
        self._records.append(row)
