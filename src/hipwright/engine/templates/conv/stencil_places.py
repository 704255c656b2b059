"""Indices of a stencil's outputs and of what they read, as expressions and as C text."""

from __future__ import annotations

from hipwright.engine.ir.index import ZERO, Fn, Ix, Var, divide, ix
from hipwright.engine.ir.index_text import to_c
from hipwright.engine.lower.conv import ConvAxis


def tile_count(size: Ix, tile: int) -> Ix:
    """Tiles along an axis."""
    return size if tile == 1 else divide(size + (tile - 1), ix(tile))


def loop_index(name: str, count: int) -> Ix:
    """A loop's variable, or 0 when it runs once."""
    return ZERO if name == "0" else ix(Var(name, ix(count)))


def window_count(axis: ConvAxis, place: Ix, kind: str) -> Ix:
    """Elements of an average's window along an axis."""
    start = place * axis.stride - axis.padding
    if kind == "padded":
        return ix(Fn("min", start + axis.kernel, axis.size + axis.padding)) - start
    return ix(Fn("min", start + axis.kernel, axis.size)) - ix(Fn("max", start, ZERO))


def linear_text(*terms: tuple[str, int]) -> str:
    """a * m + b * n as C text, for loop variables that may be the text 0."""
    total = ZERO
    for name, factor in terms:
        total = total + (ZERO if name == "0" else ix(Var(name)) * factor)
    return to_c(total)


def skip_condition(axis: ConvAxis, tile: int, ky: str, u: str, r: str) -> str:
    """The condition under which input row r of the tile does not contribute to output row u through tap ky."""
    if axis.transposed:
        left = linear_text((u, 1), (ky, -axis.dilation))
        return f"{left} + {axis.padding} != {axis.stride} * ({r} + {axis.first(tile)})".replace("+ -", "- ")
    return f"{linear_text((u, axis.stride), (ky, axis.dilation))} != {r}"
