"""Operand A of a float32 product in two half parts, which the product's own blocks scale and split (split_inside.h).

A block that computes all columns of its rows (split_rows.py) reads each of their numbers once where all of k stays in
LDS: nothing is stored, and no kernel goes before it but that of B.
"""

from __future__ import annotations

from hipwright.engine.ir.expr import walk
from hipwright.engine.knobs import SPLIT
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.gemm.gemv_plan import width_along
from hipwright.engine.templates.gemm.split_parts import CHUNK
from hipwright.engine.templates.offers import probe

PARTS = "parts"
"""The key of the choice where A is split, `call:<node>:parts`."""
INSIDE, BEFORE = "inside", "before"
WIDTH = 4
"""Neighbouring numbers of a row that a thread loads, a lane of eight."""
NAMES = "numbers split_rows x from aligned"


def chosen(body: CallBody, a: Tensor, usual: bool) -> bool:
    """Whether blocks split A. usual: by default, where that is for runs of NVIDIA GPUs and A no parameter, whose parts
    `prepare` makes. It is offered where A's rows are contiguous along k.
    """
    if width_along(body.c, a, 2) == 0:
        return False
    loads = {e.attr[0] for e in walk([probe(body.c, a)]) if e.op == "load"}
    usual = usual and bool(body.call.choices.get(SPLIT)) and not loads <= body.c.parameters
    ways = (INSIDE, BEFORE)
    return bool(body.choose(PARTS, ways, INSIDE if usual else BEFORE) == INSIDE)


def emit_rows(k: CallKernel, a: Tensor) -> None:
    """Declares `split_rows`, the rows from row0 on of batch b, and row_scales, which multiplying them finds."""
    k.use("SplitNumbers", "rows_split_inside")
    m, depth = (k.size(size) for size in a.shape[1:])
    place = ["b", "row", "p"]
    conditions = [f"{depth} % {WIDTH} == 0", *k.vector_conditions(a, place, "p", str(WIDTH))]
    k.line("float row_scales[Tile::TM];")
    k.line(f"const bool aligned = {' && '.join(dict.fromkeys(conditions))};")
    k.open("const auto numbers = [&](int r, int chunk, bool whole)")
    k.line(f"const {k.kind} row = row0 + r < {m} ? row0 + r : {m} - 1;")
    k.line(f"const {k.kind} from = chunk * {CHUNK} + (int)(threadIdx.x % {CHUNK // WIDTH}) * {WIDTH};")
    k.line("SplitNumbers x = {};")
    k.open("if (whole)")
    k.line(f"const {k.kind} p = from < {depth} ? from : 0;  // no branch: all loads are under way at once")
    k.vector(a, place, "p", str(WIDTH), "x.v", aligned=True)
    k.line("#pragma unroll")
    k.line(f"for (int v = 0; v < {WIDTH}; ++v) x.v[v] = from < {depth} ? x.v[v] : 0.0f;")
    k.close()
    k.open("else")
    k.line("#pragma unroll")
    k.open(f"for (int v = 0; v < {WIDTH}; ++v)")
    k.line(f"const {k.kind} at = from + v;")
    k.open(f"if (at < {depth})")
    k.line(f"x.v[v] = {k.load(a, ['b', 'row', 'at'])};")
    for _ in range(3):
        k.close()
    k.line("return x;")
    k.close()
    k.line(";")
    k.line("auto split_rows = rows_split_inside(numbers, aligned, row_scales);")
