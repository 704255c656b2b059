"""Products in tiles of 16, 32 or 64 rows and columns: few rows, few columns, or few tiles of a deep k.

A small tile has too few sums for 256 threads: with 2 x 2 a thread would read as many numbers from LDS as it multiplies.
So the threads are divided into slices along the tile's k ("sliced k" in CUTLASS' terms; Kerr et al., 2017), each of
which computes the whole tile for its share of k: 4 x 4 sums a thread on the vector units, 2 x 2 MFMA tiles a wave. The
sums of the slices are stored to LDS, over the tiles, added in order, and passed to the epilogue in vectors along n. An
operand whose k is contiguous is stored [row][k] in LDS: one 16-byte store a vector, 16 bytes of k a read, without bank
conflicts.
"""

from __future__ import annotations

from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.gemm.operand import ProductOperand
from hipwright.engine.templates.gemm.scope import NAMES, GemmSpec, tile_knobs
from hipwright.engine.templates.gemm.tiled import Gemm
from hipwright.engine.templates.gemm.tiling import DEPTH, LARGE, SMALL, SPLITS, ProductShape, Tiling, choose

SLICE_NAMES = """VECTOR WANTED K_VECTORS SLICES SLICE_SIZE TX TY MFMA_TILES WAVES WAVES_M WAVES_N TileA TileB
TILE_BYTES SUM_BYTES lds sums sum s c vec_a vec_b slice k_begin"""


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel, or two with split-k."""
    tiling, split = chosen_tiling(body)
    return (SlicedKGemm if tiling.small else LargeTileGemm)(body, tiling, split).kernels()


def chosen_tiling(body: CallBody) -> tuple[Tiling, int]:
    """The tiling of the least estimate, and the parts of k."""
    spec: GemmSpec = body.data
    batch, m, n, k = (body.hint(s) for s in (*spec.space, spec.k))
    tiling = choose(ProductShape(batch, m, n, k, spec.dtype))
    return tiling, int(body.choose("split", SPLITS, tiling.split))


class LargeTileGemm(Gemm):
    """A tile with a side of 128, or one that a knob may make so large."""

    tile_sizes = LARGE

    def __init__(self, body: CallBody, tiling: Tiling, split: int) -> None:
        self.tiling = tiling
        super().__init__(body, split)

    def knobs(self, body: CallBody) -> tuple[str, str, str]:
        """Defaults and options of the estimated tiling."""
        t, base = self.tiling, DEPTH[self.spec.dtype]
        return tile_knobs(body, (t.rows, t.columns, t.depth), (LARGE, LARGE, (base // 2, base)))


class SlicedKGemm(LargeTileGemm):
    """The kernel of small tiles."""

    names = f"{NAMES} {SLICE_NAMES}"
    row_major = True
    step = "VECTOR"  # the k that a thread reads from LDS at once on the vector units

    def knobs(self, body: CallBody) -> tuple[str, str, str]:
        """16 x 16 is left to gemv_plan.py."""
        t, base = self.tiling, DEPTH[self.spec.dtype]
        rows = SMALL if t.columns > SMALL[0] else SMALL[1:]
        columns = SMALL[1:] if t.columns > SMALL[0] else SMALL[:2]
        return tile_knobs(body, (t.rows, t.columns, t.depth), (rows, columns, (base, 2 * base)))

    @property
    def deepest(self) -> str:
        """Tiles of 16 rows or columns have two waves at most, so that their k is divided in two at least."""
        return f"({self.bk} / ({self.bm} > 16 && {self.bn} > 16 ? 1 : 2))"

    def tensor_core_condition(self) -> str:
        """Never: small tiles stay on the vector units."""
        return ""

    def declare_tiles(self) -> None:
        """Declares the slices, and the LDS that holds the tiles first and the sums at the end."""
        k = self.k
        k.use("GEMM_MFMA")
        self.declare_types()
        shapes = {}
        for operand in self.tile_operands():
            operand.choose_layout(k, self)
            row = f"[2][{operand.size}][{self.bk} + VECTOR]"
            shapes[f"SHAPE_{operand.name.upper()}"] = (
                row if operand.row_major else f"[2][{self.bk}][{operand.size} + VECTOR]"
            )
        self.declare_mfma_depth()
        self.emit_template(_CONSTANTS, **shapes)

    def multiply(self, operands: list[ProductOperand]) -> None:
        """Emits the product of each slice's share of the tile's k."""
        a, b = (o.row_major for o in operands)
        kinds = zip("ab", self.types, strict=True)
        of_a, of_b = ({"n": n, "x": f"vec_{n}", "t": kind, "step": self.step} for n, kind in kinds)
        texts = {
            "READ_A": _READ_ROWS.format(**of_a, size="TM", row="i * TY + ty")
            if a
            else _READ_COLUMNS.format(**of_a, size="TM", first="ty * TM"),
            "READ_B": _READ_ROWS.format(**of_b, size="TN", row="i * TX + tx")
            if b
            else _READ_COLUMNS.format(**of_b, size="TN", first="tx * TN"),
            "STEP": self.step,
            "X": "vec_a[i].v[v]" if a else "vec_a[v].v[i]",
            "Y": "vec_b[j].v[v]" if b else "vec_b[v].v[j]",
        }
        self.rows = ["i * TY + ty" if a else "ty * TM + i", "j * TX + tx" if b else "tx * TN + j"]
        self.k.line("const int buffer = step & 1;")
        self.emit_template(_MULTIPLY, **texts)

    def store(self) -> None:
        """Adds the sums of the slices through LDS and passes them to the epilogue in vectors of 4 along n."""
        k = self.k
        self.emit_template(_STORE_SUMS, ROW=self.rows[0], COLUMN=self.rows[1])
        k.line("#pragma unroll")
        k.open(f"for (int l = threadIdx.x; l < {self.bm} * {self.bn} / 4; l += 256)")
        k.line(f"const int r = l / ({self.bn} / 4), c = l % ({self.bn} / 4) * 4;")
        k.line(f"const {k.kind} row = row0 + r, col = col0 + c;")
        k.line(f"if (row >= {self.m} || col >= {self.n}) continue;")
        self.emit_template(_ADD_SLICES)
        k.open(f"if (col + 4 <= {self.n})")
        self.store_vector("sum[v]", "4")
        k.close()
        k.open("else")
        k.line("#pragma unroll")
        k.open("for (int e = 0; e < 4; ++e)")
        k.line(f"const {k.kind} at = col + e;")
        k.line(f"if (at >= {self.n}) continue;")
        self.store_element("sum[e]", "at")
        self.close_loops(3)


_CONSTANTS = """
constexpr int VECTOR = 16 / sizeof(T);
#if GEMM_MFMA
constexpr int MFMA_TILES = @BM@ / 16 * (@BN@ / 16), K_VECTORS = @BK@ / @DEPTH@;
constexpr int WANTED = MFMA_TILES < 8 ? 4 : MFMA_TILES < 16 ? 2 : 1, SLICES = WANTED < K_VECTORS ? WANTED : K_VECTORS;
constexpr int WAVES = 4 / SLICES;
constexpr int WAVES_M = WAVES == 4 || (WAVES == 2 && @BM@ > @BN@) ? 2 : 1, WAVES_N = WAVES / WAVES_M;
constexpr int WM = @BM@ / 16 / WAVES_M, WN = @BN@ / 16 / WAVES_N;  // 16 x 16 tiles of a wave
using TileA = @TYPE_A@[2][@BM@][@BK@ + VECTOR];
using TileB = @TYPE_B@[2][@BN@][@BK@ + VECTOR];
Accumulator acc[WM][WN] = {};
const int lane = threadIdx.x % 64, wave = threadIdx.x / 64 % WAVES, slice = threadIdx.x / 64 / WAVES;
#else
constexpr int K_VECTORS = @BK@ / VECTOR, WANTED = 4096 / (@BM@ * @BN@);
constexpr int SLICES = WANTED < K_VECTORS ? WANTED : K_VECTORS, SLICE_SIZE = 256 / SLICES;
constexpr int TM = 4, TY = @BM@ / TM, TX = SLICE_SIZE / TY, TN = @BN@ / TX;  // threads of a slice, and their sums
using TileA = @TYPE_A@@SHAPE_A@;
using TileB = @TYPE_B@@SHAPE_B@;
float acc[TM][TN] = {};
const int ty = threadIdx.x % SLICE_SIZE / TX, tx = threadIdx.x % TX, slice = threadIdx.x / SLICE_SIZE;
#endif
constexpr int TILE_BYTES = sizeof(TileA) + sizeof(TileB), SUM_BYTES = SLICES * @BM@ * @BN@ * sizeof(float);
__shared__ __attribute__((aligned(16))) unsigned char lds[TILE_BYTES > SUM_BYTES ? TILE_BYTES : SUM_BYTES];
TileA& tile_a = *reinterpret_cast<TileA*>(lds);
TileB& tile_b = *reinterpret_cast<TileB*>(lds + sizeof(TileA));
"""
_READ_ROWS = """WideVector<{t}, {step}> {x}[{size}];
    #pragma unroll
    for (int i = 0; i < {size}; ++i) {x}[i] = load_aligned<{step}>(&tile_{n}[buffer][{row}][q]);"""
_READ_COLUMNS = """WideVector<{t}, {size}> {x}[{step}];
    #pragma unroll
    for (int v = 0; v < {step}; ++v) {x}[v] = load_aligned<{size}>(&tile_{n}[buffer][q + v][{first}]);"""
_MULTIPLY = """
#if GEMM_MFMA
#pragma unroll
for (int q = 0; q < @BK@ / SLICES; q += @DEPTH@) {
    @FRAGMENT@ frag_a[WM], frag_b[WN];
    const int p = slice * (@BK@ / SLICES) + q + lane / 16 * (@DEPTH@ / 4);
    const int frag_row_a = wave / WAVES_N * WM * 16 + lane % 16, frag_row_b = wave % WAVES_N * WN * 16 + lane % 16;
    #pragma unroll
    for (int i = 0; i < WM; ++i)
        __builtin_memcpy(&frag_a[i], &tile_a[buffer][i * 16 + frag_row_a][p], sizeof(frag_a[i]));
    #pragma unroll
    for (int j = 0; j < WN; ++j)
        __builtin_memcpy(&frag_b[j], &tile_b[buffer][j * 16 + frag_row_b][p], sizeof(frag_b[j]));
    #pragma unroll
    for (int i = 0; i < WM; ++i) {
        #pragma unroll
        for (int j = 0; j < WN; ++j)
            acc[i][j] = @PRODUCT@;
    }
}
#else
const int k_begin = slice * (@BK@ / SLICES);
#pragma unroll 8 / @STEP@
for (int q = k_begin; q < k_begin + @BK@ / SLICES; q += @STEP@) {
    @READ_A@
    @READ_B@
    #pragma unroll
    for (int v = 0; v < @STEP@; ++v) {
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) acc[i][j] += (float)@X@ * (float)@Y@;
        }
    }
}
#endif
"""
_STORE_SUMS = """
float (&sums)[SLICES][@BM@][@BN@] = *reinterpret_cast<float (*)[SLICES][@BM@][@BN@]>(lds);
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
_ADD_SLICES = """
float sum[4] = {};
#pragma unroll
for (int s = 0; s < SLICES; ++s) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) sum[v] += sums[s][r][c + v];
}
"""
