"""Rows of a table gathered and summed by index: embedding bags and wide gathers.

* bag: a thread sums WIDE neighbouring columns of the rows of one bag, in order: deterministic.
* rows: a thread copies WIDE neighbouring columns of one row, and computes the epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.engine.ir.expr import COMPUTE
from hipwright.engine.ir.index import Ix, Var, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.ir.shapes import unflatten
from hipwright.engine.lower.table import as_int
from hipwright.engine.lower.values import NotLowered
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.offers import KernelCall, Offer, Output, regroup

BAG_NAMES = "i bag column table_row start end v acc value tile count"
WIDTHS = {"float64": 2, "float32": 4, "float16": 8, "bfloat16": 8}


def _width(body: CallBody, columns: Ix, dtype: str) -> int:
    """Columns of a thread: 16 bytes where the captured rows are a multiple of that."""
    most = WIDTHS.get(dtype, 1)
    options = [n for n in (1, 2, 4, 8) if n <= most]
    fits = max(n for n in options if body.hint(columns) % n == 0)
    return int(body.choose("width", options, fits))


def _vector_range(k: CallKernel, columns: Ix, width: int) -> tuple[Ix, str]:
    """(threads along a row, the C test that the whole width is in range)."""
    n = k.size(columns)
    return (columns + (width - 1)) // width if width > 1 else columns, f"column + {width} <= {n}"


# ---------------------------------------------------------------- bags


@dataclass(eq=False)
class Bag:
    """Bags of a table's rows. mode: 0 sum, 1 mean, 2 max; padding: a row that is left out."""

    mode: int
    bags: Ix
    items: Ix
    columns: Ix
    last: bool
    padding: Ix | None


def embedding_bag(call: KernelCall) -> Offer | None:
    """Sums, means or maxima of a table's rows, for each bag."""
    weight, index, offsets = call.args[:3]
    mode, weights, last = as_int(call.arg(4, "mode", 0)), call.arg(6), bool(call.arg(7, "include_last_offset", False))
    padding = call.arg(8, "padding_idx")
    if weight.dtype not in WIDTHS or index.rank != 1:
        raise NotLowered("embedding bags of this form")
    shape = call.shape(0)
    row = None if padding is None else ix(as_int(padding))
    if padding is not None and as_int(padding) < 0:  # counted from the table's end
        row = weight.shape[0] + as_int(padding)
    bag = Bag(mode, shape[0], index.shape[0], shape[1], last, row)
    outputs = [Output(shape), *[None] * (len(call.outs) - 1)]
    return Offer("bag", write_bag, [weight, index, offsets, weights], outputs, default=True, data=bag)


def write_bag(body: CallBody) -> list[EmittedKernel]:
    """One kernel: neighbouring threads take neighbouring columns of a bag."""
    b: Bag = body.data
    weight = body.operands[0]
    assert weight is not None
    width = _width(body, b.columns, weight.dtype)
    block = body.knob("BAG_BLOCK", 256, (64, 128, 256, 512), "threads of an embedding bag's block")
    k = body.kernel(names=BAG_NAMES)
    across, in_range = _vector_range(k, b.columns, width)
    total, kind = b.bags * across, COMPUTE[weight.dtype]
    _declare_tile(k, block, total, [b.bags, across], ["bag", "column"], width)
    k.open("if (" + in_range + ")" if width > 1 else "if (true)")
    _emit_bag(body, k, b, kind, width)
    k.epilogue_vector("acc[v]", ["bag", "column"], "column", str(width)) if width > 1 else k.epilogue(
        "acc[0]", ["bag", "column"]
    )
    k.close()
    if width > 1:
        k.open("else")
        k.open(f"for (; column < {k.size(b.columns)}; ++column)")
        _emit_bag(body, k, b, kind, 1)
        k.epilogue("acc[0]", ["bag", "column"])
        k.close()
        k.close()
    return [k.finish(f"cdiv({to_python(total)}, {block})", block, block, f"{width} columns a thread")]


