"""Float32 products by matrix units of half types: three products of operands in two parts (split_parts.py).

a b = high high + (high low + low high) / 2048, with both operands scaled by rows; the product of the low parts is
below float32's own rounding. A block of 256 threads computes a tile of 128 x SPLIT_N from LDS, 32 deep, in SPLIT_STAGES
stages: by warpgroup instructions or `mma.sync` on NVIDIA, by MFMA on CDNA (split_product.h). Matrix units add roughly,
so sums of high parts are added as floats every 32 products: the error is that of 11 + 11 bits. A sum that is not finite
is computed again from the operands themselves, as splitting loses infinities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from hipwright.engine.ir.index import ONE, Ix, divide, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.knobs import CDNA4
from hipwright.engine.lower.values import ROW_TILE
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel, factor
from hipwright.engine.templates.gemm.scope import GemmSpec
from hipwright.engine.templates.gemm.split_parts import BLOCK, CHUNK, SplitOperand, chunks_of
from hipwright.engine.templates.gemm.tiling import CACHE_RATE, COMPUTE_UNITS, LAUNCH, ProductShape
from hipwright.engine.templates.row_tiles import RowTileStates

ROWS = 128
COLUMNS = (64, 128)
SLICES = (1, 2, 4, 8, 16)
"""Blocks that may share a tile, each with a part of k; the last one to come adds up their sums in order."""
LEAST_CHUNKS = 8
"""Of a slice of k."""
STAGES = "SPLIT_STAGES"
"""The knob of the LDS of a block, in tiles of 128 columns: two, in 64 KiB, which every GPU has; three where all of a
run's targets have 96 KiB (api/task_engine.py), so that a chunk's loads have two others to arrive in.
"""
STAGES_LDS = {2: 64 << 10, 3: 96 << 10, 4: 128 << 10}
"""Bytes of LDS by stages, at most."""
CHUNK_SECONDS = {64: 0.52e-6, 128: 0.7e-6}
"""Round figures of an H100: a chunk of 32 of a tile of 128 rows and so many columns, one block on a multiprocessor."""
TILE_SECONDS, COLD_SECONDS = 8.5e-6, 5e-6
"""A tile's first loads and its end, without another block beside it: 262144 x 256 x 256 took an H200 462 us; and what
the first tiles wait for more.
"""
PAIR_CHUNK_SECONDS, PAIR_TILE_SECONDS = 0.78e-6, 5.3e-6
"""Those of two tiles of 64 columns, whose blocks share a multiprocessor. A NeRF of ten such layers took an H200 5.8 ms,
by tiles of 128 columns 7.6; how this divides between chunks and ends is assumed.
"""
SPLIT_RATE = 3.0e12
"""Bytes a second of operands and parts in the kernels that split them: 268 MB in 129 us, 420 MB in about 270."""
LEAST_SIDE, LEAST_DEPTH = 64, 64
"""The least rows and columns, and the least k, of a product for which it is offered."""
MIN_SIDE, MIN_DEPTH = 64, 128
"""Those of a product for which it may be the default."""
NAMES = """lds tile tiles_m tiles_n per_batch strip height b row0 col0 row col at p v i j r chunk chunks product exact
value exponents column_exponents Tile GN slice from count width sums exponent place"""


def seconds(shape: ProductShape, packed: tuple[bool, bool] = (False, False)) -> float:
    """The estimated time: whole waves of tiles, and the kernels that split operands. packed: those of parameters."""
    sides = [side for side, done in zip((shape.m, shape.n), packed, strict=True) if not done]
    splitting = sum(LAUNCH + 8.0 * shape.batch * side * shape.k / SPLIT_RATE for side in sides)
    return tiles_seconds(shape, *tiling_for(shape)) + splitting


def tiling_for(shape: ProductShape, widths: Sequence[int] = COLUMNS) -> tuple[int, int]:
    """(the columns of a tile, the slices of k): those of the least estimate."""
    chunks = ceil(shape.k / CHUNK)
    slices = [s for s in SLICES if s == 1 or chunks >= s * LEAST_CHUNKS]
    every = [(columns, s) for columns in widths for s in slices]
    return min(every, key=lambda one: (tiles_seconds(shape, *one), one[1], -one[0]))


def tiles_seconds(shape: ProductShape, columns: int, slices: int) -> float:
    """The estimated time of the product of split operands."""
    tiles = shape.batch * ceil(shape.m / ROWS) * ceil(shape.n / columns)
    chunks = ceil(ceil(shape.k / CHUNK) / slices)
    sums = 8.0 * tiles * slices * ROWS * columns / CACHE_RATE + 3 * LAUNCH if slices > 1 else 0.0
    chunk, end, units = CHUNK_SECONDS[columns], TILE_SECONDS, COMPUTE_UNITS
    if columns < COLUMNS[-1] and tiles * slices > COMPUTE_UNITS:
        chunk, end, units = PAIR_CHUNK_SECONDS, PAIR_TILE_SECONDS, 2 * COMPUTE_UNITS
    return LAUNCH + COLD_SECONDS + ceil(tiles * slices / units) * (chunks * chunk + end) + sums


def write(body: CallBody) -> list[EmittedKernel]:
    """Two kernels that split the operands, and the product."""
    return SplitProduct(body).kernels()


class SplitOperands:
    """The operands of one product, each with the kernel that splits it, and a block's tile of the product."""

    def __init__(self, body: CallBody, inside: bool = False) -> None:
        """inside: the product's kernel splits A (split_inside.py)."""
        self.body = body
        self.spec: GemmSpec = body.data
        a, b = (t for t in body.operands if t is not None)
        self.a, self.b = SplitOperand(body, "a", a, inside), SplitOperand(body, "b", b)

    def kernels(self) -> list[EmittedKernel]:
        """All kernels, in order."""
        return [*self.a.kernels(), *self.b.kernels(), self.product()]

    def product(self) -> EmittedKernel:
        """The kernel of the product itself."""
        raise NotImplementedError


