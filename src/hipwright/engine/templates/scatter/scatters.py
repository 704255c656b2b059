"""Values scattered to places that an index tensor names: added, multiplied, the largest or smallest, or set.

* add: index_add, scatter_add, accumulating index_put, scatter_reduce and index_reduce. A first kernel writes the
  initial values; where these do not count (include_self=False) a second resets the places that are named; the next
  takes one element of the source a thread, by an atomic. Half types are summed in float; means are divided at the end.
* last: scatter, index_copy and index_put that set. By an atomic maximum each place learns which element of the index
  names it last, and takes that one: what PyTorch does on a CPU, the same in every run, and one of PyTorch's possible
  results on a GPU. The selection is a pointwise value, which fuses with its readers.

Float sums and means may differ in their last bits from run to run, as PyTorch's do; all else is exact. A maximum of
floats is one of integers, since the bits of floats of one sign are in order; NaN is above (for a minimum below) all.
Products of floats are left to the library: their rounding depends on the order, which no tolerance covers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hipwright.engine.emit.statements import literal
from hipwright.engine.ir.expr import COMPUTE, STORAGE, E
from hipwright.engine.ir.index import ONE, Ind, Ix, Var, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.ir.shapes import flatten, unflatten
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.table import as_int
from hipwright.engine.lower.values import NotLowered, Tensor
from hipwright.engine.templates.base import INT_LIMIT, EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.offers import KernelCall, Offer, Output
from hipwright.engine.templates.rows.reducers import worst
from hipwright.engine.templates.scatter.histograms import histogram_kernel, histogram_of
from hipwright.engine.templates.scatter.sorted_rows import SortedRows, sorts_rows
from hipwright.engine.templates.scatter.spec import ScatterSpec

MODES = {"sum": "add", "add": "add", "mean": "mean", "amax": "amax", "amin": "amin", "prod": "prod", "multiply": "prod"}
SUMMED = ("float32", "float64", "float16", "bfloat16", "int32", "int64")
HALF = ("float16", "bfloat16")
FLOATS = {
    "float": ("int", "unsigned", "__float_as_int", "__int_as_float", "0x7fffffff"),
    "double": (
        "long long",
        "unsigned long long",
        "__double_as_longlong",
        "__longlong_as_double",
        "0x7fffffffffffffffLL",
    ),
}
"""C type -> integers of that width, the casts of bits, and the bits of the NaN above all numbers (all bits set:
below).
"""


# ---------------------------------------------------------------- which calls


def scatter_reduction(call: KernelCall) -> Offer | None:
    """Sums, means, extremes and integer products at chosen places."""
    x: Tensor = call.args[0]
    mode, include = _reduction(call)
    if call.kind == "index_put":
        dim, index, source = _index_put(call)
    else:
        dim, index, source = as_int(call.args[1]), call.args[2], call.args[3]
    each = call.kind.startswith("scatter")
    _check(x, index, source, each)
    alpha = call.kwargs.get("alpha", 1)
    if x.dtype not in SUMMED or source.dtype != x.dtype or not isinstance(alpha, (int, float)):
        raise NotLowered("sums of this kind")
    if mode == "prod" and x.dtype not in ("int32", "int64"):
        raise NotLowered("the rounding of a product depends on its order")
    data = ScatterSpec(list(x.shape), dim % x.rank, each, mode, float(alpha), include)
    return Offer("add", write_reduction, [x, index, source], [Output(x.shape)], default=True, whole=True, data=data)


def _reduction(call: KernelCall) -> tuple[str, bool]:
    """(the reduction, whether the initial values count)."""
    if call.kind in ("scatter_reduce", "index_reduce"):
        return MODES[call.arg(4, "reduce")], bool(call.arg(5, "include_self", True))
    if call.kind == "scatter":
        if "reduce" not in call.node.op:
            raise NotLowered("it sets several elements along the dimension")
        return MODES[call.arg(4, "reduce")], True
    return "add", True


def _index_put(call: KernelCall, *, accumulate: bool = True) -> tuple[int, Tensor, Tensor]:
    """(dimension, index, source) of an index_put along the first dimension."""
    x, indices, source = call.args[:3]
    if len(indices) != 1 or not isinstance(indices[0], Tensor) or bool(call.arg(3, "accumulate", False)) != accumulate:
        raise NotLowered("it does not add along the first dimension" if accumulate else "it adds")
    index = indices[0]
    shape = [*index.shape, *x.shape[1:]]
    if source.rank > len(shape):
        raise NotLowered("a source of more dimensions than the place")
    wide = call.c.tensor(source.dtype, shape, lambda i: source.at(call.c.broadcast(source, i)))
    return 0, index, source if [s.key for s in source.shape] == [s.key for s in shape] else wide


def _check(x: Tensor, index: Any, source: Any, each: bool) -> None:
    if not isinstance(index, Tensor) or index.dtype not in ("int64", "int32"):
        raise NotLowered("an index of this kind")
    if not isinstance(source, Tensor) or x.rank == 0 or index.rank != (x.rank if each else 1) or source.rank != x.rank:
        raise NotLowered("sums of this shape")


def scatter_last(call: KernelCall) -> Offer | None:
    """Elements set at chosen places; of several for one place the last."""
    x: Tensor = call.args[0]
    if call.kind == "index_put":
        dim, index, source = _index_put(call, accumulate=False)
    else:
        dim, index, source = as_int(call.args[1]), call.args[2], call.args[3]
    each = call.kind == "scatter"
    if "reduce" in call.node.op or (each and index.rank and index.shape[dim % index.rank] == ONE):
        raise NotLowered("it is a comparison")  # lower/statistics.py
    _check(x, index, source if isinstance(source, Tensor) else index, each)
    data = ScatterSpec(list(x.shape), dim % x.rank, each, "last")
    wide = call.c.hint(product(x.shape)) >= INT_LIMIT
    output = Output(list(x.shape), dtype="int64" if wide else "int32")
    return Offer(
        "last",
        write_last,
        [index],
        [output],
        default=True,
        whole=True,
        data=data,
        finish=lambda last: _select_last(call.c, x, source, last, data),
    )


def _select_last(c: LoweringContext, x: Tensor, source: Tensor | float, last: Tensor, a: ScatterSpec) -> Tensor:
    """x, or the source's element (or the one number) where a place was named: last counts from 1."""
    arena, kind = c.arena, COMPUTE[x.dtype]

    def at(i: Sequence[Ix]) -> E:
        named = arena.cast(last.at(i), "long")
        hit = arena.binary(">", named, arena.const(0, "long"), "bool")
        if not isinstance(source, Tensor):
            return arena.guard(hit, arena.const(source, kind), x.at(i), before=True)
        place = ix(Ind(arena.binary("-", named, arena.const(1, "long"))))
        new = source.at([place if d == a.dim else p for d, p in enumerate(i)])
        return arena.guard(hit, arena.cast(new, kind), x.at(i), before=True)

    return c.tensor(x.dtype, list(x.shape), at)


