"""Writes the records of encoders of sound and images, over buffers of float32 rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.kernel_choice import KernelChoice
from trinity.runtime.memory import enough_memory, row_bytes
from trinity.runtime.records import products
from trinity.runtime.records.record_list import RecordList, RowsView
from trinity.runtime.weights import Weight
from trinity_kernels._jit import Kernel
from trinity_kernels.ops import (
    activation,
    add,
    attention,
    byte_attention,
    clamp,
    copy,
    kv_layout,
    norm,
    rope,
    split_attention,
)
from trinity_kernels.ops.matmul import operands, variants
from trinity_kernels.ops.matmul.activations import activation_bytes, tile_bytes
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.ops.matmul.tiles import matmul_tiles
from trinity_kernels.record import RECORD, float_bits

KV_TYPE = "F32"
EPS = 1e-5  # of PyTorch's LayerNorm
ADVICE = "close other programs or take a smaller model"


class RowBuffer:
    """A buffer of ``count`` rows of ``width`` float32, initially 0, aligned to 64 bytes."""

    def __init__(self, count: int, width: int, stride: int | None = None) -> None:
        self.stride = row_bytes(width) if stride is None else stride
        with enough_memory("for an encoder", ADVICE):
            memory = np.zeros(count * self.stride // 4 + 16, np.float32)
        start = -(memory.ctypes.data // 4) % 16
        self._rows = memory[start : start + count * self.stride // 4]
        self.values = self._rows.reshape(count, -1)[:, :width]

    def at(self, row: int = 0) -> RowsView:
        """Return the address and the stride of the rows from ``row`` on."""
        return RowsView(int(self._rows.ctypes.data) + row * self.stride, self.stride)


class Pages:
    """Keys and values of ``layers`` layers at ``positions`` positions, in the kernels' layout."""

    def __init__(self, layers: int, positions: int, heads: int, head_dim: int) -> None:
        self.layer_bytes = kv_layout.layer_bytes(KV_TYPE, heads, head_dim, head_dim)
        self.count = -(-positions // kv_layout.PAGE)
        with enough_memory("for an encoder", ADVICE):
            self._memory = np.zeros(self.count * layers * self.layer_bytes // 8 + 8, np.int64)
        start = -(-self._memory.ctypes.data // 64) * 64
        step = layers * self.layer_bytes
        self.table = np.array([start + page * step for page in range(self.count)], np.int64)

    @property
    def address(self) -> int:
        """The address of the table of pages."""
        return int(self.table.ctypes.data)


class Heads(NamedTuple):
    """The number and the width of attention heads."""

    number: int
    dim: int


class WholeAttention(NamedTuple):
    """Kernels of attention of every row to all rows, over keys and values in their own layout."""

    pack: Kernel
    attend: Kernel
    levels: frozenset[str]  # on which it is faster than float32 attention
    head_bytes: Callable[[int, int], int]  # of positions and a head's width
    scratch_bytes: Callable[[int, int], int]


# With int8 operands; with operands that are sums of two bfloat16.
BYTES = WholeAttention(
    byte_attention.pack_bytes, byte_attention.byte_attention, byte_attention.LEVELS,
    byte_attention.head_bytes, byte_attention.scratch_bytes,
)  # fmt: skip
SPLIT = WholeAttention(
    split_attention.pack_split, split_attention.split_attention, split_attention.LEVELS,
    split_attention.head_bytes, split_attention.scratch_bytes,
)  # fmt: skip


class RecordedPlan(NamedTuple):
    """Records for a team, and the objects whose addresses they contain."""

    records: NDArray[np.void]
    kept: tuple[object, ...]


class Recorder(RecordList):
    """Appends records of operations; ``most`` is the maximum number of rows."""

    always_tiles = False

    def __init__(self, choice: KernelChoice, threads: int) -> None:
        self._kept: list[object] = []
        super().__init__(choice.address, self.number(0))
        self.most = 0
        self._choice = choice
        self._threads = threads
        self._buffers: dict[tuple[str, int, int], RowBuffer] = {}

    def number(self, value: int) -> NDArray[np.int64]:
        """An int64 whose address records can contain."""
        made = np.array([value], np.int64)
        self._kept.append(made)
        return made

    def take(self) -> RecordedPlan:
        """Return the records so far, perhaps none; the next ones form another plan."""
        records = np.zeros(len(self.records), RECORD)
        if self.records:
            records["slots"] = self.records
        self.records = []
        return RecordedPlan(records, (*self._kept, *self._buffers.values()))

    def norm(
        self,
        x: RowsView,
        weight: NDArray[np.float32],
        bias: NDArray[np.float32] | None,
        out: RowsView,
        index: NDArray[np.int32] | None = None,
        *,
        eps: float = EPS,
        groups: int = 1,
        add: bool = False,
    ) -> None:
        """A layer norm, or an RMS norm if there is no bias.

        ``index`` names the input rows, by default all. A row has ``groups`` vectors that share the
        weight. ``add`` adds to the values in ``out``.
        """
        op = norm
        self._kept += [weight, bias, index]
        self.record(op.norm, "rms" if bias is None else "layer", {
            **x.slots(op.X, op.X_STRIDE), op.WEIGHT: weight.ctypes.data,
            op.BIAS: 0 if bias is None else bias.ctypes.data, **out.slots(op.OUT, op.OUT_STRIDE),
            op.K: len(weight), op.EPS: float_bits(eps), op.GROUPS: groups,
            op.INDEX: 0 if index is None else index.ctypes.data, op.ADD: int(add),
        })  # fmt: skip

    def linear(self, x: RowsView, *outputs: tuple[Weight, RowsView], add: bool = False) -> None:
        """out = x W^T + b for each weight and view; ``add`` adds to the values in the views.

        Quantized weights multiply codes of x, which are made once for weights of the same form.
        """
        self._kept += [weight for weight, _ in outputs]
        products.write(self, x, outputs, add=add)

    def kernel_for(self, weights: Sequence[Weight]) -> Kernel:
        """The kernel that multiplies weights which share an input."""
        types, choice = {weight.type for weight in weights}, self._choice
        kernel = variants.choose_kernel(choice.level, types, choice.work)
        return kernel if all(variants.serves(kernel, kind) for kind in types) else matmul

    def codes(self, form: str, k: int) -> RowsView:
        """Memory for rows of ``k`` activations in a form other than "f32"."""
        return self._buffer(f"{form} codes", self.most, activation_bytes(form, k))

    def packed(self, kernel: Kernel, weights: Sequence[Weight]) -> dict[int, int]:
        """The slots of a kernel that packs weights and activations; none for other kernels."""
        if kernel is matmul:
            return {}
        k = weights[0].k
        room = max(variants.scratch_bytes(kernel, weight.type, k) for weight in weights)
        scratch = self._buffer("scratch", self._threads, -(-room // 64) * 64)
        slots = scratch.slots(operands.SCRATCH, operands.SCRATCH_STRIDE)
        if kernel is matmul_tiles:
            tiles = self._buffer("tiles", 1, tile_bytes(weights[0].form, k, self.most))
            slots[operands.TILES] = tiles.address
        return slots

    def _buffer(self, use: str, rows: int, stride: int) -> RowsView:
        """Memory of one linear during its products; later linears of the same sizes share it."""
        key = use, rows, stride
        if key not in self._buffers:
            self._buffers[key] = RowBuffer(rows, stride // 4)
        return self._buffers[key].at()

    def activation(self, name: str, x: RowsView, width: int, up: RowsView | None = None) -> None:
        """x = act(x), times ``up`` if there is one."""
        op = activation
        factors = {} if up is None else up.slots(op.UP, op.UP_STRIDE)
        values = {op.GATE: x.address, **x.slots(op.OUT, op.STRIDE), op.K: width}
        self.record(op.gated, name, values | factors)

    def multiply(self, x: RowsView, factors: NDArray[np.float32]) -> None:
        """Multiply each row of x by the factors of its columns."""
        self._kept.append(factors)
        self.activation("none", x, len(factors), RowsView(int(factors.ctypes.data), 0))

    def add(self, x: RowsView, out: RowsView, width: int) -> None:
        """out = out + x."""
        op = add
        self.record(op.add, "none", {
            **x.slots(op.X, op.X_STRIDE), **out.slots(op.OUT, op.OUT_STRIDE), op.K: width,
            op.GROUPS: 1, op.FACTOR: float_bits(1.0),
        })  # fmt: skip

    def clamp(self, x: RowsView, out: RowsView, width: int, low: float, high: float) -> None:
        """out = x limited to ``low`` .. ``high``."""
        op = clamp
        self.record(op.clamp, "none", {
            **x.slots(op.X, op.X_STRIDE), **out.slots(op.OUT, op.OUT_STRIDE), op.K: width,
            op.LOW: float_bits(low), op.HIGH: float_bits(high),
        })  # fmt: skip

    def copy(
        self, x: RowsView, x_step: int, out: RowsView, out_step: int, groups: int, width: int,
        barrier: bool,
    ) -> None:  # fmt: skip
        """Copy parts of rows from x to out; steps are in bytes."""
        op = copy
        self.record(op.copy, "none", {
            **x.slots(op.X, op.X_STRIDE), op.X_STEP: x_step,
            **out.slots(op.OUT, op.OUT_STRIDE), op.OUT_STEP: out_step,
            op.GROUPS: groups, op.WIDTH: width,
        }, barrier=barrier)  # fmt: skip

    def store(
        self, key: RowsView, value: RowsView, heads: Heads, positions: NDArray[np.int32],
        caches: NDArray[np.int64], offset: int,
    ) -> None:  # fmt: skip
        """Write keys and values to their pages, without rotation."""
        op = rope
        self._kept += [positions, caches]
        self.record(op.rope_store, KV_TYPE, {
            **key.slots(op.KEY, op.KEY_STRIDE), **value.slots(op.VALUE, op.VALUE_STRIDE),
            op.POSITIONS: positions.ctypes.data, op.TURNS: positions.ctypes.data,
            op.CACHES: caches.ctypes.data, op.LAYER_OFFSET: offset, op.KV_HEADS: heads.number,
            op.HEAD_DIM: heads.dim, op.VALUE_DIM: heads.dim,
        })  # fmt: skip

    def rotate(
        self, x: RowsView, heads: Heads, table: NDArray[np.float32], turns: NDArray[np.int32],
        first: int = 0,
    ) -> None:  # fmt: skip
        """Rotate the heads of each row by the row of ``table`` that ``turns`` names.

        ``table``: (n, width), cosines and then sines of the pairs (first + i, first + i + width /
        2) of each head.
        """
        op = rope
        self._kept += [table, turns]
        self.record(op.rope_store, KV_TYPE, {
            **x.slots(op.Q, op.Q_STRIDE), op.POSITIONS: turns.ctypes.data,
            op.TURNS: turns.ctypes.data, op.TABLE: table.ctypes.data, op.FIRST: first,
            op.ROPE_DIM: table.shape[1], op.HEADS: heads.number, op.HEAD_DIM: heads.dim,
        })  # fmt: skip

    def attention(
        self,
        q: RowsView,
        heads: Heads,
        out: RowsView,
        positions: NDArray[np.int32],
        caches: NDArray[np.int64],
        offset: int,
        few: int = 0,
        longest: int = 0,
        firsts: NDArray[np.int32] | None = None,
    ) -> None:
        """Attention of each row to the positions up to ``positions``, from ``firsts`` on if given.

        ``few``: the maximum number of rows whose blocks of ``longest`` positions are divided among
        threads; 0: rows are divided.
        """
        op = attention
        stride = -(-op.scratch_bytes(heads.dim, heads.dim) // 64) * 64
        scratch = RowBuffer(self._threads, stride // 4)
        self._kept += [positions, caches, scratch, firsts]
        values = {
            **q.slots(op.Q, op.Q_STRIDE), op.POSITIONS: positions.ctypes.data,
            op.CACHES: caches.ctypes.data, op.LAYER_OFFSET: offset, op.HEAD_DIM: heads.dim,
            op.VALUE_DIM: heads.dim, op.HEADS: heads.number, op.KV_HEADS: heads.number,
            **out.slots(op.OUT, op.OUT_STRIDE),
            op.SCALE: float_bits(float(np.float32(heads.dim**-0.5))),
            op.SCRATCH: scratch.at().address, op.SCRATCH_STRIDE: stride,
            op.FIRSTS: 0 if firsts is None else firsts.ctypes.data,
        }  # fmt: skip
        if few:
            blocks = -(-longest // op.BLOCK)
            parts = RowBuffer(few * blocks, heads.number * op.part_bytes(heads.dim) // 4)
            self._kept.append(parts)
            values[op.PARTS] = parts.at().address
            self.record(op.attention_parts, KV_TYPE, values)
            self.record(op.attention_merge, "none", values)
        else:
            self.record(op.attention, KV_TYPE, values)

    def has(self, attention: WholeAttention) -> bool:
        """Whether a kind of attention works here and is faster than ``attention``."""
        choice = self._choice
        kernels = attention.pack, attention.attend
        return choice.level in attention.levels and all(
            choice.work(kernel, ["none"]) for kernel in kernels
        )

    def whole_attention(
        self, attention: WholeAttention, q: RowsView, k: RowsView, v: RowsView, heads: Heads,
        out: RowsView,
    ) -> None:  # fmt: skip
        """Attention of every row to all ``most`` rows. All views must have the same stride."""
        op, most = byte_attention, self.most  # both kinds have the same slots
        packed = self._buffer("heads", heads.number, attention.head_bytes(most, heads.dim))
        stride = -(-attention.scratch_bytes(most, heads.dim) // 64) * 64
        scratch = self._buffer("scratch", self._threads, stride)
        values = {
            op.Q: q.address, op.K: k.address, op.V: v.address, op.STRIDE: q.stride,
            **out.slots(op.OUT, op.OUT_STRIDE), op.PACKED: packed.address,
            op.HEADS: heads.number, op.HEAD_DIM: heads.dim,
            op.SCALE: float_bits(float(np.float32(heads.dim**-0.5))),
            op.SCRATCH: scratch.address, op.SCRATCH_STRIDE: stride,
        }  # fmt: skip
        self.record(attention.pack, "none", values)
        self.record(attention.attend, "none", values)
