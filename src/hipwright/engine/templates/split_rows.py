"""Float32 products of which a block computes all columns of its rows, on matrix units of half types.

A block of 256 threads has 128 rows of the product, tile after tile of columns (gemm/split_precision.py). On NVIDIA GPUs
the rows' parts stay in LDS where k is short, so that a tile loads its columns alone, and the block may split the rows
itself (split_inside.py). Where only reductions of rows are read, each thread adds its sums of a tile to the states
of its rows; the threads of a row combine them at the end, and one value a row is stored: the assignment of k-means
without distances in memory (Flash-KMeans; as attention keeps its queries). Else a thread stores its sums of a tile.
"""

from __future__ import annotations

from math import ceil

from hipwright.engine.ir.index import ONE
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.knobs import SPLIT, SPLIT_LDS
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates import split_inside
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import factor
from hipwright.engine.templates.gemm import split_precision
from hipwright.engine.templates.gemm.split_parts import CHUNK, SplitOperand, chunks_of
from hipwright.engine.templates.gemm.split_precision import (
    CHUNK_SECONDS,
    COLD_SECONDS,
    NAMES,
    PAIR_CHUNK_SECONDS,
    PAIR_TILE_SECONDS,
    ROWS,
    SPLIT_RATE,
    TILE_SECONDS,
    SplitOperands,
    tiles_seconds,
    tiling_for,
)
from hipwright.engine.templates.gemm.tiling import COMPUTE_UNITS, LAUNCH, ProductShape
from hipwright.engine.templates.offers import KernelCall
from hipwright.engine.templates.row_tiles import RowTileStates

WIDTHS = (128, 64)
"""Columns of a tile; of 64 NVIDIA's multiprocessors hold two blocks, one of which multiplies while the other one adds:
131072 x 1024 x 128 with the place of the least took an H200 348 and 325 us, 1000000 x 1024 x 128 2.83 and 2.69 ms.
"""
RING = (2, 3, 4, 6)
"""Chunks of columns in LDS."""
KEPT = (0, 2, 4, 6, 8)
"""Chunks of k up to which the rows' stay in LDS."""
PAIR_CHUNKS = 4
"""Chunks of k in LDS that leave a multiprocessor's for two blocks of narrow tiles."""
STORED_SECONDS, STORED_MARGIN = 2e-6, 0.7
"""What storing 64 columns of 128 rows takes, an assumption: as much as memory takes for all blocks at once; and of the
time of tiles, as long as nobody has measured this.
"""
REDUCED_SECONDS, ADDED_SECONDS = 9e-6, 1.5e-6
"""What a tile lasts longer where rows are reduced across lanes, tile after tile: 131072 x 1024 x 128 took an H200 981
us of 62 tiles of each multiprocessor; and an assumption of what adding a tile's sums to states in registers takes (by
whole rows the same took 310).
"""
_NAMES = f"""{NAMES} {split_inside.NAMES} tiles row_scales r c whole stored_row"""


def write(body: CallBody) -> list[EmittedKernel]:
    """The kernels that split operands, and the product, by tiles or by rows."""
    if any(member.item.whole for member in body.group.members):
        return _ReducedRows(body).kernels()
    a = next(t for t in body.operands if t is not None)
    if not any(member.item.kind == "tiles" for member in body.group.members) and _is_stored_by_rows(body, a):
        return _StoredRows(body).kernels()
    return split_precision.write(body)


def pays(shape: ProductShape) -> bool:
    """Whether blocks that reduce all columns of their rows fill a device, and are estimated faster than tiles."""
    tiles, blocks = ceil(shape.n / ROWS), shape.batch * ceil(shape.m / ROWS)
    one = ceil(shape.k / CHUNK) * CHUNK_SECONDS[WIDTHS[0]] + ADDED_SECONDS
    whole = LAUNCH + COLD_SECONDS + ceil(blocks / COMPUTE_UNITS) * (tiles * one + TILE_SECONDS)
    if blocks < COMPUTE_UNITS:
        return False
    _, slices = tiling_for(shape, WIDTHS[:1])
    reduced = LAUNCH + ceil(blocks * tiles / COMPUTE_UNITS) * REDUCED_SECONDS
    return whole < tiles_seconds(shape, WIDTHS[0], slices) + reduced


