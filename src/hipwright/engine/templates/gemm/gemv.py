"""Products with few rows or columns: out[r, c] = sum_k matrix[r, k] * vectors[c, k] for at most FEW c at a time.

Every element of the matrix is used FEW times only, so memory bounds the work: each is read once, 16 bytes at a time,
and the vectors come from the cache. Where the matrix runs along k (a linear layer's weight), 32 lanes share a row;
where it runs along r, a thread sums some neighbours and threads apart take different k. What is cheap to compute from
the matrix (a cast and a scale of int8 weights, a transpose, a gather) is computed on the way.

Few rows are cut along k among the groups of a block (GEMV_WAVES) and among blocks (`split`): those leave their parts in
memory, which a second kernel adds in order (splits.py), so that the result is the same each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import ZERO, Ix, ix
from hipwright.engine.lower.core import LoweringContext, Tensor
from hipwright.engine.templates.access import unit
from hipwright.engine.templates.gemm.splits import SPLITS
from hipwright.engine.templates.packed import packed_width

FEW = 8
"""Vectors handled at once: the products of one loaded element."""
MOST = 32
"""Vectors in all; from FEW on the matrix is read again, from the cache where it is small."""
GROUPS, SMALL_GRID = 132 * 32, 132 * 4
"""Groups of 32 lanes that keep a large GPU's memory busy, and blocks that do at the least."""
MANY_ROWS = 4 * GROUPS
"""Rows that leave a second round of blocks: two rows a group wait less for one another than four (2 % on an H200)."""
STEPS = 8
"""Steps along k that a group keeps when others join its row only to make blocks shorter: a grid of little more than
what is on the device at once (28672 x 8192: 896 blocks where 792 fit) makes all wait for a second round of few."""
ITEM_BYTES = {"float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2, "int8": 1, "uint8": 1, "bool": 1}


@dataclass(eq=False)
class GemvSpec:
    """matrix [batch, rows, k], vectors [batch, few, k]; `swapped`: the rows are the output's columns (out[b, c, r])."""

    matrix: Tensor
    vectors: Tensor
    space: list[Ix]
    k: Ix
    swapped: bool
    along_k: bool
    width: int  # matrix elements in 16 bytes
    packed: bool = False  # does an element in memory make several of the matrix?

    @property
    def rows(self) -> Ix:
        """Rows of the matrix."""
        return self.matrix.shape[1]

    @property
    def few(self) -> Ix:
        """How many vectors."""
        return self.vectors.shape[1]

    def place(self, row: str, vector: str) -> list[str | Ix | int]:
        """The output's index of a row and a vector."""
        return ["b", vector, row] if self.swapped else ["b", row, vector]


def plan(c: LoweringContext, a: Tensor, b: Tensor, space: list[Ix], k: Ix) -> GemvSpec | None:
    """How the product a[b, m, k] b[b, n, k] would be written, or None: too many of both, or strided reads."""
    m, n = c.hint(space[1]), c.hint(space[2])
    if min(m, n) > MOST or ZERO in space:
        return None
    swapped = m < n or (m == n and c.hints_of(b.shape) > c.hints_of(a.shape))
    matrix, vectors = (b, a) if swapped else (a, b)
    for axis in (2, 1):
        width = _width(c, matrix, axis)
        if axis == 2 and width:  # what the vectors' packs leave of the registers
            width = max(4, min(width, 64 // min(FEW, min(m, n))))
        if width and not (axis == 1 and c.hint(matrix.shape[1]) < 2 * width):
            return GemvSpec(matrix, vectors, space, k, swapped, axis == 2, width)
    width = packed_width(c, matrix, ITEM_BYTES)
    return GemvSpec(matrix, vectors, space, k, swapped, True, width, True) if width else None


def _width(c: LoweringContext, matrix: Tensor, axis: int) -> int:
    """Elements in 16 bytes of the largest thing read along an axis; 0 when nothing runs along it."""
    variables = [c.arena.var("p", s) for s in matrix.shape]
    loads = [e for e in walk([matrix.at([ix(v) for v in variables])]) if e.op == "load"]
    sizes = [ITEM_BYTES.get(e.attr[2], 4) for e in loads if unit(e.attr[1], variables[axis].name)]
    return min(16 // max(sizes), 16) if sizes else 0


def groups(rows: int, depth: int, chunk: int, width: int) -> tuple[int, int]:
    """(rows that 32 lanes sum at once, groups of lanes that share a row) for all rows of the batch."""
    each = 4 if rows >= MANY_ROWS or chunk >= 4 else 2 if rows >= 2 * GROUPS or chunk >= 2 else 1
    waves = 1
    while waves < 8 and rows // each * waves < GROUPS and depth >= 64 * width * waves:
        waves *= 2
    while waves < 8 and rows // each * waves < 8 * GROUPS and depth >= STEPS * 64 * width * waves:
        waves *= 2
    return (min(each, 2) if chunk < 4 else each), waves  # groups as for four rows, where fewer were 3 % slower


def side_by_side(rows: int, width: int) -> int:
    """Threads side by side of a matrix that runs along its rows' number."""
    return next((c for c in (32, 16) if rows // (c * width) >= SMALL_GRID), 8)


def default_split(batch: int, rows: int, few: int, depth: int, spec: GemvSpec) -> int:
    """Blocks along k: enough to fill the device, each with several steps."""
    rows *= batch
    if spec.along_k:
        each, waves = groups(rows, depth, min(FEW, few), spec.width)
        blocks, step = ceil(rows * waves / each / 8), 32 * spec.width * waves
    else:
        columns = side_by_side(rows, spec.width)
        blocks, step = ceil(rows / columns / spec.width), 256 // columns
    split = 1
    while split < SPLITS[-1] and blocks * split < SMALL_GRID and depth >= 8 * split * step:
        split *= 2
    return split
