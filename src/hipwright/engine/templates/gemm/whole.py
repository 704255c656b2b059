"""Products of a short k: a block keeps all of it in LDS, so it waits for memory once and for its threads once.

Tiles that walk along k (gemm.py) wait at each step; a k of 64 has four, and nothing to do meanwhile. Here every thread
asks for its share of an operand at once, in registers, hands it to LDS, and after one barrier multiplies: 8 rows of
threads, each with WHOLE_M x 4 sums; A row-major and read 16 bytes of k at a time, B k-major and read 16 bytes of n.
Several blocks on a unit hide each other's waits. WHOLE_M and WHOLE_N follow the product's size, odd ones too, so that
many small products waste little; operands that no pack suits are read element by element, neighbours by neighbouring
threads. A longer k is cut into pieces. float32 on the vector units alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, inf

from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.core import Tensor
from hipwright.engine.templates.access import WIDE as ACCESS
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel, factor
from hipwright.engine.templates.gemm.side import KEEP
from hipwright.engine.templates.gemm.tiling import LAUNCH, ProductShape

NAMES = """TM TX THREADS a_tile b_tile next start t tiles_m tiles_n row0 col0 b k0 acc x y i j l q v e
tx ty slot r kk p row col at deep_a deep_b wide_a wide_b"""
LINES, WIDE = 8, 4
"""Rows of threads; columns of a thread."""
MOST_ROWS, MOST_COLUMNS, MOST_DEPTH = 8, 64, 72
"""Of a thread, of a block, and of k in LDS: 37 KiB."""
AT_ONCE = {WIDE: 8, 1: 16}
"""Packs, or elements, that a thread asks for at once."""
MOST_K = 128
"""Up to which this is offered."""
BLOCKS = 512
"""From which on others hide a block's waits."""
RATE, READ = 34e12, 2.1e12
"""Operations and bytes a second of two tasks on an H200 (benchmarks/kernels/grouped_gemm): a rule to choose by."""


@dataclass(frozen=True)
class Sizes:
    """WHOLE_M rows of a thread, WHOLE_N columns of a block, WHOLE_K deep."""

    rows: int
    columns: int
    depth: int


def sizes(shape: ProductShape) -> Sizes:
    """The smallest that hold the product, or the largest."""
    pieces = ceil(shape.k / MOST_DEPTH)
    return Sizes(
        min(ceil(shape.m / LINES), MOST_ROWS), min(_fours(shape.n), MOST_COLUMNS), _fours(ceil(shape.k / pieces))
    )


def seconds(shape: ProductShape) -> float:
    """Whole tiles at RATE, or what is moved at READ; never for few blocks. A rule to choose by, no prediction."""
    s = sizes(shape)
    blocks = shape.batch * ceil(shape.m / (s.rows * LINES)) * ceil(shape.n / s.columns)
    if blocks < BLOCKS:
        return inf
    work = 2.0 * blocks * s.rows * LINES * s.columns * ceil(shape.k / s.depth) * s.depth
    moved = shape.item * shape.batch * (shape.m * shape.k + shape.n * shape.k + shape.m * shape.n)
    return LAUNCH + max(work / RATE, moved / READ)