def stored_seconds(shape: ProductShape, width: int) -> float:
    """The estimated time of a product that is stored by rows, which its blocks split, without the kernel of B."""
    chunks, tiles, units = ceil(shape.k / CHUNK), ceil(shape.n / width), COMPUTE_UNITS
    chunk, ends = CHUNK_SECONDS[width], TILE_SECONDS
    if width < WIDTHS[0] and chunks <= PAIR_CHUNKS:
        chunk, ends, units = PAIR_CHUNK_SECONDS, PAIR_TILE_SECONDS, 2 * COMPUTE_UNITS
    rounds = ceil(shape.batch * ceil(shape.m / ROWS) / units)
    return LAUNCH + COLD_SECONDS + rounds * (tiles * (chunks * chunk + STORED_SECONDS * width / 64) + ends)


def _is_stored_by_rows(body: CallBody, a: Tensor) -> bool:
    """Chooses whether a product that is stored is computed by rows, which its blocks split."""
    shape = _shape(body)
    if ceil(shape.k / CHUNK) > KEPT[-1]:
        return False
    before = tiles_seconds(shape, *tiling_for(shape)) + LAUNCH + 8.0 * shape.batch * shape.m * shape.k / SPLIT_RATE
    usual = min(stored_seconds(shape, width) for width in WIDTHS) < STORED_MARGIN * before
    return split_inside.chosen(body, a, usual and _keeps(body))


def _shape(body: CallBody) -> ProductShape:
    batch, m, n, k = (body.hint(size) for size in (*body.data.space, body.data.k))
    return ProductShape(batch, m, n, k, body.data.dtype)


def _keeps(body: CallBody) -> bool:
    """Whether all of k stays in LDS by default."""
    chunks = ceil(body.hint(body.data.k) / CHUNK)
    return all(_chunks_in_lds(body.call, width, chunks)[1] >= chunks for width in WIDTHS)


