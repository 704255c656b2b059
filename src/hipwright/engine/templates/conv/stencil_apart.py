"""Pools along rows of which a thread has outputs that lie a block apart.

Rows that no vector divides, and windows with a stride that is no power of two, are read and stored element by element.
So neighbouring threads have neighbouring outputs; and as one small load for each thread leaves most of the memory's
bandwidth unused, each has several outputs, whose loads are all issued before the first store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hipwright.engine.ir.index import ZERO, Ix, Var, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.ir.shapes import unflatten
from hipwright.engine.lower.conv import POINT
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.conv.stencil import MIN_THREADS, SIZES, Stencil, Tile, default_tile
from hipwright.engine.templates.conv.stencil_places import linear_text
from hipwright.engine.templates.conv.stencil_rows import StencilRows
from hipwright.engine.templates.conv.stencil_scope import grid_form

OPTIONS = (1, 2, 4, 8)
MOST_BYTES, ENOUGH_BYTES, MOST_LOADS = 48, 16, 20
"""Bytes of a row that a thread's outputs step over at most, how many of one output are enough, and loads of a thread.
An H200 has 2048 threads on each of its 132 multiprocessors: with a step of 6 bytes a thread (averages of 2 halves,
stride 3) they reach 2.7e12 bytes a second, with 12 (float32) 4.5e12; torch's kernel of several outputs a thread 6.2e12
and 5.9e12 of the same bytes. What several outputs a thread reach here is an estimate.
"""
ROW_WASTE = 0.13
"""Idle threads for each one of a row up to which a block keeps within a row, so that it divides once."""


def outputs_apart(body: CallBody) -> int:
    """Outputs of a thread that lie a block apart; 1 where a thread's outputs are neighbours."""
    s: Stencil = body.data
    pool = not s.weights and not s.positions and not s.channels_last
    if not pool or len(s.axes) != 2 or s.axes[0] != POINT:
        return 1
    x, operand = s.axes[1], body.operands[0]
    assert operand is not None
    size, outputs = SIZES[operand.dtype], body.hint(product(s.space))
    fitting = [
        n
        for n in OPTIONS
        if n * x.stride * size <= MOST_BYTES and n * x.kernel <= MOST_LOADS and outputs // n >= MIN_THREADS
    ]
    single = default_tile(s, body.hint, operand.dtype).v == 1 and x.stride * size < ENOUGH_BYTES
    default = max(fitting, default=1) if single else 1
    return int(body.choose("apart", OPTIONS, default))


@dataclass(eq=False)
class ApartKernel(StencilRows):
    """Writes one kernel. outputs: of a thread."""

    outputs: int = 1

    def chosen_tile(self) -> Tile:
        """Each of a thread's outputs is read on its own."""
        return Tile(1, 1, 1)

    def kernel(self) -> EmittedKernel:
        """The kernel."""
        k, n = self.k, self.outputs
        k.emit.taken |= {"place", "inside"}
        grid = self._declare_first()
        self.lead = [ix(Var(f"p{number}", size)) for number, size in enumerate(self.s.lead)]  # of any output
        width = self.vector_width()
        k.line(f"{self.type} {self.array('acc', (str(n), n))};")
        if width > 1:
            k.line(f"const bool aligned = {' && '.join(self.vector_conditions(width))};")
            k.open("if (aligned)")
            self._emit_sums(width)
            k.close()
            k.open("else")
        self._emit_sums(1)
        if width > 1:
            k.close()
        self._emit_stores()
        return k.finish(grid, self.block, self.block, f"{n} outputs of a thread, each a block apart")

    # ------------------------------------------------------------ which outputs

    def _declare_first(self) -> str:
        """Declares the thread's first output, in its row or of all; returns the grid as plan text."""
        s, k, kind = self.s, self.k, self.index_type
        planes, area = product(s.lead), self.x_axis.out
        per = f"{self.block} * {self.outputs}"
        waste = -self.body.hint(area) % (256 * self.outputs) / max(self.body.hint(area), 1)
        self.by_rows = grid_form(self.body, "plane" if waste <= ROW_WASTE else "flat") == "plane"
        self.numbered = area if self.by_rows else planes * area
        if self.by_rows:
            blocks = f"(({k.size(area)} + {per} - 1) / ({per}))"
            k.line(f"const {kind} plane = blockIdx.x / {blocks};  // a row, the same for the whole block")
            k.line(f"const {kind} tile = blockIdx.x % {blocks} * ({per}) + threadIdx.x;")
            grid = f"({to_python(planes)}) * cdiv({to_python(area)}, {per})"
        else:
            k.line(f"const {kind} tile = blockIdx.x * ({kind})({per}) + threadIdx.x;")
            grid = f"cdiv({to_python(self.numbered)}, {per})"
        k.line(f"if (tile >= {k.size(self.numbered)}) return;")
        return grid

    @contextmanager
    def _each_output(self) -> Iterator[str]:
        """The unrolled loop over the thread's outputs, with the place of each declared: of one behind the end, that of
        the first, which may be read.
        """
        k, planes = self.k, product(self.s.lead)
        with self.unrolled(("v", self.outputs)) as (v,):
            k.line(f"const {self.index_type} place = tile + v * ({self.index_type}){self.block};")
            k.line(f"const bool inside = place < {k.size(self.numbered)};")
            k.line(f"const {self.index_type} here = inside ? place : tile;")
            here = ix(Var("here", self.numbered))
            if self.by_rows:
                self._declare_place([*unflatten(self.s.lead, ix(Var("plane", planes))), ZERO, here])
            else:
                self._declare_place(unflatten([*self.s.lead, self.y_axis.out, self.x_axis.out], here))
            yield v

    # ------------------------------------------------------------ what they are

    def _emit_sums(self, width: int) -> None:
        """Reads and combines every output's window. width: columns of an aligned load."""
        k, x = self.k, self.x_axis
        with self._each_output() as v:
            self.load_span(ZERO, [], "row0", width)
            total = self.array("acc", (v, self.outputs))
            k.line(f"{total} = {self.neutral()};")
            with self.unrolled(("kx", x.kernel)) as (kx,):
                value = f"span[{linear_text((kx, x.dilation))}]"
                if self.s.combine == "max":
                    k.use("pool_max")
                    k.line(f"{total} = pool_max({total}, {value});")
                else:
                    k.line(f"{total} += {value};")

    def _declare_column(self, j: str) -> None:
        """Of a window inside the input every column is there."""
        if not self.s.whole:
            super()._declare_column(j)
            return
        self.k.line(f"const {self.index_type} col = col0 + {j};")
        self.k.line("const bool in_range = row_in_range;")

    def _emit_stores(self) -> None:
        k = self.k
        with self._each_output() as v:
            k.line("if (!inside) continue;")
            k.line(f"const {self.index_type} oy = oy0, ox = ox0;")
            ends: list[Ix] = [ix(Var("oy", self.y_axis.out)), ix(Var("ox", self.x_axis.out))]
            total = self.result_text(self.array("acc", (v, self.outputs)), "ox")
            k.epilogue(total, self.s.index(self.lead, ends))


__all__ = ["ApartKernel", "outputs_apart"]
