"""One operand of a tiled product: its block tile on the way from global memory through registers to LDS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.gemm.scope import GemmScope


@dataclass(eq=False)
class ProductOperand:
    """Operand A (rows of the output) or B (its columns), and the layout of its tile in LDS.

    name: "a" or "b"; row: the C name of its row or column; count: the number of rows; size: rows of the tile; dtype:
    of the tile, if it is not that of the product.
    """

    name: str
    tensor: Tensor
    row: str
    count: str
    size: str
    row_major: bool = False  # LDS tile as [row][k] on the vector units; on matrix units it always is
    k_contiguous: bool = True  # LDS tile for tensor cores: neighbouring k side by side
    dtype: str = ""

    def choose_layout(self, k: CallKernel, g: GemmScope) -> None:
        """Finds along which dimension memory is contiguous, and lays out the LDS tile accordingly."""
        self.along_k = k.runs_along(self.tensor, 2) or not k.runs_along(self.tensor, 1)
        self.row_major = self.along_k and g.row_major
        self.k_contiguous = self.along_k

    def held(self, g: GemmScope) -> str:
        """The dtype of the tile."""
        return self.dtype or g.spec.dtype

    def c_type(self, g: GemmScope) -> str:
        """The C type of the tile."""
        return g.types[int(self.name == "b")]

    def declare(self, k: CallKernel, g: GemmScope) -> None:
        """Declares the registers of the next tile, in vectors of 16 bytes along the contiguous dimension."""
        n = self.name
        self.choose_layout(k, g)
        self.width, self.registers = ("AV" if n == "a" else "BV"), f"next_{n}"
        self.vectors = f"({self.size} * {g.bk} / {self.width})"
        self.per_thread = f"({self.vectors} + 255) / 256"
        k.line(f"constexpr int {self.width} = 16 / sizeof(T);")
        k.line(f"{self.c_type(g)} {self.registers}[{self.per_thread}][{self.width}];")
        axis = "p" if self.along_k else self.row
        conditions = k.vector_conditions(self.tensor, ["b", self.row, "p"], axis, self.width)
        self.aligned = f"aligned_{n}" if conditions else ""
        if conditions:
            k.line(f"const bool aligned_{n} = {' && '.join(conditions)};")

    def open_vector_loop(self, k: CallKernel, g: GemmScope) -> None:
        """Opens the loop over the vectors of this thread: r and kk are the place of a vector in the tile."""
        k.line("#pragma unroll")
        k.open(f"for (int l = 0; l < {self.per_thread}; ++l)")
        k.line("const int vec_index = threadIdx.x + l * 256;")
        k.line(f"if ({self.vectors} % 256 != 0 && vec_index >= {self.vectors}) continue;")
        if self.along_k:
            along = f"({g.bk} / {self.width})"
            k.line(f"const int kk = vec_index % {along} * {self.width}, r = vec_index / {along};")
        else:
            across = f"({self.size} / {self.width})"
            k.line(f"const int r = vec_index % {across} * {self.width}, kk = vec_index / {across};")

    def swizzled_index(self, r: str, kk: str) -> str:
        """The LDS index of (r, kk) in a tile for tensor cores (tensor_cores.py), as C text."""
        return (
            f"k_contiguous_index({r}, {kk})" if self.k_contiguous else f"row_contiguous_index<{self.size}>({r}, {kk})"
        )

    def read(self, k: CallKernel, g: GemmScope) -> None:
        """Loads the next tile from global memory to registers; elements outside the operand are zero."""
        self.open_vector_loop(k, g)

        def load_vector(index: list[str], axis: str) -> None:
            k.vector(self.tensor, index, axis, self.width, f"{self.registers}[l]", dtype=self.held(g), aligned=True)

        self.load_or_zero(k, g, f"{self.registers}[l]", load_vector)
        k.close()

    def load_or_zero(
        self, k: CallKernel, g: GemmScope, target: str, load_vector: Callable[[list[str], str], None]
    ) -> None:
        """Emits the load of one vector: `load_vector` of (index, axis) where all is in range, else each element or
        zero.
        """
        start = "row0" if self.row == "row" else "col0"
        k.line(f"const {k.kind} {self.row} = {start} + r, p = k0 + kk;")
        index = ["b", self.row, "p"]
        axis, others = ("p", f"{self.row} < {self.count}") if self.along_k else (self.row, f"p < {g.depth}")
        limit = g.depth if self.along_k else self.count
        aligned = f"{self.aligned} && " if self.aligned else ""
        k.open(f"if ({aligned}{others} && {axis} + {self.width} <= {limit})")
        load_vector(index, axis)
        k.close()
        k.open("else")
        k.line("#pragma unroll")
        k.open(f"for (int v = 0; v < {self.width}; ++v)")
        k.line(f"const {k.kind} at = {axis} + v;")
        k.line(f"{target}[v] = {self.c_type(g)}(0.0f);")
        k.open(f"if ({others} && at < {limit})")
        moved = ["at" if i == axis else i for i in index]
        k.line(f"{target}[v] = {k.load(self.tensor, moved, self.held(g))};")
        for _ in range(3):
            k.close()

    def store_to_lds(self, k: CallKernel, g: GemmScope) -> None:
        """Stores the registers to the LDS buffer that is not being read, vectorised where a row of it is contiguous."""
        self.open_vector_loop(k, g)
        tile, value = f"tile_{self.name}[(step + 1) & 1]", f"{self.registers}[l]"
        r, kk = ("r", "kk + v") if self.along_k else ("r + v", "kk")
        if g.tensor_cores and not g.multistage:
            k.emit.directive(f"#if {g.tensor_cores}")
            k.use("store_lds_vector")
            k.line(f"store_lds_vector(&{tile}[{self.swizzled_index('r', 'kk')}], {value});")
            k.emit.directive("#elif GEMM_MFMA")
        elif not self.row_major:
            k.emit.directive("#if GEMM_MFMA")
        if self.along_k:
            k.use("store_lds_vector")
            k.line(f"store_lds_vector(&{tile}[r][kk], {value});")
        else:
            k.line("#pragma unroll")
            k.line(f"for (int v = 0; v < {self.width}; ++v) {tile}[{r}][{kk}] = {value}[v];")
        if not self.row_major:
            k.emit.directive("#else")
            k.line("#pragma unroll")
            k.line(f"for (int v = 0; v < {self.width}; ++v) {tile}[{kk}][{r}] = {value}[v];")
            k.emit.directive("#endif")
        k.close()
