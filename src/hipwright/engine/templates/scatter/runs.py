"""Sums of runs of values, one for each row of a compressed matrix (CSR): its product with a vector or with columns.

* One column: a block takes neighbouring rows, whose values lie side by side. It computes them RUN_ITEMS a thread, in
  order of memory whatever the rows' lengths, keeps them in LDS, and each thread adds up its row there (the streams of
  Greathouse & Daga, "Efficient sparse matrix-vector multiplication on GPUs using the CSR storage format", SC 2014). A
  long row is added up by the whole block.
* Several columns: a thread walks a row's values in order, for neighbouring columns.

Additions have a fixed order, so results do not vary from run to run.
"""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.engine.ir.expr import COMPUTE
from hipwright.engine.ir.index import ONE, Ix, Var, divide, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.offers import KernelCall, Offer, Output, regroup

NAMES = (
    "row first_row last_row origin begin end own_begin own_end acc part long_rows long_count chunk i k value from to "
    "total who n v column tile"
)
NEVER = 1 << 30
LONG = 128
"""Values of a row, of those in LDS, from which the whole block adds them up."""
THREADS, ITEMS = 256, 8
ROW_CHOICES = (32, 64, 96, 128, 192, 224, 256)
FULL = 0.88
"""How much of LDS a block's rows fill by their mean length, so that few blocks need it twice."""
WIDTHS = {"float64": 2, "float32": 4, "float16": 8, "bfloat16": 8}


@dataclass(eq=False)
class Runs:
    """rows sums of `columns` neighbours each, of `items` values in all."""

    rows: Ix
    columns: Ix
    items: Ix


def row_runs(call: KernelCall) -> Offer | None:
    """The offer "runs" for `hip.row_runs(x, starts, values)` (rewrite/row_runs.py)."""
    x, starts, values = call.args
    runs = Runs(x.shape[0], product(x.shape[1:]), values.shape[0])
    operands = [
        regroup(call.c, x, [runs.rows, runs.columns]),
        starts,
        regroup(call.c, values, [runs.items, runs.columns]),
    ]
    outputs = [Output([runs.rows, runs.columns], shape=list(x.shape))]
    limits = (NEVER, 16, NEVER)  # each value is read once
    return Offer("runs", write, operands, outputs, default=True, store_above=limits, data=runs)


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel."""
    runs: Runs = body.data
    return [_stream(body, runs) if runs.columns == ONE else _columns(body, runs)]


def _bounds(k: CallKernel, starts: Tensor, row: Ix, items: Ix) -> str:
    """Where a row's values begin, within the values, as C text."""
    return f"min(max({k.load(starts, [row])} - origin, 0L), (long){k.size(items)})"


# ---------------------------------------------------------------- one column


def _stream(body: CallBody, runs: Runs) -> EmittedKernel:
    x, starts, values = body.operands
    assert x is not None and starts is not None and values is not None
    block = body.knob("RUN_BLOCK", THREADS, (THREADS, 512), "threads of a block that adds up runs of values")
    items = body.knob("RUN_ITEMS", ITEMS, (2, 4, 8, 16), "values a thread loads at once")
    rows = body.knob("RUN_ROWS", _rows(body, runs), ROW_CHOICES, "rows of a block")
    k = body.kernel(names=NAMES)
    kind, index, count = COMPUTE[values.dtype], k.kind, k.size(runs.rows)
    k.use("block_reduce", "Sum")
    k.line(f"__shared__ {kind} part[{block} * {items}];")
    k.line(f"__shared__ int long_rows[3 * ({block} * {items} / {LONG} + 1)], long_count;")
    k.line(f"const {index} first_row = blockIdx.x * ({index}){rows}, row = first_row + threadIdx.x;")
    k.line(f"const {index} last_row = first_row + {rows} < {count} ? first_row + {rows} : {count};")
    k.line(f"const long origin = {k.load(starts, [0])};")
    for name, place in (("begin", "first_row"), ("end", "last_row")):
        k.line(f"const {index} {name} = {_bounds(k, starts, ix(Var(place)), runs.items)};")
    k.line(f"{index} own_begin = end, own_end = end;  // of this thread's row")
    k.open("if (row < last_row)")
    k.line(f"own_begin = {_bounds(k, starts, ix(Var('row')), runs.items)};")
    k.line(f"own_end = {_bounds(k, starts, ix(Var('row')) + 1, runs.items)};")
    k.close()
    k.line(f"{kind} acc = 0;")
    k.open(f"for ({index} chunk = begin; chunk < end; chunk += {block} * {items})")
    _load_chunk(k, values, (block, items, kind))
    _add_chunk(k, (block, items, kind))
    k.close()
    k.open("if (row < last_row)")
    k.epilogue(f"{k.load(x, ['row', 0])} + acc", ["row", 0])
    k.close()
    return k.finish(f"cdiv({to_python(runs.rows)}, {rows})", block, block, "rows in order of memory")


def _rows(body: CallBody, runs: Runs) -> int:
    """Rows of a block, whose values fill LDS nearly."""
    mean = max(body.hint(runs.items) / max(body.hint(runs.rows), 1), 1.0)
    wanted = FULL * THREADS * ITEMS / mean
    return max([n for n in ROW_CHOICES if n <= wanted], default=ROW_CHOICES[0])


