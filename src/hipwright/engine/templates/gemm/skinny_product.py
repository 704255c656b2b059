"""Products with few vectors by matrix units: out[m, n] = sum_k x[m, k] w[n, k], w read once.

`packed`: several weights lie in one stored word, with scales and zeros for groups (4-bit numbers in bytes or in words
of 32 bits). Memory bounds such a product as long as the weights are neither written nor read expanded: a lane loads 16
bytes of a row at once, unpacks them to its part of a matrix unit's operand (skinny_product.h) and multiplies them with
up to 64 vectors; 16 rows a tile, PACKED_ROWS tiles a wavefront. The wavefronts of a block share its rows and divide k,
and with `split` so do blocks. (The layout that needs no shuffles is that of MARLIN: Frantar et al., PPoPP 2025; here it
is the order of the sum that is chosen, so that weights lie in memory as they come.) Weights are rounded to the vectors'
half type, as the reference rounds them; sums are float. `skinny`: the same of weights that lie in memory as numbers,
of half types or of float32: MFMA multiplies floats, NVIDIA's tensor cores their two parts of 11 bits, in three products
(Ootomo and Yokota, 2022).

More vectors than 64 read the weights again. Sizes and addresses that vectors do not divide are computed by elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

from hipwright.engine.ir.expr import STORAGE
from hipwright.engine.ir.index import ZERO, Ix
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.knobs import FLOAT8_UNITS, SPLIT
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel, factor
from hipwright.engine.templates.call_operands import Place
from hipwright.engine.templates.gemm.contraction import product_of
from hipwright.engine.templates.gemm.cost import MARGIN, ProductCost
from hipwright.engine.templates.gemm.gemv_plan import ITEM_BYTES, MAX_VECTORS, VECTOR_CHUNK, plan, width_along
from hipwright.engine.templates.gemm.split_k import SPLITS, SplitKPartials, locate_block
from hipwright.engine.templates.gemm.tiling import COMPUTE_UNITS
from hipwright.engine.templates.offers import STORE_ABOVE, KernelCall, Offer, Output
from hipwright.engine.templates.packed import LONG_WIDTHS, packed_width, with_positions

MOST_AT_ONCE, MOST_VECTORS = 64, 256
"""Vectors that a block multiplies each weight with, and the most for which packed weights are offered."""
DEFAULT_VECTORS = 128
"""Vectors up to which it is the default: there it saves writing and reading the weights expanded, 4 bytes each. Up to
VECTOR_CHUNK of them the gemv template, which has been measured, unpacks in place too.
"""
PACKED = "packed"
"""The choice, true or false, whether it is a default at all (true). No GPU has measured it."""
SKINNY_DEFAULT = {"float16": 16, "bfloat16": 16, "float32": 32}
"""Vectors up to which weights that are not packed may be the default: of half types a matrix unit's two tiles."""
LEAST_PARTS_DEPTH = 256
"""k from which products of two parts of 11 bits are as exact as the library: their errors are 2^-22 of each product."""
SKINNY_BLOCKS = 3
"""Blocks a compute unit that keep memory busy: 2048 x 7168 of 16 vectors took an H200 26.5 us by 128 blocks, 17.4 by
twice and 13.1 by four times as many (the library 13.6).
"""
NEVER = 1 << 30
NAMES = (
    "T VECTORS WIDTH TILES ROWS WAVES lane wave block_index tiles tile split b first_vector row0 acc packs pack_begin "
    "pack_end pack first inside w x i j r c v p row vector out_vector aligned sums total q p_vector p_pack e next"
)


@dataclass(eq=False)
class SkinnyProduct:
    """matrix [batch, rows, k]; vectors [batch, vector_count, k]; transposed: the output is [b, vector, row].

    packed: the matrix has several numbers a stored word.
    """

    matrix: Tensor
    vectors: Tensor
    space: list[Ix]
    k: Ix
    dtype: str
    transposed: bool
    width: int  # neighbouring weights that a lane loads at once
    packed: bool = True

    def place(self, row: str, vector: str) -> list[str | Ix | int]:
        """The output's index of a row and a vector."""
        return ["b", vector, row] if self.transposed else ["b", row, vector]


