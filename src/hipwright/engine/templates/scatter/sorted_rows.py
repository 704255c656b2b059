"""Rows summed by an index in any order: index_add of wide rows, sorted by place first.

An atomic for every element of the source moves far more data than the source. Here only the index is sorted, by
counting (the number of rows of each place, where its rows begin, and which they are: three small kernels over the
index); then a thread passes over SEGMENT_ROWS rows in that order, sums neighbouring columns of the rows of one place in
registers, and adds each run by one atomic. All chunks have equally many rows, so that one place with most of the rows
does not unbalance the load.
"""

from __future__ import annotations

from hipwright.engine.ir.index import ONE, Ix, Var, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.ir.shapes import unflatten
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.offers import regroup
from hipwright.engine.templates.scatter.spec import ScatterSpec

WIDTHS = {"float32": 4, "float16": 8, "bfloat16": 8}
MIN_COLUMNS, MIN_ELEMENTS, LOADS_AT_ONCE = 64, 1 << 22, 8
"""Columns and elements from which sorting pays for its launches; rows that a thread loads at once."""
NAMES = """i at v u row chunk column tile end count_here total offset places value acc current_place source_row p
distance"""


def sorts_rows(body: CallBody, a: ScatterSpec) -> bool:
    """Whether the rows are sorted first. The choice is `call:<node>:order`."""
    x, chosen, source = body.operands
    assert x is not None and chosen is not None and source is not None
    columns = product(a.shape[1:])
    if a.each or a.dim or a.mode != "add" or not a.include or x.dtype not in WIDTHS or body.index_type != "int":
        return False
    rows, wide, places = body.hint(chosen.shape[0]), body.hint(columns), body.hint(a.shape[0])
    if wide < 2 or columns == ONE:
        return False
    pays = wide >= MIN_COLUMNS and rows * wide >= MIN_ELEMENTS and rows >= 4 * places
    return str(body.choose("order", ["sorted", "given"], "sorted" if pays else "given")) == "sorted"