class _SplitRows(SplitOperands):
    """Blocks compute all columns of 128 rows. `title`: what they do with them."""

    title = ""

    def __init__(self, body: CallBody, width: int, inside: bool) -> None:
        """width: by default, of a tile's columns; inside: blocks split their rows."""
        width = int(body.choose("width", WIDTHS, width))
        ring, kept = _chunks_in_lds(body.call, width, ceil(body.hint(body.data.k) / CHUNK))
        self.width = width
        self.ring = body.knob("SPLIT_RING", ring, RING, "chunks of columns in LDS")
        self.kept = body.knob("SPLIT_KEPT", kept, KEPT, "chunks of k up to which rows stay in LDS")
        super().__init__(body, inside)

    def product(self) -> EmittedKernel:
        """The kernel of all rows."""
        k = self.k = self.body.kernel("", _NAMES)
        k.use("SplitTile", "multiply_tiles", "replace_infinite")
        m, n = (k.size(s) for s in self.spec.space[1:])
        k.line("extern __shared__ __attribute__((aligned(1024))) unsigned char lds[];")
        k.line(f"using Tile = SplitTile<{self.width}, {self.ring}>;")
        k.line(f"const unsigned tiles_m = ({m} + {ROWS - 1}) / {ROWS};")
        k.line(f"const {k.kind} b = blockIdx.x / tiles_m, row0 = blockIdx.x % tiles_m * {ROWS};")
        k.line("Tile product;")
        k.line(f"const int chunks = {k.size(chunks_of(self.spec.k))}, tiles = ({n} + {self.width - 1}) / {self.width};")
        self.begin()
        if self.a.inside:
            split_inside.emit_rows(k, self.a.tensor)
            k.line(f"multiply_tiles<{self.kept}>(product, lds, chunks, tiles, split_rows,")
        else:
            self._row_scales(m)
            k.line(f"multiply_tiles<{self.kept}>(product, lds, chunks, tiles,")
            self._loader(self.a, "row0 + r")
        self._loader(self.b, "r")
        k.open("[&](int tile)")
        self._tile(m, n)
        k.close()
        k.line(");")
        self.end(m)
        return self._finished()

    def begin(self) -> None:
        """Emits what a thread has for its rows before the first tile."""

    def take(self, m: str, n: str) -> None:
        """Emits what becomes of a tile's values. n: the columns, "" where all are in range."""
        raise NotImplementedError

    def end(self, m: str) -> None:
        """Emits what follows the last tile."""

    def _finished(self) -> EmittedKernel:
        batch, m, _ = self.spec.space
        grid = f"cdiv({to_python(m)}, {ROWS})" + ("" if batch == ONE else f" * {factor(batch)}")
        lds = f"({self.ring} * {self.width} + max({self.ring}, {self.kept}) * {ROWS}) * {4 * CHUNK}"
        two = self.width < WIDTHS[0] and self.body.call.choices.get(SPLIT)
        bounds = "512" if two else "256, 1"  # 128 registers a thread of NVIDIA's GPUs, or all
        title = f"{ROWS} rows, tiles of {self.width} columns in turn, {CHUNK} deep, in two parts{self.title}"
        made = self.k.finish(grid, "256", bounds, title, lds)
        made.single = True
        return made

    def _row_scales(self, m: str) -> None:
        """Declares the scales of a thread's rows; a product of scales of a row and a column may leave floats' range."""
        k = self.k
        k.line("float row_scales[Tile::TM];")
        k.line("#pragma unroll")
        k.open("for (int i = 0; i < Tile::TM; ++i)")
        self.clamped("row", "row0 + Tile::row(i)", m)
        k.line(f"row_scales[i] = power_of_two(-{k.pointer(self.a.exponents)}[b * {m} + row]);")
        k.close()

    def clamped(self, name: str, at: str, count: str) -> None:
        self.k.line(f"const {self.k.kind} {name} = {at} < {count} ? {at} : {count} - 1;")

    def _loader(self, operand: SplitOperand, at: str) -> None:
        """Emits the function that finds a row's parts; rows beyond the last give the last one's."""
        k, rows = self.k, self.k.size(operand.rows)
        k.open("[&](int, int r, int chunk)")
        self.clamped("row", at, rows)
        k.line(f"return {k.pointer(operand.parts)} + ((b * {rows} + row) * chunks + chunk) * {2 * CHUNK};")
        k.close()
        k.line(",")

    def _tile(self, m: str, n: str) -> None:
        """Emits what follows the sums of a tile: their scales, sums that are not finite, and what is theirs."""
        k = self.k
        k.line("constexpr int GN = Tile::GN;")
        k.line(f"const {k.kind} col0 = tile * {self.width};")
        k.line(f"const bool whole = col0 + {self.width} <= {n};")
        self._scale(n)
        k.line("replace_infinite(product, [&](int r, int c) {")
        self.clamped("row", "row0 + r", m)
        self.clamped("at", "col0 + c", n)
        k.line("float exact = 0.0f;")
        k.line("#pragma unroll 1")
        k.open(f"for ({k.kind} p = 0; p < {k.size(self.spec.k)}; ++p)")
        x, y = k.load(self.a.tensor, ["b", "row", "p"]), k.load(self.b.tensor, ["b", "at", "p"])
        k.line(f"exact += ({x}) * ({y});")
        k.close()
        k.line("return exact;")
        k.line("});")
        k.open("if (whole)")
        self.take(m, "")
        k.close()
        k.open("else")
        self.take(m, n)
        k.close()

    def _scale(self, n: str) -> None:
        k = self.k
        k.use("load_wide")
        exponents = f"{k.pointer(self.b.exponents)} + b * {n}"
        k.line("#pragma unroll")
        k.open("for (int j = 0; j < Tile::TN; j += GN)")
        k.line(f"const {k.kind} col = col0 + Tile::column(j / GN);")
        k.line("int column_exponents[GN];")
        k.open("if (whole)")
        k.line(f"const auto found = load_wide<GN>({exponents} + col);")
        k.line("#pragma unroll")
        k.line("for (int v = 0; v < GN; ++v) column_exponents[v] = found.v[v];")
        k.close()
        k.open("else")
        k.line("#pragma unroll")
        k.line(f"for (int v = 0; v < GN; ++v) column_exponents[v] = ({exponents})[col + v < {n} ? col + v : {n} - 1];")
        k.close()
        k.line("#pragma unroll")
        k.open("for (int v = 0; v < GN; ++v)")
        k.line("const float scale = power_of_two(-column_exponents[v]);")
        k.line("#pragma unroll")
        k.open("for (int i = 0; i < Tile::TM; ++i)")
        k.line("product.sums[i][j + v] = product.sums[i][j + v] * row_scales[i] * scale;")
        for _ in range(3):
            k.close()


