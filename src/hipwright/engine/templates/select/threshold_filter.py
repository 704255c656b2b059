"""A single pass of a block over a long row: the few best keys are kept in LDS, with a buffer of candidates behind them.

Almost no element beats the k-th best so far, so an element costs its load and one comparison of values; keys are made
only of those that pass. The buffer collects these, and is sorted into the best when it is full: the filter of FAISS's
block selection (Johnson, Douze & Jegou 2017, "Billion-scale similarity search with GPUs"). The first threshold comes
from a sample: the k-th of the threads' best elements of a first chunk is no better than the k-th of the row.
"""

from __future__ import annotations

from collections.abc import Callable

from hipwright.engine.templates.call_kernel import CallKernel

LDS_KEYS = 2048
"""Keys of 8 bytes in LDS: the best and the buffer behind them."""
EARLY_SORT_KEYS = 512
"""Keys to which the buffer may grow before it is sorted: sorting early raises the threshold."""
LOADS_AT_ONCE = 16
"""Elements that a thread loads at once."""
NAMES = """keys buffer_count better_counts threshold new_count phase base loaded i j v remaining valid_count mask
better_count to_add slot must_sort thread_best"""


class ThresholdFilter:
    """Writes the pass into a kernel, for which bitonic_sort_keys must be defined.

    take: how many are kept; type: C type of the elements; element(i), key(element, i): C text of the element at index
    i, and of its key; value(key): C text of the value that a key stands for; largest: whether large elements come
    first.
    """

    def __init__(
        self,
        kernel: CallKernel,
        take: int,
        block: str,
        type: str,
        element: Callable[[str], str],
        key: Callable[[str, str], str],
        value: Callable[[str], str],
        largest: bool,
    ) -> None:
        self.k, self.take, self.block, self.type = kernel, take, block, type
        self.element, self.key, self.value, self.largest = element, key, value, largest
        self.best = 1 << max(take - 1, 1).bit_length()

    def write(self, start: str, end: str) -> None:
        """Emits keys[0..take) = the best keys of elements [start, end), largest first; 0 where there are fewer."""
        k, block = self.k, self.block
        k.use("merge_new_keys")
        k.line(f"__shared__ unsigned long long keys[{LDS_KEYS}];  // the best so far, then the buffer of candidates")
        k.line("__shared__ int buffer_count, better_counts[3];  // keys in the buffer; better elements in 3 phases")
        k.line(f"for (int i = threadIdx.x; i < {self.best}; i += {block}) keys[i] = 0;")
        k.line("if (threadIdx.x < 3) better_counts[threadIdx.x] = 0;")
        k.line("if (threadIdx.x == 0) buffer_count = 0;")
        k.line("__syncthreads();")
        k.line(f"{self.type} threshold = {self.value('0ull')};  // the worst of the best so far")
        k.line("int new_count = 0, phase = 0;")
        next_phase = "phase = phase == 2 ? 0 : phase + 1"
        k.open(f"for (int base = {start}; base < {end}; base += {LOADS_AT_ONCE} * {block}, {next_phase})")
        k.line(f"const int remaining = {end} - base - (int)threadIdx.x;")
        k.line(f"const int valid_count = remaining > 0 ? (remaining + {block} - 1) / {block} : 0;")
        k.line(f"{self.type} loaded[{LOADS_AT_ONCE}];  // loaded at once; valid_count of them belong to the row")
        self._open_unrolled("v")
        k.line(f"const int i = base + v * {block} + threadIdx.x;")
        k.line(f"const int j = i < {end} ? i : {end} - 1;  // a legal index: a conditional load would be waited for")
        k.line(f"loaded[v] = {self.element('j')};")
        k.close()
        self._emit_first_threshold(start, end)
        self._emit_count(end)
        self._emit_collect()
        k.close()
        k.line(f"if (new_count > 0) merge_new_keys<{block}, {self.best}>(keys, new_count);")

    def _open_unrolled(self, name: str, count: int = LOADS_AT_ONCE) -> None:
        self.k.line("#pragma unroll")
        self.k.open(f"for (int {name} = 0; {name} < {count}; ++{name})")

    def _emit_first_threshold(self, start: str, end: str) -> None:
        """The first threshold, where more elements follow than the buffer holds. Elements equal to it are kept here;
        later ones, which have larger indices, are worse.
        """
        k, block = self.k, self.block
        k.line("unsigned mask = 0;  // bit v: element v is better than the threshold; NaN is better")
        k.open(f"if (base == {start})")
        k.open(f"if ({end} - {start} > {LDS_KEYS - self.best})")
        k.line("unsigned long long thread_best = 0;  // the best key of this thread")
        self._open_unrolled("v")
        k.line(f"const int i = base + v * {block} + threadIdx.x;")
        key = self.key("loaded[v]", "i")
        k.line(f"if (v < valid_count && {key} > thread_best) thread_best = {key};")
        k.close()
        k.line(f"keys[{self.best} + threadIdx.x] = thread_best;")
        k.line("__syncthreads();")
        k.line(f"bitonic_sort_keys<{block}>(keys + {self.best}, {block}, {block});")
        k.line(f"threshold = {self.value(f'keys[{self.best + self.take - 1}]')};")
        k.close()
        k.line("#pragma unroll")
        k.line(f"for (int v = 0; v < {LOADS_AT_ONCE}; ++v) mask |= (unsigned)(loaded[v] == threshold) << v;")
        k.close()

    def _emit_count(self, end: str) -> None:
        """Computes the mask, and counts the block's elements in it, with a barrier."""
        k = self.k
        worse = "<=" if self.largest else ">="
        k.line("#pragma unroll")
        k.line(f"for (int v = 0; v < {LOADS_AT_ONCE}; ++v) mask |= (unsigned)!(loaded[v] {worse} threshold) << v;")
        k.line(f"if (valid_count < {LOADS_AT_ONCE}) mask &= (1u << valid_count) - 1;")
        k.line("const int better_count = __popc(mask);")
        k.line("if (better_count > 0) atomicAdd(&better_counts[phase], better_count);")
        k.line("if (threadIdx.x == 0) better_counts[phase == 2 ? 0 : phase + 1] = 0;  // read before the last barrier")
        k.line("__syncthreads();")

    def _emit_collect(self) -> None:
        """Adds the elements of `mask` to the buffer, which is sorted before it would grow too large or overflow."""
        k, buffer_size = self.k, LDS_KEYS - self.best
        k.line("int to_add = better_counts[phase];  // of the whole block; the next phase counts elsewhere")
        allowed = min(max(EARLY_SORT_KEYS, 4 * self.best), LDS_KEYS) - self.best
        k.line(f"bool must_sort = new_count > 0 && new_count + to_add > {allowed};")
        k.open("while (to_add > 0)")
        k.open("if (must_sort)")
        k.line(f"merge_new_keys<{self.block}, {self.best}>(keys, new_count);")
        k.line(f"threshold = {self.value(f'keys[{self.take - 1}]')};")
        k.line("new_count = 0;")
        k.line("if (threadIdx.x == 0) buffer_count = 0;")
        k.line("__syncthreads();")
        k.close()
        self._open_unrolled("v")
        k.open("if (mask >> v & 1)")
        k.line("const int slot = atomicAdd(&buffer_count, 1);")
        k.line(f"if (slot >= {buffer_size}) continue;  // stored after the next sort")
        k.line(f"keys[{self.best} + slot] = {self.key('loaded[v]', f'base + v * {self.block} + threadIdx.x')};")
        k.line("mask ^= 1u << v;")
        k.close()
        k.close()
        k.line("new_count += to_add;")
        k.line(f"must_sort = new_count > {buffer_size};")
        k.line(f"to_add = must_sort ? new_count - {buffer_size} : 0;")
        k.line("new_count -= to_add;")
        k.close()