def _load_chunk(k: CallKernel, values: Tensor, sizes: tuple[str, str, str]) -> None:
    """Computes the values of a chunk, all loads first, and stores them in LDS."""
    block, items, kind = sizes
    k.line(f"{kind} value[{items}];")
    k.line("#pragma unroll")
    k.open(f"for (int k = 0; k < {items}; ++k)")
    k.line(f"const {k.kind} n = chunk + k * {block} + threadIdx.x;")
    k.line(f"const {k.kind} i = n < end ? n : end - 1;")
    k.line(f"value[k] = {k.load(values, ['i', 0])};")
    k.close()
    k.line("#pragma unroll")
    k.line(f"for (int k = 0; k < {items}; ++k) part[k * {block} + threadIdx.x] = value[k];")
    k.line("if (threadIdx.x == 0) long_count = 0;")
    k.line("__syncthreads();")


def _add_chunk(k: CallKernel, sizes: tuple[str, str, str]) -> None:
    """Adds the chunk's part of each row to the sum of its thread."""
    block, items, kind = sizes
    last = f"chunk + {block} * {items}"
    k.line("const int from = own_begin > chunk ? own_begin - chunk : 0;")
    k.line(f"const int to = own_end < {last} ? own_end - chunk : {block} * {items};")
    k.open(f"if (to - from < {LONG})")
    k.line("for (int i = from; i < to; ++i) acc += part[i];")
    k.emit.otherwise()
    k.line("const int n = atomicAdd(&long_count, 1);")
    for place, what in enumerate(("threadIdx.x", "from", "to")):
        k.line(f"long_rows[3 * n + {place}] = {what};")
    k.close()
    k.line("__syncthreads();")
    k.open("for (int n = 0; n < long_count; ++n)")
    k.line(f"{kind} total = 0;")
    k.line(
        f"for (int i = long_rows[3 * n + 1] + threadIdx.x; i < long_rows[3 * n + 2]; i += {block}) total += part[i];"
    )
    k.line(f"total = block_reduce<{block}>(total, Sum());")
    k.line("if (threadIdx.x == long_rows[3 * n]) acc += total;")
    k.line("__syncthreads();")
    k.close()
    k.line("__syncthreads();")


# ---------------------------------------------------------------- several columns


def _columns(body: CallBody, runs: Runs) -> EmittedKernel:
    x, starts, values = body.operands
    assert x is not None and starts is not None and values is not None
    most = WIDTHS.get(values.dtype, 1)
    fits = max(n for n in (1, 2, 4, 8) if n <= most and body.hint(runs.columns) % n == 0)
    width = int(body.choose("width", [n for n in (1, 2, 4, 8) if n <= most], fits))
    block = body.knob("RUN_COLUMNS_BLOCK", THREADS, (64, 128, 256, 512), "threads of a block on columns of runs")
    k = body.kernel(names=NAMES)
    across = divide(runs.columns + (width - 1), ix(width)) if width > 1 else runs.columns
    total = runs.rows * across
    k.line(f"const {k.kind} tile = blockIdx.x * ({k.kind}){block} + threadIdx.x;")
    k.line(f"if (tile >= {k.size(total)}) return;")
    k.line(f"const {k.kind} row = tile / {k.size(across)};")
    k.line(f"{k.kind} column = tile % {k.size(across)} * {width};")
    k.line(f"const long origin = {k.load(starts, [0])};")
    for name, place in (("begin", ix(Var("row"))), ("end", ix(Var("row")) + 1)):
        k.line(f"const {k.kind} {name} = {_bounds(k, starts, place, runs.items)};")
    if width > 1:
        k.open(f"if (column + {width} <= {k.size(runs.columns)})")
        _add_columns(k, x, values, width)
        k.epilogue_vector("acc[v]", ["row", "column"], "column", str(width))
        k.emit.otherwise()
    k.open(f"for (int v = 0; v < {width} && column < {k.size(runs.columns)}; ++v, ++column)")
    _add_columns(k, x, values, 1)
    k.epilogue("acc[0]", ["row", "column"])
    k.close()
    if width > 1:
        k.close()
    return k.finish(f"cdiv({to_python(total)}, {block})", block, block, f"{width} columns a thread")


def _add_columns(k: CallKernel, x: Tensor, values: Tensor, width: int) -> None:
    """Declares acc[v]: the sum of a row's values and of what is there already, for `width` columns."""

    def load(tensor: Tensor, row: str, into: str) -> None:
        if width > 1:
            k.vector(tensor, [row, "column"], "column", str(width), into)
        else:
            k.line(f"{into}[0] = {k.load(tensor, [row, 'column'])};")

    k.line(f"{COMPUTE[values.dtype]} acc[{width}], value[{width}];")
    load(x, "row", "acc")
    k.line("#pragma unroll 4")
    k.open(f"for ({k.kind} i = begin; i < end; ++i)")
    load(values, "i", "value")
    k.line("#pragma unroll")
    k.line(f"for (int v = 0; v < {width}; ++v) acc[v] += value[v];")
    k.close()
