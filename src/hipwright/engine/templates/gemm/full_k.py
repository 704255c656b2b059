"""Products of a short k: a block keeps all of k in LDS, so that it waits for memory once and has one barrier.

Tiles that step along k (tiled.py) wait at each step, and a k of 64 has four steps only. Here every thread loads its
share of an operand at once, in registers, stores it to LDS, and multiplies after one barrier: 8 rows of threads, each
thread with FULL_K_M x 4 sums; A is stored [row][k] and read 16 bytes of k at a time, B [k][column] and read 16 bytes of
n. Several blocks on a unit hide each other's latency. FULL_K_M and FULL_K_N follow the size of the product, odd sizes
too, so that many small products waste little. Operands that cannot be vectorised are read element by element,
neighbours by neighbouring threads. A longer k is divided into pieces. float32 on the vector units only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, inf

from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel, factor
from hipwright.engine.templates.gemm.tiling import LAUNCH, ProductShape

NAMES = """TM TX THREADS a_tile b_tile loaded start tile tiles_m tiles_n row0 col0 b k0 acc x y i j l q v e
tx ty vec_index r kk p row col at depth_a depth_b rows_a rows_b"""
THREAD_ROWS, THREAD_COLUMNS = 8, 4
"""Rows of threads in a block; columns of a thread."""
MAX_THREAD_ROWS, MAX_COLUMNS, MAX_DEPTH = 8, 64, 72
"""The most rows of a thread, columns of a block, and k in LDS: 37 KiB."""
EVEN, UNEVEN = (4, 8), (2, 4)
"""Steps of k unrolled, and vectors that a thread loads before it stores the first (twice as many elements): of tiles
that k fills and four steps divide, and of others, whose remainders need registers of their own (with EVEN, RDNA's 256
do not suffice)."""
MAX_K = 128
"""The largest k for which this template is offered."""
MIN_BLOCKS = 512
"""The fewest blocks that hide each other's latency."""
MEASURED_RATE, MEASURED_READ_RATE = 34e12, 2.1e12
"""Operations and bytes a second of two tasks on an H200 (benchmarks/kernels/grouped_gemm), for the static rule."""


@dataclass(frozen=True)
class FullKTile:
    """FULL_K_M rows of a thread, FULL_K_N columns of a block, FULL_K_K deep."""

    rows: int
    columns: int
    depth: int


def smallest_tile(shape: ProductShape) -> FullKTile:
    """The smallest tile that holds the product, or the largest tile."""
    pieces = ceil(shape.k / MAX_DEPTH)
    rows, columns = ceil(shape.m / THREAD_ROWS), _multiple_of_four(shape.n)
    depth = _multiple_of_four(ceil(shape.k / pieces))
    return FullKTile(min(rows, MAX_THREAD_ROWS), min(columns, MAX_COLUMNS), depth)


def seconds(shape: ProductShape) -> float:
    """The estimated time: whole tiles at MEASURED_RATE, or bytes at MEASURED_READ_RATE; infinite for few blocks."""
    s = smallest_tile(shape)
    blocks = shape.batch * ceil(shape.m / (s.rows * THREAD_ROWS)) * ceil(shape.n / s.columns)
    if blocks < MIN_BLOCKS:
        return inf
    work = 2.0 * blocks * s.rows * THREAD_ROWS * s.columns * ceil(shape.k / s.depth) * s.depth
    moved = shape.item_bytes * shape.batch * (shape.m * shape.k + shape.n * shape.k + shape.m * shape.n)
    return LAUNCH + max(work / MEASURED_RATE, moved / MEASURED_READ_RATE)