def _fours(size: int) -> int:
    return max(WIDE, ceil(size / WIDE) * WIDE)


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel."""
    return [_Whole(body).kernel()]


class _Whole:
    """body.data is gemm.py's Spec."""

    def __init__(self, body: CallBody) -> None:
        self.spec = body.data
        batch, m, n, k = (body.hint(s) for s in (*self.spec.space, self.spec.k))
        best = sizes(ProductShape(batch, m, n, k, self.spec.dtype))
        self.tm = body.knob("WHOLE_M", best.rows, _options((1, 2, 4, 6, 8), best.rows), "rows of a thread's sums")
        self.bn = body.knob("WHOLE_N", best.columns, _options((16, 32, 48, 64), best.columns), "columns of a block")
        self.bk = body.knob("WHOLE_K", best.depth, _options((16, 32, 64), best.depth), "depth of the tiles in LDS")
        self.k: CallKernel = body.kernel("", NAMES)
        self.batch, self.m, self.n = (self.k.size(s) for s in self.spec.space)
        self.depth = self.k.size(self.spec.k)
        self.packs = n % WIDE == 0
        a, b = (t for t in body.operands if t is not None)
        hints = {"a": (m, k), "b": (n, k)}
        self.sides = [
            _Side(self.k, name, t, row, size, self.bk, hints[name])
            for name, t, row, size in (("a", a, "row", f"({LINES} * TM)"), ("b", b, "col", self.bn))
        ]

    def kernel(self) -> EmittedKernel:
        """The text."""
        k = self.k
        self._constants()
        k.open(f"for ({k.kind} k0 = 0; k0 < {self.depth}; k0 += {self.bk})")
        k.line("if (k0 > 0) __syncthreads();  // the tiles have been read")
        for side, limit in zip(self.sides, (self.m, self.n), strict=True):
            side.bring(limit, self.depth)
        k.line("__syncthreads();")
        self._multiply()
        k.close()
        self._store()
        batch, m, n = self.spec.space
        grid = f"cdiv({to_python(m)}, {LINES} * {self.tm}) * cdiv({to_python(n)}, {self.bn}) * {factor(batch)}"
        return k.finish(grid, f"2 * {self.bn}", f"2 * {self.bn}, 1", f"tiles of all k, {LINES} rows of threads")

    def _constants(self) -> None:
        k, bk, bn = self.k, self.bk, self.bn
        k.define("AlignedWide", ACCESS)
        k.line(f"constexpr int TM = {self.tm}, TX = {bn} / {WIDE}, THREADS = TX * {LINES};")
        k.line(f"__shared__ __attribute__((aligned(16))) float a_tile[{LINES} * TM][{bk} + 4], b_tile[{bk}][{bn} + 4];")
        for side in self.sides:
            side.declare()
        k.line("unsigned t = blockIdx.x;")
        k.line(f"const unsigned tiles_n = ({self.n} + {bn} - 1) / {bn};")
        k.line(f"const unsigned tiles_m = ({self.m} + {LINES} * TM - 1) / ({LINES} * TM);")
        k.line(f"const {k.kind} col0 = t % tiles_n * {bn};")
        k.line("t /= tiles_n;")
        k.line(f"const {k.kind} row0 = t % tiles_m * ({LINES} * TM), b = t / tiles_m;")
        k.line("const int tx = threadIdx.x % TX, ty = threadIdx.x / TX;")
        k.line(f"float acc[TM][{WIDE}] = {{}};")

    def _multiply(self) -> None:
        k = self.k
        k.line("#pragma unroll 4")
        k.open(f"for (int q = 0; q < {self.bk}; q += {WIDE})")
        k.line(f"AlignedWide<float, {WIDE}> x[TM];")
        k.line("#pragma unroll")
        k.line(f"for (int i = 0; i < TM; ++i) x[i] = load_aligned<{WIDE}>(&a_tile[i * {LINES} + ty][q]);")
        k.line("#pragma unroll")
        k.open(f"for (int v = 0; v < {WIDE}; ++v)")
        k.line(f"const auto y = load_aligned<{WIDE}>(&b_tile[q + v][tx * {WIDE}]);")
        k.line("#pragma unroll")
        k.open("for (int i = 0; i < TM; ++i)")
        k.line("#pragma unroll")
        k.line(f"for (int j = 0; j < {WIDE}; ++j) acc[i][j] += x[i].v[v] * y.v[j];")
        for _ in range(3):
            k.close()

    def _store(self) -> None:
        """Packs where the whole tile is there, with no test a row: branches between the stores cost 15 %."""
        k = self.k
        if self.packs:
            there = [
                f"({self.m} % ({LINES} * TM) == 0 || row0 + {LINES} * TM <= {self.m})",
                f"({self.n} % {self.bn} == 0 || col0 + {self.bn} <= {self.n})",
            ]
            suits = k.wide_stores(["b", "row", "col"], "col", str(WIDE))
            k.open(f"if ({' && '.join([*suits, *there])})")
            self._rows()
            k.epilogue_vector("acc[i][v]", ["b", "row", "col"], "col", str(WIDE), aligned=True)
            k.close()
            k.line("return;")
            k.close()
        self._rows()
        k.line("#pragma unroll")
        k.open(f"for (int e = 0; e < {WIDE}; ++e)")
        k.line(f"const {k.kind} at = col + e;")
        k.line(f"if (row >= {self.m} || at >= {self.n}) continue;")
        k.epilogue("acc[i][e]", ["b", "row", "at"])
        k.close()
        k.close()

    def _rows(self) -> None:
        k = self.k
        k.line("#pragma unroll")
        k.open("for (int i = 0; i < TM; ++i)")
        k.line(f"const {k.kind} row = row0 + i * {LINES} + ty, col = col0 + tx * {WIDE};")


