"""Tiled matrix products: out[b, m, n] = sum_k A[b, m, k] B[b, n, k], for sizes, transposes and prologues of any kind.

A block of 256 threads makes a tile of GEMM_M x GEMM_N. Tiles of A and B, GEMM_K deep, go from memory through registers
to LDS: while one pair is multiplied, the next is on its way (two buffers, one barrier a step). On the vector units each
thread holds (GEMM_M / 16) x (GEMM_N / 16) sums and reads rows of A and B from LDS stored k-major; on CDNA four waves
make 16 x 16 tiles with MFMA from LDS stored row-major (the register layout is that of docs/cpu-target.md), and of half
types eight warps of NVIDIA's make 16 x 8 tiles with its tensor cores (tensor_tiles.py). Sums are float. Operands are
read along whichever dimension memory runs, in packs where they are aligned; outside stands zero.
Several blocks may share a tile's k (`split`, splits.py). Tiles of at most 64 x 64 are templates/gemm/small.py's.
"""

from __future__ import annotations

from hipwright.engine.ir.index import ONE
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call_kernel import factor
from hipwright.engine.templates.gemm import tensor_tiles
from hipwright.engine.templates.gemm.scope import UNIT_TEXT, GemmScope
from hipwright.engine.templates.gemm.side import ProductOperand


