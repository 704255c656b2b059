"""Sums and differences of integers with `clamp`: the result is cut to what its type holds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.sim.cases_vector import Case
from tests.sim.values import Array

U32 = np.uint32


def _parts(x: Array, bits: int, signed: bool) -> list[Array]:
    """The words (or both halves) as int64."""
    found = []
    for shift in range(0, 32, bits):
        part = (x.astype(np.int64) >> shift) & ((1 << bits) - 1)
        found.append(part - ((part >> (bits - 1)) << bits) if signed else part)
    return found


def _work(operation: str, bits: int, signed: bool, clamp: bool, packed: bool) -> Callable[[Array, Array], Array]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)

    def work(a: Array, b: Array) -> Array:
        made = np.zeros(len(a), np.int64)
        for i, (x, y) in enumerate(zip(_parts(a, bits, signed), _parts(b, bits, signed), strict=True)):
            if i and not packed:
                break
            r = {"add": x + y, "sub": x - y, "subrev": y - x}[operation]
            r = np.clip(r, low, high) if clamp else r
            made |= (r & ((1 << bits) - 1)) << (bits * i)
        return made.astype(U32)

    return work


def _case(name: str, clamp: bool) -> Case:
    operation, kind = name.removeprefix("v_pk_").removeprefix("v_").split("_")
    work = _work(operation, int(kind[1:]), kind[0] == "i", clamp, name.startswith("v_pk_") or kind.endswith("32"))
    encoding = "" if name in ("v_add_i32", "v_sub_i32", "v_add_i16", "v_sub_i16") or "_pk_" in name else "_e64"
    return Case(f"{name}{encoding} v20, v10, v11{' clamp' if clamp else ''}", "ii", "i", work)


_NAMES = [
    f"v_{p}{op}_{kind}"
    for p, kinds in (("", ("u32", "i32", "u16", "i16")), ("pk_", ("u16", "i16")))
    for op in ("add", "sub")
    for kind in kinds
]
CLAMPED = [_case(name, clamp) for name in [*_NAMES, "v_subrev_u32", "v_subrev_u16"] for clamp in (True, False)]
