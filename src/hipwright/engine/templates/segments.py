"""Rows picked and summed by index: embedding bags, wide gathers, sums into segments.

* bag: a thread sums WIDE neighbouring columns of one bag's rows, in order: deterministic.
* rows: a thread copies WIDE neighbouring columns of one row, with what is pointwise behind it.
* add: index_add, scatter_add and accumulating index_put: a first kernel writes what is added to, a second adds
  atomically (float sums may differ in their last bits from run to run; integers do not); half types are added in float
  and converted by a third.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hipwright.engine.calls import KernelCall, Offer, Output, call_template, regroup
from hipwright.engine.expr import COMPUTE, STORAGE
from hipwright.engine.index import Ix, Var, flatten, ix, product, to_python, unflatten
from hipwright.engine.lower.core import NotLowered, Tensor, as_int
from hipwright.engine.templates.base import Kernel
from hipwright.engine.templates.call import CallBody, CallKernel

BAG_NAMES = "i bag column item start end count v acc value tile n seen"
WIDTHS = {"float64": 2, "float32": 4, "float16": 8, "bfloat16": 8}


def _width(body: CallBody, columns: Ix, dtype: str) -> int:
    """Columns of a thread: 16 bytes where the captured rows are a multiple of it."""
    most = WIDTHS.get(dtype, 1)
    options = [n for n in (1, 2, 4, 8) if n <= most]
    fits = max(n for n in options if body.hint(columns) % n == 0)
    return int(body.choose("width", options, fits))


def _wide_ranges(k: CallKernel, columns: Ix, width: int) -> tuple[Ix, str]:
    """(threads along a row, whether the whole width is inside it)."""
    n = k.size(columns)
    return (columns + (width - 1)) // width if width > 1 else columns, f"column + {width} <= {n}"


# ---------------------------------------------------------------- bags


@dataclass(eq=False)
class Bag:
    """Bags of a table's rows. mode: 0 sum, 1 mean, 2 max."""

    mode: int
    bags: Ix
    items: Ix
    columns: Ix
    last: bool
    padding: int | None


@call_template("embedding_bag")
def embedding_bag(call: KernelCall) -> Offer | None:
    """Sums, means or maxima of a table's rows, per bag."""
    weight, index, offsets = call.args[:3]
    mode, weights, last = as_int(call.arg(4, "mode", 0)), call.arg(6), bool(call.arg(7, "include_last_offset", False))
    padding = call.arg(8, "padding_idx")
    if weight.dtype not in WIDTHS or index.rank != 1:
        raise NotLowered("embedding bags of this form")
    shape = call.shape(0)
    skipped = None if padding is None else as_int(padding)
    bag = Bag(mode, shape[0], index.shape[0], shape[1], last, None if skipped is not None and skipped < 0 else skipped)
    outputs = [Output(shape), *[None] * (len(call.outs) - 1)]
    return Offer("bag", write_bag, [weight, index, offsets, weights], outputs, default=True, data=bag)


def write_bag(body: CallBody) -> list[Kernel]:
    """One kernel: threads side by side take neighbouring columns of a bag."""
    b: Bag = body.data
    weight = body.operands[0]
    assert weight is not None
    width = _width(body, b.columns, weight.dtype)
    block = body.knob("BAG_BLOCK", 256, (64, 128, 256, 512), "threads of an embedding bag's block")
    k = body.kernel(names=BAG_NAMES)
    across, whole = _wide_ranges(k, b.columns, width)
    total, kind = b.bags * across, COMPUTE[weight.dtype]
    _name_tile(k, block, total, [b.bags, across], ["bag", "column"], width)
    k.open("if (" + whole + ")" if width > 1 else "if (true)")
    _bag_sum(body, k, b, kind, width)
    k.epilogue_vector("acc[v]", ["bag", "column"], "column", str(width)) if width > 1 else k.epilogue(
        "acc[0]", ["bag", "column"])  # fmt: skip
    k.close()
    if width > 1:
        k.open("else")
        k.open(f"for (; column < {k.size(b.columns)}; ++column)")
        _bag_sum(body, k, b, kind, 1)
        k.epilogue("acc[0]", ["bag", "column"])
        k.close()
        k.close()
    return [k.finish(f"cdiv({to_python(total)}, {block})", block, block, f"{width} columns a thread")]