class SortedRows:
    """The kernels after the first, which writes the initial values. `counts` has one element more than there are
    places.
    """

    def __init__(self, body: CallBody, a: ScatterSpec, total: str, block: str) -> None:
        self.body, self.a, self.total, self.block = body, a, total, block
        _, chosen, source = body.operands
        assert chosen is not None and source is not None
        self.chosen, self.rows, self.places = chosen, chosen.shape[0], a.shape[0]
        self.columns = product(a.shape[1:])
        self.source: Tensor = regroup(body.c, source, [self.rows, self.columns])
        self.width = WIDTHS[source.dtype]
        self.counts = body.temporary("counts", [self.places + 1], "int32", zero=True)
        self.begin = body.temporary("begin", [self.places], "int32")
        self.rank, self.order, self.where = (
            body.temporary(name, [self.rows], "int32") for name in ("rank", "order", "where")
        )

    def kernels(self) -> list[EmittedKernel]:
        """Count, begin, order, sum."""
        return [self._count_kernel(), self._begin_kernel(), self._order_kernel(), self._sum_kernel()]

    def _index_kernel(self, suffix: str) -> CallKernel:
        """A kernel with a thread for each element of the index; `at` is its place."""
        k = self.body.kernel(suffix, names=NAMES)
        k.line(f"const int i = blockIdx.x * (int){self.block} + threadIdx.x;")
        k.line(f"if (i >= {k.size(self.rows)}) return;")
        k.line(f"int at = (int){k.load(self.chosen, [ix(Var('i', self.rows))])};")
        k.line(f"if (at < 0) at += {k.size(self.places)};")
        return k

    def _finish(self, k: CallKernel, threads: Ix, comment: str) -> EmittedKernel:
        return k.finish(f"cdiv({to_python(threads)}, {self.block})", self.block, self.block, comment)

    def _count_kernel(self) -> EmittedKernel:
        k = self._index_kernel("count")
        k.written |= {self.counts, self.rank}
        k.line(f"{k.pointer(self.rank)}[i] = atomicAdd(&{k.pointer(self.counts)}[at], 1);")
        return self._finish(k, self.rows, "counts the rows of each place")

    def _begin_kernel(self) -> EmittedKernel:
        """Where the rows of each place begin: a block reserves as many rows as its places have, in any order of
        blocks.
        """
        k, block = self.body.kernel("begin", names=NAMES), self.block
        k.written |= {self.counts, self.begin}
        counts, places = k.pointer(self.counts), k.size(self.places)
        k.line(f"__shared__ int total[{block}];")
        k.line("__shared__ int offset;")
        k.line(f"const int i = blockIdx.x * (int){block} + threadIdx.x;")
        k.line(f"const int count_here = i < {places} ? {counts}[i] : 0;")
        k.line("total[threadIdx.x] = count_here;")
        k.line("__syncthreads();")
        k.open(f"for (int distance = 1; distance < {block}; distance *= 2)")
        k.line("const int v = (int)threadIdx.x >= distance ? total[threadIdx.x - distance] : 0;")
        k.line("__syncthreads();")
        k.line("total[threadIdx.x] += v;")
        k.line("__syncthreads();")
        k.close()
        k.line(f"if (threadIdx.x == {block} - 1) offset = atomicAdd(&{counts}[{places}], total[threadIdx.x]);")
        k.line("__syncthreads();")
        k.line(f"if (i < {places}) {k.pointer(self.begin)}[i] = offset + total[threadIdx.x] - count_here;")
        return self._finish(k, self.places, "where the rows of each place begin")

    def _order_kernel(self) -> EmittedKernel:
        k = self._index_kernel("order")
        k.written |= {self.order, self.where}
        k.line(f"const int p = {k.pointer(self.begin)}[at] + {k.pointer(self.rank)}[i];")
        k.line(f"{k.pointer(self.order)}[p] = i;")
        k.line(f"{k.pointer(self.where)}[p] = at;")
        return self._finish(k, self.rows, "orders the rows by place")

    # ------------------------------------------------------------ sums

    def _sum_kernel(self) -> EmittedKernel:
        body, block = self.body, self.block
        segment_rows = body.knob("SEGMENT_ROWS", 128, (32, 64, 128), "sorted rows a thread sums")
        k = body.kernel(names=NAMES)
        n, columns, width = k.size(self.rows), k.size(self.columns), self.width
        across = (self.columns + (width - 1)) // width
        k.line(f"const int tile = blockIdx.x * (int){block} + threadIdx.x;")
        _, place = unflatten([self.rows, across], ix(Var("tile", self.rows * across)))
        k.line(f"const int chunk = tile / {k.size(across)} * {segment_rows};")
        k.line(f"if (chunk >= {n}) return;")
        k.line(f"const int end = chunk + {segment_rows} < {n} ? chunk + {segment_rows} : {n};")
        k.line(f"int column = {k.size(place * width)};")
        wide = k.vector_conditions(self.source, ["source_row", "column"], "column", str(width))
        k.open(f"if ({' && '.join([f'column + {width} <= {columns}', *wide])})")
        self._emit_sums(k, width)
        k.line("return;")
        k.close()
        k.line(f"const int count_here = column + {width} < {columns} ? column + {width} : {columns};")
        k.open("for (; column < count_here; ++column)")
        self._emit_sums(k, 1)
        k.close()
        grid = f"cdiv(cdiv({to_python(self.rows)}, {segment_rows}) * ({to_python(across)}), {block})"
        return k.finish(grid, block, block, "sums sorted rows")

    def _emit_sums(self, k: CallKernel, width: int) -> None:
        """Sums rows chunk..end of `width` columns: LOADS_AT_ONCE rows are loaded before the first is added."""
        k.written.add(self.total)
        k.line(f"int current_place = {k.pointer(self.where)}[chunk];")
        k.line(f"float acc[{width}] = {{}};")
        k.open(f"for (int p = chunk; p < end; p += {LOADS_AT_ONCE})")
        k.line(f"int places[{LOADS_AT_ONCE}];")
        k.line(f"float value[{LOADS_AT_ONCE}][{width}];")
        k.line("#pragma unroll")
        k.open(f"for (int u = 0; u < {LOADS_AT_ONCE}; ++u)")
        k.line("const int row = p + u < end ? p + u : end - 1;")
        k.line(f"const int source_row = {k.pointer(self.order)}[row];")
        k.line(f"places[u] = {k.pointer(self.where)}[row];")
        if width > 1:
            k.vector(self.source, ["source_row", "column"], "column", str(width), "value[u]", aligned=True)
        else:
            k.line(f"value[u][0] = {k.load(self.source, ['source_row', 'column'])};")
        k.close()
        k.line("#pragma unroll")
        k.open(f"for (int u = 0; u < {LOADS_AT_ONCE}; ++u)")
        k.line("if (p + u >= end) continue;")
        k.open("if (places[u] != current_place)")
        self._emit_flush(k, width)
        k.line("current_place = places[u];")
        k.close()
        scale = "" if self.a.alpha == 1.0 else f" * {self.a.alpha}f"
        k.line("#pragma unroll")
        k.line(f"for (int v = 0; v < {width}; ++v) acc[v] += value[u][v]{scale};")
        k.close()
        k.close()
        self._emit_flush(k, width)

    def _emit_flush(self, k: CallKernel, width: int) -> None:
        k.line("#pragma unroll")
        k.open(f"for (int v = 0; v < {width}; ++v)")
        k.line(f"atomicAdd(&{k.pointer(self.total)}[current_place * {k.size(self.columns)} + column + v], acc[v]);")
        k.line("acc[v] = 0.0f;")
        k.close()
