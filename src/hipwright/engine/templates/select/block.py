"""Selections: the k best of each row, sorted rows, the k-th smallest.

Every element becomes a 64-bit key: its value's bits mapped to unsigned order (Herf, "Radix tricks", 2001; NaN above
all, -0 as 0), and below them the inverted index, so that keys differ, equal values keep their order and every run gives
the same result.

* lanes: the few best of short rows, in registers (lanes.py).
* sort: a row, padded to a power of two, is sorted in LDS by Batcher's bitonic network (1968); short rows share a block.
* select: a block passes over its row once and keeps what beats the k-th best key so far (threshold_filter.py).
* split: few long rows are divided; a second kernel selects from the keys of the chunks.
"""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.engine.ir.expr import COMPUTE
from hipwright.engine.ir.index import ONE, Ix, divide, ix, modulo, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.offers import regroup
from hipwright.engine.templates.select.threshold_filter import NAMES as FILTER_NAMES
from hipwright.engine.templates.select.threshold_filter import ThresholdFilter

MAX_KEYS = 4096
"""Keys of 8 bytes that a sort holds in LDS; a longer row of another call is ranked by counting."""
BLOCK_KEYS = 1024
NAMES = f"key row first size rows_per_block bits r n rows best start end total rank other chunk width {FILTER_NAMES}"


@dataclass(eq=False)
class Selection:
    """Rows of `length` elements, `inner` apart in memory; the first `take` of each in order are kept (None: all).

    only: keep only the last of them (kthvalue). outputs: which of (values, indices) the node's outputs are.
    """

    rows: Ix
    length: Ix
    inner: Ix
    take: int | None
    largest: bool
    only: bool = False
    outputs: tuple[str, ...] = ("values", "indices")


@dataclass(eq=False)
class SelectionWriter:
    """State shared by the kernels of a selection."""

    body: CallBody
    s: Selection
    k: CallKernel

    @property
    def type(self) -> str:
        """The compute type of the values."""
        x = self.body.operands[0]
        assert x is not None
        return COMPUTE[x.dtype]

    def define(self) -> None:
        """Defines the device functions."""
        self.k.use("make_key", "key_value", "bitonic_sort_keys")

    def key(self, row: str, i: str) -> str:
        """The key of an element, as C text."""
        return f"make_key<{bool_text(self.s.largest)}>({self.value(row, i)}, {i})"

    def value(self, row: str, i: str) -> str:
        """An element, as C text."""
        x = self.body.operands[0]
        assert x is not None
        return f"({self.type})({self.k.load(x, [row, i])})"

    def store(self, key: str, row: str, place: str) -> None:
        """Stores the outputs of the key at `place` in the order of its row."""
        s, k = self.s, self.k
        count = k.size(ONE if s.only else (s.length if s.take is None else ix(s.take)))
        at = f"{row} * {count} + {place}"
        if s.inner != ONE:
            inner = k.size(s.inner)
            at = f"({row} / {inner} * {count} + {place}) * {inner} + {row} % {inner}"
        for number, what in enumerate(s.outputs):
            decoded = f"key_value<{self.type}, {bool_text(s.largest)}>({key})"
            value = decoded if what == "values" else f"(long)~(unsigned){key}"
            k.store(number, at, value)


def bool_text(value: bool) -> str:
    """A template argument."""
    return "true" if value else "false"


# ---------------------------------------------------------------- sort


def write_sort(body: CallBody) -> list[EmittedKernel]:
    """Sorts whole rows in LDS; all or the first `take` are kept."""
    s: Selection = body.data
    block = body.knob("SORT_BLOCK", 256, (128, 256, 512, 1024), "threads of a sort")
    w = SelectionWriter(body, s, body.kernel(names=NAMES))
    w.define()
    k, n = w.k, w.k.size(s.length)
    k.line("extern __shared__ unsigned long long keys[];")
    k.line("int size = 1;")
    k.line(f"while (size < {n} && size < {MAX_KEYS}) size *= 2;")
    k.line(f"const int rows_per_block = size < {BLOCK_KEYS} ? {BLOCK_KEYS} / size : 1, total = rows_per_block * size;")
    k.line(f"const {k.kind} first = ({k.kind})blockIdx.x * rows_per_block, rows = {k.size(s.rows)};")
    _emit_rank_by_counting(w, n, block)
    k.open(f"for (int i = threadIdx.x; i < total; i += {block})")
    k.line(f"const {k.kind} row = first + i / size;")
    k.line("const int j = i & (size - 1);")
    k.line("keys[i] = 0;")
    k.open(f"if (row < rows && j < {n})")
    k.line(f"keys[i] = {w.key('row', 'j')};")
    k.close()
    k.close()
    k.line("__syncthreads();")
    k.line(f"bitonic_sort_keys<{block}>(keys, total, size);")
    _store_sorted(w, n, block)
    length = to_python(s.length)
    grid = f"cdiv({to_python(s.rows)}, max({BLOCK_KEYS} // min(next_pow2({length}), {MAX_KEYS}), 1))"
    lds = f"8 * max(min(next_pow2({length}), {MAX_KEYS}), {BLOCK_KEYS})"
    return [k.finish(grid, block, block, "bitonic sort in LDS", lds)]


def _store_sorted(w: SelectionWriter, n: str, block: str) -> None:
    k, s = w.k, w.s
    low, high = (s.take - 1 if s.only and s.take else 0), (n if s.take is None else str(s.take))
    k.open(f"for (int i = threadIdx.x; i < total; i += {block})")
    k.line(f"const {k.kind} row = first + i / size;")
    k.line("const int j = i & (size - 1);")
    k.open(f"if (row < rows && j < {high}{f' && j >= {low}' if low else ''})")
    w.store("keys[i]", "row", "0" if s.only else "j")
    k.close()
    k.close()


