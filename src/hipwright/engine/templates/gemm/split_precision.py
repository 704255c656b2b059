"""Float32 products by matrix units of half types: three products of operands in two parts (split_parts.py).

a b = high high + (high low + low high) / 2048, with both operands scaled by rows; the product of the low parts is
below float32's own rounding. A block of 256 threads computes a tile of 128 x SPLIT_N from LDS, 32 deep, in SPLIT_STAGES
stages: by warpgroup instructions or `mma.sync` on NVIDIA, by MFMA on CDNA (split_product.h). Matrix units add roughly,
so sums of high parts are added as floats every 32 products: the error is that of 11 + 11 bits. A sum that is not finite
is computed again from the operands themselves, as splitting loses infinities.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from hipwright.engine.ir.index import ONE
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.knobs import CDNA4
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import factor
from hipwright.engine.templates.gemm.scope import GemmSpec
from hipwright.engine.templates.gemm.split_parts import CHUNK, SplitOperand, chunks_of
from hipwright.engine.templates.gemm.tiling import COMPUTE_UNITS, LAUNCH, ProductShape

ROWS = 128
COLUMNS = (64, 128)
STAGES = "SPLIT_STAGES"
"""The knob of the chunks in LDS at once: two, in 64 KiB, which every GPU has; three where all of a run's targets have
96 KiB (api/task_engine.py), so that a chunk's loads have two others to arrive in.
"""
STAGES_LDS = {2: 64 << 10, 3: 96 << 10, 4: 128 << 10}
"""Bytes of LDS by stages, at most."""
CHUNK_SECONDS = {64: 0.95e-6, 128: 1.25e-6}
"""Round figures of an H100: a chunk of 32 of a tile of 128 rows and so many columns, one block on a multiprocessor."""
START_CHUNKS = 4
"""Chunks that a block's start and end count for."""
SPLIT_RATE = 1.8e12
"""Bytes a second of operands and parts in the kernels that split them."""
MIN_SIDE, MIN_DEPTH = 96, 128
"""The least rows and columns, and the least k, of a product for which it is offered."""
_NAMES = """lds tile tiles_m tiles_n per_batch strip height b row0 col0 row col at p v i j r chunk chunks product exact
value exponents column_exponents Tile GN"""


def seconds(shape: ProductShape, packed: tuple[bool, bool] = (False, False)) -> float:
    """The estimated time: whole waves of tiles, and the kernels that split operands. packed: those of parameters."""
    sides = [side for side, done in zip((shape.m, shape.n), packed, strict=True) if not done]
    splitting = sum(LAUNCH + 8.0 * shape.batch * side * shape.k / SPLIT_RATE for side in sides)
    return _tiles_seconds(shape, columns_for(shape)) + splitting


def columns_for(shape: ProductShape) -> int:
    """The columns of a tile: those of the least estimate."""
    return min(COLUMNS, key=lambda columns: (_tiles_seconds(shape, columns), -columns))


def _tiles_seconds(shape: ProductShape, columns: int) -> float:
    tiles = shape.batch * ceil(shape.m / ROWS) * ceil(shape.n / columns)
    return LAUNCH + ceil(tiles / COMPUTE_UNITS) * (ceil(shape.k / CHUNK) + START_CHUNKS) * CHUNK_SECONDS[columns]


def write(body: CallBody) -> list[EmittedKernel]:
    """Two kernels that split the operands, and the product."""
    return _SplitProduct(body).kernels()


