"""The few best of short rows: neighbouring lanes share a row and keep it in registers.

A lane loads vectors of the row, at most 32 elements at once, as 32-bit ranks in unsigned order. Branch-free sorting
networks (Batcher, AFIPS 1968) give the best of each eight; two sorted lists are merged by comparing one with the other
reversed, which leaves the better half in bitonic order; lanes merge by shuffles. This gives the worst rank that is
taken, the cutoff. Only then indices matter: ranks above the cutoff go to LDS, of those equal to it as many as are
wanted in the order of their indices, and each of the few finds its place by comparison with the others.
"""

from __future__ import annotations

from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.select.block import NAMES as BLOCK_NAMES
from hipwright.engine.templates.select.block import Selection, SelectionWriter, bool_text

MAX_TAKE, MAX_LENGTH, ITEMS, PACK = 8, 1024, 32, 4
NAMES = (
    f"{BLOCK_NAMES} lane row_exists selected row_base load_tile_ranks vectorised value g e p other distance "
    "above_count slot cutoff equal_mask index first_index unfinished taken_count is_above"
)


def sorting_network(n: int) -> list[tuple[int, int]]:
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
    """sort_ranks and merge_best for lists of `best` ranks, largest first."""
    sort = "\n".join(f"    order_pair(a[{i}], a[{j}]);" for i, j in sorting_network(best))
    halves, half = [], best // 2
    while half:
        halves += [(i, i + half) for i in range(best) if not i & half]
        half //= 2
    merge = "\n".join(f"    order_pair(a[{i}], a[{j}]);" for i, j in halves)
    return f"""__device__ __forceinline__ void sort_ranks(unsigned (&a)[{best}]) {{
{sort}
}}
// Replaces list a by the larger half of the sorted lists a and b, sorted.
__device__ __forceinline__ void merge_best(unsigned (&a)[{best}], const unsigned (&b)[{best}]) {{
    #pragma unroll
    for (int k = 0; k < {best}; ++k) a[k] = a[k] > b[{best - 1} - k] ? a[k] : b[{best - 1} - k];
{merge}
}}
"""


def fits_registers(take: int | None, length: int) -> bool:
    """Whether few enough are taken and captured rows are short enough for registers; longer rows are handled, too."""
    return take is not None and take <= MAX_TAKE and length <= MAX_LENGTH


def write_lanes(body: CallBody) -> list[EmittedKernel]:
    """One kernel; a row has `lanes` neighbouring lanes."""
    return [_LaneSelection(body).kernel()]