def _declare_tile(k: CallKernel, block: str, total: Ix, sizes: list[Ix], names: list[str], width: int) -> None:
    """Declares the place of this thread; its last index is scaled by the width and may be advanced."""
    k.line(f"const {k.kind} tile = blockIdx.x * ({k.kind}){block} + threadIdx.x;")
    k.line(f"if (tile >= {k.size(total)}) return;")
    places = unflatten(sizes, ix(Var("tile", total)))
    for name, place in zip(names[:-1], places[:-1], strict=True):
        k.line(f"const {k.kind} {name} = {k.size(place)};")
    k.line(f"{k.kind} {names[-1]} = {k.size(places[-1] * width)};")


def _emit_bag(body: CallBody, k: CallKernel, b: Bag, kind: str, width: int) -> None:
    """Computes acc[v]: the bag's sum, mean or maximum."""
    weight, index, offsets, scales = body.operands
    assert weight is not None and index is not None and offsets is not None
    k.line(f"const long start = {k.load(offsets, ['bag'])};")
    after = ix(Var("bag")) + 1
    if b.last:
        k.line(f"const long end = {k.load(offsets, [after])};")
    else:
        k.line(f"long end = {k.size(b.items)};")
        k.line(f"if (bag + 1 < {k.size(b.bags)}) end = {k.load(offsets, [after])};")
    k.line(f"{kind} acc[{width}] = {{}}, value[{width}];")
    k.line("long count = 0;")
    k.line("#pragma unroll 4")
    k.open("for (long i = start; i < end; ++i)")
    k.line(f"const long table_row = {k.load(index, ['i'])};")
    if b.padding is not None:
        k.line(f"if (table_row == {k.size(b.padding)}) continue;")
    if width > 1:
        k.vector(weight, ["table_row", "column"], "column", str(width), "value")
    else:
        k.line(f"value[0] = {k.load(weight, ['table_row', 'column'])};")
    scale = f" * ({kind})({k.load(scales, ['i'])})" if scales is not None else ""
    k.line("#pragma unroll")
    if b.mode == 2:
        k.use("nan_max")
        k.line(f"for (int v = 0; v < {width}; ++v) acc[v] = count == 0 ? value[v] : nan_max(acc[v], value[v]);")
    else:
        k.line(f"for (int v = 0; v < {width}; ++v) acc[v] += value[v]{scale};")
    k.line("++count;")
    k.close()
    if b.mode == 1:
        k.line("#pragma unroll")
        k.line(f"for (int v = 0; v < {width}; ++v) acc[v] = count > 0 ? acc[v] / ({kind})count : acc[v];")


# ---------------------------------------------------------------- rows


def embedding(call: KernelCall) -> Offer | None:
    """Wide rows of a table; not the default, since the generic lowering fuses with its readers."""
    weight, index = call.args[:2]
    if weight.dtype not in WIDTHS:
        raise NotLowered(f"rows of {weight.dtype}")
    shape = call.shape(0)
    rows = product(shape[:-1])
    return Offer(
        "rows", write_gather, [weight, regroup(call.c, index, [rows])], [Output([rows, shape[-1]])], default=False
    )


def write_gather(body: CallBody) -> list[EmittedKernel]:
    """One kernel: neighbouring threads copy neighbouring columns."""
    weight, index = body.operands
    assert weight is not None and index is not None
    rows, columns = body.group.space
    width = _width(body, columns, weight.dtype)
    block = body.knob("GATHER_BLOCK", 256, (64, 128, 256, 512), "threads of a gather's block")
    k = body.kernel(names="row column table_row v value tile")
    across, in_range = _vector_range(k, columns, width)
    total = rows * across
    _declare_tile(k, block, total, [rows, across], ["row", "column"], width)
    k.line(f"const long table_row = {k.load(index, ['row'])};")
    if width > 1:
        k.open(f"if ({in_range})")
        k.line(f"{COMPUTE[weight.dtype]} value[{width}];")
        k.vector(weight, ["table_row", "column"], "column", str(width), "value")
        k.epilogue_vector("value[v]", ["row", "column"], "column", str(width))
        k.line("return;")
        k.close()
    k.open(f"for (int v = 0; v < {width} && column < {k.size(columns)}; ++v, ++column)")
    k.epilogue(f"({k.load(weight, ['table_row', 'column'])})", ["row", "column"])
    k.close()
    return [k.finish(f"cdiv({to_python(total)}, {block})", block, block, f"{width} columns a thread")]


__all__ = ["embedding", "embedding_bag"]