class Gemm(GemmScope):
    """The multiplying core. A template with operands or an output of its own overrides sides, place, store and grid.

    What it may rely on: 256 threads; row0, col0 and b are the block's place; the sums are `acc[i][j]`, of the rows and
    columns that `store` names; a tile in LDS is `tile_a[buffer][row][k]` under GEMM_MFMA, `tile_a[buffer][k][row]` else
    (on tensor cores as tensor_tiles.py says), and a side that does not inherit `declare` fills it so.
    """

    def tensors(self) -> str:
        """Where NVIDIA's tensor cores take over, as the preprocessor reads it; or ""."""
        return tensor_tiles.condition(self)

    def sides(self) -> list[ProductOperand]:
        """How the tiles of A and B are read and kept."""
        a, b = self.operands
        return [ProductOperand("a", a, "row", self.m, self.bm), ProductOperand("b", b, "col", self.n, self.bn)]

    def kernel(self) -> EmittedKernel:
        """The text."""
        k = self.k
        self.constants()
        self.place()
        sides = self.sides()
        for side in sides:
            side.declare(k, self)
        self._along()
        if self.tensor and self.staged:
            k.emit.directive(f"#if {self.tensor}")
            tensor_tiles.staged(k, self, sides)
            k.emit.directive("#else")
        self._steps(sides)
        if self.tensor:
            if self.staged:
                k.emit.directive("#endif")
            k.emit.directive(f"#if {self.tensor}")
            k.line("exchange(acc, lane);")
            k.emit.directive("#endif")
        self.store()
        bounds = "512" if self.tensor else "256, 1"  # 128 registers: two blocks a multiprocessor
        return k.finish(self.grid(), "256", bounds, f"tiles of {self.bm} x {self.bn}, {self.bk} deep")

    def _steps(self, sides: list[ProductOperand]) -> None:
        """The loop over k: the next tiles are in registers while these are multiplied."""
        k = self.k
        k.line("#pragma unroll 1")  # a compiler that knows the steps would unroll them, and spill
        k.open(f"for ({k.kind} step = -1; step < steps; ++step)")
        k.line("const bool more = step + 1 < steps;")
        k.open("if (more)")
        k.line(f"const {k.kind} k0 = ({'first + ' if self.parts else ''}step + 1) * {self.bk};")
        for side in sides:
            side.read(k, self)
        k.close()
        k.open("if (step >= 0)")
        self.multiply(sides)
        k.close()
        for side in sides:  # after the last step too: behind a branch LLVM would do the sums after it (256 registers)
            side.keep(k, self)
        k.line("__syncthreads();")
        k.close()

    def grid(self) -> str:
        """The number of blocks, as a text of the plan."""
        batch, m, n = self.spec.space
        grid = f"cdiv({to_python(m)}, {self.bm}) * cdiv({to_python(n)}, {self.bn})"
        return grid + ("" if batch == ONE else f" * {factor(batch)}") + (f" * {self.split}" if self.parts else "")

    def kernels(self) -> list[EmittedKernel]:
        """The product, and what adds the blocks' parts where k is cut."""
        made = [self.kernel()]
        return [*made, self.parts.added(["b", "x", "y"])] if self.parts else made

    # ------------------------------------------------------------ set up

    def constants(self) -> None:
        """Shapes of the tiles in LDS and in registers, for the matrix units and without."""
        k, m, n, depth = self.k, self.bm, self.bn, self.bk
        k.define("gemm_mfma", UNIT_TEXT)
        k.line(f"using T = {self.storage};")
        k.emit.directive("#if GEMM_MFMA")
        k.line(
            f"constexpr int WM = {m} / 32, WN = {n} / 32, PAD = 16 / sizeof(T);  // 16 x 16 tiles of one of 2 x 2 waves"
        )
        k.line(
            f"__shared__ __attribute__((aligned(16))) T tile_a[2][{m}][{depth} + PAD], tile_b[2][{n}][{depth} + PAD];"
        )
        k.line("Accumulator acc[WM][WN] = {};")
        k.line("const int wave = threadIdx.x / 64, lane = threadIdx.x % 64;")
        if self.tensor:
            k.define("gemm_tensor", tensor_tiles.TENSOR)
            k.emit.directive(f"#elif {self.tensor}")
            tensor_tiles.constants(k, self, staged=self.staged)
        k.emit.directive("#else")
        k.line(f"constexpr int TM = {m} / 16, TN = {n} / 16, GM = TM < 4 ? TM : 4, GN = TN < 4 ? TN : 4;")
        k.line(f"__shared__ __attribute__((aligned(16))) T tile_a[2][{depth}][{m} + 4], tile_b[2][{depth}][{n} + 4];")
        k.line("float acc[TM][TN] = {};")
        k.line("const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;")
        k.emit.directive("#endif")

    def place(self) -> None:
        """Which tile is this block's: row0, col0 and b."""
        k = self.k
        k.line("unsigned t = blockIdx.x;")
        if self.parts:
            k.line(f"const {k.kind} split = t % {self.split};")
            k.line(f"t /= {self.split};")
        k.line(f"const unsigned tiles_n = ({self.n} + {self.bn} - 1) / {self.bn};")
        k.line(f"const unsigned tiles_m = ({self.m} + {self.bm} - 1) / {self.bm};")
        k.line(f"const {k.kind} col0 = t % tiles_n * {self.bn};")
        k.line("t /= tiles_n;")
        k.line(f"const {k.kind} row0 = t % tiles_m * {self.bm}, b = t / tiles_m;")

    def _along(self) -> None:
        """The steps along k: all, or this block's share from `first` on."""
        k = self.k
        steps = f"({self.depth} + {self.bk} - 1) / {self.bk}"
        if not self.parts:
            k.line(f"const {k.kind} steps = {steps};")
            return
        k.line(f"const {k.kind} all = {steps}, share = (all + {self.split} - 1) / {self.split}, first = split * share;")
        k.line(f"const {k.kind} steps = all - first < share ? all - first : share;")

    # ------------------------------------------------------------ the product

    def multiply(self, sides: list[ProductOperand]) -> None:
        """acc += A B of the tiles in LDS buffer `step & 1`."""
        self.k.line("const int part = step & 1;")
        if self.tensor and not self.staged:
            self.k.emit.directive(f"#if {self.tensor}")
            tensor_tiles.multiply(self, sides)
            self.k.emit.directive("#else")
        self.fill(_MULTIPLY)
        if self.tensor and not self.staged:
            self.k.emit.directive("#endif")

    def store(self) -> None:
        """Sums to the epilogue: neighbours along n at once on the vector units."""
        k = self.k
        k.emit.directive("#if GEMM_MFMA")
        self.loops(("i", "WM"), ("j", "WN"), ("e", "4"))
        k.line(f"const {k.kind} row = row0 + (wave / 2 * WM + i) * 16 + lane / 16 * 4 + e;")
        k.line(f"const {k.kind} col = col0 + (wave % 2 * WN + j) * 16 + lane % 16;")
        k.line(f"if (row >= {self.m} || col >= {self.n}) continue;")
        self.out("acc[i][j][e]", "col")
        self.ends(3)
        k.emit.directive("#else")
        self.loops(("i", "TM"), ("j", "TN / GN"))
        self.row_of()
        self.column_of("j")
        k.line(f"if (row >= {self.m} || col >= {self.n}) continue;")
        k.open(f"if (col + GN <= {self.n})")
        self.outs("acc[i][j * GN + v]", "GN")
        k.close()
        k.open("else")
        k.line("#pragma unroll")
        k.open("for (int e = 0; e < GN; ++e)")
        k.line(f"const {k.kind} at = col + e;")
        k.line(f"if (at >= {self.n}) continue;")
        self.out("acc[i][j * GN + e]", "at")
        k.close()
        k.close()
        self.ends(2)
        k.emit.directive("#endif")

    def row_of(self) -> None:
        """The row of a thread's sums i, of vector units or tensor cores."""
        vector, tensor = "(i / GM * 16 + ty) * GM + i % GM", "(wave / 4 * WM + i / 2) * 16 + i % 2 * 8 + lane / 4"
        self._place("row", f"row0 + {vector}", f"row0 + {tensor}")

    def column_of(self, j: str, within: str = "") -> None:
        """The first column of a thread's pack j of GN, or the one at `within`."""
        more = f" + {within}" if within else ""
        tensor = f"col0 + wave % 4 * (WN * 8) + {j} * 16 + lane % 2 * 8 + lane % 4 / 2 * 4{more}"
        self._place("col", f"col0 + ({j} * 16 + tx) * GN{more}", tensor)

    def _place(self, name: str, vector: str, tensor: str) -> None:
        k = self.k
        if self.tensor:
            k.emit.directive(f"#if {self.tensor}")
            k.line(f"const {k.kind} {name} = {tensor};")
            k.emit.directive("#else")
        k.line(f"const {k.kind} {name} = {vector};")
        if self.tensor:
            k.emit.directive("#endif")

    def out(self, value: str, col: str) -> None:
        """The sum of `row` and a column: to the epilogue, or to the parts."""
        if self.parts:
            self.k.line(f"*({self.parts.at(self.k, 'row', col)}) = {value};")
        else:
            self.k.epilogue(value, ["b", "row", col])

    def outs(self, value: str, width: str) -> None:
        """The same for `width` columns from `col` on, all in range. value: may use `v`."""
        k = self.k
        if not self.parts:
            k.epilogue_vector(value, ["b", "row", "col"], "col", width)
            return
        k.line(f"AlignedWide<float, {width}> pack;")
        k.line("#pragma unroll")
        k.line(f"for (int v = 0; v < {width}; ++v) pack.v[v] = {value};")
        k.line(f"store_wide<{width}>({self.parts.at(k, 'row', 'col')}, pack);")


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
#pragma unroll 4
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