@dataclass(eq=False)
class _Side:
    """One operand: from memory through a thread's registers to LDS. hints: its rows and k at capture."""

    k: CallKernel
    name: str
    operand: Tensor
    row: str
    size: str
    bk: str
    hints: tuple[int, int]

    def declare(self) -> None:
        """Whether packs suit."""
        k = self.k
        self.along_k = k.contiguous(self.operand, 2) or not k.contiguous(self.operand, 1)
        self.axis = "p" if self.along_k else self.row
        self.packs = self.hints[self.along_k] % WIDE == 0
        self.conditions: list[str] = []
        if self.packs:
            index = ["b", self.row, "p"]
            self.conditions = [c for c in k.wide(self.operand, index, self.axis, str(WIDE)) if "suits" not in c]
            k.lines_up(self.operand, index, self.axis, WIDE)

    def bring(self, limit: str, depth: str) -> None:
        """Memory to LDS, zero behind k: packs where all of the tile is there, else one by one."""
        k, start = self.k, f"{self.row}0"
        if self.packs:
            there = [
                f"({limit} % ({self.size}) == 0 || {start} + {self.size} <= {limit})",
                f"({depth} % {self.bk} == 0 || k0 + {self.bk} <= {depth})",
            ]
            k.open(f"if ({' && '.join([*self.conditions, *there])})")
            self._batches(WIDE, self.bk, self.size, f"{self.size} * {self.bk} / {WIDE}")
            k.close()
            k.open("else")
        deep, wide = f"deep_{self.name}", f"wide_{self.name}"
        k.line(f"const int {deep} = {depth} - k0 < {self.bk} ? {depth} - k0 : {self.bk};")
        k.line(f"const int {wide} = {limit} - {start} < {self.size} ? {limit} - {start} : {self.size};")
        self._batches(1, deep, wide, f"{deep} * {wide}")
        self._behind(deep)
        if self.packs:
            k.close()

    def _batches(self, width: int, deep: str, wide: str, count: str) -> None:
        """A part of deep x wide elements, packs of `width`: reads, as many as registers hold, then stores to LDS."""
        k, most = self.k, AT_ONCE[width]
        k.line("#pragma unroll 1")
        k.open(f"for (int start = 0; start < {count}; start += {most} * THREADS)")
        k.line(f"float next[{most}][{width}];")
        for step in (self._read, self._keep):
            k.line("#pragma unroll")
            k.open(f"for (int l = 0; l < {most}; ++l)")
            k.line("const int slot = start + l * THREADS + threadIdx.x;")
            k.line(f"if (({count}) % ({most} * THREADS) != 0 && slot >= {count}) continue;")
            long, (fast, slow) = (deep, ("kk", "r")) if self.along_k else (wide, ("r", "kk"))
            packs = f"({long} / {width})" if width > 1 else long
            k.line(f"const int {fast} = slot % {packs}{f' * {width}' if width > 1 else ''}, {slow} = slot / {packs};")
            step(width)
            k.close()
        k.close()

    def _read(self, width: int) -> None:
        k, index = self.k, ["b", self.row, "p"]
        k.line(f"const {k.kind} {self.row} = {self.row}0 + r, p = k0 + kk;")
        if width > 1:
            k.vector(self.operand, index, self.axis, str(width), "next[l]", dtype="float32", aligned=True)
        else:
            k.line(f"next[l][0] = {k.load(self.operand, index, 'float32')};")

    def _keep(self, width: int) -> None:
        """A pack at once where a row of LDS runs as memory does."""
        k, mine = self.k, self.name == "a"
        first, second = ("r", "kk") if mine else ("kk", "r")
        if width == 1:
            k.line(f"{self.name}_tile[{first}][{second}] = next[l][0];")
        elif self.along_k == mine:
            k.define("keep_pack", KEEP)
            k.line(f"keep_pack(&{self.name}_tile[{first}][{second}], next[l]);")
        else:
            k.line("#pragma unroll")
            k.line(f"for (int v = 0; v < {width}; ++v) {self.name}_tile[{first} + v][{second}] = next[l][v];")

    def _behind(self, deep: str) -> None:
        """Zeros where k ends before the tile does. Rows and columns without data make sums that nobody stores."""
        k, place = self.k, "[r][kk]" if self.name == "a" else "[kk][r]"
        k.open(f"for (int slot = threadIdx.x; slot < {self.size} * ({self.bk} - {deep}); slot += THREADS)")
        k.line(f"const int r = slot % {self.size}, kk = {deep} + slot / {self.size};")
        k.line(f"{self.name}_tile{place} = 0.0f;")
        k.close()


def _options(usual: Iterable[int], default: int) -> tuple[int, ...]:
    return tuple(sorted({*usual, default}))
