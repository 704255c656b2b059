"""Pools of few outputs with large windows: lanes of a wave share the rows of each window.

A thread for each output would leave most of the device idle, and walk its window row by row. Here neighbouring lanes
have neighbouring outputs, so that they read along memory, and each lane reads some of the window's rows as vectors;
shuffles combine what the lanes have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hipwright.engine.ir.index import ZERO, Ix, Var, divide, ix, modulo, product
from hipwright.engine.ir.index_text import to_c, to_python
from hipwright.engine.ir.shapes import unflatten
from hipwright.engine.lower.conv import ConvAxis
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.conv.stencil import MIN_THREADS, SIZES, Stencil, Tile
from hipwright.engine.templates.conv.stencil_scope import StencilScope

WAVE = 32
"""Lanes among which windows are shared: the fewest of a wave."""
MOST_LANES = 16
LEAST_WINDOW = 16
"""Elements of a window from which lanes may share it. Averages over 4 x 4 x 4 of 4800 windows took an H200 12.0 us by a
thread each, in 19 blocks, and torch's kernel 2.2; of 48,000 windows of two tensors' elements 12.8 and 3.6.
"""


def window_lanes(body: CallBody) -> int:
    """Lanes that share a window; 1 where each output has a thread of its own."""
    s: Stencil = body.data
    if s.weights or s.positions or math.prod(a.kernel for a in s.axes) < LEAST_WINDOW:
        return 1
    rows, outputs = _rows(s), body.hint(product(s.space))
    options = [n for n in (1, 2, 4, 8, MOST_LANES) if n <= rows]
    default = 1 if s.channels_last else next((n for n in options if outputs * n >= MIN_THREADS), options[-1])
    return int(body.choose("lanes", options, default))


def _rows(s: Stencil) -> int:
    """Rows of a window."""
    return math.prod(a.kernel for a in s.axes[:-1])


@dataclass(eq=False)
class SharedWindowKernel(StencilScope):
    """Writes one kernel. lanes: of a window."""

    lanes: int = 1

    def chosen_tile(self) -> Tile:
        """One output a thread."""
        return Tile(1, 1, 1)

    def kernel(self) -> EmittedKernel:
        """The kernel."""
        k = self.k
        k.emit.taken |= {"active", "window", "part", "step", "tap", "distance", "value", "s0"}
        grid, place = self._locate_window()
        k.line(f"{self.type} acc = {self.neutral()};")
        rows = _rows(self.s)
        steps = -(-rows // self.lanes)
        k.line("#pragma unroll")
        k.open(f"for (int step = 0; step < {steps}; ++step)")
        k.line(f"const int tap = step * {self.lanes} + part;")
        if rows % self.lanes:
            k.line(f"if (tap >= {rows}) continue;")
        self._emit_row(place)
        k.close()
        self._emit_exchange()
        k.open("if (active && part == 0)")
        k.line(f"const {self.index_type} oy = oy0, ox = ox0;")
        ends = [ix(Var("oy", self.y_axis.out)), ix(Var("ox", self.x_axis.out))]
        k.epilogue(self.result_text("acc", "ox"), self.s.index(self.lead, [*self.serial, *ends]))
        k.close()
        return k.finish(grid, self.block, self.block, f"tile {self.tile}, {self.lanes} lanes a window")

    def _locate_window(self) -> tuple[str, list[Ix]]:
        """Declares the lane's window; returns the grid as plan text, and the window's place along the axes."""
        s, k, kind = self.s, self.k, self.index_type
        sizes, side = [*s.lead, *(a.out for a in s.axes)], WAVE // self.lanes
        total = product(sizes)
        k.line(f"const int part = threadIdx.x % {WAVE} / {side};  // neighbouring lanes have neighbouring windows")
        wave = f"blockIdx.x * ({kind})({self.block} / {WAVE}) + threadIdx.x / {WAVE}"
        k.line(f"const {kind} tile = ({wave}) * {side} + threadIdx.x % {side};")
        k.line(f"const bool active = tile < {k.size(total)};")
        k.line(f"const {kind} window = active ? tile : 0;")
        places = unflatten(sizes, ix(Var("window", total)))
        named = [self.named(f"p{number}", place, sizes[number]) for number, place in enumerate(places[:-2])]
        self.lead, self.serial = named[: len(s.lead)], named[len(s.lead) :]
        k.line(f"const {kind} oy0 = {to_c(places[-2])}, ox0 = {to_c(places[-1])};")
        ends = [ix(Var("oy0", self.y_axis.out)), ix(Var("ox0", self.x_axis.out))]
        return f"cdiv({to_python(total)}, {self.block} // {self.lanes})", [*self.serial, *ends]

    # ------------------------------------------------------------ one row of a window

    def _emit_row(self, place: Sequence[Ix]) -> None:
        """Combines row `tap` of the window."""
        k, s, tests = self.k, self.s, list[str]()
        tap, rows = ix(Var("tap", ix(_rows(s)))), ix(_rows(s))
        index: list[Ix] = []
        for number, axis in enumerate(s.axes[:-1]):
            rows = divide(rows, ix(axis.kernel))
            here = divide(modulo(tap, rows * axis.kernel) if number else tap, rows)
            name = "row" if axis is self.y_axis else f"s{number}"
            index.append(self._declare_read(axis, name, place[number], here, tests))
        if tests:
            k.line(f"const bool row_in_range = {' & '.join(tests)};")
        k.line(f"const {self.index_type} col0 = {to_c(place[-1] * self.x_axis.stride - self.x_axis.padding)};")
        width = self._width()
        if width > 1:
            self._emit_vectors(index, width)
        else:
            self._emit_elements(index)

    def _declare_read(self, axis: ConvAxis, name: str, out: Ix, tap: Ix, tests: list[str]) -> Ix:
        """Declares where a tap reads along an axis, a legal place in any case; adds the test that it is one."""
        k, kind, size = self.k, self.index_type, self.k.size(axis.size)
        place = to_c(out * axis.stride + tap * axis.dilation - axis.padding)
        if self.s.whole:
            k.line(f"const {kind} {name} = {place};")
        else:
            wanted = k.fresh(f"{name}_wanted")
            k.line(f"const {kind} {wanted} = {place};")
            tests.append(f"({wanted} >= 0) & ({wanted} < {size})")
            k.line(f"const {kind} {name} = {tests[-1]} ? {wanted} : 0;  // a legal one: all loads are certain")
        return ix(Var(name, axis.size))

    def _width(self) -> int:
        """Elements of a window's row that one load reads; 1 where they are unaligned at capture, or may lie outside."""
        x = self.x_axis
        if not self.s.whole or x.dilation > 1 or not self._runs_along_memory():
            return 1
        most, row = 16 // SIZES[self.x.dtype], self.body.hint(x.size)
        return next((w for w in (8, 4, 2) if w <= most and not (x.kernel % w or x.stride % w or row % w)), 1)

    def _emit_vectors(self, index: list[Ix], width: int) -> None:
        k, kernel = self.k, self.x_axis.kernel
        k.line("#pragma unroll")
        k.open(f"for (int j = 0; j < {kernel}; j += {width})")
        k.line(f"const {self.index_type} col = col0 + j;")
        k.line(f"{self.type} value[{width}];")
        place = self.s.source(self.lead, ZERO, [*index, ix(Var("col", self.x_axis.size))])
        k.vectors(self.x, [place], "col", str(width), ["value"])
        with self.unrolled(("q", width)) as (q,):
            self._combine(f"value[{q}]")
        k.close()

    def _emit_elements(self, index: list[Ix]) -> None:
        k, x = self.k, self.x_axis
        k.line("#pragma unroll")
        k.open(f"for (int j = 0; j < {x.kernel}; ++j)")
        col = to_c(ix(Var("col0")) + ix(Var("j")) * x.dilation)
        if self.s.whole:
            k.line(f"const {self.index_type} col = {col};")
        else:
            k.line(f"const bool in_range = row_in_range & ({col} >= 0) & ({col} < {k.size(x.size)});")
            k.line(f"const {self.index_type} col = in_range ? {col} : 0;")
        e = self.x.at(self.s.source(self.lead, ZERO, [*index, ix(Var("col", x.size))]))
        k.emit.count([e])
        value = k.emit.text(e)[0]
        self._combine(value if self.s.whole else f"in_range ? {value} : {self.neutral()}")
        k.close()

    def _combine(self, value: str) -> None:
        """Adds a value to the lane's share, or replaces a smaller one by it."""
        if self.s.combine == "max":
            self.k.use("pool_max")
            self.k.line(f"acc = pool_max(acc, {value});")
        else:
            self.k.line(f"acc += {value};")

    def _emit_exchange(self) -> None:
        """Combines what the lanes of each window have."""
        k = self.k
        k.use("shuffle_xor")
        k.line("#pragma unroll")
        k.open(f"for (int distance = {WAVE // self.lanes}; distance < {WAVE}; distance *= 2)")
        self._combine("shuffle_xor(acc, distance)")
        k.close()


__all__ = ["SharedWindowKernel", "window_lanes"]