class _SplitProduct:
    """Writes the kernels of one product."""

    def __init__(self, body: CallBody) -> None:
        self.body, self.spec = body, body.data
        spec: GemmSpec = body.data
        batch, m, n, k = (body.hint(s) for s in (*spec.space, spec.k))
        self.tile = tile_knobs(body, ProductShape(batch, m, n, k, spec.dtype))
        self.columns = self.tile.columns
        a, b = (t for t in body.operands if t is not None)
        self.a, self.b = SplitOperand(body, "a", a), SplitOperand(body, "b", b)

    def kernels(self) -> list[EmittedKernel]:
        """All kernels, in order."""
        return [self.a.kernel(), self.b.kernel(), self._product()]

    def _product(self) -> EmittedKernel:
        k = self.k = self.body.kernel("", _NAMES)
        k.use("SplitTile")
        k.line("extern __shared__ __attribute__((aligned(1024))) unsigned char lds[];")
        k.line(f"using Tile = {self.tile.tile};")
        self._locate()
        k.line("Tile product;")
        k.line(f"const int chunks = {k.size(chunks_of(self.spec.k))};")
        k.line("product.multiply(lds, chunks,")
        for operand, start, end in ((self.a, "row0", ","), (self.b, "col0", ");")):
            self._loader(operand, start, end)
        self._store()
        batch, m, n = self.spec.space
        grid = f"cdiv({to_python(m)}, {ROWS}) * cdiv({to_python(n)}, {self.columns})"
        grid += "" if batch == ONE else f" * {factor(batch)}"
        title = f"tiles of {ROWS} x {self.columns}, {CHUNK} deep, in two parts"
        return k.finish(grid, "256", "256, 1", title, self.tile.lds)

    def _locate(self) -> None:
        """Declares b, row0 and col0: eight rows of tiles at a time, so that blocks that run together share operands."""
        k = self.k
        m, n = (k.size(s) for s in self.spec.space[1:])
        k.line(f"const unsigned tiles_m = ({m} + {ROWS - 1}) / {ROWS};")
        k.line(f"const unsigned tiles_n = ({n} + {self.columns} - 1) / {self.columns};")
        k.line("const unsigned per_batch = tiles_m * tiles_n, tile = blockIdx.x % per_batch;")
        k.line("const unsigned strip = tile / (8 * tiles_n);")
        k.line("const unsigned height = tiles_m - strip * 8 < 8 ? tiles_m - strip * 8 : 8;")
        k.line(f"const {k.kind} b = blockIdx.x / per_batch;")
        k.line(f"const {k.kind} row0 = (strip * 8 + tile % (8 * tiles_n) % height) * {ROWS};")
        k.line(f"const {k.kind} col0 = tile % (8 * tiles_n) / height * {self.columns};")

    def _loader(self, operand: SplitOperand, start: str, end: str) -> None:
        """Emits the function that finds a row's parts; rows beyond the last give the last one's."""
        k, rows = self.k, self.k.size(operand.rows)
        k.open("[&](int, int r, int chunk)")
        k.line(f"const {k.kind} row = {start} + r < {rows} ? {start} + r : {rows} - 1;")
        k.line(f"return {k.pointer(operand.parts)} + ((b * {rows} + row) * chunks + chunk) * {2 * CHUNK};")
        k.close()
        k.line(end)

    def _store(self) -> None:
        k = self.k
        m, n = (k.size(s) for s in self.spec.space[1:])
        k.line("constexpr int GN = Tile::GN;")
        k.line("int exponents[Tile::TM];")
        k.line("#pragma unroll")
        k.open("for (int i = 0; i < Tile::TM; ++i)")
        k.line(f"const {k.kind} row = row0 + Tile::row(i);")
        k.line(f"exponents[i] = row < {m} ? {k.pointer(self.a.exponents)}[b * {m} + row] : 0;")
        k.close()
        k.line("#pragma unroll")
        k.open("for (int j = 0; j < Tile::TN / GN; ++j)")
        k.line(f"const {k.kind} col = col0 + Tile::column(j);")
        k.line(f"if (col >= {n}) continue;")
        k.line("int column_exponents[GN];")
        k.line("#pragma unroll")
        k.open("for (int v = 0; v < GN; ++v)")
        k.line(f"column_exponents[v] = col + v < {n} ? {k.pointer(self.b.exponents)}[b * {n} + col + v] : 0;")
        k.close()
        k.line("#pragma unroll")
        k.open("for (int i = 0; i < Tile::TM; ++i)")
        k.line(f"const {k.kind} row = row0 + Tile::row(i);")
        k.line(f"if (row >= {m}) continue;")
        self._values(n)
        k.open(f"if (col + GN <= {n})")
        k.epilogue_vector("value[v]", ["b", "row", "col"], "col", "GN")
        k.close()
        k.open("else")
        k.line("#pragma unroll")
        k.open("for (int v = 0; v < GN; ++v)")
        k.line(f"const {k.kind} at = col + v;")
        k.line(f"if (at >= {n}) continue;")
        k.epilogue("value[v]", ["b", "row", "at"])
        for _ in range(4):
            k.close()

    def _values(self, n: str) -> None:
        """Declares value[v], the products of `row` and columns col + v."""
        k = self.k
        k.line("float value[GN];")
        k.line("#pragma unroll")
        k.open("for (int v = 0; v < GN; ++v)")
        k.line("value[v] = split_unscaled(product.sums[i][j * GN + v], exponents[i] + column_exponents[v]);")
        k.line(f"if (split_is_finite(value[v]) || col + v >= {n}) continue;")
        k.line(f"const {k.kind} at = col + v;")
        k.line("float exact = 0.0f;")
        k.open(f"for ({k.kind} p = 0; p < {k.size(self.spec.k)}; ++p)")
        x, y = k.load(self.a.tensor, ["b", "row", "p"]), k.load(self.b.tensor, ["b", "at", "p"])
        k.line(f"exact += ({x}) * ({y});")
        k.close()
        k.line("value[v] = exact;")
        k.close()


@dataclass(frozen=True)
class TileKnobs:
    """The knobs of a split tile: their names."""

    columns: str
    stages: str
    direct: str = ""

    @property
    def tile(self) -> str:
        """The type of the tile, as C text."""
        more = f", {self.direct}" if self.direct else ""
        return f"SplitTile<{self.columns}, {self.stages}{more}>"

    @property
    def lds(self) -> str:
        """Bytes of LDS, as plan text."""
        return f"{self.stages} * ({4 * CHUNK * ROWS} + {4 * CHUNK} * {self.columns})"


def tile_knobs(body: CallBody, shape: ProductShape) -> TileKnobs:
    """The knobs with their defaults for a shape."""
    columns = body.knob("SPLIT_N", columns_for(shape), COLUMNS, "columns of a block's tile")
    stages = body.knob(STAGES, 2, (2, 3, 4), "stages in LDS")
    direct = ""
    if body.call.choices.get(CDNA4):
        direct = body.knob("SPLIT_DIRECT", 0, (0, 1), "loads from global memory to LDS without registers, on gfx950")
    return TileKnobs(columns, stages, direct)
