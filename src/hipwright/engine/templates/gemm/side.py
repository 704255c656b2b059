"""One operand of a tiled product (gemm.py): its tile from memory through a thread's registers to LDS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hipwright.engine.lower.core import Tensor
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.gemm.scope import GemmScope


@dataclass(eq=False)
class ProductOperand:
    """A (rows of the output) or B (its columns): how its tile is read and kept."""

    name: str
    operand: Tensor
    row: str
    count: str
    size: str
    row_major: bool = False  # on the vector units; on the matrix units every tile is
    in_rows: bool = True  # for tensor cores: does the tile stand in rows along k?

    def lie(self, k: CallKernel, g: GemmScope) -> None:
        """Along which dimension memory runs, and how the tile stands in LDS."""
        self.along_k = k.contiguous(self.operand, 2) or not k.contiguous(self.operand, 1)
        self.row_major = self.along_k and g.row_major
        self.in_rows = self.along_k

    def declare(self, k: CallKernel, g: GemmScope) -> None:
        """Packs of 16 bytes along the dimension in which memory runs."""
        n = self.name
        self.lie(k, g)
        self.pack, self.registers = ("AV" if n == "a" else "BV"), f"next_{n}"
        self.packs = f"({self.size} * {g.bk} / {self.pack})"
        self.mine = f"({self.packs} + 255) / 256"
        k.line(f"constexpr int {self.pack} = 16 / sizeof(T);")
        k.line(f"T {self.registers}[{self.mine}][{self.pack}];")
        axis = "p" if self.along_k else self.row
        conditions = k.wide(self.operand, ["b", self.row, "p"], axis, self.pack)
        self.fast = f"fast_{n}" if conditions else ""
        if conditions:
            k.line(f"const bool fast_{n} = {' && '.join(conditions)};")

    def slot(self, k: CallKernel, g: GemmScope) -> None:
        """Open the loop over this thread's packs: r and kk are a pack's place in the tile."""
        k.line("#pragma unroll")
        k.open(f"for (int l = 0; l < {self.mine}; ++l)")
        k.line("const int slot = threadIdx.x + l * 256;")
        k.line(f"if ({self.packs} % 256 != 0 && slot >= {self.packs}) continue;")
        if self.along_k:
            k.line(f"const int kk = slot % ({g.bk} / {self.pack}) * {self.pack}, r = slot / ({g.bk} / {self.pack});")
        else:
            across = f"({self.size} / {self.pack})"
            k.line(f"const int r = slot % {across} * {self.pack}, kk = slot / {across};")

    def lies(self, r: str, kk: str) -> str:
        """Where (r, kk) stands in the tile that tensor cores read (tensor_tiles.py)."""
        return f"in_rows({r}, {kk})" if self.in_rows else f"across_rows<{self.size}>({r}, {kk})"

    def read(self, k: CallKernel, g: GemmScope) -> None:
        """Memory to registers; zero outside."""
        self.slot(k, g)

        def whole(index: list[str], axis: str) -> None:
            k.vector(self.operand, index, axis, self.pack, f"{self.registers}[l]", dtype=g.spec.dtype, aligned=True)

        self.bring(k, g, f"{self.registers}[l]", whole)
        k.close()

    def bring(self, k: CallKernel, g: GemmScope, into: str, whole: Callable[[list[str], str], None]) -> None:
        """A pack as `whole` writes it, of an index and its axis, where all of it counts; else each element, or zero."""
        start = "row0" if self.row == "row" else "col0"
        k.line(f"const {k.kind} {self.row} = {start} + r, p = k0 + kk;")
        index = ["b", self.row, "p"]
        axis, others = ("p", f"{self.row} < {self.count}") if self.along_k else (self.row, f"p < {g.depth}")
        limit = g.depth if self.along_k else self.count
        fast = f"{self.fast} && " if self.fast else ""
        k.open(f"if ({fast}{others} && {axis} + {self.pack} <= {limit})")
        whole(index, axis)
        k.close()
        k.open("else")
        k.line("#pragma unroll")
        k.open(f"for (int v = 0; v < {self.pack}; ++v)")
        k.line(f"const {k.kind} at = {axis} + v;")
        k.line(f"{into}[v] = T(0.0f);")
        k.open(f"if ({others} && at < {limit})")
        moved = ["at" if i == axis else i for i in index]
        k.line(f"{into}[v] = {k.load(self.operand, moved, g.spec.dtype)};")
        for _ in range(3):
            k.close()

    def keep(self, k: CallKernel, g: GemmScope) -> None:
        """Registers to LDS, into the buffer that is not being read: a pack at once where it lies along a row."""
        self.slot(k, g)
        tile, value = f"tile_{self.name}[(step + 1) & 1]", f"{self.registers}[l]"
        r, kk = ("r", "kk + v") if self.along_k else ("r + v", "kk")
        if g.tensor and not g.staged:
            k.emit.directive(f"#if {g.tensor}")
            k.define("keep_pack", KEEP)
            k.line(f"keep_pack(&{tile}[{self.lies('r', 'kk')}], {value});")
            k.emit.directive("#elif GEMM_MFMA")
        elif not self.row_major:
            k.emit.directive("#if GEMM_MFMA")
        if self.along_k:
            k.define("keep_pack", KEEP)
            k.line(f"keep_pack(&{tile}[r][kk], {value});")
        else:
            k.line("#pragma unroll")
            k.line(f"for (int v = 0; v < {self.pack}; ++v) {tile}[{r}][{kk}] = {value}[v];")
        if not self.row_major:
            k.emit.directive("#else")
            k.line("#pragma unroll")
            k.line(f"for (int v = 0; v < {self.pack}; ++v) {tile}[{kk}][{r}] = {value}[v];")
            k.emit.directive("#endif")
        k.close()


KEEP = """// One 16-byte store to LDS.
template <typename T, int N>
__device__ __forceinline__ void keep_pack(T* to, const T (&from)[N]) {
    AlignedWide<T, N> pack;
    for (int v = 0; v < N; ++v) pack.v[v] = from[v];
    *reinterpret_cast<AlignedWide<T, N>*>(to) = pack;
}
"""