def _multiple_of_four(size: int) -> int:
    return max(THREAD_COLUMNS, ceil(size / THREAD_COLUMNS) * THREAD_COLUMNS)


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel."""
    return [_FullK(body).kernel()]


class _FullK:
    """Writes the kernel; body.data is a GemmSpec."""

    def __init__(self, body: CallBody) -> None:
        self.spec = body.data
        batch, m, n, k = (body.hint(s) for s in (*self.spec.space, self.spec.k))
        best = smallest_tile(ProductShape(batch, m, n, k, self.spec.dtype))
        self.tm = body.knob("FULL_K_M", best.rows, _options((1, 2, 4, 6, 8), best.rows), "rows of a thread's sums")
        self.bn = body.knob("FULL_K_N", best.columns, _options((16, 32, 48, 64), best.columns), "columns of a block")
        self.bk = body.knob("FULL_K_K", best.depth, _options((16, 32, 64), best.depth), "depth of the tiles in LDS")
        even = k % best.depth == 0 and best.depth % (4 * THREAD_COLUMNS) == 0
        unroll, loads = EVEN if even else UNEVEN
        self.unroll = body.knob("FULL_K_UNROLL", unroll, (1, 2, 4), "steps of k unrolled")
        self.loads = body.knob("FULL_K_LOADS", loads, (2, 4, 8), "vectors that a thread loads at once")
        self.k: CallKernel = body.kernel("", NAMES)
        self.batch, self.m, self.n = (self.k.size(s) for s in self.spec.space)
        self.depth = self.k.size(self.spec.k)
        self.vectorised = n % THREAD_COLUMNS == 0
        a, b = (t for t in body.operands if t is not None)
        hints = {"a": (m, k), "b": (n, k)}
        self.tile_operands = [
            _FullKOperand(self.k, name, t, row, size, self.bk, self.loads, hints[name])
            for name, t, row, size in (("a", a, "row", f"({THREAD_ROWS} * TM)"), ("b", b, "col", self.bn))
        ]

    def kernel(self) -> EmittedKernel:
        """The kernel."""
        k = self.k
        self._declare_tiles()
        k.open(f"for ({k.kind} k0 = 0; k0 < {self.depth}; k0 += {self.bk})")
        k.line("if (k0 > 0) __syncthreads();  // the tiles are no longer read")
        for operand, limit in zip(self.tile_operands, (self.m, self.n), strict=True):
            operand.load_tile(limit, self.depth)
        k.line("__syncthreads();")
        self._multiply()
        k.close()
        self._store()
        batch, m, n = self.spec.space
        grid = f"cdiv({to_python(m)}, {THREAD_ROWS} * {self.tm}) * cdiv({to_python(n)}, {self.bn}) * {factor(batch)}"
        return k.finish(grid, f"2 * {self.bn}", f"2 * {self.bn}, 1", f"full-k tiles, {THREAD_ROWS} rows of threads")

    def _declare_tiles(self) -> None:
        k, bk, bn = self.k, self.bk, self.bn
        k.use("WideVector")
        k.line(f"constexpr int TM = {self.tm}, TX = {bn} / {THREAD_COLUMNS}, THREADS = TX * {THREAD_ROWS};")
        tiles = f"a_tile[{THREAD_ROWS} * TM][{bk} + 4], b_tile[{bk}][{bn} + 4]"
        k.line(f"__shared__ __attribute__((aligned(16))) float {tiles};")
        for operand in self.tile_operands:
            operand.declare()
        k.line("unsigned tile = blockIdx.x;")
        k.line(f"const unsigned tiles_n = ({self.n} + {bn} - 1) / {bn};")
        k.line(f"const unsigned tiles_m = ({self.m} + {THREAD_ROWS} * TM - 1) / ({THREAD_ROWS} * TM);")
        k.line(f"const {k.kind} col0 = tile % tiles_n * {bn};")
        k.line("tile /= tiles_n;")
        k.line(f"const {k.kind} row0 = tile % tiles_m * ({THREAD_ROWS} * TM), b = tile / tiles_m;")
        k.line("const int tx = threadIdx.x % TX, ty = threadIdx.x / TX;")
        k.line(f"float acc[TM][{THREAD_COLUMNS}] = {{}};")

    def _multiply(self) -> None:
        k = self.k
        k.line(f"#pragma unroll {self.unroll}")
        k.open(f"for (int q = 0; q < {self.bk}; q += {THREAD_COLUMNS})")
        k.line(f"WideVector<float, {THREAD_COLUMNS}> x[TM];")
        k.line("#pragma unroll")
        load = f"load_aligned<{THREAD_COLUMNS}>"
        k.line(f"for (int i = 0; i < TM; ++i) x[i] = {load}(&a_tile[i * {THREAD_ROWS} + ty][q]);")
        k.line("#pragma unroll")
        k.open(f"for (int v = 0; v < {THREAD_COLUMNS}; ++v)")
        k.line(f"const auto y = {load}(&b_tile[q + v][tx * {THREAD_COLUMNS}]);")
        k.line("#pragma unroll")
        k.open("for (int i = 0; i < TM; ++i)")
        k.line("#pragma unroll")
        k.line(f"for (int j = 0; j < {THREAD_COLUMNS}; ++j) acc[i][j] += x[i].v[v] * y.v[j];")
        for _ in range(3):
            k.close()

    def _store(self) -> None:
        """Vectorised where the whole tile is in range, without a test for each row: branches between the stores cost 15
        %.
        """
        k = self.k
        if self.vectorised:
            in_range = [
                f"({self.m} % ({THREAD_ROWS} * TM) == 0 || row0 + {THREAD_ROWS} * TM <= {self.m})",
                f"({self.n} % {self.bn} == 0 || col0 + {self.bn} <= {self.n})",
            ]
            aligned = k.vector_store_conditions(["b", "row", "col"], "col", str(THREAD_COLUMNS))
            k.open(f"if ({' && '.join([*aligned, *in_range])})")
            self._open_row_loop()
            k.epilogue_vector("acc[i][v]", ["b", "row", "col"], "col", str(THREAD_COLUMNS), aligned=True)
            k.close()
            k.line("return;")
            k.close()
        self._open_row_loop()
        k.line("#pragma unroll")
        k.open(f"for (int e = 0; e < {THREAD_COLUMNS}; ++e)")
        k.line(f"const {k.kind} at = col + e;")
        k.line(f"if (row >= {self.m} || at >= {self.n}) continue;")
        k.epilogue("acc[i][e]", ["b", "row", "at"])
        k.close()
        k.close()

    def _open_row_loop(self) -> None:
        k = self.k
        k.line("#pragma unroll")
        k.open("for (int i = 0; i < TM; ++i)")
        k.line(f"const {k.kind} row = row0 + i * {THREAD_ROWS} + ty, col = col0 + tx * {THREAD_COLUMNS};")


@dataclass(eq=False)
class _FullKOperand:
    """One operand, loaded from memory through registers to LDS. hints: its rows and k at capture."""

    k: CallKernel
    name: str
    operand: Tensor
    row: str
    size: str
    bk: str
    loads: str
    hints: tuple[int, int]

    def declare(self) -> None:
        """Decides whether loads are vectorised."""
        k = self.k
        self.along_k = k.runs_along(self.operand, 2) or not k.runs_along(self.operand, 1)
        self.axis = "p" if self.along_k else self.row
        self.vectorised = self.hints[self.along_k] % THREAD_COLUMNS == 0
        self.conditions: list[str] = []
        if self.vectorised:
            index = ["b", self.row, "p"]
            self.conditions = k.vector_conditions(self.operand, index, self.axis, str(THREAD_COLUMNS), address=False)
            k.copy_unaligned(self.operand, index, self.axis, THREAD_COLUMNS)

    def load_tile(self, limit: str, depth: str) -> None:
        """Memory to LDS, zero beyond k: vectorised where the whole tile is in range, else element by element."""
        k, start = self.k, f"{self.row}0"
        if self.vectorised:
            in_range = [
                f"({limit} % ({self.size}) == 0 || {start} + {self.size} <= {limit})",
                f"({depth} % {self.bk} == 0 || k0 + {self.bk} <= {depth})",
            ]
            k.open(f"if ({' && '.join([*self.conditions, *in_range])})")
            self._copy(THREAD_COLUMNS, self.bk, self.size, f"{self.size} * {self.bk} / {THREAD_COLUMNS}")
            k.close()
            k.open("else")
        depth_here, rows_here = f"depth_{self.name}", f"rows_{self.name}"
        k.line(f"const int {depth_here} = {depth} - k0 < {self.bk} ? {depth} - k0 : {self.bk};")
        k.line(f"const int {rows_here} = {limit} - {start} < {self.size} ? {limit} - {start} : {self.size};")
        self._copy(1, depth_here, rows_here, f"{depth_here} * {rows_here}")
        self._zero_k_tail(depth_here)
        if self.vectorised:
            k.close()

    def _copy(self, width: int, depth_here: str, rows_here: str, count: str) -> None:
        """Copies depth_here x rows_here elements in vectors of `width`: as many loads as registers hold, then their
        stores to LDS.
        """
        k, most = self.k, self.loads if width > 1 else f"(2 * {self.loads})"
        k.line("#pragma unroll 1")
        k.open(f"for (int start = 0; start < {count}; start += {most} * THREADS)")
        k.line(f"float loaded[{most}][{width}];")
        for emit in (self._load, self._store_to_lds):
            k.line("#pragma unroll")
            k.open(f"for (int l = 0; l < {most}; ++l)")
            k.line("const int vec_index = start + l * THREADS + threadIdx.x;")
            k.line(f"if (({count}) % ({most} * THREADS) != 0 && vec_index >= {count}) continue;")
            long, (fast, slow) = (depth_here, ("kk", "r")) if self.along_k else (rows_here, ("r", "kk"))
            vectors = f"({long} / {width})" if width > 1 else long
            scaled = f" * {width}" if width > 1 else ""
            k.line(f"const int {fast} = vec_index % {vectors}{scaled}, {slow} = vec_index / {vectors};")
            emit(width)
            k.close()
        k.close()

    def _load(self, width: int) -> None:
        k, index = self.k, ["b", self.row, "p"]
        k.line(f"const {k.kind} {self.row} = {self.row}0 + r, p = k0 + kk;")
        if width > 1:
            k.vector(self.operand, index, self.axis, str(width), "loaded[l]", dtype="float32", aligned=True)
        else:
            k.line(f"loaded[l][0] = {k.load(self.operand, index, 'float32')};")

    def _store_to_lds(self, width: int) -> None:
        """Vectorised where a row of the LDS tile is contiguous in memory, too."""
        k, is_a = self.k, self.name == "a"
        first, second = ("r", "kk") if is_a else ("kk", "r")
        if width == 1:
            k.line(f"{self.name}_tile[{first}][{second}] = loaded[l][0];")
        elif self.along_k == is_a:
            k.use("store_lds_vector")
            k.line(f"store_lds_vector(&{self.name}_tile[{first}][{second}], loaded[l]);")
        else:
            k.line("#pragma unroll")
            k.line(f"for (int v = 0; v < {width}; ++v) {self.name}_tile[{first} + v][{second}] = loaded[l][v];")

    def _zero_k_tail(self, depth_here: str) -> None:
        """Zeros where k ends before the tile. Rows and columns out of range give sums that are not stored."""
        k, place = self.k, "[r][kk]" if self.name == "a" else "[kk][r]"
        count = f"{self.size} * ({self.bk} - {depth_here})"
        k.open(f"for (int vec_index = threadIdx.x; vec_index < {count}; vec_index += THREADS)")
        k.line(f"const int r = vec_index % {self.size}, kk = {depth_here} + vec_index / {self.size};")
        k.line(f"{self.name}_tile{place} = 0.0f;")
        k.close()


def _options(usual: Iterable[int], default: int) -> tuple[int, ...]:
    return tuple(sorted({*usual, default}))