# ---------------------------------------------------------------- kernels


def write_reduction(body: CallBody) -> list[EmittedKernel]:
    """The kernels: initial values, reset of the named places, atomics, division or conversion."""
    a: ScatterSpec = body.data
    x, _, source = body.operands
    assert x is not None and source is not None
    if body.stored(0) is None:
        return []
    rows = histogram_of(body, a)
    if rows is not None and rows.parts == 1:
        return [histogram_kernel(body, rows, "")]
    is_half, by_rows = x.dtype in HALF, sorts_rows(body, a)
    block = _block(body, 512 if by_rows else 256)
    count = body.temporary("counts", a.shape, "int32") if a.mode == "mean" else ""
    total = body.temporary("sums", a.shape, "float32") if is_half else body.stored(0)
    assert total is not None
    if by_rows:
        by_place = SortedRows(body, a, total, block)
        kernels = [_start_kernel(body, a, x, total, count, block), *by_place.kernels()]
        return [*kernels, _finish_kernel(body, a, x, total, count, block)] if is_half else kernels
    kernels = [_start_kernel(body, a, x, total, count, block)]
    if not a.include and a.mode != "mean":
        kernels.append(_reset_kernel(body, a, total, block))
    if rows is None:
        kernels.append(_atomic_kernel(body, a, source, total, count, block))
    else:
        kernels.append(histogram_kernel(body, rows, total))
    return [*kernels, _finish_kernel(body, a, x, total, count, block)] if is_half or count else kernels


