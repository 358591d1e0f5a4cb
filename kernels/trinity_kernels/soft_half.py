"""Conversions of float16 to float32 and back for processors without F16C.

LLVM calls these two functions by name and expects them in a runtime library, which Python lacks;
LLVM ends the process if a name is unknown. Both use exact integer arithmetic: they round to the
nearest, half to even, and NaNs become quiet.
Source: IEEE 754; Fabian Giesen's float_to_half_fast3_rtne and half_to_float_fast4.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding

_CODE = """
target triple = "{triple}"

define float @__extendhfsf2(half %half) {{
  %bits = bitcast half %half to i16
  %word = zext i16 %bits to i32
  %magnitude = and i32 %word, 32767
  %aligned = shl i32 %magnitude, 13
  %normal = add i32 %aligned, 939524096          ; exponent + 127 - 15
  %infinite = add i32 %aligned, 1879048192       ; its exponent to 255
  %quiet = or i32 %infinite, 4194304
  %above = add i32 %aligned, 947912704           ; a subnormal on top of 2**-14
  %above_f = bitcast i32 %above to float
  %small_f = fsub float %above_f, 0x3F10000000000000
  %small = bitcast float %small_f to i32
  %is_small = icmp ult i32 %magnitude, 1024
  %is_large = icmp uge i32 %magnitude, 31744
  %is_nan = icmp ugt i32 %magnitude, 31744
  %finite = select i1 %is_small, i32 %small, i32 %normal
  %large = select i1 %is_nan, i32 %quiet, i32 %infinite
  %value = select i1 %is_large, i32 %large, i32 %finite
  %sign_low = and i32 %word, 32768
  %sign = shl i32 %sign_low, 16
  %signed = or i32 %value, %sign
  %result = bitcast i32 %signed to float
  ret float %result
}}

define half @__truncsfhf2(float %float) {{
  %word = bitcast float %float to i32
  %magnitude = and i32 %word, 2147483647
  %magnitude_f = bitcast i32 %magnitude to float
  %placed_f = fadd float %magnitude_f, 5.000000e-01   ; its unit is that of subnormal halves
  %placed = bitcast float %placed_f to i32
  %small = sub i32 %placed, 1056964608
  %shifted = lshr i32 %magnitude, 13
  %odd = and i32 %shifted, 1
  %moved = add i32 %magnitude, 3355447295        ; exponent + 15 - 127, and 4095 to round
  %rounded = add i32 %moved, %odd
  %normal = lshr i32 %rounded, 13
  %payload = and i32 %shifted, 1023
  %nan = or i32 %payload, 32256
  %is_nan = icmp ugt i32 %magnitude, 2139095040
  %large = select i1 %is_nan, i32 %nan, i32 31744
  %is_small = icmp ult i32 %magnitude, 947912704      ; below 2**-14
  %is_large = icmp uge i32 %magnitude, 1199570944     ; 2**16 and above
  %finite = select i1 %is_small, i32 %small, i32 %normal
  %value = select i1 %is_large, i32 %large, i32 %finite
  %sign_high = lshr i32 %word, 16
  %sign = and i32 %sign_high, 32768
  %signed = or i32 %value, %sign
  %bits = trunc i32 %signed to i16
  %result = bitcast i16 %bits to half
  ret half %result
}}
"""


def module() -> Any:
    """An LLVM module with both functions, to be linked to code that may call them."""
    return binding.parse_assembly(_CODE.format(triple=binding.get_process_triple()))
