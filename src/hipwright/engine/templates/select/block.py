"""Selections: the k best of each row, rows sorted, the k-th smallest.

Every element becomes one 64-bit key: its value's bits in an order that unsigned integers share (Herf, "Radix tricks",
2001; NaN above all, -0 as 0), and below it the inverted index, so that keys differ, equal values keep their order and
results are the same in every run.

* lanes: the few best of short rows, in registers (templates/select/lanes.py).
* sort: a row, padded to a power of two, is sorted in LDS by Batcher's bitonic network (1968); short rows share a block.
* select: a block walks its row once and keeps what beats the k-th best key so far (templates/select/walk.py).
* split: few long rows are cut; a second kernel selects from the parts' keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.engine.ir.expr import COMPUTE
from hipwright.engine.ir.index import ONE, Ix, divide, ix, modulo, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.core import LoweringContext, Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.offers import regroup
from hipwright.engine.templates.select.walk import NAMES as WALK_NAMES
from hipwright.engine.templates.select.walk import Walk

MOST_KEYS = 4096
"""Keys of 8 bytes that a sort holds in LDS; a longer row of another call is ranked by counting."""
FEW_KEYS = 1024
NAMES = f"key row first size per bits r n rows best start end total rank other part width {WALK_NAMES}"


@dataclass(eq=False)
class Selection:
    """Rows of `length`, `inner` apart in memory; the first `take` of each in order are kept (None: all).

    only: keep just the last of them (kthvalue). outputs: which of (values, indices) the node's outputs are.
    """

    rows: Ix
    length: Ix
    inner: Ix
    take: int | None
    largest: bool
    only: bool = False
    outputs: tuple[str, ...] = ("values", "indices")


KEYS = """// A value's bits in the order of unsigned integers; NaN is the largest, -0 is 0.
__device__ __forceinline__ unsigned ordered(float x) {
    if (x != x) return 0xffffffffu;
    const unsigned bits = __float_as_uint(x + 0.0f);
    return bits ^ ((unsigned)((int)bits >> 31) | 0x80000000u);
}
__device__ __forceinline__ unsigned ordered(int x) { return (unsigned)x ^ 0x80000000u; }
__device__ __forceinline__ void disordered(unsigned bits, float& x) {
    x = __uint_as_float(bits & 0x80000000u ? bits ^ 0x80000000u : ~bits);
}
__device__ __forceinline__ void disordered(unsigned bits, int& x) { x = (int)(bits ^ 0x80000000u); }

// The larger key comes first: by value, then by the smaller index.
template <bool LARGEST, typename T>
__device__ __forceinline__ unsigned long long key_of(T x, unsigned index) {
    return (unsigned long long)(LARGEST ? ordered(x) : ~ordered(x)) << 32 | ~index;
}
template <typename T, bool LARGEST>
__device__ __forceinline__ T value_of(unsigned long long key) {
    T x;
    disordered(LARGEST ? (unsigned)(key >> 32) : ~(unsigned)(key >> 32), x);
    return x;
}
"""
SORT = """// Batcher's bitonic network over groups of `size` keys (a power of two), largest first; ends with a barrier.
template <int THREADS>
__device__ void sort_keys(unsigned long long* keys, int total, int size) {
    for (int k = 2; k <= size; k <<= 1)
        for (int j = k >> 1; j > 0; j >>= 1) {
            for (int i = threadIdx.x; i < total / 2; i += THREADS) {
                const int a = 2 * i - (i & (j - 1));
                const unsigned long long x = keys[a], y = keys[a + j];
                if ((x < y) == ((a & (size - 1) & k) == 0)) {
                    keys[a] = y;
                    keys[a + j] = x;
                }
            }
            __syncthreads();
        }
}
"""


@dataclass(eq=False)
class SelectionWriter:
    """What the kernels of a selection share."""

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
        """The device functions."""
        self.k.define("key_of", KEYS)
        self.k.define("sort_keys", SORT)

    def key(self, row: str, i: str) -> str:
        """The key of an element, as text."""
        return f"key_of<{flag(self.s.largest)}>({self.value(row, i)}, {i})"

    def value(self, row: str, i: str) -> str:
        """An element, as text."""
        x = self.body.operands[0]
        assert x is not None
        return f"({self.type})({self.k.load(x, [row, i])})"

    def store(self, key: str, row: str, place: str) -> None:
        """The outputs of the key in `place` of its row's order."""
        s, k = self.s, self.k
        count = k.size(ONE if s.only else (s.length if s.take is None else ix(s.take)))
        at = f"{row} * {count} + {place}"
        if s.inner != ONE:
            inner = k.size(s.inner)
            at = f"({row} / {inner} * {count} + {place}) * {inner} + {row} % {inner}"
        for number, what in enumerate(s.outputs):
            value = (
                f"value_of<{self.type}, {flag(s.largest)}>({key})" if what == "values" else f"(long)~(unsigned){key}"
            )
            k.store(number, at, value)


def flag(value: bool) -> str:
    """A template's argument."""
    return "true" if value else "false"


# ---------------------------------------------------------------- sort


