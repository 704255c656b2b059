"""Sums over few places: a histogram in LDS, for scatter_add along rows and index_add of single elements.

Atomics of many elements on few places contend in memory. Here a block has the places of a row in LDS, or a window of
them where they are many, adds its elements by LDS atomics, and writes every place once (privatised histograms;
Gomez-Luna et al., "An optimized approach to histogram computation on GPU", Machine Vision and Applications 2013). Few
rows are divided into parts, whose sums are added to memory, one atomic a place and part.
"""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.engine.ir.expr import COMPUTE
from hipwright.engine.ir.index import Ix, Var, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.ir.shapes import unflatten
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.scatter.spec import ScatterSpec

MAX_PLACES, LOADS_AT_ONCE, BLOCKS = 8192, 4, 264
"""Places in LDS at once (32 KiB); elements that a thread loads at once; blocks that fill an H200."""
NAMES = """i u row window window_size length start end at b bins place value bin_place part_length
i0 i1 i2 i3 i4 i5 i6 i7"""


@dataclass(eq=False)
class HistogramScatter:
    """Rows of `length` elements for `places` places each; parts: blocks that share a row."""

    a: ScatterSpec
    lead: list[Ix]
    length: Ix
    places: Ix
    parts: int

    @property
    def rows(self) -> Ix:
        """Number of histograms."""
        return product(self.lead)


def histogram_of(body: CallBody, a: ScatterSpec) -> HistogramScatter | None:
    """The histogram by which a call is written, or None for atomics in memory. The choice is `call:<node>:place`."""
    x, chosen, source = body.operands
    assert x is not None and chosen is not None and source is not None
    lead = a.shape[: a.dim]
    same = [body.hint(s) for s in chosen.shape[: a.dim]] == [body.hint(s) for s in lead] if a.each else not lead
    if a.dim != len(a.shape) - 1 or not same or a.mode != "add" or not a.include or x.dtype in ("float64", "int64"):
        return None
    length, places = chosen.shape[-1], a.shape[-1]
    rows, many, few = body.hint(product(lead)), body.hint(length), body.hint(places)
    default = "lds" if few <= MAX_PLACES and many >= 4 * few else "memory"
    if body.choose("place", ["lds", "memory"], default) == "memory":
        return None
    parts = 1 if rows >= BLOCKS // 2 else max(min(BLOCKS // max(rows, 1), many // (4 * max(few, 1))), 1)
    parts = 1 << parts.bit_length() - 1
    parts = int(body.choose("parts", sorted({1, 4, 16, 64, 256, parts}), parts))
    return HistogramScatter(a, lead, length, places, parts)


def histogram_kernel(body: CallBody, h: HistogramScatter, total: str) -> EmittedKernel:
    """The kernel: a block for each row, which also writes the initial values; or one for each part of a row, which adds
    to memory.
    """
    block = body.knob("HISTOGRAM_BLOCK", 512, (256, 512, 1024), "threads of a block that adds in LDS")
    k = body.kernel(names=NAMES)
    x, kind = body.operands[0], COMPUTE[body.operands[0].dtype]  # type: ignore[union-attr]
    assert x is not None
    window = min(1 << max(body.hint(h.places) - 1, 1).bit_length(), MAX_PLACES)
    n, places = k.size(h.length), k.size(h.places)
    k.line(f"__shared__ {kind} bins[{window}];")
    k.line(f"const {k.kind} row = blockIdx.x{f' / {h.parts}' if h.parts > 1 else ''};")
    index = _declare_row_index(k, h)
    _declare_range(k, h, _row_length(body, h, index, n))
    k.line("// all places in LDS at once, or one window of them after another")
    k.open(f"for ({k.kind} window = 0; window < {places}; window += {window})")
    k.line(f"const int window_size = {places} - window < {window} ? {places} - window : {window};")
    _init_bins(k, h, x, index, kind, block)
    k.line("__syncthreads();")
    _emit_adds(body, k, h, index, kind, block, places)
    k.line("__syncthreads();")
    k.open(f"for (int b = threadIdx.x; b < window_size; b += {block})")
    if h.parts == 1:
        k.store(0, f"row * {places} + window + b", "bins[b]")
    else:
        k.written.add(total)
        k.line(f"atomicAdd(&{k.pointer(total)}[row * {places} + window + b], bins[b]);")
    k.close()
    k.line("__syncthreads();")
    k.close()
    grid = to_python(h.rows) if h.parts == 1 else f"({to_python(h.rows)}) * {h.parts}"
    return k.finish(grid, block, block, "sums in LDS" if h.parts == 1 else f"sums in LDS, {h.parts} parts a row")


