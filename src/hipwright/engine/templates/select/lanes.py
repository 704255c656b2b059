"""The few best of short rows: neighbouring lanes share a row and keep it in registers.

A lane takes packs of the row, at most 32 elements at once, as 32-bit ranks in the order of unsigned integers. Sorting
networks without branches (Batcher, AFIPS 1968) give the best of each eight; two lists are merged by comparing the one
with the other backwards, which leaves the better half in bitonic order; lanes merge by shuffles. So the worst rank that
is taken is known, and only then indices matter: what is better goes to LDS, of its equals as many as are wanted in the
order of their indices, and each of the few finds its place by comparing with the others.
"""

from __future__ import annotations

from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.core import Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.select.block import KEYS, Selection, SelectionWriter, flag
from hipwright.engine.templates.select.block import NAMES as SHARED

MOST_BEST, MOST_ROW, ITEMS, PACK = 8, 1024, 32, 4
NAMES = (
    f"{SHARED} lane live found mine read_tile packed value g e p other off above place T equal low lowest more taken"
)


def network(n: int) -> list[tuple[int, int]]:
    """Batcher's odd-even merge sort of n = 2^m elements: the pairs to put in order."""
    pairs, p = [], 1
    while p < n:
        q = p
        while q:
            pairs += [
                (i + j, i + j + q)
                for j in range(q % p, n - q, 2 * q)
                for i in range(min(q, n - j - q))
                if (i + j) // (2 * p) == (i + j + q) // (2 * p)
            ]
            q //= 2
        p *= 2
    return pairs


def _functions(best: int) -> str:
    """sort_ranks and keep_best for lists of `best` ranks, largest first."""
    sort = "\n".join(f"    in_order(a[{i}], a[{j}]);" for i, j in network(best))
    halves, half = [], best // 2
    while half:
        halves += [(i, i + half) for i in range(best) if not i & half]
        half //= 2
    merge = "\n".join(f"    in_order(a[{i}], a[{j}]);" for i, j in halves)
    return f"""// A rank is the upper half of a key; 0 stands where a row has no element.
template <bool LARGEST, typename T>
__device__ __forceinline__ unsigned rank_of(T x) {{
    return LARGEST ? ordered(x) : ~ordered(x);
}}
__device__ __forceinline__ void in_order(unsigned& a, unsigned& b) {{
    const unsigned more = a > b ? a : b, less = a > b ? b : a;
    a = more;
    b = less;
}}
__device__ __forceinline__ void sort_ranks(unsigned (&a)[{best}]) {{
{sort}
}}
// The better half of two sorted lists, sorted.
__device__ __forceinline__ void keep_best(unsigned (&a)[{best}], const unsigned (&b)[{best}]) {{
    #pragma unroll
    for (int k = 0; k < {best}; ++k) a[k] = a[k] > b[{best - 1} - k] ? a[k] : b[{best - 1} - k];
{merge}
}}
"""


def suits(take: int | None, length: int) -> bool:
    """Few enough to take, and rows short enough for registers, as captured; any other row is right, too."""
    return take is not None and take <= MOST_BEST and length <= MOST_ROW


def write_lanes(body: CallBody) -> list[EmittedKernel]:
    """One kernel; a row has `lanes` neighbouring lanes."""
    return [_Lanes(body).kernel()]