def write_sort(body: CallBody) -> list[EmittedKernel]:
    """Whole rows sorted in LDS; all or the first `take` are kept."""
    s: Selection = body.data
    block = body.knob("SORT_BLOCK", 256, (128, 256, 512, 1024), "threads of a sort")
    w = SelectionWriter(body, s, body.kernel(names=NAMES))
    w.define()
    k, n = w.k, w.k.size(s.length)
    k.line("extern __shared__ unsigned long long keys[];")
    k.line("int size = 1;")
    k.line(f"while (size < {n} && size < {MOST_KEYS}) size *= 2;")
    k.line(f"const int per = size < {FEW_KEYS} ? {FEW_KEYS} / size : 1, total = per * size;  // rows of this block")
    k.line(f"const {k.kind} first = ({k.kind})blockIdx.x * per, rows = {k.size(s.rows)};")
    _by_counting(w, n, block)
    k.open(f"for (int i = threadIdx.x; i < total; i += {block})")
    k.line(f"const {k.kind} row = first + i / size;")
    k.line("const int j = i & (size - 1);")
    k.line("keys[i] = 0;")
    k.open(f"if (row < rows && j < {n})")
    k.line(f"keys[i] = {w.key('row', 'j')};")
    k.close()
    k.close()
    k.line("__syncthreads();")
    k.line(f"sort_keys<{block}>(keys, total, size);")
    _store_sorted(w, n, block)
    length = to_python(s.length)
    grid = f"cdiv({to_python(s.rows)}, max({FEW_KEYS} // min(next_pow2({length}), {MOST_KEYS}), 1))"
    lds = f"8 * max(min(next_pow2({length}), {MOST_KEYS}), {FEW_KEYS})"
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


def _by_counting(w: SelectionWriter, n: str, block: str) -> None:
    """A row too long for LDS, which the captured call has not: each element counts those before it."""
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
    """The first `take` of long rows: filtered by the worst of the best so far; few rows are cut into parts."""
    s: Selection = body.data
    assert s.take is not None
    rows, length = body.hint(s.rows), body.hint(s.length)
    parts = 1 << max(min(512 // rows, length // 16384), 1).bit_length() - 1
    parts = int(body.choose("parts", [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= 2 * parts], min(parts, 64)))
    block = body.knob("SELECT_BLOCK", 256, (128, 256), "threads that select from a row")
    if parts == 1:
        w = SelectionWriter(body, s, body.kernel(names=NAMES))
        _row(w, w.k.size(s.rows))
        _walk(w, block).write("0", w.k.size(s.length))
        _store_best(w, block)
        return [w.k.finish(to_python(s.rows), block, block, f"the best {s.take} of a row")]
    width = s.take
    found = body.temporary("keys", [s.rows, ix(parts), ix(width)], "int64")
    return [_cut(body, s, found, parts, block), _join(body, s, found, parts, block)]


def _row(w: SelectionWriter, rows: str) -> None:
    w.define()
    w.k.line(f"const {w.k.kind} row = blockIdx.x;")


def _cut(body: CallBody, s: Selection, found: str, parts: int, block: str) -> EmittedKernel:
    """The best keys of each part of a row."""
    w = SelectionWriter(body, s, body.kernel("parts", names=NAMES))
    w.define()
    k, n = w.k, w.k.size(s.length)
    k.line(f"const {k.kind} row = blockIdx.x / {parts};")
    k.line(f"const int part = blockIdx.x % {parts}, width = ({n} + {parts - 1}) / {parts};")
    k.line(f"const int start = part * width, end = start + width < {n} ? start + width : {n};")
    _walk(w, block).write("start", "end")
    k.written.add(found)
    pointer = k.pointer(found)
    k.line(f"for (int i = threadIdx.x; i < {s.take}; i += {block})")
    k.line(f"    {pointer}[blockIdx.x * ({k.kind}){s.take} + i] = (long)keys[i];")
    return k.finish(f"({to_python(s.rows)}) * {parts}", block, block, f"the best {s.take} of a row's part")


def _join(body: CallBody, s: Selection, found: str, parts: int, block: str) -> EmittedKernel:
    """The best of the parts' keys."""
    w = SelectionWriter(body, s, body.kernel(names=NAMES))
    _row(w, w.k.size(s.rows))
    total = parts * (s.take or 1)
    pointer = w.k.pointer(found)
    key = "unsigned long long"
    walk = Walk(
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


def _walk(w: SelectionWriter, block: str) -> Walk:
    assert w.s.take is not None
    largest = flag(w.s.largest)
    return Walk(
        w.k,
        w.s.take,
        block,
        w.type,
        element=lambda i: w.value("row", i),
        key=lambda x, i: f"key_of<{largest}>({x}, {i})",
        value=lambda key: f"value_of<{w.type}, {largest}>({key})",
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


def rows_of(c: LoweringContext, x: Tensor, dim: int) -> tuple[Tensor, Ix, Ix]:
    """(x as rows along a dimension, their number, how far apart a row's elements are)."""
    outer, length, inner = product(x.shape[:dim]), x.shape[dim], product(x.shape[dim + 1 :])
    if inner == ONE:
        return regroup(c, x, [outer, length]), outer, inner
    cube = regroup(c, x, [outer, length, inner])
    rows = outer * inner
    spread = Tensor(x.dtype, [rows, length], lambda i: cube.at([divide(i[0], inner), i[1], modulo(i[0], inner)]))
    return spread, rows, inner