def _declare_row_index(k: CallKernel, h: HistogramScatter) -> list[Ix]:
    """Declares the row's index, one variable a dimension."""
    index: list[Ix] = []
    for number, place in enumerate(unflatten(h.lead, ix(Var("row", h.rows))) if h.lead else []):
        k.line(f"const {k.kind} i{number} = {k.size(place)};")
        index.append(ix(Var(f"i{number}", h.lead[number])))
    return index


def _row_length(body: CallBody, h: HistogramScatter, index: list[Ix], n: str) -> str:
    """Elements of the row: none where the index of another call has fewer rows than there are places for."""
    chosen, k = body.operands[1], body.kernels[-1]
    assert chosen is not None
    pairs = zip(index, chosen.shape, h.lead, strict=False) if h.a.each else ()
    tests = [f"{k.size(i)} < {k.size(s)}" for i, s, whole in pairs if s.key != whole.key]
    return f"({' && '.join(tests)} ? {n} : 0)" if tests else n


def _declare_range(k: CallKernel, h: HistogramScatter, n: str) -> None:
    """Declares this block's elements of the row."""
    if h.parts == 1:
        k.line(f"const {k.kind} start = 0, end = {n};")
        return
    k.line(f"const {k.kind} length = {n}, part_length = (length + {h.parts - 1}) / {h.parts};")
    end = "start + part_length < length ? start + part_length : length"
    k.line(f"const {k.kind} start = blockIdx.x % {h.parts} * part_length, end = {end};")


def _init_bins(k: CallKernel, h: HistogramScatter, x: Tensor, index: list[Ix], kind: str, block: str) -> None:
    """Initial values, or zero where memory has them already."""
    k.open(f"for (int b = threadIdx.x; b < window_size; b += {block})")
    if h.parts > 1:
        k.line(f"bins[b] = ({kind})0;")
    else:
        k.line(f"const {k.kind} bin_place = window + b;")
        k.line(f"bins[b] = {k.load(x, [*index, ix(Var('bin_place', h.places))])};")
    k.close()


def _emit_adds(
    body: CallBody, k: CallKernel, h: HistogramScatter, index: list[Ix], kind: str, block: str, places: str
) -> None:
    """Loads LOADS_AT_ONCE elements at a time, then adds them."""
    _, chosen, source = body.operands
    assert chosen is not None and source is not None
    element = ix(Var("i", h.length))
    k.open(f"for ({k.kind} at = start + threadIdx.x; at < end; at += {LOADS_AT_ONCE} * {block})")
    k.line(f"long place[{LOADS_AT_ONCE}];")
    k.line(f"{kind} value[{LOADS_AT_ONCE}];")
    k.line("#pragma unroll")
    k.open(f"for (int u = 0; u < {LOADS_AT_ONCE}; ++u)")
    k.line(f"const {k.kind} i = at + u * {block};")
    k.line("place[u] = -1;")
    k.open("if (i < end)")
    k.line(f"place[u] = {k.load(chosen, [*index, element])};")
    if not h.a.each:
        k.line(f"if (place[u] < 0) place[u] += {places};")
    k.line("place[u] -= window;")
    value = k.load(source, [*index, element])
    scale = "" if h.a.alpha == 1.0 else f" * {h.a.alpha if kind == 'float' else int(h.a.alpha)}"
    k.line(f"value[u] = ({kind})({value}){scale};")
    k.close()
    k.close()
    k.line("#pragma unroll")
    k.line(f"for (int u = 0; u < {LOADS_AT_ONCE}; ++u)")
    k.line("    if (place[u] >= 0 && place[u] < window_size) atomicAdd(&bins[place[u]], value[u]);")
    k.close()