def _name_tile(k: CallKernel, block: str, total: Ix, sizes: list[Ix], names: list[str], width: int) -> None:
    """Name this thread's place; its last part is scaled by the width and may be moved."""
    k.line(f"const {k.kind} tile = blockIdx.x * ({k.kind}){block} + threadIdx.x;")
    k.line(f"if (tile >= {k.size(total)}) return;")
    places = unflatten(sizes, ix(Var("tile", total)))
    for name, place in zip(names[:-1], places[:-1], strict=True):
        k.line(f"const {k.kind} {name} = {k.size(place)};")
    k.line(f"{k.kind} {names[-1]} = {k.size(places[-1] * width)};")


def _bag_sum(body: CallBody, k: CallKernel, b: Bag, kind: str, width: int) -> None:
    """acc[v]: the bag's sum, mean or maximum."""
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
    k.line("long seen = 0;")
    k.line("#pragma unroll 4")
    k.open("for (long i = start; i < end; ++i)")
    k.line(f"const long item = {k.load(index, ['i'])};")
    if b.padding is not None:
        k.line(f"if (item == {b.padding}) continue;")
    if width > 1:
        k.vector(weight, ["item", "column"], "column", str(width), "value")
    else:
        k.line(f"value[0] = {k.load(weight, ['item', 'column'])};")
    scale = f" * ({kind})({k.load(scales, ['i'])})" if scales is not None else ""
    k.line("#pragma unroll")
    if b.mode == 2:
        k.helper("nan_max")
        k.line(f"for (int v = 0; v < {width}; ++v) acc[v] = seen == 0 ? value[v] : nan_max(acc[v], value[v]);")
    else:
        k.line(f"for (int v = 0; v < {width}; ++v) acc[v] += value[v]{scale};")
    k.line("++seen;")
    k.close()
    if b.mode == 1:
        k.line("#pragma unroll")
        k.line(f"for (int v = 0; v < {width}; ++v) acc[v] = seen > 0 ? acc[v] / ({kind})seen : acc[v];")


# ---------------------------------------------------------------- rows


@call_template("embedding")
def embedding(call: KernelCall) -> Offer | None:
    """Wide rows of a table; not the default, since the generic form melts into what reads it."""
    weight, index = call.args[:2]
    if weight.dtype not in WIDTHS:
        raise NotLowered(f"rows of {weight.dtype}")
    shape = call.shape(0)
    rows = product(shape[:-1])
    return Offer("rows", write_rows, [weight, regroup(call.c, index, [rows])], [Output([rows, shape[-1]])],
                 default=False)  # fmt: skip


def write_rows(body: CallBody) -> list[Kernel]:
    """One kernel: threads side by side copy neighbouring columns."""
    weight, index = body.operands
    assert weight is not None and index is not None
    rows, columns = body.group.space
    width = _width(body, columns, weight.dtype)
    block = body.knob("GATHER_BLOCK", 256, (64, 128, 256, 512), "threads of a gather's block")
    k = body.kernel(names="row column item v value tile")
    across, whole = _wide_ranges(k, columns, width)
    total = rows * across
    _name_tile(k, block, total, [rows, across], ["row", "column"], width)
    k.line(f"const long item = {k.load(index, ['row'])};")
    if width > 1:
        k.open(f"if ({whole})")
        k.line(f"{COMPUTE[weight.dtype]} value[{width}];")
        k.vector(weight, ["item", "column"], "column", str(width), "value")
        k.epilogue_vector("value[v]", ["row", "column"], "column", str(width))
        k.line("return;")
        k.close()
    k.open(f"for (int v = 0; v < {width} && column < {k.size(columns)}; ++v, ++column)")
    k.epilogue(f"({k.load(weight, ['item', 'column'])})", ["row", "column"])
    k.close()
    return [k.finish(f"cdiv({to_python(total)}, {block})", block, block, f"{width} columns a thread")]


# ---------------------------------------------------------------- sums


@dataclass(eq=False)
class Adding:
    """source is added into shape; `into` maps a source index and the value of its index operand to a place."""

    shape: list[Ix]
    dim: int
    each: bool  # the index operand has the source's shape (scatter_add), not one per slice (index_add)
    alpha: float