def write_last(body: CallBody) -> list[EmittedKernel]:
    """Zeros, then the largest position in the index that names each element, counted from 1."""
    a: ScatterSpec = body.data
    (chosen,), last, block = body.operands, body.stored(0), _block(body)
    if last is None:
        return []
    assert chosen is not None
    k, _, grid = _element_kernel(body, "start", a.shape, block)
    k.store(0, "i", "0")
    first = k.finish(grid, block, block, "no place named yet")
    kind = STORAGE[body.dtype(last)]
    k, index, grid = _element_kernel(body, "", _index_space(a, chosen), block)
    target = _declare_target(k, a, chosen, index, last)
    pointer, cast = ("(long long*)", "(long long)") if kind == "long" else ("", "")
    k.line(f"atomicMax({pointer}{target}, {cast}({k.size(ix(index[a.dim]))} + 1));")
    return [first, k.finish(grid, block, block, "the last element that names each place")]


def _block(body: CallBody, threads: int = 256) -> str:
    return body.knob("SCATTER_BLOCK", threads, (128, 256, 512), "threads of a scatter's block")


def _element_kernel(body: CallBody, suffix: str, shape: list[Ix], block: str) -> tuple[CallKernel, list[Any], str]:
    """(a kernel with a thread for each element, the element's index, the grid)."""
    k = body.kernel(suffix, names="i at v n i0 i1 i2 i3 i4 i5 i6 i7")
    size = product(shape)
    k.line(f"const {k.kind} i = blockIdx.x * ({k.kind}){block} + threadIdx.x;")
    k.line(f"if (i >= {k.size(size)}) return;")
    index: list[Any] = []
    for number, place in enumerate(unflatten(shape, ix(Var("i", size)))):
        k.line(f"const {k.kind} i{number} = {k.size(place)};")
        index.append(ix(Var(f"i{number}", shape[number])))
    return k, index, f"cdiv({to_python(size)}, {block})"


def _index_space(a: ScatterSpec, chosen: Tensor) -> list[Ix]:
    """The elements that threads take: the index, spread over the slices that it names."""
    if a.each:
        return list(chosen.shape)
    return [chosen.shape[0] if d == a.dim else s for d, s in enumerate(a.shape)]


def _declare_target(k: CallKernel, a: ScatterSpec, chosen: Tensor, index: list[Any], buffer: str) -> str:
    """Declares `at`, the place that the index names; returns the address of the element there, as C text."""
    k.written.add(buffer)
    k.line(f"long at = {k.load(chosen, index if a.each else [index[a.dim]])};")
    if not a.each:
        k.line(f"if (at < 0) at += {k.size(a.shape[a.dim])};")
    return _address(k, a, index, buffer)


def _address(k: CallKernel, a: ScatterSpec, index: list[Any], buffer: str) -> str:
    """The address of a buffer's element at `at`, as C text."""
    place = [ix(Var("at", a.shape[d])) if d == a.dim else i for d, i in enumerate(index)]
    return f"&{k.pointer(buffer)}[{k.emit.position(flatten(a.shape, place))}]"


def _start_kernel(body: CallBody, a: ScatterSpec, x: Tensor, total: str, count: str, block: str) -> EmittedKernel:
    k, index, grid = _element_kernel(body, "start", a.shape, block)
    k.written.add(total)
    kind = STORAGE[body.dtype(total)]
    value = k.load(x, index, body.dtype(total)) if a.include or not count else f"({kind})0"
    if a.mode in ("amax", "amin") and kind in FLOATS:
        _, _, _, number, top = FLOATS[kind]
        k.line(f"const {kind} v = {value};")
        value = f"v != v ? {number}({top if a.mode == 'amax' else '-1'}) : v"
    k.line(f"{k.pointer(total)}[i] = {value};")
    if count:
        k.written.add(count)
        k.line(f"{k.pointer(count)}[i] = {int(a.include)};")
    return k.finish(grid, block, block, "initial values")


def _reset_kernel(body: CallBody, a: ScatterSpec, total: str, block: str) -> EmittedKernel:
    """Resets the named places to the neutral value, atomically, since several threads may name one."""
    chosen = body.operands[1]
    assert chosen is not None
    k, index, grid = _element_kernel(body, "reset", _index_space(a, chosen), block)
    target, kind = _declare_target(k, a, chosen, index, total), STORAGE[body.dtype(total)]
    extreme = a.mode in ("amax", "amin")
    start = worst(a.mode == "amax", kind) if extreme else literal({"add": 0, "prod": 1}[a.mode], kind)
    word = "unsigned long long" if kind in ("double", "long") else kind
    if kind == "double":
        start = f"__double_as_longlong({start})"
    k.line(f"atomicExch({f'({word}*)' if word != kind else ''}{target}, ({word})({start}));")
    return k.finish(grid, block, block, "resets the named places")