class _ReducedRows(_SplitRows):
    """Rows are reduced in registers."""

    def __init__(self, body: CallBody) -> None:
        a = next(t for t in body.operands if t is not None)
        inside = split_inside.chosen(body, a, _keeps(body))
        super().__init__(body, WIDTHS[bool(body.call.choices.get(SPLIT))], inside)

    def begin(self) -> None:
        """Declares the states."""
        self.rows = RowTileStates(self.k)
        self.rows.begin_rows("Tile::TM")

    def end(self, m: str) -> None:
        """Combines the states of a row."""
        self.k.line(f"const {self.k.kind} row = row0 + threadIdx.x;")
        self.rows.store_shares("Tile", ROWS, f"row < {m}", ["b", "row", 0])

    def take(self, m: str, n: str) -> None:
        """Emits the loops that add a tile's values to the states."""
        k = self.k
        k.line("#pragma unroll")
        k.open("for (int j = 0; j < Tile::TN; j += GN)")
        k.line(f"const {k.kind} col = col0 + Tile::column(j / GN);")
        k.line("#pragma unroll")
        k.open("for (int i = 0; i < Tile::TM; ++i)")
        self.clamped("row", "row0 + Tile::row(i)", m)
        self.rows.open_row("GN")
        k.line("#pragma unroll")
        k.open("for (int v = 0; v < GN; ++v)")
        k.line(f"const {k.kind} at = col + v;")
        if n:
            k.line(f"if (at >= {n}) continue;")
        self.rows.add("product.sums[i][j + v]", ["b", "row", "at"], "at", "v")
        k.close()
        self.rows.end(f"(int)({n} - col < GN ? {n} - col < 0 ? 0 : {n} - col : GN)" if n else "GN")
        k.close()
        k.close()


class _StoredRows(_SplitRows):
    """Rows, which the blocks split, are stored: a thread has GN neighbouring columns."""

    title = ", stored"

    def __init__(self, body: CallBody) -> None:
        shape = _shape(body)
        super().__init__(body, min(WIDTHS, key=lambda width: stored_seconds(shape, width)), True)

    def take(self, m: str, n: str) -> None:
        """Emits the epilogue of a tile."""
        k = self.k
        k.line("#pragma unroll")
        k.open("for (int j = 0; j < Tile::TN; j += GN)")
        k.line(f"const {k.kind} col = col0 + Tile::column(j / GN);")
        k.line("#pragma unroll")
        k.open("for (int i = 0; i < Tile::TM; ++i)")
        k.line(f"const {k.kind} row = row0 + Tile::row(i);")
        k.line(f"if (row >= {m}) continue;")
        if n:
            k.line("#pragma unroll")
            k.open("for (int v = 0; v < GN; ++v)")
            k.line(f"const {k.kind} at = col + v;")
            k.line(f"if (at >= {n}) continue;")
            k.epilogue("product.sums[i][j + v]", ["b", "row", "at"])
            k.close()
        else:
            k.epilogue_vector("product.sums[i][j + v]", ["b", "row", "col"], "col", "GN")
        k.close()
        k.close()


def _chunks_in_lds(call: KernelCall, width: int, chunks: int) -> tuple[int, int]:
    """(of columns, of k for which rows stay): by default those that the LDS of all of a run's GPUs has, if it is known.

    Two of each take 64 KiB, which every GPU has.
    """
    lds = call.choices.get(SPLIT_LDS) if call.choices.get(SPLIT) else None
    kept = next((count for count in KEPT if count >= chunks), 0)
    for ring in (4, 3):
        if isinstance(lds, int) and (ring * width + max(ring, kept) * ROWS) * 4 * CHUNK <= lds:
            return ring, kept
    return 2, 0


__all__ = ["pays", "stored_seconds", "write"]
