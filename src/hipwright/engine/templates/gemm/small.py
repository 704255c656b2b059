"""Products in tiles of 16, 32 or 64 rows and columns: few rows, few columns, or few tiles of a deep k.

A small tile has too few sums for 256 threads: 2 x 2 a thread would read as many numbers from LDS as it multiplies. So
the threads are cut into slices along the tile's k ("sliced k" in CUTLASS' terms; Kerr et al., 2017), each of which
makes the whole tile of its share: 4 x 4 sums a thread on the vector units, 2 x 2 tiles of MFMA a wave. The slices' sums
meet in LDS, where the tiles stood, are added in order, and go to the epilogue in packs along n. An operand that runs
along k stands row-major in LDS: written in one 16-byte store a pack, read 16 bytes of k at a time, free of bank
conflicts.
"""

from __future__ import annotations

from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.gemm.scope import NAMES, UNIT_TEXT, GemmSpec, tile_knobs
from hipwright.engine.templates.gemm.side import ProductOperand
from hipwright.engine.templates.gemm.tiled import Gemm
from hipwright.engine.templates.gemm.tiling import DEPTH, LARGE, SMALL, SPLITS, ProductShape, Tiling, choose

OURS = """VK WANT DEEP SLICES SIDE TX TY SIXTEENS WAVES WAVES_M WAVES_N TileA TileB TILES SUMS memory tile_a tile_b sums
sum s c xa yb slice low"""


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel, or two where blocks share k."""
    spec: GemmSpec = body.data
    batch, m, n, k = (body.hint(s) for s in (*spec.space, spec.k))
    tiling = choose(ProductShape(batch, m, n, k, spec.dtype))
    split = int(body.choose("split", SPLITS, tiling.split))
    return (Small if tiling.small else Large)(body, tiling, split).kernels()


class Large(Gemm):
    """A tile with a side of 128, or one that a knob may make so large."""

    sizes = LARGE

    def __init__(self, body: CallBody, tiling: Tiling, split: int) -> None:
        self.tiling = tiling
        super().__init__(body, split)

    def knobs(self, body: CallBody) -> tuple[str, str, str]:
        """The tiling's."""
        t, base = self.tiling, DEPTH[self.spec.dtype]
        return tile_knobs(body, (t.rows, t.columns, t.depth), (LARGE, LARGE, (base // 2, base)))


class Small(Large):
    """The kernel of small tiles."""

    names = f"{NAMES} {OURS}"
    row_major = True

    def knobs(self, body: CallBody) -> tuple[str, str, str]:
        """16 x 16 is left to gemv.py."""
        t, base = self.tiling, DEPTH[self.spec.dtype]
        rows = SMALL if t.columns > SMALL[0] else SMALL[1:]
        columns = SMALL[1:] if t.columns > SMALL[0] else SMALL[:2]
        return tile_knobs(body, (t.rows, t.columns, t.depth), (rows, columns, (base, 2 * base)))

    def tensors(self) -> str:
        """Small tiles stay with the vector units."""
        return ""

    def constants(self) -> None:
        """Shapes of the slices, and the LDS that holds the tiles first and the sums at the end."""
        k = self.k
        k.define("gemm_mfma", UNIT_TEXT)
        k.line(f"using T = {self.storage};")
        shapes = {}
        for side in self.sides():
            side.lie(k, self)
            row = f"[2][{side.size}][{self.bk} + VK]"
            shapes[f"SHAPE_{side.name.upper()}"] = row if side.row_major else f"[2][{self.bk}][{side.size} + VK]"
        self.fill(_CONSTANTS, **shapes)

    def multiply(self, sides: list[ProductOperand]) -> None:
        """Each slice its share of the tile's k."""
        a, b = (s.row_major for s in sides)
        texts = {
            "READ_A": _ROWS.format(n="a", x="xa", size="TM", row="i * TY + ty")
            if a
            else _COLUMNS.format(n="a", x="xa", size="TM", first="ty * TM"),
            "READ_B": _ROWS.format(n="b", x="yb", size="TN", row="i * TX + tx")
            if b
            else _COLUMNS.format(n="b", x="yb", size="TN", first="tx * TN"),
            "X": "xa[i].v[v]" if a else "xa[v].v[i]",
            "Y": "yb[j].v[v]" if b else "yb[v].v[j]",
        }
        self.rows = ["i * TY + ty" if a else "ty * TM + i", "j * TX + tx" if b else "tx * TN + j"]
        self.k.line("const int part = step & 1;")
        self.fill(_MULTIPLY, **texts)

    def store(self) -> None:
        """The slices' sums through LDS to the epilogue, packs of 4 along n."""
        k = self.k
        self.fill(_TO_LDS, ROW=self.rows[0], COLUMN=self.rows[1])
        k.line("#pragma unroll")
        k.open(f"for (int l = threadIdx.x; l < {self.bm} * {self.bn} / 4; l += 256)")
        k.line(f"const int r = l / ({self.bn} / 4), c = l % ({self.bn} / 4) * 4;")
        k.line(f"const {k.kind} row = row0 + r, col = col0 + c;")
        k.line(f"if (row >= {self.m} || col >= {self.n}) continue;")
        self.fill(_ADDED)
        k.open(f"if (col + 4 <= {self.n})")
        self.outs("sum[v]", "4")
        k.close()
        k.open("else")
        k.line("#pragma unroll")
        k.open("for (int e = 0; e < 4; ++e)")
        k.line(f"const {k.kind} at = col + e;")
        k.line(f"if (at >= {self.n}) continue;")
        self.out("sum[e]", "at")
        self.ends(3)


_CONSTANTS = """
constexpr int VK = 16 / sizeof(T);
#if GEMM_MFMA
constexpr int SIXTEENS = @BM@ / 16 * (@BN@ / 16), DEEP = @BK@ / @DEPTH@;
constexpr int WANT = SIXTEENS < 8 ? 4 : SIXTEENS < 16 ? 2 : 1, SLICES = WANT < DEEP ? WANT : DEEP;
constexpr int WAVES = 4 / SLICES;
constexpr int WAVES_M = WAVES == 4 || (WAVES == 2 && @BM@ > @BN@) ? 2 : 1, WAVES_N = WAVES / WAVES_M;
constexpr int WM = @BM@ / 16 / WAVES_M, WN = @BN@ / 16 / WAVES_N;  // 16 x 16 tiles of a wave
using TileA = T[2][@BM@][@BK@ + VK];
using TileB = T[2][@BN@][@BK@ + VK];
Accumulator acc[WM][WN] = {};
const int lane = threadIdx.x % 64, wave = threadIdx.x / 64 % WAVES, slice = threadIdx.x / 64 / WAVES;
#else
constexpr int DEEP = @BK@ / VK, WANT = 4096 / (@BM@ * @BN@), SLICES = WANT < DEEP ? WANT : DEEP, SIDE = 256 / SLICES;
constexpr int TM = 4, TY = @BM@ / TM, TX = SIDE / TY, TN = @BN@ / TX;  // a slice's threads and their sums
using TileA = T@SHAPE_A@;
using TileB = T@SHAPE_B@;
float acc[TM][TN] = {};
const int ty = threadIdx.x % SIDE / TX, tx = threadIdx.x % TX, slice = threadIdx.x / SIDE;
#endif
constexpr int TILES = sizeof(TileA) + sizeof(TileB), SUMS = SLICES * @BM@ * @BN@ * sizeof(float);
__shared__ __attribute__((aligned(16))) unsigned char memory[TILES > SUMS ? TILES : SUMS];
TileA& tile_a = *reinterpret_cast<TileA*>(memory);
TileB& tile_b = *reinterpret_cast<TileB*>(memory + sizeof(TileA));
"""
_ROWS = """AlignedWide<T, VK> {x}[{size}];
    #pragma unroll
    for (int i = 0; i < {size}; ++i) {x}[i] = load_aligned<VK>(&tile_{n}[part][{row}][q]);"""
_COLUMNS = """AlignedWide<T, {size}> {x}[VK];
    #pragma unroll
    for (int v = 0; v < VK; ++v) {x}[v] = load_aligned<{size}>(&tile_{n}[part][q + v][{first}]);"""
_MULTIPLY = """
#if GEMM_MFMA
#pragma unroll
for (int q = 0; q < @BK@ / SLICES; q += @DEPTH@) {
    @FRAGMENT@ fa[WM], fb[WN];
    const int p = slice * (@BK@ / SLICES) + q + lane / 16 * (@DEPTH@ / 4);
    const int fa0 = wave / WAVES_N * WM * 16 + lane % 16, fb0 = wave % WAVES_N * WN * 16 + lane % 16;
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
const int low = slice * (@BK@ / SLICES);
#pragma unroll 8 / VK
for (int q = low; q < low + @BK@ / SLICES; q += VK) {
    @READ_A@
    @READ_B@
    #pragma unroll
    for (int v = 0; v < VK; ++v) {
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) acc[i][j] += (float)@X@ * (float)@Y@;
        }
    }
}
#endif
"""
_TO_LDS = """
float (&sums)[SLICES][@BM@][@BN@] = *reinterpret_cast<float (*)[SLICES][@BM@][@BN@]>(memory);
#if GEMM_MFMA
#pragma unroll
for (int i = 0; i < WM; ++i) {
    #pragma unroll
    for (int j = 0; j < WN; ++j) {
        const int r = (wave / WAVES_N * WM + i) * 16 + lane / 16 * 4, c = (wave % WAVES_N * WN + j) * 16 + lane % 16;
        #pragma unroll
        for (int e = 0; e < 4; ++e) sums[slice][r + e][c] = acc[i][j][e];
    }
}
#else
#pragma unroll
for (int i = 0; i < TM; ++i) {
    #pragma unroll
    for (int j = 0; j < TN; ++j) sums[slice][@ROW@][@COLUMN@] = acc[i][j];
}
#endif
__syncthreads();
"""
_ADDED = """
float sum[4] = {};
#pragma unroll
for (int s = 0; s < SLICES; ++s) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) sum[v] += sums[s][r][c + v];
}
"""
