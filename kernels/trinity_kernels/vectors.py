"""LLVM's vectors as Numba types, and LLVM's types of their elements."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.datamodel import PrimitiveModel
from numba.extending import register_model

I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
_ELEMENTS = {
    "i1": I1, "i8": I8, "i16": I16, "i32": I32, "i64": I64, "f16": F16, "f32": F32, "f64": F64,
}  # fmt: skip


class Vec(types.Type):
    """``lanes`` elements of one type, e.g. ``Vec("f32", 16)``."""

    def __init__(self, element: str, lanes: int) -> None:
        self.element = element
        self.lanes = lanes
        self.ir = ir.VectorType(_ELEMENTS[element], lanes)
        super().__init__(name=f"{element}x{lanes}")

    @property
    def is_float(self) -> bool:
        """Whether lanes are floating point."""
        return self.element.startswith("f")


@register_model(Vec)
class _VecModel(PrimitiveModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: Vec) -> None:
        super().__init__(dmm, fe_type, fe_type.ir)
