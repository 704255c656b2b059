"""Operands of float32 products in two half parts: the kernel that makes the parts of one operand.

A row is scaled by a power of two, below 2^15, and written as high + low / 2048, both float16: 22 bits and a sign, for
numbers down to 2^-28 of the row's largest (Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores",
IJHPCA 2022). The parts of 32 neighbouring k lie side by side, 128 bytes: split_product.h.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from hipwright.engine.ir.index import ONE, Ix, divide, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel, factor

CHUNK = 32
BLOCK = 256
LANES_DEPTH = {8: 64, 16: 128, 32: 1024}
"""The most numbers of a row for so many lanes; a block has a longer row."""
BLOCK_DEPTH = 8192
"""The most numbers that a block holds: a longer row, or one of a size that is not known, is read twice."""
_NAMES = """lane group line tile b row p p0 at largest scale exponent x v high low found found_parts distance parts part
turned held step"""


def chunks_of(k: Ix) -> Ix:
    """The chunks of 32 that hold k numbers."""
    return divide(k + (CHUNK - 1), ix(CHUNK))


@dataclass(eq=False)
class SplitOperand:
    """The parts of one operand [batch, rows, k]. name: "a" or "b"; inside: no memory has them (split_inside.py)."""

    body: CallBody
    name: str
    tensor: Tensor
    inside: bool = False
    parts: str = field(init=False)
    exponents: str = field(init=False)

    def __post_init__(self) -> None:
        self.batch, self.rows, self.k = self.tensor.shape
        if self.inside:
            return
        shape = [self.batch, self.rows, chunks_of(self.k), ix(2 * CHUNK)]
        self.parts = self.body.temporary(f"parts_{self.name}", shape, "float16")
        self.exponents = self.body.temporary(f"exponents_{self.name}", [self.batch, self.rows], "int32")

    def kernels(self) -> list[EmittedKernel]:
        """The kernel that makes them; none where the product's own does."""
        return [] if self.inside else [self.kernel()]

    def kernel(self) -> EmittedKernel:
        """The kernel that makes them: some lanes a row, or where rows are contiguous 32 rows a block."""
        k = self.body.kernel(f"split_{self.name}", _NAMES)
        k.use("split_parts", "WideVector")
        k.written |= {self.parts, self.exponents}
        if k.runs_along(self.tensor, 2) or not k.runs_along(self.tensor, 1):
            grid = self._lanes_along_k(k)
        else:
            grid = self._lanes_along_rows(k)
        made = k.finish(grid, str(BLOCK), str(BLOCK), f"operand {self.name} in two half parts")
        made.packs = True
        return made

    # ------------------------------------------------------------ neighbouring lanes take neighbouring k

    def _lanes_along_k(self, k: CallKernel) -> str:
        depth, rows, total = self.k.value, k.size(self.rows), k.size(product([self.batch, self.rows]))
        known = self.body.hint(self.k)
        lanes = next((lanes for lanes, most in LANES_DEPTH.items() if known <= most), BLOCK)
        k.line(f"const int lane = threadIdx.x % {lanes};")
        k.line(f"const {k.kind} line = blockIdx.x * ({k.kind}){BLOCK // lanes} + threadIdx.x / {lanes};")
        if lanes < BLOCK:
            k.line(f"if (line >= {total}) return;")
        k.line(f"const {k.kind} b = line / {rows}, row = line % {rows};")
        k.line("float largest = 0.0f;")
        steps = 0 if depth is None or depth > BLOCK_DEPTH else ceil(depth / (8 * lanes))
        whole = f"{k.size(chunks_of(self.k))} * {CHUNK}"
        if steps:
            k.line(f"float held[{steps}][8];  // the row is read once")
            k.line("#pragma unroll")
            k.open(f"for (int step = 0; step < {steps}; ++step)")
            k.line(f"const {k.kind} p = (step * {lanes} + lane) * 8;")
            self._load(k, 8, "held[step]")
        else:
            k.line("#pragma unroll 2")
            k.open(f"for ({k.kind} p = lane * 8; p < {k.size(self.k)}; p += {8 * lanes})")
            k.line("float x[8];")
            self._load(k, 8)
        k.line("#pragma unroll")
        k.line(f"for (int v = 0; v < 8; ++v) largest = fmaxf(largest, fabsf({'held[step]' if steps else 'x'}[v]));")
        k.close()
        self._largest_of_row(k, lanes)
        k.line("const int exponent = split_exponent(largest);")
        k.line("const float scale = power_of_two(exponent);")
        k.line(f"if (lane == 0) {k.pointer(self.exponents)}[line] = exponent;")
        if steps:
            k.line("#pragma unroll")
            k.open(f"for (int step = 0; step < {steps}; ++step)")
            k.line(f"const {k.kind} p = (step * {lanes} + lane) * 8;")
            k.open(f"if (p < {whole})")
            k.line("const float(&x)[8] = held[step];")
        else:
            k.line("#pragma unroll 2")
            k.open(f"for ({k.kind} p = lane * 8; p < {whole}; p += {8 * lanes})")
            k.line("float x[8];")
            self._load(k, 8)
        emit_store(k, self.parts, "line", k.size(chunks_of(self.k)))
        k.close()
        if steps:
            k.close()
        return f"cdiv({to_python(product([self.batch, self.rows]))}, {BLOCK // lanes})"

    def _largest_of_row(self, k: CallKernel, lanes: int) -> None:
        """Emits the largest number of all lanes of a row."""
        k.line("#pragma unroll")
        k.open(f"for (int distance = {min(lanes, 32) // 2}; distance > 0; distance /= 2)")
        k.line("largest = fmaxf(largest, __shfl_xor(largest, distance));")
        k.close()
        if lanes == BLOCK:
            k.line("__shared__ float found[8];")
            k.line("if (lane % 32 == 0) found[lane / 32] = largest;")
            k.line("__syncthreads();")
            k.line("#pragma unroll")
            k.line("for (int v = 0; v < 8; ++v) largest = fmaxf(largest, found[v]);")

    def _load(self, k: CallKernel, width: int, into: str = "x") -> None:
        """Loads into[v] of row and p + v, zero beyond k."""
        k.open(f"if (p + {width} <= {k.size(self.k)})")
        k.vector(self.tensor, ["b", "row", "p"], "p", str(width), into)
        k.close()
        k.open("else")
        self._load_each(k, width, into)
        k.close()

    def _load_each(self, k: CallKernel, width: int, into: str = "x") -> None:
        k.line("#pragma unroll")
        k.open(f"for (int v = 0; v < {width}; ++v)")
        k.line(f"const {k.kind} at = p + v;")
        k.line(f"{into}[v] = 0.0f;")
        k.open(f"if (at < {k.size(self.k)})")
        k.line(f"{into}[v] = {k.load(self.tensor, ['b', 'row', 'at'])};")
        k.close()
        k.close()

    # ------------------------------------------------------------ neighbouring lanes take neighbouring rows

    def _lanes_along_rows(self, k: CallKernel) -> str:
        rows, chunks = k.size(self.rows), k.size(chunks_of(self.k))
        k.line("__shared__ float found[8][32];")
        k.line("const int lane = threadIdx.x % 32, group = threadIdx.x / 32;")
        blocks = f"(({rows} + 31) / 32)"
        k.line(f"const {k.kind} tile = blockIdx.x % {blocks} * 32, b = blockIdx.x / {blocks};")
        k.line(f"const {k.kind} row = tile + lane < {rows} ? tile + lane : {rows} - 1;")
        k.line("float largest = 0.0f;")
        k.open(f"for ({k.kind} p = group * 8; p < {k.size(self.k)}; p += 64)")
        k.line("float x[8];")
        self._load_each(k, 8)
        k.line("#pragma unroll")
        k.line("for (int v = 0; v < 8; ++v) largest = fmaxf(largest, fabsf(x[v]));")
        k.close()
        k.line("found[group][lane] = largest;")
        k.line("__syncthreads();")
        k.line("#pragma unroll")
        k.line("for (int v = 0; v < 8; ++v) largest = fmaxf(largest, found[v][lane]);")
        k.line("const int exponent = split_exponent(largest);")
        k.line("const float scale = power_of_two(exponent);")
        k.line(f"if (group == 0 && tile + lane < {rows}) {k.pointer(self.exponents)}[b * {rows} + row] = exponent;")
        k.open(f"for ({k.kind} p0 = 0; p0 < {chunks} * {CHUNK}; p0 += {CHUNK})")
        k.line(f"const {k.kind} p = p0 + group * 4;")
        k.line("float x[4];")
        self._load_each(k, 4)
        emit_transposed(k, self.parts, f"b * {rows} + tile", rows, chunks)
        k.close()
        batch = "" if self.batch == ONE else f" * {factor(self.batch)}"
        return f"cdiv({to_python(self.rows)}, 32){batch}"


