"""A block's one walk over a long row: the few best keys, kept in LDS beside what may be better.

Almost nothing beats the k-th best so far, so an element costs its load and one comparison of values; keys are made of
the few that pass. A buffer takes those, and is sorted into the best when it is full: the filter of FAISS's block
selection (Johnson, Douze & Jegou 2017, "Billion-scale similarity search with GPUs"). The first bar comes from a sample:
the k-th of the threads' own best of a first chunk is no better than the k-th of the row.
"""

from __future__ import annotations

from collections.abc import Callable

from hipwright.engine.templates.call_kernel import CallKernel

ROOM = 2048
"""Keys of 8 bytes in LDS: the best and the buffer behind them."""
FEW = 512
"""Keys up to which the buffer is let grow before it is sorted: what is sorted early lets less pass."""
AHEAD = 16
"""Elements a thread asks for at once."""
NAMES = "keys count wanted least have turn at held i j v left valid mask wants more place sort top"

MERGE = """// Sort the best keys and the `have` new ones behind them, largest first; ends with a barrier.
template <int THREADS, int BEST>
__device__ void merge_keys(unsigned long long* keys, int have) {
    int size = BEST;
    while (size < BEST + have) size *= 2;
    for (int i = BEST + have + threadIdx.x; i < size; i += THREADS) keys[i] = 0;
    __syncthreads();
    sort_keys<THREADS>(keys, size, size);
}
"""


class Walk:
    """Writes it into a kernel. take: how many are kept; type: of the elements; element, key: the text of the element in
    place `i`, and of the key of an element there; value: the text of a key's element, against which others are held.
    largest: whether large elements come first. sort_keys must be defined.
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
        """keys[0..take) = the best keys of elements [start, end), largest first; 0 where there are fewer."""
        k, block = self.k, self.block
        k.define("merge_keys", MERGE)
        k.line(f"__shared__ unsigned long long keys[{ROOM}];  // the best so far, then what may be better")
        k.line("__shared__ int count, wanted[3];  // kept in the buffer; what each of three turns would keep")
        k.line(f"for (int i = threadIdx.x; i < {self.best}; i += {block}) keys[i] = 0;")
        k.line("if (threadIdx.x < 3) wanted[threadIdx.x] = 0;")
        k.line("if (threadIdx.x == 0) count = 0;")
        k.line("__syncthreads();")
        k.line(f"{self.type} least = {self.value('0ull')};  // the worst of the best; nothing is worse than none")
        k.line("int have = 0, turn = 0;")
        k.open(f"for (int at = {start}; at < {end}; at += {AHEAD} * {block}, turn = turn == 2 ? 0 : turn + 1)")
        k.line(f"const int left = {end} - at - (int)threadIdx.x;")
        k.line(f"const int valid = left > 0 ? (left + {block} - 1) / {block} : 0;")
        k.line(f"{self.type} held[{AHEAD}];  // asked for at once; `valid` of them are the row's")
        self._each("v")
        k.line(f"const int i = at + v * {block} + threadIdx.x;")
        k.line(f"const int j = i < {end} ? i : {end} - 1;  // a load under a condition would be waited for")
        k.line(f"held[v] = {self.element('j')};")
        k.close()
        self._sample(start, end)
        self._count(end)
        self._keep()
        k.close()
        k.line(f"if (have > 0) merge_keys<{block}, {self.best}>(keys, have);")

    def _each(self, name: str, count: int = AHEAD) -> None:
        self.k.line("#pragma unroll")
        self.k.open(f"for (int {name} = 0; {name} < {count}; ++{name})")

    def _sample(self, start: str, end: str) -> None:
        """The first bar, where more is to come than the buffer holds. Elements as good as it are to be kept here; later
        ones, which have larger indices, are worse."""
        k, block = self.k, self.block
        k.line("unsigned mask = 0;  // which of this thread's elements are better; NaN is one of them")
        k.open(f"if (at == {start})")
        k.open(f"if ({end} - {start} > {ROOM - self.best})")
        k.line("unsigned long long top = 0;  // this thread's best")
        self._each("v")
        k.line(f"const int i = at + v * {block} + threadIdx.x;")
        k.line(f"if (v < valid && {self.key('held[v]', 'i')} > top) top = {self.key('held[v]', 'i')};")
        k.close()
        k.line(f"keys[{self.best} + threadIdx.x] = top;")
        k.line("__syncthreads();")
        k.line(f"sort_keys<{block}>(keys + {self.best}, {block}, {block});")
        k.line(f"least = {self.value(f'keys[{self.best + self.take - 1}]')};")
        k.close()
        k.line("#pragma unroll")
        k.line(f"for (int v = 0; v < {AHEAD}; ++v) mask |= (unsigned)(held[v] == least) << v;")
        k.close()

    def _count(self, end: str) -> None:
        """The mask, and how many of the block's elements are in it, behind a barrier."""
        k = self.k
        worse = "<=" if self.largest else ">="
        k.line("#pragma unroll")
        k.line(f"for (int v = 0; v < {AHEAD}; ++v) mask |= (unsigned)!(held[v] {worse} least) << v;")
        k.line(f"if (valid < {AHEAD}) mask &= (1u << valid) - 1;")
        k.line("const int wants = __popc(mask);")
        k.line("if (wants > 0) atomicAdd(&wanted[turn], wants);")
        k.line("if (threadIdx.x == 0) wanted[turn == 2 ? 0 : turn + 1] = 0;  // read before the last barrier")
        k.line("__syncthreads();")

    def _keep(self) -> None:
        """The elements of `mask` into the buffer, which is sorted when it should not grow, or cannot."""
        k, room = self.k, ROOM - self.best
        k.line("int more = wanted[turn];  // of the whole block; the next turn's adds go elsewhere")
        k.line(f"bool sort = have > 0 && have + more > {min(max(FEW, 4 * self.best), ROOM) - self.best};")
        k.open("while (more > 0)")
        k.open("if (sort)")
        k.line(f"merge_keys<{self.block}, {self.best}>(keys, have);")
        k.line(f"least = {self.value(f'keys[{self.take - 1}]')};")
        k.line("have = 0;")
        k.line("if (threadIdx.x == 0) count = 0;")
        k.line("__syncthreads();")
        k.close()
        self._each("v")
        k.open("if (mask >> v & 1)")
        k.line("const int place = atomicAdd(&count, 1);")
        k.line(f"if (place >= {room}) continue;  // after the next sort")
        k.line(f"keys[{self.best} + place] = {self.key('held[v]', f'at + v * {self.block} + threadIdx.x')};")
        k.line("mask ^= 1u << v;")
        k.close()
        k.close()
        k.line("have += more;")
        k.line(f"sort = have > {room};")
        k.line(f"more = sort ? have - {room} : 0;")
        k.line("have -= more;")
        k.close()
