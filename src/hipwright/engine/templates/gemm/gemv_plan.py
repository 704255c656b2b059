"""Products with few rows or columns: out[r, c] = sum_k matrix[r, k] * vectors[c, k], planned for gemv_kernel.py.

Each element of the matrix is used for few vectors only, so memory bounds the work: it is read once, 16 bytes at a time,
for up to VECTOR_CHUNK vectors, which the cache supplies. Where k is the contiguous dimension of the matrix (the weight
of a linear layer), 32 lanes share a row; where r is, a thread sums neighbouring rows and other threads take other k.
What is cheap to compute of the matrix (cast and scale of int8 weights, transpose, gather) is computed when it is read.

A few long rows are divided along k among the lane groups of a block (GEMV_WAVES) and among blocks (`split`), whose
partials a second kernel sums in order (split_k.py), so that every run gives the same result.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import ZERO, Ix, ix
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.access import has_unit_stride
from hipwright.engine.templates.gemm.split_k import SPLITS
from hipwright.engine.templates.packed import packed_width
from hipwright.float8 import FLOAT8

VECTOR_CHUNK = 8
"""Vectors handled at once: the products of one loaded element."""
MAX_VECTORS = 32
"""Vectors in all; beyond VECTOR_CHUNK the matrix is read again, from the cache where it is small."""
LANE_GROUPS, MIN_BLOCKS = 132 * 32, 132 * 4
"""Groups of 32 lanes that keep a large GPU's memory busy, and the fewest blocks that do."""
MANY_ROWS = 4 * LANE_GROUPS
"""Rows that leave a second round of blocks: there two rows a lane group beat four (by 2 % on an H200)."""
MIN_STEPS = 8
"""Steps along k left to a lane group when further groups share its row only to make blocks shorter: a grid of little
more than the device holds at once (28672 x 8192: 896 blocks where 792 fit) would wait for a second round of few.
"""
ITEM_BYTES = {"float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2, "int8": 1, "uint8": 1, "bool": 1}
ITEM_BYTES |= dict.fromkeys(FLOAT8, 1)


@dataclass(eq=False)
class GemvSpec:
    """matrix [batch, rows, k], vectors [batch, vector_count, k]; transposed: rows are columns of the output (out[b, c,
    r]).
    """

    matrix: Tensor
    vectors: Tensor
    space: list[Ix]
    k: Ix
    transposed: bool
    k_contiguous: bool
    width: int  # matrix elements in 16 bytes
    packed: bool = False  # whether one stored element holds several matrix elements (4-bit weights)

    @property
    def rows(self) -> Ix:
        """Rows of the matrix."""
        return self.matrix.shape[1]

    @property
    def vector_count(self) -> Ix:
        """Number of vectors."""
        return self.vectors.shape[1]

    def place(self, row: str, vector: str) -> list[str | Ix | int]:
        """The output's index of a row and a vector."""
        return ["b", vector, row] if self.transposed else ["b", row, vector]


def plan(c: LoweringContext, a: Tensor, b: Tensor, space: list[Ix], k: Ix, most: int = MAX_VECTORS) -> GemvSpec | None:
    """How the product a[b, m, k] b[b, n, k] is written; None for too many rows and columns, or strided reads.

    most: vectors in all.
    """
    m, n = c.hint(space[1]), c.hint(space[2])
    if min(m, n) > most or ZERO in space:
        return None
    transposed = m < n or (m == n and c.numel_hint(b.shape) > c.numel_hint(a.shape))
    matrix, vectors = (b, a) if transposed else (a, b)
    for axis in (2, 1):
        width = width_along(c, matrix, axis)
        if axis == 2 and width:  # limited by the registers that the vectors take
            width = max(4, min(width, 64 // min(VECTOR_CHUNK, min(m, n))))
        if width and not (axis == 1 and c.hint(matrix.shape[1]) < 2 * width):
            return GemvSpec(matrix, vectors, space, k, transposed, axis == 2, width)
    width = packed_width(c, matrix, ITEM_BYTES)
    return GemvSpec(matrix, vectors, space, k, transposed, True, width, True) if width else None


def width_along(c: LoweringContext, matrix: Tensor, axis: int) -> int:
    """Elements in 16 bytes of the widest type that is contiguous along an axis; 0 when none is."""
    variables = [c.arena.var("p", s) for s in matrix.shape]
    loads = [e for e in walk([matrix.at([ix(v) for v in variables])]) if e.op == "load"]
    sizes = [ITEM_BYTES.get(e.attr[2], 4) for e in loads if has_unit_stride(e.attr[1], variables[axis].name)]
    return min(16 // max(sizes), 16) if sizes else 0


def lane_groups(rows: int, depth: int, chunk: int, width: int) -> tuple[int, int]:
    """(rows that 32 lanes sum at once, lane groups that share a row), for all rows of the batch."""
    group_rows = 4 if rows >= MANY_ROWS or chunk >= 4 else 2 if rows >= 2 * LANE_GROUPS or chunk >= 2 else 1
    row_groups = 1
    while row_groups < 8 and rows // group_rows * row_groups < LANE_GROUPS and depth >= 64 * width * row_groups:
        row_groups *= 2
    while (
        row_groups < 8
        and rows // group_rows * row_groups < 8 * LANE_GROUPS
        and depth >= MIN_STEPS * 64 * width * row_groups
    ):
        row_groups *= 2
    return (min(group_rows, 2) if chunk < 4 else group_rows), row_groups  # as many lane groups as for four rows


def threads_across(batch: int, rows: int, width: int) -> int:
    """Threads across the rows, of a matrix whose rows are its contiguous dimension; no more than the rows need."""
    across = next((c for c in (32, 16) if batch * rows // (c * width) >= MIN_BLOCKS), 8)
    while across > 1 and (across // 2) * width >= rows:
        across //= 2
    return across


def default_split(batch: int, rows: int, vector_count: int, depth: int, spec: GemvSpec) -> int:
    """Blocks along k: enough to fill the device, each with several steps."""
    if spec.k_contiguous:
        group_rows, row_groups = lane_groups(batch * rows, depth, min(VECTOR_CHUNK, vector_count), spec.width)
        blocks, step = ceil(batch * rows * row_groups / group_rows / 8), 32 * spec.width * row_groups
    else:
        columns = threads_across(batch, rows, spec.width)
        blocks, step = batch * ceil(rows / columns / spec.width), 256 // columns
    split = 1
    while split < SPLITS[-1] and blocks * split < MIN_BLOCKS and depth >= 8 * split * step:
        split *= 2
    return split