class SplitProduct(SplitOperands):
    """Blocks compute a tile each."""

    def __init__(self, body: CallBody) -> None:
        spec: GemmSpec = body.data
        batch, m, n, k = (body.hint(s) for s in (*spec.space, spec.k))
        self.tile = tile_knobs(body, ProductShape(batch, m, n, k, spec.dtype), spec.space)
        self.columns = self.tile.columns
        super().__init__(body)

    def product(self) -> EmittedKernel:
        """The kernel of all tiles."""
        k = self.k = self.body.kernel("", NAMES)
        k.use("SplitTile")
        self.rows = RowTileStates(k)
        k.line("extern __shared__ __attribute__((aligned(1024))) unsigned char lds[];")
        k.line(f"using Tile = {self.tile.tile};")
        self._locate()
        k.line("Tile product;")
        k.line(f"const int chunks = {k.size(chunks_of(self.spec.k))};")
        count = self.tile.emit_slice(k, "chunks")
        k.line(f"product.multiply(lds, {count},")
        for operand, start in ((self.a, "row0"), (self.b, "col0")):
            self._loader(operand, start)
        self.tile.emit_end(k, f"blockIdx.x / {self.tile.slices}")
        self._store()
        batch, m, n = self.spec.space
        grid = f"cdiv({to_python(m)}, {ROWS}) * cdiv({to_python(n)}, {self.columns})"
        grid += "" if batch == ONE else f" * {factor(batch)}"
        grid += self.tile.factor
        title = f"tiles of {ROWS} x {self.columns}, {CHUNK} deep, in two parts"
        made = k.finish(grid, "256", self.tile.bounds, title, self.tile.lds)
        made.single = True
        return made

    def _locate(self) -> None:
        """Declares b, row0 and col0: eight rows of tiles at a time, so that blocks that run together share operands."""
        k = self.k
        m, n = (k.size(s) for s in self.spec.space[1:])
        k.line(f"const unsigned tiles_m = ({m} + {ROWS - 1}) / {ROWS};")
        k.line(f"const unsigned tiles_n = ({n} + {self.columns} - 1) / {self.columns};")
        block = self.tile.block
        k.line(f"const unsigned per_batch = tiles_m * tiles_n, tile = {block} % per_batch;")
        k.line("const unsigned strip = tile / (8 * tiles_n);")
        k.line("const unsigned height = tiles_m - strip * 8 < 8 ? tiles_m - strip * 8 : 8;")
        k.line(f"const {k.kind} b = {block} / per_batch;")
        k.line(f"const {k.kind} row0 = (strip * 8 + tile % (8 * tiles_n) % height) * {ROWS};")
        k.line(f"const {k.kind} col0 = tile % (8 * tiles_n) / height * {self.columns};")

    def _loader(self, operand: SplitOperand, start: str) -> None:
        """Emits the function that finds a row's parts; rows beyond the last give the last one's."""
        k, rows = self.k, self.k.size(operand.rows)
        k.open("[&](int, int r, int chunk)")
        k.line(f"const {k.kind} row = {start} + r < {rows} ? {start} + r : {rows} - 1;")
        k.line(f"return {k.pointer(operand.parts)} + ((b * {rows} + row) * chunks + chunk) * {2 * CHUNK};")
        k.close()
        k.line(",")

    def _store(self) -> None:
        """Emits the epilogue: a thread takes four columns of the tile, neighbouring lanes the next ones."""
        k = self.k
        m, n = (k.size(s) for s in self.spec.space[1:])
        k.line("product.template publish_sums<false>(lds);")
        k.line(f"constexpr int GN = 4, width = {self.columns} / GN;")
        k.line(f"const {k.kind} j = threadIdx.x % width * GN, col = col0 + j;")
        if not self.rows:
            k.line(f"if (col >= {n}) return;")
        k.line("int column_exponents[GN];")
        k.line("#pragma unroll")
        k.open("for (int v = 0; v < GN; ++v)")
        k.line(f"column_exponents[v] = col + v < {n} ? {k.pointer(self.b.exponents)}[b * {n} + col + v] : 0;")
        k.close()
        k.line("#pragma unroll 1")
        k.open(f"for (int r = threadIdx.x / width; r < {ROWS}; r += {BLOCK} / width)")
        if self.rows:
            k.line(f"const {k.kind} row = row0 + r < {m} ? row0 + r : {m} - 1;  // its lanes go on together")
        else:
            k.line(f"const {k.kind} row = row0 + r;")
            k.line(f"if (row >= {m}) break;")
        k.line(f"const int exponent = {k.pointer(self.a.exponents)}[b * {m} + row];")
        self._values(n)
        if self.rows:
            self._reduce_row(m, n)
            return
        k.open(f"if (col + GN <= {n})")
        k.epilogue_vector("value[v]", ["b", "row", "col"], "col", "GN")
        k.close()
        k.open("else")
        k.line("#pragma unroll")
        k.open("for (int v = 0; v < GN; ++v)")
        k.line(f"const {k.kind} at = col + v;")
        k.line(f"if (at >= {n}) continue;")
        k.epilogue("value[v]", ["b", "row", "at"])
        for _ in range(3):
            k.close()

    def _reduce_row(self, m: str, n: str) -> None:
        """Ends the loop over rows where what a row comes to is stored; nothing else is fused then but reductions."""
        k = self.k
        self.rows.begin(4)
        k.line("#pragma unroll")
        k.open("for (int v = 0; v < GN; ++v)")
        k.line(f"const {k.kind} at = col + v;")
        k.line(f"if (at >= {n}) continue;")
        self.rows.add("value[v]", ["b", "row", "at"], "at", "v")
        k.close()
        self.rows.end(f"(int)({n} - col < GN ? {n} - col < 0 ? 0 : {n} - col : GN)")
        self.rows.store(ROW_TILE // 4, f"threadIdx.x % width == 0 && row0 + r < {m}", ["b", "row", "col0"])
        k.close()

    def _values(self, n: str) -> None:
        """Declares value[v], the products of `row` and columns col + v."""
        k = self.k
        k.use("WideVector", "load_wide")
        k.line("const int place = Tile::template sum_index<false>(r, j);")
        k.line("const auto sums = load_wide<GN>(reinterpret_cast<const float*>(lds) + place);")
        k.line("float value[GN];")
        k.line("#pragma unroll")
        k.line("for (int v = 0; v < GN; ++v) value[v] = split_unscaled(sums.v[v], exponent + column_exponents[v]);")
        k.line("#pragma unroll")
        k.open("for (int v = 0; v < GN; ++v)")
        k.line(f"if (split_is_finite(value[v]) || col + v >= {n}) continue;")
        k.line(f"const {k.kind} at = col + v;")
        k.line("float exact = 0.0f;")
        k.line("#pragma unroll 1")  # once for each of a thread's sums: unrolled it is most of the code
        k.open(f"for ({k.kind} p = 0; p < {k.size(self.spec.k)}; ++p)")
        x, y = k.load(self.a.tensor, ["b", "row", "p"]), k.load(self.b.tensor, ["b", "at", "p"])
        k.line(f"exact += ({x}) * ({y});")
        k.close()
        k.line("value[v] = exact;")
        k.close()


@dataclass(frozen=True)
class SplitTiling:
    """The knobs of a split tile, by their names, and the slices of k; with them, the buffers of their sums."""

    columns: str
    stages: str
    slices: int
    partials: str = ""
    arrived: str = ""
    direct: str = ""

    @property
    def tile(self) -> str:
        """The type of the tile, as C text."""
        more = f", {self.direct}" if self.direct else ""
        return f"SplitTile<{self.columns}, {self.stages}{more}>"

    @property
    def lds(self) -> str:
        """Bytes of LDS, as plan text."""
        return f"{self.stages} * {8 * CHUNK * ROWS}"

    @property
    def bounds(self) -> str:
        """The launch bounds, as C text: those of 512 threads leave NVIDIA's multiprocessors registers for two blocks of
        64 columns, one of which stores while the other one multiplies.
        """
        threads = "256" if self.columns == str(ROW_TILE) else f"({self.columns} < {COLUMNS[-1]} ? 512 : 256)"
        return f"{threads}, 1"

    @property
    def block(self) -> str:
        """The number of a block's tile, as C text."""
        return "blockIdx.x" if self.slices == 1 else f"(blockIdx.x / {self.slices})"

    @property
    def factor(self) -> str:
        """What multiplies the grid, as plan text."""
        return "" if self.slices == 1 else f" * {self.slices}"

    def emit_slice(self, k: CallKernel, chunks: str) -> str:
        """Declares the block's chunks `from` and `count` where k is sliced; returns how many there are, as C text."""
        if self.slices == 1:
            return chunks
        k.line(f"const int slice = blockIdx.x % {self.slices}, from = {chunks} * slice / {self.slices};")
        k.line(f"const int count = {chunks} * (slice + 1) / {self.slices} - from;")
        return "count"

    def emit_end(self, k: CallKernel, tile: str) -> None:
        """Ends the call of `multiply`; the last block of a tile goes on with all sums. tile: its number, as C text."""
        if self.slices == 1:
            k.line("0);")
            return
        k.line("from);")
        k.written |= {self.partials, self.arrived}
        partials, arrived = k.pointer(self.partials), k.pointer(self.arrived)
        start = f"({k.kind})({tile}) * {self.slices * ROWS} * {self.columns}"
        arguments = f"lds, {partials} + {start}, {arrived} + {tile}, slice, {self.slices}"
        k.line(f"if (!product.combine({arguments})) return;")


def tile_knobs(body: CallBody, shape: ProductShape, space: Sequence[Ix]) -> SplitTiling:
    """The tiling with its defaults for a shape. space: (batch, rows, columns).

    Tiles are as wide as those of reductions that the kernel begins, where it does (fuse/row_tiles.py).
    """
    by_rows = any(member.item.kind == "tiles" for member in body.group.members)
    columns, slices = tiling_for(shape, (ROW_TILE,) if by_rows else COLUMNS)
    width = str(ROW_TILE) if by_rows else body.knob("SPLIT_N", columns, COLUMNS, "columns of a block's tile")
    stages = body.knob(STAGES, 2, (2, 3, 4), "tiles of 128 columns in LDS")
    direct = ""
    if body.call.choices.get(CDNA4):
        direct = body.knob("SPLIT_DIRECT", 0, (0, 1), "loads from global memory to LDS without registers, on gfx950")
    found = [s for s in SLICES if s == 1 or shape.k >= s * LEAST_CHUNKS * CHUNK]
    slices = int(body.choose("slices", found, slices))
    if slices == 1:
        return SplitTiling(width, stages, 1, direct=direct)
    batch, m, n = space
    rows, wide, narrow = (divide(size + (part - 1), ix(part)) for size, part in ((m, ROWS), (n, 128), (n, 64)))
    sums = body.temporary("sums", [batch, rows, wide, ix(slices * ROWS * 128)], "float32")
    arrived = body.temporary("arrived", [product([batch, rows, narrow])], "int32", zero=True)
    return SplitTiling(width, stages, slices, sums, arrived, direct)
