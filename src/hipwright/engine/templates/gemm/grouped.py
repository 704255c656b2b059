"""Products of groups of rows, each with a matrix of its own (experts): `_grouped_mm` of (rows, k) and (groups, k, n).

In bfloat16, the one type in which PyTorch traces it.

Group g has the rows from offs[g - 1] to offs[g]. The tiles are those of templates/gemm/tiled.py: a block walks the
offsets to find which tile of which group is its own, so that one launch serves all groups, however uneven, and the host
never reads the offsets (the tile scheduler of CUTLASS' grouped GEMM does so too). There are at most rows / GEMM_M +
groups tiles in a column; blocks beyond the last do nothing. Rows behind the last offset are left as they are, as in
PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from hipwright.engine.ir.index import ONE, ZERO, Ix, divide
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.core import NotLowered, Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.gemm.products import (
    ITEM_BYTES,
    LAUNCH,
    LIBRARY_LATENCY,
    LIBRARY_RATE,
    LIBRARY_READ,
    MARGIN,
    STEP,
    VECTOR_RATE,
)
from hipwright.engine.templates.gemm.scope import NAMES, GemmSpec
from hipwright.engine.templates.gemm.side import ProductOperand
from hipwright.engine.templates.gemm.tiled import Gemm
from hipwright.engine.templates.gemm.tiling import UNITS, depth, tile
from hipwright.engine.templates.offers import KernelCall, Offer, Output, permuted, regroup


@dataclass(eq=False)
class Groups(GemmSpec):
    """space: [groups, rows of a group on average, columns], for the choice of tiles; rows: of all groups."""

    groups: Ix
    rows: Ix


def grouped(call: KernelCall) -> Offer | None:
    """Groups of rows; groups of columns or of the summed dimension stay with the library."""
    a, b, offsets = call.arg(0, "self"), call.arg(1, "mat2"), call.arg(2, "offs")
    if offsets is None or a.rank != 2 or b.rank != 3:
        raise NotLowered("groups of columns or of the summed dimension")
    out, meta = call.shape(0), call.outs[0]
    same = meta is not None and meta.dtype == a.dtype == b.dtype == "bfloat16"
    if not same or call.arg(3, "bias") is not None or ZERO in (*out, *b.shape):
        raise NotLowered("a grouped product of this kind")
    rows, groups, columns = a.shape[0], b.shape[0], b.shape[2]
    space = [groups, divide(rows + (groups - 1), groups), columns]
    data = Groups(space, a.shape[1], a.dtype, groups, rows)
    operands: list[Tensor | None] = [regroup(call.c, a, [ONE, *a.shape]), permuted(call.c, b, [0, 2, 1]), offsets]
    return Offer(
        "grouped",
        write_grouped,
        operands,
        [Output([ONE, rows, columns], shape=out)],
        default=_better(call, data),
        data=data,
    )


def _better(call: KernelCall, p: Groups) -> bool:
    """Estimated seconds at capture, with the figures of templates/gemm/products.py; groups as even as can be."""
    (groups, m, n), k = call.hints(p.space), call.c.hint(p.k)
    rows, columns = tile(groups, m, n)
    moved = ITEM_BYTES[p.dtype] * (groups * m * (n + k) + groups * n * k) / LIBRARY_READ
    tiles = groups * ceil(m / rows) * ceil(n / columns) * rows * columns
    rate = VECTOR_RATE * min(1.0, tiles / (rows * columns * UNITS))
    steps = ceil(k / depth(groups, m, n, p.dtype))
    mine = LAUNCH + max(2.0 * tiles * k / rate, moved, steps * STEP)
    library = LAUNCH + max(LIBRARY_LATENCY, 2.0 * groups * m * n * k / LIBRARY_RATE[p.dtype], moved)
    return mine < MARGIN * (library + (LAUNCH if call.followed else 0.0))


def write_grouped(body: CallBody) -> list[EmittedKernel]:
    """One kernel."""
    return [_Grouped(body).kernel()]


class _Grouped(Gemm):
    """The tiled product of one group's rows; `end` is where they end."""

    names = f"{NAMES} begin end count"

    def __init__(self, body: CallBody) -> None:
        super().__init__(body)
        self.p: Groups = body.data
        self.m = "end"

    def sides(self) -> list[ProductOperand]:
        """Rows of all groups, and the columns of this block's matrix."""
        a, b, _ = self.operands
        return [
            ProductOperand("a", a, "row", self.m, self.bm),
            ProductOperand("b", b, "col", self.n, self.bn),
        ]

    def grid(self) -> str:
        """As many tiles as uneven groups may need."""
        rows = f"(cdiv({to_python(self.p.rows)}, {self.bm}) + {to_python(self.p.groups)})"
        return f"{rows} * cdiv({to_python(self.p.space[2])}, {self.bn})"

    def place(self) -> None:
        """The group b and the rows from row0 to end of tile t, in the order of the groups."""
        k, rows = self.k, self.k.size(self.p.rows)
        k.line(f"const unsigned tiles_n = ({self.n} + {self.bn} - 1) / {self.bn};")
        k.line(f"const {k.kind} col0 = blockIdx.x % tiles_n * {self.bn};")
        k.line(f"{k.kind} t = blockIdx.x / tiles_n, b = 0, begin = 0, end = 0;")
        k.open(f"for (; b < {k.size(self.p.groups)}; ++b)")
        k.line(f"end = {k.load(self.operands[2], ['b'])};")
        k.line(f"end = end > {rows} ? {rows} : end;")
        k.line(f"const {k.kind} count = end > begin ? (end - begin + {self.bm} - 1) / {self.bm} : 0;")
        k.line("if (t < count) break;")
        k.line("t -= count;")
        k.line("begin = end > begin ? end : begin;")
        k.close()
        k.line(f"if (b == {k.size(self.p.groups)}) return;  // the groups need fewer tiles than they might")
        k.line(f"const {k.kind} row0 = begin + t * {self.bm};")


__all__ = ["grouped"]