def _atomic_kernel(body: CallBody, a: ScatterSpec, source: Tensor, total: str, count: str, block: str) -> EmittedKernel:
    """One atomic operation an element."""
    chosen = body.operands[1]
    assert chosen is not None
    k, index, grid = _element_kernel(body, "", _index_space(a, chosen), block)
    target = _declare_target(k, a, chosen, index, total)
    value, kind = k.load(source, index), STORAGE[body.dtype(total)]
    if a.alpha != 1.0:
        value = f"({value}) * {a.alpha if kind in FLOATS else int(a.alpha)}"
    if a.mode in ("add", "mean"):
        pair = ("(unsigned long long*)", "unsigned long long") if kind == "long" else ("", kind)
        k.line(f"atomicAdd({pair[0]}{target}, ({pair[1]})({value}));")
    else:
        wide = "long long" if kind == "long" else kind
        name = {"amax": "atomic_highest", "amin": "atomic_lowest", "prod": "atomic_multiply"}[a.mode]
        k.define(f"{name}_{kind}", _atomic_function(a.mode, wide, name))
        k.line(f"{name}({f'({wide}*)' if wide != kind else ''}{target}, ({wide})({value}));")
    if count:
        k.written.add(count)
        k.line(f"atomicAdd({_address(k, a, index, count)}, 1);")
    words = {"add": "atomic sums", "mean": "atomic sums and counts"}
    return k.finish(grid, block, block, words.get(a.mode, f"atomic {a.mode}"))


def _atomic_function(mode: str, kind: str, name: str) -> str:
    """The device function of an atomic that devices lack: for floats with NaN, or for products."""
    if mode == "prod":
        whole = "unsigned long long" if kind == "long long" else "unsigned"
        return f"""__device__ void {name}({kind}* word, {kind} v) {{
    {whole}* const bits = ({whole}*)word;
    {whole} seen = __hip_atomic_load(bits, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT), old;
    do {{
        old = seen;
        seen = atomicCAS(bits, old, old * ({whole})v);
    }} while (seen != old);
}}
"""
    first, second = ("Max", "Min") if mode == "amax" else ("Min", "Max")
    if kind not in FLOATS:
        return f"__device__ void {name}({kind}* p, {kind} v) {{ atomic{first}(p, v); }}\n"
    signed, unsigned, bits, _, top = FLOATS[kind]
    return f"""// Compares bits, whose order is that of floats of one sign; NaN wins over numbers.
__device__ void {name}({kind}* p, {kind} v) {{
    const {signed} bits = v != v ? {top if mode == "amax" else "-1"} : {bits}(v);
    if (bits >= 0) atomic{first}(({signed}*)p, bits);
    else atomic{second}(({unsigned}*)p, ({unsigned})bits);
}}
"""


def _finish_kernel(body: CallBody, a: ScatterSpec, x: Tensor, total: str, count: str, block: str) -> EmittedKernel:
    """Converts half types to their type; divides means."""
    if not count:
        k, _, grid = _element_kernel(body, "end", [product(a.shape)], block)
        k.store(0, "i", f"{k.pointer(total)}[i]")
        return k.finish(grid, block, block, "converts the results")
    k, index, grid = _element_kernel(body, "end", a.shape, block)
    kind = STORAGE[body.dtype(total)]
    k.line(f"const {kind} v = {k.pointer(total)}[i];")
    k.line(f"const {kind} n = ({kind}){k.pointer(count)}[i];")
    mean = "v / n" if kind in FLOATS else "v / n - (v % n < 0)"
    if a.include:
        k.store(0, "i", mean)
    else:
        k.open("if (n == 0)")
        k.store(0, "i", k.load(x, index))
        k.close()
        k.open("else")
        k.store(0, "i", mean)
        k.close()
    return k.finish(grid, block, block, "means")


__all__ = ["scatter_last", "scatter_reduction"]
