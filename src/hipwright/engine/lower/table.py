"""The table of lowerings by ATen name, and the reading of static arguments."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, TypeVar

from hipwright.engine.ir.expr import HALVES
from hipwright.engine.ir.index import Ix
from hipwright.engine.lower.values import NotLowered

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)
TABLE: dict[str, Handler] = {}

BITS = {"uint8": 8, "int8": 8, "int16": 16, "int32": 32}
"""Integers narrower than Python's numbers and sizes, which wrap."""


def op(*names: str) -> Callable[[H], H]:
    """Register how an operator is lowered: handler(context, meta, *args, **kwargs) -> Tensor or tuple of them."""

    def register(handler: H) -> H:
        for name in names:
            TABLE[name if name.startswith("hip.") else f"aten.{name}" if "." in name else f"aten.{name}.default"] = (
                handler
            )
        return handler

    return register


def as_int(value: Any) -> int:
    """A static integer argument. Raises NotLowered for one that varies with the shape."""
    if isinstance(value, Ix):
        if value.value is None:
            raise NotLowered("an argument varies with the shape")
        return value.value
    return int(value)


def held(value: Any, dtype: str) -> Any:
    """A number as a tensor of a half type or of small integers holds it; anything else as it is."""
    if dtype in BITS and type(value) is int:
        top = 0 if dtype == "uint8" else 1 << BITS[dtype] - 1
        return (value + top) % (1 << BITS[dtype]) - top
    if dtype not in HALVES or isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    try:
        (wide,) = struct.unpack("<f", struct.pack("<f", float(value)))
        if dtype == "float16":
            return struct.unpack("<e", struct.pack("<e", wide))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    (bits,) = struct.unpack("<I", struct.pack("<f", wide))
    even = bits + 0x7FFF + (bits >> 16 & 1) if math.isfinite(wide) else bits
    return struct.unpack("<f", struct.pack("<I", even & 0xFFFF0000))[0]


def dims_of(dims: Any, rank: int) -> list[int]:
    """Normalised reduction dimensions; None or [] means all."""
    if dims is None or dims == [] or dims == ():
        return list(range(rank))
    listed = [dims] if isinstance(dims, int) else [as_int(d) for d in dims]
    return [d % max(rank, 1) for d in listed] if rank else []
