"""Tiled matrix products: out[b, m, n] = sum_k A[b, m, k] B[b, n, k], for sizes, transposes and prologues of any kind.

A block of 256 threads makes a tile of GEMM_M x GEMM_N. Tiles of A and B, GEMM_K deep, go from memory through registers
to LDS: while one pair is multiplied, the next is on its way (two buffers, one barrier a step). On the vector units each
thread holds (GEMM_M / 16) x (GEMM_N / 16) sums and reads rows of A and B from LDS stored k-major; on CDNA four waves
make 16 x 16 tiles with MFMA from LDS stored row-major (the register layout is that of docs/cpu-target.md). Sums are
float. Operands are read along whichever dimension memory runs, in packs where they are aligned; outside stands zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from hipwright.engine.expr import STORAGE
from hipwright.engine.index import ONE, Ix, to_python
from hipwright.engine.lower.core import Tensor
from hipwright.engine.templates.base import Kernel
from hipwright.engine.templates.call import CallBody, CallKernel, factor

TILES = (32, 64, 128)
DEPTH = {"float32": 16, "float16": 32, "bfloat16": 32}
"""Depth of large tiles; twice that fits into LDS (48 KiB on NVIDIA) when no side is over 64."""
UNITS = 132
MFMA = {"float32": ("float", "f32_16x16x4f32", 4), "float16": ("HalfFragment", "f32_16x16x16f16", 16),
        "bfloat16": ("BfloatFragment", "f32_16x16x16bf16_1k", 16)}  # fmt: skip
"""dtype: (one lane's part of an operand, the instruction, its k)."""
CDNA = "defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)"
NAMES = """TM TN GM GN PM PN HM HN WM WN AV BV ROWS_A ROWS_B tile_a tile_b t tiles_m tiles_n row0 col0 b k0 step steps
next_a next_b acc x y i j l q v e wave lane fast_a fast_b fa0 fb0 row col p slot r kk more T Accumulator HalfFragment
BfloatFragment PAD fa fb ty tx part at"""


@dataclass(eq=False)
class Spec:
    """[batch, m, n], the depth, and the dtype in LDS."""

    space: list[Ix]
    k: Ix
    dtype: str


def tile(batch: int, m: int, n: int) -> tuple[int, int]:
    """The largest tile that still gives every unit of a large GPU a block, no larger than the product."""
    rows, columns = (next((t for t in TILES if size <= t), TILES[-1]) for size in (m, n))
    while (rows, columns) != (TILES[0], TILES[0]) and batch * ceil(m / rows) * ceil(n / columns) < UNITS:
        rows, columns = (rows // 2, columns) if rows >= columns else (rows, columns // 2)
    return rows, columns


def depth(batch: int, m: int, n: int, dtype: str) -> int:
    """Deep tiles where there are too few blocks to hide a step's latency behind others."""
    rows, columns = tile(batch, m, n)
    few = batch * ceil(m / rows) * ceil(n / columns) < 2 * UNITS
    return DEPTH[dtype] * (2 if few and max(rows, columns) <= 64 else 1)


def write(body: CallBody) -> list[Kernel]:
    """One kernel."""
    return [Gemm(body).kernel()]


class Gemm:
    """The multiplying core. A template with operands or an output of its own overrides sides, place, store and grid."""

    names = NAMES

    def __init__(self, body: CallBody) -> None:
        self.spec: Spec = body.data
        batch, m, n = (body.hint(s) for s in self.spec.space)
        rows, columns = tile(batch, m, n)
        small, base = max(rows, columns) <= 64, DEPTH[self.spec.dtype]
        tiles, depths = (TILES[:2], (base, 2 * base)) if small else (TILES, (base // 2, base))
        self.bm = body.knob("GEMM_M", rows, tiles, "rows of a block's tile")
        self.bn = body.knob("GEMM_N", columns, tiles, "columns of a block's tile")
        self.bk = body.knob("GEMM_K", depth(batch, m, n, self.spec.dtype), depths, "depth of the tiles in LDS")
        self.k: CallKernel = body.kernel(names=self.names)
        self.storage = STORAGE[self.spec.dtype]
        self.batch, self.m, self.n = (self.k.size(s) for s in self.spec.space)
        self.depth = self.k.size(self.spec.k)
        self.operands = [t for t in body.operands if t is not None]

    def sides(self) -> list[Side]:
        """How the tiles of A and B are read and kept."""
        a, b = self.operands
        return [Side("a", a, "row", self.m, self.bm), Side("b", b, "col", self.n, self.bn)]

    def kernel(self) -> Kernel:
        """The text."""
        k = self.k
        self._constants()
        self.place()
        sides = self.sides()
        for side in sides:
            side.declare(k, self)
        k.line(f"const {k.kind} steps = ({self.depth} + {self.bk} - 1) / {self.bk};")
        k.open(f"for ({k.kind} step = -1; step < steps; ++step)")
        k.line("const bool more = step + 1 < steps;")
        k.open("if (more)")
        k.line(f"const {k.kind} k0 = (step + 1) * {self.bk};")
        for side in sides:
            side.read(k, self)
        k.close()
        k.open("if (step >= 0)")
        self._multiply()
        k.close()
        k.open("if (more)")
        for side in sides:
            side.keep(k, self)
        k.close()
        k.line("__syncthreads();")
        k.close()
        self.store()
        return k.finish(self.grid(), "256", "256", f"tiles of {self.bm} x {self.bn}, {self.bk} deep")

    def grid(self) -> str:
        """The number of blocks, as a text of the plan."""
        batch, m, n = self.spec.space
        grid = f"cdiv({to_python(m)}, {self.bm}) * cdiv({to_python(n)}, {self.bn})"
        return grid + ("" if batch == ONE else f" * {factor(batch)}")

    # ------------------------------------------------------------ set up

    def _constants(self) -> None:
        """Shapes of the tiles in LDS and in registers, for the matrix units and without."""
        k, m, n, depth = self.k, self.bm, self.bn, self.bk
        k.define("gemm_mfma", _UNITS)
        k.line(f"using T = {self.storage};")
        k.line("#if GEMM_MFMA")
        k.line(
            f"constexpr int WM = {m} / 32, WN = {n} / 32, PAD = 16 / sizeof(T);  // 16 x 16 tiles of one of 2 x 2 waves"
        )
        k.line(
            f"__shared__ __attribute__((aligned(16))) T tile_a[2][{m}][{depth} + PAD], tile_b[2][{n}][{depth} + PAD];"
        )
        k.line("Accumulator acc[WM][WN] = {};")
        k.line("const int wave = threadIdx.x / 64, lane = threadIdx.x % 64;")
        k.line("#else")
        k.line(f"constexpr int TM = {m} / 16, TN = {n} / 16, GM = TM < 4 ? TM : 4, GN = TN < 4 ? TN : 4;")
        k.line(f"__shared__ __attribute__((aligned(16))) T tile_a[2][{depth}][{m} + 4], tile_b[2][{depth}][{n} + 4];")
        k.line("float acc[TM][TN] = {};")
        k.line("const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;")
        k.line("#endif")

    def place(self) -> None:
        """Which tile is this block's: row0, col0 and b."""
        k = self.k
        k.line("unsigned t = blockIdx.x;")
        k.line(f"const unsigned tiles_n = ({self.n} + {self.bn} - 1) / {self.bn};")
        k.line(f"const unsigned tiles_m = ({self.m} + {self.bm} - 1) / {self.bm};")
        k.line(f"const {k.kind} col0 = t % tiles_n * {self.bn};")
        k.line("t /= tiles_n;")
        k.line(f"const {k.kind} row0 = t % tiles_m * {self.bm}, b = t / tiles_m;")

    # ------------------------------------------------------------ the product

    def _multiply(self) -> None:
        k = self.k
        fragment, instruction, depth = MFMA[self.spec.dtype]
        k.line("const int part = step & 1;")
        text = _MULTIPLY.replace("@BK@", self.bk).replace("@DEPTH@", str(depth)).replace("@FRAGMENT@", fragment)
        for line in text.replace("@INSTRUCTION@", instruction).strip("\n").split("\n"):
            k.line(line) if not line.startswith("#") else k.emit.lines.append(line)

    def store(self) -> None:
        """Sums to the epilogue: neighbours along n at once on the vector units."""
        k = self.k
        k.emit.lines.append("#if GEMM_MFMA")
        self.loops(("i", "WM"), ("j", "WN"), ("e", "4"))
        k.line(f"const {k.kind} row = row0 + (wave / 2 * WM + i) * 16 + lane / 16 * 4 + e;")
        k.line(f"const {k.kind} col = col0 + (wave % 2 * WN + j) * 16 + lane % 16;")
        k.line(f"if (row >= {self.m} || col >= {self.n}) continue;")
        k.epilogue("acc[i][j][e]", ["b", "row", "col"])
        self.ends(3)
        k.emit.lines.append("#else")
        self.loops(("i", "TM"), ("j", "TN / GN"))
        k.line(f"const {k.kind} row = row0 + (i / GM * 16 + ty) * GM + i % GM;")
        k.line(f"const {k.kind} col = col0 + (j * 16 + tx) * GN;")
        k.line(f"if (row >= {self.m} || col >= {self.n}) continue;")
        k.open(f"if (col + GN <= {self.n})")
        k.epilogue_vector("acc[i][j * GN + v]", ["b", "row", "col"], "col", "GN")
        k.close()
        k.open("else")
        k.line("#pragma unroll")
        k.open("for (int e = 0; e < GN; ++e)")
        k.line(f"const {k.kind} at = col + e;")
        k.line(f"if (at >= {self.n}) continue;")
        k.epilogue("acc[i][j * GN + e]", ["b", "row", "at"])
        k.close()
        k.close()
        self.ends(2)
        k.emit.lines.append("#endif")

    def loops(self, *loops: tuple[str, str]) -> None:
        """Open unrolled loops: (variable, count)."""
        for name, count in loops:
            self.k.line("#pragma unroll")
            self.k.open(f"for (int {name} = 0; {name} < {count}; ++{name})")

    def ends(self, count: int) -> None:
        """Close loops."""
        for _ in range(count):
            self.k.close()


@dataclass(eq=False)
class Side:
    """A (rows of the output) or B (its columns): how its tile is read and kept."""

    name: str
    operand: Tensor
    row: str
    count: str
    size: str

    def declare(self, k: CallKernel, g: Gemm) -> None:
        """Packs of V along the dimension in which memory runs."""
        n = self.name
        self.along_k = k.contiguous(self.operand, 2) or not k.contiguous(self.operand, 1)
        big = "AV" if n == "a" else "BV"
        wide = 16 // (4 if g.spec.dtype == "float32" else 2)
        self.pack = big
        k.line(f"constexpr int {big} = {self.size} * {g.bk} / 256 < {wide} ? {self.size} * {g.bk} / 256 : {wide};")
        self.registers = f"next_{n}"
        k.line(f"T {self.registers}[{self.size} * {g.bk} / 256 / {big}][{big}];")
        axis = "p" if self.along_k else self.row
        conditions = k.wide(self.operand, ["b", self.row, "p"], axis, big)
        self.fast = f"fast_{n}" if conditions else ""
        if conditions:
            k.line(f"const bool fast_{n} = {' && '.join(conditions)};")

    def _slot(self, k: CallKernel, g: Gemm) -> None:
        """Open the loop over this thread's packs: r and kk are a pack's place in the tile."""
        k.line("#pragma unroll")
        k.open(f"for (int l = 0; l < {self.size} * {g.bk} / 256 / {self.pack}; ++l)")
        k.line("const int slot = threadIdx.x + l * 256;")
        if self.along_k:
            k.line(f"const int kk = slot % ({g.bk} / {self.pack}) * {self.pack}, r = slot / ({g.bk} / {self.pack});")
        else:
            across = f"({self.size} / {self.pack})"
            k.line(f"const int r = slot % {across} * {self.pack}, kk = slot / {across};")

    def read(self, k: CallKernel, g: Gemm) -> None:
        """Memory to registers; zero outside."""
        self._slot(k, g)
        start = "row0" if self.row == "row" else "col0"
        k.line(f"const {k.kind} {self.row} = {start} + r, p = k0 + kk;")
        index = ["b", self.row, "p"]
        into = f"{self.registers}[l]"
        axis, others = ("p", f"{self.row} < {self.count}") if self.along_k else (self.row, f"p < {g.depth}")
        limit = g.depth if self.along_k else self.count
        fast = f"{self.fast} && " if self.fast else ""
        k.open(f"if ({fast}{others} && {axis} + {self.pack} <= {limit})")
        k.vector(self.operand, index, axis, self.pack, into, dtype=g.spec.dtype, aligned=True)
        k.close()
        k.open("else")
        k.line("#pragma unroll")
        k.open(f"for (int v = 0; v < {self.pack}; ++v)")
        k.line(f"const {k.kind} at = {axis} + v;")
        k.line(f"{into}[v] = T(0.0f);")
        k.open(f"if ({others} && at < {limit})")
        moved = ["at" if i == axis else i for i in index]
        k.line(f"{into}[v] = {k.load(self.operand, moved, g.spec.dtype)};")
        for _ in range(4):
            k.close()

    def keep(self, k: CallKernel, g: Gemm) -> None:
        """Registers to LDS, into the buffer that is not being read."""
        self._slot(k, g)
        k.line("#pragma unroll")
        k.open(f"for (int v = 0; v < {self.pack}; ++v)")
        r, kk = ("r", "kk + v") if self.along_k else ("r + v", "kk")
        k.emit.lines.append("#if GEMM_MFMA")
        k.line(f"tile_{self.name}[(step + 1) & 1][{r}][{kk}] = {self.registers}[l][v];")
        k.emit.lines.append("#else")
        k.line(f"tile_{self.name}[(step + 1) & 1][{kk}][{r}] = {self.registers}[l][v];")
        k.emit.lines.append("#endif")
        k.close()
        k.close()


_UNITS = f"""#if {CDNA}
#define GEMM_MFMA 1
using Accumulator = float __attribute__((ext_vector_type(4)));
using HalfFragment = _Float16 __attribute__((ext_vector_type(4)));
using BfloatFragment = short __attribute__((ext_vector_type(4)));
#else
#define GEMM_MFMA 0
#endif
"""
_MULTIPLY = """
#if GEMM_MFMA
#pragma unroll
for (int q = 0; q < @BK@; q += @DEPTH@) {
    @FRAGMENT@ fa[WM], fb[WN];
    const int p = q + lane / 16 * (@DEPTH@ / 4);
    const int fa0 = wave / 2 * WM * 16 + lane % 16, fb0 = wave % 2 * WN * 16 + lane % 16;
    #pragma unroll
    for (int i = 0; i < WM; ++i) __builtin_memcpy(&fa[i], &tile_a[part][i * 16 + fa0][p], sizeof(fa[i]));
    #pragma unroll
    for (int j = 0; j < WN; ++j) __builtin_memcpy(&fb[j], &tile_b[part][j * 16 + fb0][p], sizeof(fb[j]));
    #pragma unroll
    for (int i = 0; i < WM; ++i) {
        #pragma unroll
        for (int j = 0; j < WN; ++j) acc[i][j] = __builtin_amdgcn_mfma_@INSTRUCTION@(fa[i], fb[j], acc[i][j], 0, 0, 0);
    }
}
#else
#pragma unroll
for (int q = 0; q < @BK@; ++q) {
    float x[TM], y[TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) x[i] = (float)tile_a[part][q][(i / GM * 16 + ty) * GM + i % GM];
    #pragma unroll
    for (int j = 0; j < TN; ++j) y[j] = (float)tile_b[part][q][(j / GN * 16 + tx) * GN + j % GN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) acc[i][j] += x[i] * y[j];
    }
}
#endif
"""