def _emit_rank_by_counting(w: SelectionWriter, n: str, block: str) -> None:
    """A row too long for LDS, of another call than the captured one: each element counts the keys before it."""
    k, s = w.k, w.s
    k.open(f"if ({n} > size)")
    k.line(f"const {k.kind} row = first;")
    k.open(f"for (int i = threadIdx.x; i < {n}; i += {block})")
    k.line(f"const unsigned long long key = {w.key('row', 'i')};")
    k.line("int rank = 0;")
    k.open(f"for (int other = 0; other < {n}; ++other)")
    k.line(f"rank += {w.key('row', 'other')} > key;")
    k.close()
    if s.take is not None:
        k.line(f"if (rank >= {s.take}{f' || rank < {s.take - 1}' if s.only else ''}) continue;")
    w.store("key", "row", "0" if s.only else "rank")
    k.close()
    k.line("return;")
    k.close()


# ---------------------------------------------------------------- select


def write_select(body: CallBody) -> list[EmittedKernel]:
    """The first `take` of long rows, filtered by the worst of the best so far; few rows are divided into chunks."""
    s: Selection = body.data
    assert s.take is not None
    rows, length = body.hint(s.rows), body.hint(s.length)
    chunks = 1 << max(min(512 // rows, length // 16384), 1).bit_length() - 1
    chunks = int(body.choose("parts", [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= 2 * chunks], min(chunks, 64)))
    block = body.knob("SELECT_BLOCK", 256, (128, 256), "threads that select from a row")
    if chunks == 1:
        w = SelectionWriter(body, s, body.kernel(names=NAMES))
        _declare_row(w, w.k.size(s.rows))
        _filter(w, block).write("0", w.k.size(s.length))
        _store_best(w, block)
        return [w.k.finish(to_python(s.rows), block, block, f"the best {s.take} of a row")]
    width = s.take
    chunk_keys = body.temporary("keys", [s.rows, ix(chunks), ix(width)], "int64")
    arguments = (body, s, chunk_keys, chunks, block)
    return [_select_in_chunks(*arguments), _select_from_chunks(*arguments)]


def _declare_row(w: SelectionWriter, rows: str) -> None:
    w.define()
    w.k.line(f"const {w.k.kind} row = blockIdx.x;")


def _select_in_chunks(body: CallBody, s: Selection, chunk_keys: str, chunks: int, block: str) -> EmittedKernel:
    """The best keys of each chunk of a row."""
    w = SelectionWriter(body, s, body.kernel("chunks", names=NAMES))
    w.define()
    k, n = w.k, w.k.size(s.length)
    k.line(f"const {k.kind} row = blockIdx.x / {chunks};")
    k.line(f"const int chunk = blockIdx.x % {chunks}, width = ({n} + {chunks - 1}) / {chunks};")
    k.line(f"const int start = chunk * width, end = start + width < {n} ? start + width : {n};")
    _filter(w, block).write("start", "end")
    k.written.add(chunk_keys)
    pointer = k.pointer(chunk_keys)
    k.line(f"for (int i = threadIdx.x; i < {s.take}; i += {block})")
    k.line(f"    {pointer}[blockIdx.x * ({k.kind}){s.take} + i] = (long)keys[i];")
    return k.finish(f"({to_python(s.rows)}) * {chunks}", block, block, f"the best {s.take} of a row's chunk")


def _select_from_chunks(body: CallBody, s: Selection, chunk_keys: str, chunks: int, block: str) -> EmittedKernel:
    """The best of the chunks' keys."""
    w = SelectionWriter(body, s, body.kernel(names=NAMES))
    _declare_row(w, w.k.size(s.rows))
    total = chunks * (s.take or 1)
    pointer = w.k.pointer(chunk_keys)
    key = "unsigned long long"
    walk = ThresholdFilter(
        w.k,
        s.take or 1,
        block,
        key,
        element=lambda i: f"({key}){pointer}[row * {total} + {i}]",
        key=lambda x, i: x,
        value=lambda key: key,
        largest=True,
    )
    walk.write("0", str(total))
    _store_best(w, block)
    return w.k.finish(to_python(s.rows), block, block, f"the best {s.take} of a row")


def _filter(w: SelectionWriter, block: str) -> ThresholdFilter:
    assert w.s.take is not None
    largest = bool_text(w.s.largest)
    return ThresholdFilter(
        w.k,
        w.s.take,
        block,
        w.type,
        element=lambda i: w.value("row", i),
        key=lambda x, i: f"make_key<{largest}>({x}, {i})",
        value=lambda key: f"key_value<{w.type}, {largest}>({key})",
        largest=w.s.largest,
    )


def _store_best(w: SelectionWriter, block: str) -> None:
    k, s = w.k, w.s
    assert s.take is not None
    if s.only:
        k.open("if (threadIdx.x == 0)")
        w.store(f"keys[{s.take - 1}]", "row", "0")
    else:
        k.open(f"for (int i = threadIdx.x; i < {s.take}; i += {block})")
        w.store("keys[i]", "row", "i")
    k.close()


def as_rows(c: LoweringContext, x: Tensor, dim: int) -> tuple[Tensor, Ix, Ix]:
    """(x as rows along a dimension, the number of rows, the distance between a row's elements)."""
    outer, length, inner = product(x.shape[:dim]), x.shape[dim], product(x.shape[dim + 1 :])
    if inner == ONE:
        return regroup(c, x, [outer, length]), outer, inner
    cube = regroup(c, x, [outer, length, inner])
    rows = outer * inner
    spread = Tensor(x.dtype, [rows, length], lambda i: cube.at([divide(i[0], inner), i[1], modulo(i[0], inner)]))
    return spread, rows, inner