@call_template("index_add", "scatter_add", "index_put")
def adding(call: KernelCall) -> Offer | None:
    """Sums into chosen places."""
    x: Tensor = call.args[0]
    alpha = call.kwargs.get("alpha", 1)
    if call.kind == "index_put":
        indices, source = call.args[1], call.args[2]
        if len(indices) != 1 or not isinstance(indices[0], Tensor) or not call.arg(3, "accumulate", False):
            raise NotLowered("it does not add along the first dimension")
        dim, index = 0, indices[0]
    else:
        dim, index, source = as_int(call.args[1]), call.args[2], call.args[3]
    each = call.kind == "scatter_add"
    good = x.dtype in ("float32", "float64", "float16", "bfloat16", "int32", "int64")
    if not good or index.dtype not in ("int64", "int32") or not isinstance(alpha, (int, float)):
        raise NotLowered("sums of this kind")
    if x.rank == 0 or index.rank != (x.rank if each else 1) or source.rank != x.rank or source.dtype != x.dtype:
        raise NotLowered("sums of this shape")
    data = Adding(list(x.shape), dim % x.rank, each, float(alpha))
    return Offer("add", write_adding, [x, index, source], [Output(x.shape)], default=True, whole=True, data=data)


def write_adding(body: CallBody) -> list[Kernel]:
    """The start, the sums, and the conversion of half types."""
    a: Adding = body.data
    x, _, source = body.operands
    assert x is not None and source is not None
    half = x.dtype in ("float16", "bfloat16")
    block = body.knob("SCATTER_BLOCK", 256, (128, 256, 512), "threads of a scatter's block")
    total = body.temporary("sums", a.shape, "float32") if half else body.stored(0)
    if total is None:
        return []
    kernels = [_start(body, a, x, total, block, half), _add(body, a, source, total, block, half)]
    return [*kernels, _convert(body, a, total, block)] if half else kernels


def _flat(body: CallBody, suffix: str, shape: list[Ix], block: str) -> tuple[CallKernel, list[Any], str]:
    """(a kernel with a thread an element, the element's index, the grid)."""
    k = body.kernel(suffix, names="i at v i0 i1 i2 i3 i4 i5 i6 i7")
    size = product(shape)
    k.line(f"const {k.kind} i = blockIdx.x * ({k.kind}){block} + threadIdx.x;")
    k.line(f"if (i >= {k.size(size)}) return;")
    index: list[Any] = []
    for number, place in enumerate(unflatten(shape, ix(Var("i", size)))):
        k.line(f"const {k.kind} i{number} = {k.size(place)};")
        index.append(ix(Var(f"i{number}", shape[number])))
    return k, index, f"cdiv({to_python(size)}, {block})"


def _start(body: CallBody, a: Adding, x: Tensor, total: str, block: str, half: bool) -> Kernel:
    k, index, grid = _flat(body, "start", a.shape, block)
    k.written.add(total)
    k.line(f"{k.pointer(total)}[i] = {k.load(x, index)};")
    return k.finish(grid, block, block, "what is added to")


def _add(body: CallBody, a: Adding, source: Tensor, total: str, block: str, half: bool) -> Kernel:
    """One atomic addition an element."""
    chosen = body.operands[1]
    assert chosen is not None
    shape = list(chosen.shape) if a.each else list(source.shape)
    k, index, grid = _flat(body, "", shape, block)
    k.written.add(total)
    k.line(f"long at = {k.load(chosen, index if a.each else [index[a.dim]])};")
    if not a.each:
        k.line(f"if (at < 0) at += {k.size(a.shape[a.dim])};")
    value = k.load(source, index)
    if a.alpha != 1.0:
        value = f"({value}) * {a.alpha if STORAGE[body.dtype(total)] in ('float', 'double') else int(a.alpha)}"
    place = [ix(Var("at", a.shape[d])) if d == a.dim else i for d, i in enumerate(index)]
    target = f"&{k.pointer(total)}[{k.emit.position(flatten(a.shape, place))}]"
    kind = STORAGE[body.dtype(total)]
    if kind == "long":
        k.line(f"atomicAdd((unsigned long long*){target}, (unsigned long long)({value}));")
    else:
        k.line(f"atomicAdd({target}, ({kind})({value}));")
    return k.finish(grid, block, block, "sums, added atomically")


def _convert(body: CallBody, a: Adding, total: str, block: str) -> Kernel:
    k, _, grid = _flat(body, "end", [product(a.shape)], block)
    k.store(0, "i", f"{k.pointer(total)}[i]")
    return k.finish(grid, block, block, "the sums in their type")


__all__ = ["adding", "embedding", "embedding_bag"]