class _Lanes(SelectionWriter):
    """Writes it."""

    def __init__(self, body: CallBody) -> None:
        super().__init__(body, body.data, body.kernel(names=NAMES))
        s: Selection = body.data
        assert s.take is not None
        length = max(body.hint(s.length), 1)
        self.take, self.best = s.take, 1 << (s.take - 1).bit_length()
        self.items = max(min(1 << (max(length // 4, 1) - 1).bit_length(), ITEMS), MOST_BEST)
        self.lanes = min(1 << (-(-length // self.items) - 1).bit_length(), 32)
        self.n = self.k.size(s.length)
        self.tile = self.lanes * self.items
        self.block = body.knob("SELECT_LANES_BLOCK", 128, (64, 128, 256), "threads of a block that selects by lanes")

    def kernel(self) -> EmittedKernel:
        """All of it."""
        s, k, block = self.s, self.k, self.block
        k.define("key_of", KEYS)
        k.define(f"keep_best_{self.best}", _functions(self.best))
        rows = k.size(s.rows)
        room = self.best + self.lanes  # what is not wanted is stored too, each lane's in a place of its own
        k.line(f"__shared__ unsigned long long found[{block} / {self.lanes} * {room}];")
        k.line(f"const int lane = threadIdx.x % {self.lanes};")
        k.line(f"const {k.kind} first = blockIdx.x * ({k.kind})({block} / {self.lanes}) + threadIdx.x / {self.lanes};")
        k.line(f"const bool live = first < {rows};  // the last block may have rows to spare")
        k.line(f"const {k.kind} row = live ? first : {rows} - 1;")
        k.line(f"const int mine = threadIdx.x / {self.lanes} * {room};")
        self._reader(k)
        self._bar(k)
        self._better(k)
        self._equal(k)
        k.line("__syncthreads();")
        k.open(f"for (int e = lane; e < {self.take} && live; e += {self.lanes})")
        k.line("const unsigned long long key = found[mine + e];")
        k.line("int rank = 0;")
        k.line("#pragma unroll")
        k.line(f"for (int other = 0; other < {self.take}; ++other) rank += found[mine + other] > key;")
        if s.only:
            k.line(f"if (rank != {self.take - 1}) continue;")
        self.store("key", "row", "0" if s.only else "rank")
        k.close()
        grid = f"cdiv({to_python(s.rows)}, {block} // {self.lanes})"
        return k.finish(grid, block, block, f"the best {s.take} of a row, {self.lanes} lanes a row")

    # ------------------------------------------------------------ the row in registers

    def _reader(self, k: CallKernel) -> None:
        """read_tile(start): the ranks of this lane's packs."""
        x = self.body.operands[0]
        assert x is not None
        wide = k.contiguous(x, 1)
        if wide:
            tests = [f"{self.n} % {PACK} == 0", *k.wide(x, ["row", "at"], "at", str(PACK))]
            k.line(f"const bool packed = {' && '.join(dict.fromkeys(tests))};")
        k.line(f"unsigned key[{self.items}];")
        k.open(f"const auto read_tile = [&](const {k.kind} start)")
        for how in ("packed", "single") if wide else ("single",):
            if how == "packed":
                k.open("if (packed)")
            k.line("#pragma unroll")
            k.open(f"for (int p = 0; p < {self.items // PACK}; ++p)")
            k.line(f"const {k.kind} at = start + (p * {self.lanes} + lane) * {PACK};")
            k.line("#pragma unroll")
            k.line(f"for (int e = 0; e < {PACK}; ++e) key[p * {PACK} + e] = 0;")
            self._pack(k, x) if how == "packed" else self._singly(k, x)
            k.close()
            if how == "packed":
                k.line("return;")
                k.close()
        k.close(";")

    def _pack(self, k: CallKernel, x: Tensor) -> None:
        k.line(f"if (at >= {self.n}) continue;")
        k.line(f"{self.type} value[{PACK}];")
        k.vector(x, ["row", "at"], "at", str(PACK), "value", aligned=True)
        k.line("#pragma unroll")
        k.line(f"for (int e = 0; e < {PACK}; ++e) key[p * {PACK} + e] = {self._rank('value[e]')};")

    def _singly(self, k: CallKernel, x: Tensor) -> None:
        k.line("#pragma unroll")
        k.open(f"for (int e = 0; e < {PACK}; ++e)")
        k.line(f"const {k.kind} i = at + e;")
        k.line(f"if (i >= {self.n}) continue;")
        k.line(f"key[p * {PACK} + e] = {self._rank(k.load(x, ['row', 'i']))};")
        k.close()

    def _rank(self, value: str) -> str:
        return f"rank_of<{flag(self.s.largest)}>(({self.type})({value}))"

    def _tiles(self, k: CallKernel) -> None:
        """Go over the row again; one tile is still in registers."""
        k.open(f"for ({k.kind} start = 0; start < {self.n}; start += {self.tile})")
        k.line(f"if ({self.n} > {self.tile}) read_tile(start);")

    def _each(self, k: CallKernel) -> None:
        """Over this lane's elements of the tile: `e`, and `i` in the row."""
        k.line("#pragma unroll")
        k.open(f"for (int e = 0; e < {self.items}; ++e)")
        k.line(f"const {k.kind} i = start + (e / {PACK} * {self.lanes} + lane) * {PACK} + e % {PACK};")

    # ------------------------------------------------------------ what is taken

    def _bar(self, k: CallKernel) -> None:
        """T: the worst rank that is taken."""
        k.line(f"unsigned best[{self.best}] = {{}};")
        k.open(f"for ({k.kind} start = 0; start < {self.n}; start += {self.tile})")
        k.line("read_tile(start);")
        k.line("#pragma unroll")
        k.open(f"for (int g = 0; g < {self.items}; g += {self.best})")
        k.line(f"unsigned other[{self.best}];")
        k.line("#pragma unroll")
        k.line(f"for (int e = 0; e < {self.best}; ++e) other[e] = key[g + e];")
        k.line("sort_ranks(other);")
        k.line("keep_best(best, other);")
        k.close()
        k.close()
        if self.lanes > 1:
            k.line("#pragma unroll")
            k.open(f"for (int off = 1; off < {self.lanes}; off *= 2)")
            k.line(f"unsigned other[{self.best}];")
            k.line("#pragma unroll")
            k.line(f"for (int e = 0; e < {self.best}; ++e) other[e] = __shfl_xor(best[e], off);")
            k.line("keep_best(best, other);")
            k.close()
        k.line(f"const unsigned T = best[{self.take - 1}];  // the worst that is taken")

    def _better(self, k: CallKernel) -> None:
        """What is better than T, into LDS; have: how many the row has."""
        k.line("int have = 0, above = 0;")
        k.line("#pragma unroll")
        k.line(f"for (int e = 0; e < {self.take}; ++e) have += best[e] > T;")
        self._tiles(k)
        k.line("#pragma unroll")
        k.line(f"for (int e = 0; e < {self.items}; ++e) above += key[e] > T;")
        k.close()
        k.line("int place = above;")
        if self.lanes > 1:
            k.line("#pragma unroll")
            k.open(f"for (int off = 1; off < {self.lanes}; off *= 2)")
            k.line("const int other = __shfl_up(place, off);")
            k.line("if (lane >= off) place += other;")
            k.close()
        k.line("place -= above;")
        self._tiles(k)
        self._each(k)
        k.line("const bool taken = key[e] > T;  // stored without a branch: some lane takes most elements")
        k.line(f"found[mine + (taken ? place : {self.best} + lane)] = (unsigned long long)key[e] << 32 | ~(unsigned)i;")
        k.line("place += taken;")
        k.close()
        k.close()

    def _equal(self, k: CallKernel) -> None:
        """Of those equal to T as many as are wanted, the smallest indices first; all lanes of a wave stay together."""
        self._tiles(k)
        k.line("unsigned equal = 0;  // a bit for each of this lane's elements")
        self._each(k)
        k.line(f"if (key[e] == T && i < {self.n}) equal |= 1u << e;")
        k.close()
        k.line("bool more = true;")
        k.open("while (more)")
        k.line("const int e = equal ? __ffs((int)equal) - 1 : 0;")
        place = f"(int)start + (e / {PACK} * {self.lanes} + lane) * {PACK} + e % {PACK}"
        k.line(f"const int low = equal ? {place} : 0x7fffffff;")
        k.line("int lowest = low;")
        if self.lanes > 1:
            k.line("#pragma unroll")
            k.open(f"for (int off = 1; off < {self.lanes}; off *= 2)")
            k.line("const int other = __shfl_xor(lowest, off);")
            k.line("lowest = other < lowest ? other : lowest;")
            k.close()
        k.open(f"if (equal && low == lowest && have < {self.take})")
        k.line("found[mine + have] = (unsigned long long)T << 32 | ~(unsigned)low;")
        k.line("equal &= equal - 1;")
        k.close()
        k.line("have += lowest != 0x7fffffff;")
        k.line(f"more = __any(have < {self.take} && lowest != 0x7fffffff);")
        k.close()
        k.close()
