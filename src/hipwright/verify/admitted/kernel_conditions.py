"""Finds the comparisons of a kernel whose outcome depends on its integer arguments or its launch.

Each is an expression over parameters, indices of threads and blocks, knobs and numbers (`kernel_walk`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from hipwright.program import Parsed
from hipwright.program.blanking import blank
from hipwright.program.hazards.source import BlankedSource
from hipwright.program.signature import KernelSignatures
from hipwright.verify.admitted.expressions import named, number
from hipwright.verify.admitted.kernel_source import KernelCondition, KernelProgram, macros_of
from hipwright.verify.admitted.kernel_walk import FunctionWalk

_SIZED_ROOTS = frozenset(f"{root}.{axis}" for root in ("blockIdx", "gridDim", "blockDim") for axis in "xyz")
_WAVE = 64  # lanes, as on the cpu target


def kernel_conditions(parsed: Parsed) -> dict[str, tuple[KernelCondition, ...]]:
    """The conditions of every launched kernel. Knobs stand in them by name."""
    found = {}
    for kernel in parsed.launched or parsed.signatures:
        walked = _walked(parsed.hip, kernel, tuple(parsed.knobs))
        start = parsed.hip_line - 1
        found[kernel] = tuple(replace(one, line=one.line + start) for one in walked)
    return found


@lru_cache(maxsize=64)
def _source(hip: str) -> tuple[BlankedSource, dict[str, tuple[tuple[str, ...] | None, str]]]:
    bare = Parsed("", hip, 1, {}, {}, KernelSignatures(), {})
    return BlankedSource.of(bare), dict(macros_of(blank(hip)))


@lru_cache(maxsize=256)
def _walked(hip: str, kernel: str, knobs: tuple[str, ...]) -> tuple[KernelCondition, ...]:
    source, macros = _source(hip)
    constants = {"warpSize": number(_WAVE)} | {name: named(name) for name in knobs}
    program = KernelProgram(source, macros, constants)
    function = program.functions.get(kernel)
    if function is None:
        return ()
    walk = FunctionWalk(program, kernel, function)
    program.sized = _SIZED_ROOTS | set(walk.names)
    walk.env |= {name: named(name) for name in walk.names}
    walk.run()
    return tuple(dict.fromkeys(one for one in program.found if one.tree.names & program.sized))