def emit_store(k: CallKernel, parts: str, line: str, chunks: str) -> None:
    """Stores the parts of x[0 .. 7] * scale, which begin at p of a line. line, chunks: C texts; parts: the buffer."""
    k.line("WideVector<__half, 8> high, low;")
    k.line("#pragma unroll")
    k.line("for (int v = 0; v < 8; ++v) split_parts(x[v] * scale, high.v[v], low.v[v]);")
    place = f"({line} * {chunks} + p / {CHUNK}) * {2 * CHUNK} + p % {CHUNK}"
    k.line(f"__half* const parts = {k.pointer(parts)} + {place};")
    k.use("store_aligned")
    k.line("store_aligned<8>(parts, high);")
    k.line(f"store_aligned<8>(parts + {CHUNK}, low);")


def emit_transposed(k: CallKernel, parts: str, line: str, rows: str, chunks: str) -> None:
    """Stores the parts of a chunk from p0 on, of 32 rows from `tile` on, through LDS: whole lines of 128 bytes.

    Each of 256 threads has x[0 .. 3], of row `lane` and k from p0 + 4 * group on, and its scale. line: that of row
    `tile`; rows: their number; chunks: of a line; C texts. Every thread calls it.
    """
    k.use("WideVector", "store_aligned")
    k.line(f"__shared__ float turned[32][{CHUNK + 1}];")
    k.line("__syncthreads();")
    k.line("#pragma unroll")
    k.line("for (int v = 0; v < 4; ++v) turned[lane][group * 4 + v] = x[v] * scale;")
    k.line("__syncthreads();")
    k.line("const int line = threadIdx.x / 8, part = threadIdx.x % 8;")
    k.open(f"if (tile + line < {rows})")
    k.line("WideVector<__half, 8> found_parts;")
    k.line("#pragma unroll")
    k.open("for (int v = 0; v < 8; ++v)")
    k.line("__half high, low;")
    k.line("split_parts(turned[line][part % 4 * 8 + v], high, low);")
    k.line("found_parts.v[v] = part < 4 ? high : low;")
    k.close()
    place = f"(({line} + line) * {chunks} + p0 / {CHUNK}) * {2 * CHUNK} + part * 8"
    k.line(f"store_aligned<8>({k.pointer(parts)} + {place}, found_parts);")
    k.close()