def packed_product(call: KernelCall) -> Offer | None:
    """The offer "packed": half types, one operand of several numbers a stored word, few vectors."""
    p = product_of(call)
    if p is None or p.dtype not in ("float16", "bfloat16") or ZERO in p.space:
        return None
    for matrix, vectors, transposed in ((p.b, p.a, True), (p.a, p.b, False)):
        matrix = with_positions(call.c, matrix)
        width = packed_width(call.c, matrix, ITEM_BYTES, LONG_WIDTHS, loose=True)
        count = call.c.hint(vectors.shape[1])
        if width and count <= MOST_VECTORS:
            least = VECTOR_CHUNK if plan(call.c, p.a, p.b, p.space, p.k) else 0
            data = SkinnyProduct(matrix, vectors, p.space, p.k, p.dtype, transposed, width)
            return Offer(
                "packed",
                write,
                [matrix, vectors],
                [Output(p.space, shape=list(p.shape))],
                bool(call.choices.get(PACKED, True)) and least < count <= DEFAULT_VECTORS,
                p.finish,
                store_above=(NEVER, STORE_ABOVE),
                data=data,
            )
    return None


def skinny_product(call: KernelCall) -> Offer | None:
    """The offer "skinny": half types and float32 with contiguous k on both sides, and few vectors.

    The default is for runs whose targets are all known to have matrix units.
    """
    p = product_of(call)
    if p is None or p.dtype not in SKINNY_DEFAULT:
        return None
    if p.dtype == "float32" and call.c.hint(p.k) < LEAST_PARTS_DEPTH:
        return None
    spec = plan(call.c, p.a, p.b, p.space, p.k, MOST_AT_ONCE)
    if spec is None or spec.packed or not width_along(call.c, spec.vectors, 2):
        return None
    width = width_along(call.c, spec.matrix, 2)
    if width * ITEM_BYTES[p.dtype] < 16:
        return None
    costs, count = ProductCost(call, p), call.c.hint(spec.vector_count)
    best = min(costs.gemv(spec) if count <= MAX_VECTORS else inf, costs.gemm(), MARGIN * costs.library())
    units = any(call.choices.get(name) for name in (SPLIT, FLOAT8_UNITS))
    return Offer(
        "skinny",
        write,
        [spec.matrix, spec.vectors],
        [p.output],
        units and not p.offered_alone and count <= SKINNY_DEFAULT[p.dtype] and costs.skinny() < best,
        p.finish,
        store_above=(STORE_ABOVE, STORE_ABOVE),
        data=SkinnyProduct(spec.matrix, spec.vectors, p.space, p.k, p.dtype, spec.transposed, width, packed=False),
    )


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel, or two when blocks share a row."""
    return _Skinny(body).kernels()


class _Skinny:
    """Writes the kernel."""

    def __init__(self, body: CallBody) -> None:
        self.body, self.p = body, body.data
        matrix, vectors = (t for t in body.operands if t is not None)
        self.p.matrix, self.p.vectors = matrix, vectors
        batch, rows, count, depth = (body.hint(s) for s in (*matrix.shape[:2], vectors.shape[1], self.p.k))
        self.at_once = 8 if count <= 8 else min(MOST_AT_ONCE, ceil(count / 16) * 16)
        tiles = 2 if self.at_once <= 32 and batch * rows >= 32 * COMPUTE_UNITS else 1
        if self.p.packed:
            self.block = body.knob("PACKED_BLOCK", 256, (128, 256), "threads of a block of a packed product")
            self.tiles = body.knob("PACKED_ROWS", tiles, (1, 2, 4), "tiles of 16 rows that a wavefront unpacks at once")
            self.unroll = body.knob("PACKED_UNROLL", 1, (1, 2), "steps along k under way at once")
        else:
            tiles = self._float_tiles(rows) if self.p.dtype == "float32" else 1 if rows < 64 * COMPUTE_UNITS else tiles
            self.block = body.knob("SKINNY_BLOCK", 256, (128, 256), "threads of a block of a skinny product")
            self.tiles = body.knob("SKINNY_TILES", tiles, (1, 2, 4), "tiles of 16 rows that a wavefront loads at once")
            self.unroll = body.knob(
                "SKINNY_UNROLL", 2 - (self.p.dtype == "float32"), (1, 2, 4), "steps along k under way at once"
            )
        blocks = batch * ceil(rows / 16 / tiles) * ceil(count / self.at_once)
        enough = COMPUTE_UNITS if self.p.packed else SKINNY_BLOCKS * COMPUTE_UNITS
        self.split = int(body.choose("split", SPLITS, _default_split(blocks, depth, self.p.width, enough)))
        shape = [self.p.space[0], vectors.shape[1], matrix.shape[1]]
        self.partials = SplitKPartials(body, self.split, shape) if self.split > 1 else None
        self.k: CallKernel = body.kernel("partials" if self.partials else "", NAMES)
        self.rows, self.count, self.depth = (self.k.size(s) for s in (matrix.shape[1], vectors.shape[1], self.p.k))

    def _float_tiles(self, rows: int) -> int:
        """Tiles of rows for each load of floats. 4096 x 4096 of 16 vectors took an H200 32.7 us by two, 35.7 by four;
        of 32 vectors 38.4 and 39.6.
        """
        return 1 if self.at_once <= 8 or rows < 64 else 2

    def kernels(self) -> list[EmittedKernel]:
        """The kernel of the sums, and with `split` the kernel that adds the blocks' partials."""
        k, p = self.k, self.p
        k.use("SKINNY_UNITS", "skinny_multiply", "skinny_row", "skinny_sum_row")
        self._locate()
        place: Place = ["b", "row", "p"]
        if p.packed:
            conditions = k.unpacked_conditions(p.matrix, place, "p", p.width, loose=True)
        else:
            conditions = k.vector_conditions(p.matrix, place, "p", str(p.width))
        conditions += k.vector_conditions(p.vectors, ["b", "vector", "p"], "p", str(p.width))
        conditions = ["SKINNY_UNITS", f"{self.depth} % WIDTH == 0", *conditions]
        k.line(f"const bool aligned = {' && '.join(dict.fromkeys(conditions))};")
        k.line(f"float acc[{self.tiles}][TILES][4] = {{}};")
        k.open("if (aligned)")
        if p.dtype == "float32":
            self._load_weights("pack_begin + wave * 4", "next")
        k.line(f"#pragma unroll {self.unroll}")
        k.open(f"for ({k.kind} first = pack_begin + wave * 4; first < pack_end; first += WAVES * 4)")
        self._step()
        k.close()
        k.close()
        self._store()
        rows, count = to_python(p.matrix.shape[1]), to_python(p.vectors.shape[1])
        blocks = [f"cdiv({rows}, 16 * {self.tiles})", f"cdiv({count}, {self.at_once})", factor(p.space[0])]
        grid = " * ".join(f for f in [*blocks, str(self.split)] if f != "1")
        title = f"weights are {'unpacked' if p.packed else 'loaded'} to a matrix unit's operands"
        out = [k.finish(grid, self.block, self.block, title)]
        return [*out, self.partials.sum_kernel(p.place("y", "x"))] if self.partials else out

    def _locate(self) -> None:
        """Decodes blockIdx.x = (batch, vectors, rows, split), the last fastest; the block's packs along k."""
        k = self.k
        for text in (
            f"using T = {STORAGE[self.p.dtype]};",
            f"constexpr int VECTORS = {self.at_once}, WIDTH = {self.p.width}, ROWS = 16 * {self.tiles};",
            "constexpr int TILES = (VECTORS + SKINNY_VECTORS - 1) / SKINNY_VECTORS;",
            f"constexpr int WAVES = {self.block} / SKINNY_LANES;",
            "const int lane = threadIdx.x % SKINNY_LANES, wave = threadIdx.x / SKINNY_LANES;",
        ):
            k.line(text)
        locate_block(k, self.split, self.rows, "ROWS", self.count)
        k.line(f"const {k.kind} row0 = tile * ROWS;")
        if self.split == 1:
            k.line(f"const {k.kind} pack_begin = 0, pack_end = ({self.depth} + WIDTH - 1) / WIDTH;")
            return
        k.line(f"const {k.kind} packs = (({self.depth} + WIDTH - 1) / WIDTH + {self.split} - 1) / {self.split};")
        last = f"({self.depth} + WIDTH - 1) / WIDTH"
        k.line(f"const {k.kind} pack_begin = split * packs;")
        k.line(f"const {k.kind} pack_end = pack_begin + packs < {last} ? pack_begin + packs : {last};")

    def _step(self) -> None:
        """One pack of each lane: loads the rows' weights, then multiplies them with every tile of vectors.

        Floats, whose parts take longer to multiply, are loaded one step ahead.
        """
        k, p = self.k, self.p
        if p.dtype == "float32":
            k.line(f"T w[{self.tiles}][SKINNY_ROWS][WIDTH];")
            k.line("__builtin_memcpy(w, next, sizeof(w));")
            self._load_weights("first + WAVES * 4", "next", declared=True)
        else:
            self._load_weights("first", "w")
        k.line("#pragma unroll")
        k.open("for (int j = 0; j < TILES; ++j)")
        k.line("T x[WIDTH] = {};")
        self._open_inside("first")
        at = "first_vector + j * SKINNY_VECTORS + skinny_vector(lane)"
        k.line(f"const {k.kind} vector = {at} < {self.count} ? {at} : {self.count} - 1;")
        k.vector(p.vectors, ["b", "vector", "p"], "p", str(p.width), "x", dtype=p.dtype, aligned=True)
        k.close()
        k.line("#pragma unroll")
        k.line(f"for (int i = 0; i < {self.tiles}; ++i) skinny_multiply<WIDTH>(acc[i][j], w[i], x, lane);")
        k.close()

    def _open_inside(self, first: str) -> None:
        """Opens what the lanes do whose pack of those from `first` on is the block's; p: where it begins."""
        k = self.k
        k.open(f"if ({first} + skinny_quarter(lane) < pack_end)")
        k.line(f"const {k.kind} p = ({first} + skinny_quarter(lane)) * WIDTH;")

    def _load_weights(self, first: str, into: str, *, declared: bool = False) -> None:
        """Loads the lane's weights of the packs from `first` on; zeros behind the block's."""
        k, p = self.k, self.p
        if not declared:
            k.line(f"T {into}[{self.tiles}][SKINNY_ROWS][WIDTH] = {{}};")
        self._open_inside(first)
        k.line("#pragma unroll")
        k.open(f"for (int i = 0; i < {self.tiles}; ++i)")
        k.line("#pragma unroll")
        k.open("for (int r = 0; r < SKINNY_ROWS; ++r)")
        at = "row0 + i * 16 + skinny_row(lane, r)"
        k.line(f"const {k.kind} row = {at} < {self.rows} ? {at} : {self.rows} - 1;")
        if p.packed:
            k.unpacked_vector(p.matrix, ["b", "row", "p"], "p", p.width, f"{into}[i][r]", dtype=p.dtype, loose=True)
        else:
            k.vector(p.matrix, ["b", "row", "p"], "p", str(p.width), f"{into}[i][r]", dtype=p.dtype, aligned=True)
        for _ in range(3):
            k.close()

    def _store(self) -> None:
        """Adds the wavefronts' sums in LDS, tile of vectors by tile, and passes them to the epilogue."""
        k, p = self.k, self.p
        k.line("__shared__ float sums[WAVES][SKINNY_VECTORS][ROWS + 1];")
        k.line("#pragma unroll")
        k.open("for (int j = 0; j < TILES; ++j)")
        k.line("__syncthreads();  // the sums of the last tile have been read")
        k.line("#pragma unroll")
        k.open(f"for (int i = 0; i < {self.tiles}; ++i)")
        k.line("#pragma unroll")
        k.open("for (int e = 0; e < 4; ++e)")
        k.line("sums[wave][skinny_sum_vector(lane, e)][i * 16 + skinny_sum_row(lane, e)] = acc[i][j][e];")
        k.close()
        k.close()
        k.line("__syncthreads();")
        k.open(f"for (int i = threadIdx.x; i < ROWS * SKINNY_VECTORS; i += {self.block})")
        k.line(f"const {k.kind} row = row0 + i % ROWS, out_vector = first_vector + j * SKINNY_VECTORS + i / ROWS;")
        k.line(f"if (row >= {self.rows} || out_vector >= {self.count}) continue;")
        k.line("float total = 0.0f;")
        k.line("for (int q = 0; q < WAVES; ++q) total += sums[q][i / ROWS][i % ROWS];")
        self._by_elements()
        if self.partials:
            k.line(f"*({self.partials.address(k, 'out_vector', 'row')}) = total;")
        else:
            k.epilogue("total", p.place("row", "out_vector"))
        k.close()
        k.close()

    def _by_elements(self) -> None:
        """The sum of one thread where vectors cannot be loaded, or where parts of floats made it infinite or NaN."""
        k, p = self.k, self.p
        floats = p.dtype == "float32"
        k.open("if (!aligned || !(__builtin_fabsf(total) <= 3.402823466e38f))" if floats else "if (!aligned)")
        if floats:
            k.line("total = 0.0f;")
        k.line("#pragma unroll 1")
        k.open(f"for ({k.kind} p = pack_begin * WIDTH; p < pack_end * WIDTH && p < {self.depth}; ++p)")
        weight = k.load(p.matrix, ["b", "row", "p"])
        k.line(f"const T w = T({weight});")
        k.line(f"total += (float)w * {k.load(p.vectors, ['b', 'out_vector', 'p'])};")
        k.close()
        k.close()


def _default_split(blocks: int, depth: int, width: int, enough: int) -> int:
    """Blocks along k: until there are enough blocks, while each wavefront of eight keeps two steps."""
    split = 1
    while split < SPLITS[-1] and blocks * split < enough and depth >= 2 * split * 2 * 8 * 4 * width:
        split *= 2
    return split


__all__ = ["packed_product", "skinny_product"]
