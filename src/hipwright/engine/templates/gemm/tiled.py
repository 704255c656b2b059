"""Tiled matrix products: out[b, m, n] = sum_k A[b, m, k] B[b, n, k], for any sizes, transposes and prologues.

A block of 256 threads computes a tile of GEMM_M x GEMM_N. Tiles of A and B, GEMM_K deep, are loaded from global memory
through registers to LDS: while one pair is multiplied, the next is loaded (two buffers, one barrier a step). On the
vector units a thread has (GEMM_M / 16) x (GEMM_N / 16) sums and reads A and B from LDS tiles stored [k][row]; on CDNA
four waves compute 16 x 16 tiles with MFMA from LDS tiles stored [row][k] (register layout: docs/cpu-target.md); for
half types eight NVIDIA warps compute 16 x 8 tiles on tensor cores (tensor_cores.py). Sums are float. An operand is read
along its contiguous dimension, by vectors where they are aligned; elements outside it are zero. Several blocks may
share the k of a tile (split-k: split_k.py). Tiles of at most 64 x 64 are written by sliced_k.py.
"""

from __future__ import annotations

from hipwright.engine.ir.index import ONE
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call_kernel import factor
from hipwright.engine.templates.gemm import tensor_cores
from hipwright.engine.templates.gemm.operand import ProductOperand
from hipwright.engine.templates.gemm.scope import GemmScope