class _LaneSelection(SelectionWriter):
    """Writes the kernel."""

    def __init__(self, body: CallBody) -> None:
        super().__init__(body, body.data, body.kernel(names=NAMES))
        s: Selection = body.data
        assert s.take is not None
        length = max(body.hint(s.length), 1)
        self.take, self.best = s.take, 1 << (s.take - 1).bit_length()
        self.items = max(min(1 << (max(length // 4, 1) - 1).bit_length(), ITEMS), MAX_TAKE)
        self.lanes = min(1 << (-(-length // self.items) - 1).bit_length(), 32)
        self.n = self.k.size(s.length)
        self.tile = self.lanes * self.items
        self.block = body.knob("SELECT_LANES_BLOCK", 128, (64, 128, 256), "threads of a block that selects by lanes")

    def kernel(self) -> EmittedKernel:
        """The kernel."""
        s, k, block = self.s, self.k, self.block
        k.use("make_key", "key_value", "to_rank", "order_pair")
        k.define(f"merge_best_{self.best}", _functions(self.best))
        rows = k.size(s.rows)
        row_slots = self.best + self.lanes  # a lane also stores what is not taken, in a slot of its own
        k.line(f"__shared__ unsigned long long selected[{block} / {self.lanes} * {row_slots}];")
        k.line(f"const int lane = threadIdx.x % {self.lanes};")
        k.line(f"const {k.kind} first = blockIdx.x * ({k.kind})({block} / {self.lanes}) + threadIdx.x / {self.lanes};")
        k.line(f"const bool row_exists = first < {rows};  // the last block may have more lanes than rows")
        k.line(f"const {k.kind} row = row_exists ? first : {rows} - 1;")
        k.line(f"const int row_base = threadIdx.x / {self.lanes} * {row_slots};")
        self._emit_load_tile(k)
        self._emit_cutoff(k)
        self._emit_above(k)
        self._emit_equal(k)
        k.line("__syncthreads();")
        k.open(f"for (int e = lane; e < {self.take} && row_exists; e += {self.lanes})")
        k.line("const unsigned long long key = selected[row_base + e];")
        k.line("int rank = 0;")
        k.line("#pragma unroll")
        k.line(f"for (int other = 0; other < {self.take}; ++other) rank += selected[row_base + other] > key;")
        if s.only:
            k.line(f"if (rank != {self.take - 1}) continue;")
        self.store("key", "row", "0" if s.only else "rank")
        k.close()
        grid = f"cdiv({to_python(s.rows)}, {block} // {self.lanes})"
        return k.finish(grid, block, block, f"the best {s.take} of a row, {self.lanes} lanes a row")

    # ------------------------------------------------------------ the row in registers

    def _emit_load_tile(self, k: CallKernel) -> None:
        """Defines load_tile_ranks(start): the ranks of this lane's vectors."""
        x = self.body.operands[0]
        assert x is not None
        wide = k.runs_along(x, 1)
        if wide:
            tests = [f"{self.n} % {PACK} == 0", *k.vector_conditions(x, ["row", "base"], "base", str(PACK))]
            k.line(f"const bool vectorised = {' && '.join(dict.fromkeys(tests))};")
        k.line(f"unsigned key[{self.items}];")
        k.open(f"const auto load_tile_ranks = [&](const {k.kind} start)")
        for how in ("vectorised", "single") if wide else ("single",):
            if how == "vectorised":
                k.open("if (vectorised)")
            k.line("#pragma unroll")
            k.open(f"for (int p = 0; p < {self.items // PACK}; ++p)")
            k.line(f"const {k.kind} base = start + (p * {self.lanes} + lane) * {PACK};")
            k.line("#pragma unroll")
            k.line(f"for (int e = 0; e < {PACK}; ++e) key[p * {PACK} + e] = 0;")
            self._load_vector(k, x) if how == "vectorised" else self._load_elements(k, x)
            k.close()
            if how == "vectorised":
                k.line("return;")
                k.close()
        k.close(";")

    def _load_vector(self, k: CallKernel, x: Tensor) -> None:
        k.line(f"if (base >= {self.n}) continue;")
        k.line(f"{self.type} value[{PACK}];")
        k.vector(x, ["row", "base"], "base", str(PACK), "value", aligned=True)
        k.line("#pragma unroll")
        k.line(f"for (int e = 0; e < {PACK}; ++e) key[p * {PACK} + e] = {self._rank_text('value[e]')};")

    def _load_elements(self, k: CallKernel, x: Tensor) -> None:
        k.line("#pragma unroll")
        k.open(f"for (int e = 0; e < {PACK}; ++e)")
        k.line(f"const {k.kind} i = base + e;")
        k.line(f"if (i >= {self.n}) continue;")
        k.line(f"key[p * {PACK} + e] = {self._rank_text(k.load(x, ['row', 'i']))};")
        k.close()

    def _rank_text(self, value: str) -> str:
        return f"to_rank<{bool_text(self.s.largest)}>(({self.type})({value}))"

    def _open_tile_loop(self, k: CallKernel) -> None:
        """Opens another loop over the row; a single tile is still in registers."""
        k.open(f"for ({k.kind} start = 0; start < {self.n}; start += {self.tile})")
        k.line(f"if ({self.n} > {self.tile}) load_tile_ranks(start);")

    def _open_element_loop(self, k: CallKernel) -> None:
        """Opens the loop over this lane's elements of the tile: `e`, and index `i` in the row."""
        k.line("#pragma unroll")
        k.open(f"for (int e = 0; e < {self.items}; ++e)")
        k.line(f"const {k.kind} i = start + (e / {PACK} * {self.lanes} + lane) * {PACK} + e % {PACK};")

    # ------------------------------------------------------------ what is taken

    def _emit_cutoff(self, k: CallKernel) -> None:
        """Computes the cutoff: the worst rank that is taken."""
        k.line(f"unsigned best[{self.best}] = {{}};")
        k.open(f"for ({k.kind} start = 0; start < {self.n}; start += {self.tile})")
        k.line("load_tile_ranks(start);")
        k.line("#pragma unroll")
        k.open(f"for (int g = 0; g < {self.items}; g += {self.best})")
        k.line(f"unsigned other[{self.best}];")
        k.line("#pragma unroll")
        k.line(f"for (int e = 0; e < {self.best}; ++e) other[e] = key[g + e];")
        k.line("sort_ranks(other);")
        k.line("merge_best(best, other);")
        k.close()
        k.close()
        if self.lanes > 1:
            k.line("#pragma unroll")
            k.open(f"for (int distance = 1; distance < {self.lanes}; distance *= 2)")
            k.line(f"unsigned other[{self.best}];")
            k.line("#pragma unroll")
            k.line(f"for (int e = 0; e < {self.best}; ++e) other[e] = __shfl_xor(best[e], distance);")
            k.line("merge_best(best, other);")
            k.close()
        k.line(f"const unsigned cutoff = best[{self.take - 1}];  // the worst rank that is taken")

    def _emit_above(self, k: CallKernel) -> None:
        """Stores what ranks above the cutoff to LDS; taken_count: how many the row has."""
        k.line("int taken_count = 0, above_count = 0;")
        k.line("#pragma unroll")
        k.line(f"for (int e = 0; e < {self.take}; ++e) taken_count += best[e] > cutoff;")
        self._open_tile_loop(k)
        k.line("#pragma unroll")
        k.line(f"for (int e = 0; e < {self.items}; ++e) above_count += key[e] > cutoff;")
        k.close()
        k.line("int slot = above_count;")
        if self.lanes > 1:
            k.line("#pragma unroll")
            k.open(f"for (int distance = 1; distance < {self.lanes}; distance *= 2)")
            k.line("const int other = __shfl_up(slot, distance);")
            k.line("if (lane >= distance) slot += other;")
            k.close()
        k.line("slot -= above_count;")
        self._open_tile_loop(k)
        self._open_element_loop(k)
        k.line("const bool is_above = key[e] > cutoff;  // no branch: some lane takes most elements")
        place = f"row_base + (is_above ? slot : {self.best} + lane)"
        k.line(f"selected[{place}] = (unsigned long long)key[e] << 32 | ~(unsigned)i;")
        k.line("slot += is_above;")
        k.close()
        k.close()

    def _emit_equal(self, k: CallKernel) -> None:
        """Takes as many elements equal to the cutoff as are wanted, smallest indices first; the lanes of a wave stay
        together.
        """
        self._open_tile_loop(k)
        k.line("unsigned equal_mask = 0;  // a bit for each of this lane's elements")
        self._open_element_loop(k)
        k.line(f"if (key[e] == cutoff && i < {self.n}) equal_mask |= 1u << e;")
        k.close()
        k.line("bool unfinished = true;")
        k.open("while (unfinished)")
        k.line("const int e = equal_mask ? __ffs((int)equal_mask) - 1 : 0;")
        place = f"(int)start + (e / {PACK} * {self.lanes} + lane) * {PACK} + e % {PACK}"
        k.line(f"const int index = equal_mask ? {place} : 0x7fffffff;")
        k.line("int first_index = index;")
        if self.lanes > 1:
            k.line("#pragma unroll")
            k.open(f"for (int distance = 1; distance < {self.lanes}; distance *= 2)")
            k.line("const int other = __shfl_xor(first_index, distance);")
            k.line("first_index = other < first_index ? other : first_index;")
            k.close()
        k.open(f"if (equal_mask && index == first_index && taken_count < {self.take})")
        k.line("selected[row_base + taken_count] = (unsigned long long)cutoff << 32 | ~(unsigned)index;")
        k.line("equal_mask &= equal_mask - 1;")
        k.close()
        k.line("taken_count += first_index != 0x7fffffff;")
        k.line(f"unfinished = __any(taken_count < {self.take} && first_index != 0x7fffffff);")
        k.close()
        k.close()
