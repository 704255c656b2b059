"""Products of groups of rows, each with a matrix of its own (experts): `_grouped_mm` of (rows, k) and (groups, k, n).

PyTorch traces it in bfloat16 alone; in float32 and float16 a library call has no shape that a trace can know, so the
template is the default there. Group g has the rows from offs[g - 1] to offs[g]. The tiles are
those of tiled.py: a block searches the offsets for the tile of the group that is its own, so that one launch serves all
groups, however uneven, and the host never reads the offsets (as the tile scheduler of CUTLASS' grouped GEMM). There are
at most rows / GEMM_M + groups tiles in a column; blocks beyond the last return. Rows after the last offset are not
written, as in PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from hipwright.engine.ir.index import ONE, ZERO, Ix, divide
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.values import NotLowered, Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.gemm.cost import ITEM_BYTES, LIBRARY_LATENCY, LIBRARY_RATE, LIBRARY_READ_RATE, MARGIN
from hipwright.engine.templates.gemm.operand import ProductOperand
from hipwright.engine.templates.gemm.scope import NAMES, GemmSpec
from hipwright.engine.templates.gemm.tiled import Gemm
from hipwright.engine.templates.gemm.tiling import (
    COMPUTE_UNITS,
    LAUNCH,
    STEP_LATENCY,
    VECTOR_RATE,
    default_depth,
    default_tile,
)
from hipwright.engine.templates.offers import KernelCall, Offer, Output, permuted, regroup


@dataclass(eq=False)
class GroupedGemmSpec(GemmSpec):
    """space: [groups, rows of a group on average, columns], for the choice of tiles; rows: those of all groups."""

    group_count: Ix
    rows: Ix


def grouped(call: KernelCall) -> Offer | None:
    """Groups of rows; groups of columns or of the summed dimension are left to the library."""
    a, b, offsets = call.arg(0, "self"), call.arg(1, "mat2"), call.arg(2, "offs")
    if offsets is None or a.rank != 2 or b.rank != 3:
        raise NotLowered("groups of columns or of the summed dimension")
    out, meta = call.shape(0), call.outs[0]
    same = meta is not None and meta.dtype == a.dtype == b.dtype and a.dtype in ("bfloat16", "float16", "float32")
    if not same or call.arg(3, "bias") is not None or ZERO in (*out, *b.shape):
        raise NotLowered("a grouped product of this kind")
    rows, group_count, columns = a.shape[0], b.shape[0], b.shape[2]
    space = [group_count, divide(rows + (group_count - 1), group_count), columns]
    data = GroupedGemmSpec(space, a.shape[1], a.dtype, group_count, rows)
    tensors: list[Tensor | None] = [regroup(call.c, a, [ONE, *a.shape]), permuted(call.c, b, [0, 2, 1]), offsets]
    return Offer(
        "grouped",
        write_grouped,
        tensors,
        [Output([ONE, rows, columns], shape=out)],
        default=a.dtype != "bfloat16" or _beats_library(call, data),
        data=data,
    )


def _beats_library(call: KernelCall, p: GroupedGemmSpec) -> bool:
    """Whether the template is estimated faster at capture, with the figures of cost.py and groups of equal size."""
    (group_count, m, n), k = call.hints(p.space), call.c.hint(p.k)
    rows, columns = default_tile(group_count, m, n)
    bytes_read = ITEM_BYTES[p.dtype] * (group_count * m * (n + k) + group_count * n * k) / LIBRARY_READ_RATE
    tiles = group_count * ceil(m / rows) * ceil(n / columns) * rows * columns
    rate = VECTOR_RATE * min(1.0, tiles / (rows * columns * COMPUTE_UNITS))
    steps = ceil(k / default_depth(group_count, m, n, p.dtype))
    template = LAUNCH + max(2.0 * tiles * k / rate, bytes_read, steps * STEP_LATENCY)
    library = LAUNCH + max(LIBRARY_LATENCY, 2.0 * group_count * m * n * k / LIBRARY_RATE[p.dtype], bytes_read)
    return template < MARGIN * (library + (LAUNCH if call.read_by_pointwise else 0.0))


def write_grouped(body: CallBody) -> list[EmittedKernel]:
    """One kernel."""
    return [GroupedGemm(body).kernel()]


class GroupedGemm(Gemm):
    """The tiled product of the rows of one group, which end at `group_end`."""

    names = f"{NAMES} group_begin group_end group_tiles"

    def __init__(self, body: CallBody) -> None:
        super().__init__(body)
        self.p: GroupedGemmSpec = body.data
        self.m = "group_end"
        self.offsets: Tensor = self.tensors[-1]

    def tile_operands(self) -> list[ProductOperand]:
        """Rows of all groups, and the columns of the matrix of this group."""
        a, b, _ = self.tensors
        return [
            ProductOperand("a", a, "row", self.m, self.bm),
            ProductOperand("b", b, "col", self.n, self.bn),
        ]

    def grid(self) -> str:
        """As many tiles as uneven groups may need."""
        rows = f"(cdiv({to_python(self.p.rows)}, {self.bm}) + {to_python(self.p.group_count)})"
        return f"{rows} * cdiv({to_python(self.p.space[2])}, {self.bn})"

    def locate_tile(self) -> None:
        """Finds the group b of tile `tile`, and its rows from row0 to group_end."""
        k, rows = self.k, self.k.size(self.p.rows)
        k.line(f"const unsigned tiles_n = ({self.n} + {self.bn} - 1) / {self.bn};")
        k.line(f"const {k.kind} col0 = blockIdx.x % tiles_n * {self.bn};")
        k.line(f"{k.kind} tile = blockIdx.x / tiles_n, b = 0, group_begin = 0, group_end = 0;")
        k.open(f"for (; b < {k.size(self.p.group_count)}; ++b)")
        k.line(f"group_end = {k.load(self.offsets, ['b'])};")
        k.line(f"group_end = group_end > {rows} ? {rows} : group_end;")
        tiles = f"(group_end - group_begin + {self.bm} - 1) / {self.bm}"
        k.line(f"const {k.kind} group_tiles = group_end > group_begin ? {tiles} : 0;")
        k.line("if (tile < group_tiles) break;")
        k.line("tile -= group_tiles;")
        k.line("group_begin = group_end > group_begin ? group_end : group_begin;")
        k.close()
        k.line(f"if (b == {k.size(self.p.group_count)}) return;  // the grid has tiles to spare")
        k.line(f"const {k.kind} row0 = group_begin + tile * {self.bm};")


__all__ = ["GroupedGemm", "GroupedGemmSpec", "grouped"]