class Gemm(GemmScope):
    """Writes a tiled product. Templates with operands or outputs of their own override tile_operands, locate_tile,
    store and grid.

    What they may rely on: 256 threads; row0, col0 and b locate the block's tile; the sums are `acc[i][j]`, of the rows
    and columns that `store` computes; an LDS tile is `tile_a[buffer][row][k]` under GEMM_MFMA, else
    `tile_a[buffer][k][row]` (on tensor cores: tensor_cores.py). An operand that overrides `declare` must fill its tile
    in these layouts.
    """

    def tensor_core_condition(self) -> str:
        """The preprocessor condition under which NVIDIA tensor cores are used; "" for never."""
        return tensor_cores.condition(self)

    def tile_operands(self) -> list[ProductOperand]:
        """A and B, with how their tiles are read and stored to LDS."""
        a, b = self.tensors
        return [ProductOperand("a", a, "row", self.m, self.bm), ProductOperand("b", b, "col", self.n, self.bn)]

    def kernel(self) -> EmittedKernel:
        """Writes the kernel."""
        k = self.k
        self.declare_tiles()
        self.locate_tile()
        operands = self.tile_operands()
        for operand in operands:
            operand.declare(k, self)
        self._declare_steps()
        if self.tensor_cores and self.multistage:
            k.emit.directive(f"#if {self.tensor_cores}")
            tensor_cores.multistage_loop(k, self, operands)
            k.emit.directive("#else")
        self._k_loop(operands)
        if self.tensor_cores:
            if self.multistage:
                k.emit.directive("#endif")
            k.emit.directive(f"#if {self.tensor_cores}")
            k.line("exchange_neighbours(acc, lane);")
            k.emit.directive("#endif")
        self.store()
        bounds = "512" if self.tensor_cores and self.two_blocks else "256, 1"  # 128 registers a thread, or all
        return k.finish(self.grid(), "256", bounds, f"tiles of {self.bm} x {self.bn}, {self.bk} deep")

    def _k_loop(self, operands: list[ProductOperand]) -> None:
        """Emits the loop over k: the next tiles are loaded to registers while the present ones are multiplied."""
        k = self.k
        k.line("#pragma unroll 1")  # a compiler that knows the number of steps would unroll the loop, and spill
        k.open(f"for ({k.kind} step = -1; step < steps; ++step)")
        k.line("const bool has_next = step + 1 < steps;")
        k.open("if (has_next)")
        k.line(f"const {k.kind} k0 = ({'first_step + ' if self.partials else ''}step + 1) * {self.bk};")
        for operand in operands:
            operand.read(k, self)
        k.close()
        k.open("if (step >= 0)")
        self.multiply(operands)
        k.close()
        for operand in operands:  # after the last step too: LLVM would move the sums behind a branch (256 registers)
            operand.store_to_lds(k, self)
        k.line("__syncthreads();")
        k.close()

    def grid(self) -> str:
        """The number of blocks, as plan text."""
        batch, m, n = self.spec.space
        grid = f"cdiv({to_python(m)}, {self.bm}) * cdiv({to_python(n)}, {self.bn})"
        return grid + ("" if batch == ONE else f" * {factor(batch)}") + (f" * {self.split}" if self.partials else "")

    def kernels(self) -> list[EmittedKernel]:
        """The product's kernel; with split-k also the kernel that sums the partials."""
        made = [self.kernel()]
        return [*made, self.partials.sum_kernel(["b", "x", "y"])] if self.partials else made

    # ------------------------------------------------------------ set up

    def declare_tiles(self) -> None:
        """Declares the tiles in LDS and the sums in registers, for matrix units and for vector units."""
        k, m, n, depth = self.k, self.bm, self.bn, self.bk
        k.use("GEMM_MFMA")
        self.declare_types()
        k.emit.directive("#if GEMM_MFMA")
        self.declare_mfma_depth()
        k.line(f"constexpr int WM = {m} / 32, WN = {n} / 32, PAD = 16 / sizeof(T);  // 16 x 16 tiles of each wave")
        self.declare_shared(f"tile_a[2][{m}][{depth} + PAD]", f"tile_b[2][{n}][{depth} + PAD]")
        k.line("Accumulator acc[WM][WN] = {};")
        k.line("const int wave = threadIdx.x / 64, lane = threadIdx.x % 64;")
        if self.tensor_cores:
            k.use("GEMM_MMA")
            k.use("cp_async_16")
            k.emit.directive(f"#elif {self.tensor_cores}")
            tensor_cores.declare_tiles(k, self, multistage=self.multistage)
        k.emit.directive("#else")
        k.line(f"constexpr int TM = {m} / 16, TN = {n} / 16, GM = TM < 4 ? TM : 4, GN = TN < 4 ? TN : 4;")
        self.declare_shared(f"tile_a[2][{depth}][{m} + 4]", f"tile_b[2][{depth}][{n} + 4]")
        k.line("float acc[TM][TN] = {};")
        k.line("const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;")
        k.emit.directive("#endif")

    def locate_tile(self) -> None:
        """Declares row0, col0 and b: the tile of this block."""
        k = self.k
        k.line("unsigned tile = blockIdx.x;")
        if self.partials:
            k.line(f"const {k.kind} split = tile % {self.split};")
            k.line(f"tile /= {self.split};")
        k.line(f"const unsigned tiles_n = ({self.n} + {self.bn} - 1) / {self.bn};")
        k.line(f"const unsigned tiles_m = ({self.m} + {self.bm} - 1) / {self.bm};")
        k.line(f"const {k.kind} col0 = tile % tiles_n * {self.bn};")
        k.line("tile /= tiles_n;")
        k.line(f"const {k.kind} row0 = tile % tiles_m * {self.bm}, b = tile / tiles_m;")

    def _declare_steps(self) -> None:
        """Declares the number of steps along k: all of them, or the share of this block from `first_step` on."""
        k = self.k
        steps = f"({self.depth} + {self.bk} - 1) / {self.bk}"
        if not self.partials:
            k.line(f"const {k.kind} steps = {steps};")
            return
        share = f"(all_steps + {self.split} - 1) / {self.split}"
        k.line(f"const {k.kind} all_steps = {steps}, split_steps = {share}, first_step = split * split_steps;")
        k.line(f"const {k.kind} steps = all_steps - first_step < split_steps ? all_steps - first_step : split_steps;")

    # ------------------------------------------------------------ the product

    def multiply(self, operands: list[ProductOperand]) -> None:
        """Emits acc += A B for the tiles in LDS buffer `step & 1`."""
        self.k.line("const int buffer = step & 1;")
        if self.tensor_cores and not self.multistage:
            self.k.emit.directive(f"#if {self.tensor_cores}")
            tensor_cores.multiply(self, operands)
            self.k.emit.directive("#else")
        self.emit_template(_MULTIPLY)
        if self.tensor_cores and not self.multistage:
            self.k.emit.directive("#endif")

    def store(self) -> None:
        """Passes the sums to the epilogue; on the vector units several neighbouring columns at once."""
        k = self.k
        k.emit.directive("#if GEMM_MFMA")
        self.open_loops(("i", "WM"), ("j", "WN"), ("e", "4"))
        k.line(f"const {k.kind} row = row0 + (wave / 2 * WM + i) * 16 + lane / 16 * 4 + e;")
        k.line(f"const {k.kind} col = col0 + (wave % 2 * WN + j) * 16 + lane % 16;")
        k.line(f"if (row >= {self.m} || col >= {self.n}) continue;")
        self.store_element("acc[i][j][e]", "col")
        self.close_loops(3)
        k.emit.directive("#else")
        self.open_loops(("i", "TM"), ("j", "TN / GN"))
        self.declare_row()
        self.declare_column("j")
        k.line(f"if (row >= {self.m} || col >= {self.n}) continue;")
        k.open(f"if (col + GN <= {self.n})")
        self.store_vector("acc[i][j * GN + v]", "GN")
        k.close()
        k.open("else")
        k.line("#pragma unroll")
        k.open("for (int e = 0; e < GN; ++e)")
        k.line(f"const {k.kind} at = col + e;")
        k.line(f"if (at >= {self.n}) continue;")
        self.store_element("acc[i][j * GN + e]", "at")
        k.close()
        k.close()
        self.close_loops(2)
        k.emit.directive("#endif")

    def declare_row(self) -> None:
        """Declares `row`, the row of sums acc[i], for vector units or tensor cores."""
        vector, tensor = "(i / GM * 16 + ty) * GM + i % GM", "(wave / 4 * WM + i / 2) * 16 + i % 2 * 8 + lane / 4"
        self._declare_by_unit("row", f"row0 + {vector}", f"row0 + {tensor}")

    def declare_column(self, j: str, within: str = "") -> None:
        """Declares `col`, the first column of the thread's j-th vector of GN columns, plus `within`."""
        more = f" + {within}" if within else ""
        tensor = f"col0 + wave % 4 * (WN * 8) + {j} * 16 + lane % 2 * 8 + lane % 4 / 2 * 4{more}"
        self._declare_by_unit("col", f"col0 + ({j} * 16 + tx) * GN{more}", tensor)

    def _declare_by_unit(self, name: str, vector: str, tensor: str) -> None:
        k = self.k
        if self.tensor_cores:
            k.emit.directive(f"#if {self.tensor_cores}")
            k.line(f"const {k.kind} {name} = {tensor};")
            k.emit.directive("#else")
        k.line(f"const {k.kind} {name} = {vector};")
        if self.tensor_cores:
            k.emit.directive("#endif")

    def store_element(self, value: str, col: str) -> None:
        """Passes the sum of `row` and a column to the epilogue, or stores it as a partial."""
        if self.partials:
            self.k.line(f"*({self.partials.address(self.k, 'row', col)}) = {value};")
        else:
            self.k.epilogue(value, ["b", "row", col])

    def store_vector(self, value: str, width: str) -> None:
        """The same for `width` columns from `col` on, all in range. value: C text that may use `v`."""
        k = self.k
        if not self.partials:
            k.epilogue_vector(value, ["b", "row", "col"], "col", width)
            return
        k.line(f"WideVector<float, {width}> vec;")
        k.line("#pragma unroll")
        k.line(f"for (int v = 0; v < {width}; ++v) vec.v[v] = {value};")
        k.line(f"store_wide<{width}>({self.partials.address(k, 'row', 'col')}, vec);")


_MULTIPLY = """
#if GEMM_MFMA
#pragma unroll
for (int q = 0; q < @BK@; q += @DEPTH@) {
    @FRAGMENT@ frag_a[WM], frag_b[WN];
    const int p = q + lane / 16 * (@DEPTH@ / 4);
    const int frag_row_a = wave / 2 * WM * 16 + lane % 16, frag_row_b = wave % 2 * WN * 16 + lane % 16;
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
#pragma unroll 4
for (int q = 0; q < @BK@; ++q) {
    float x[TM], y[TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) x[i] = (float)tile_a[buffer][q][(i / GM * 16 + ty) * GM + i % GM];
    #pragma unroll
    for (int j = 0; j < TN; ++j) y[j] = (float)tile_b[buffer][q][(j / GN * 16 + tx) * GN + j % GN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) acc[i][j] += x[i] * y[j];
    }
}
#endif
"""
