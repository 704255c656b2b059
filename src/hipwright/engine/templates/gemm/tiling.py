"""Which tile a product gets, into how many parts its k is cut, and how long that is estimated to take.

All figures are round ones of one H200 with nothing but its vector units (operations/s, bytes/s, s); no run of a
template stands behind them. A rule to choose by, no prediction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

UNITS = 132
"""Compute units that must have work: multiprocessors of an H200."""
LAUNCH = 2.5e-6
READ, CACHE_READ = 3.3e12, 6e12
"""Of memory, and of the last level of cache, from which tiles read an operand again."""
VECTOR_RATE, FULL, ALONE = 25e12, 2.5, 2 / 3
"""Of a tile of that intensity or more (64 x 128: 4 x 8 sums a thread), less in proportion; and what a block reaches of
it that has a unit to itself, so that nothing runs while it waits at a barrier."""
STEP, ENDS = 0.35e-6, 2
"""One step along k of a block that waits for its loads; a block's start and end count as so many steps."""
LDS, RESIDENT = 65536, 4
"""LDS of a CDNA unit, which says how many blocks stand on one at once, and no more than these."""

SMALL, LARGE = (16, 32, 64), (32, 64, 128)
DEPTH = {"float32": 16, "float16": 32, "bfloat16": 32}
"""Depth of large tiles; of small ones twice that too (it fits the 48 KiB of LDS that NVIDIA gives at once)."""
SPLITS = (1, 2, 4, 8, 16, 32)
LEAST_STEPS = 4
"""Tiles of k of a block, if k is cut."""


def tile(batch: int, m: int, n: int) -> tuple[int, int]:
    """The largest tile that still gives every unit of a large GPU a block, no larger than the product."""
    rows, columns = (next((t for t in LARGE if size <= t), LARGE[-1]) for size in (m, n))
    while (rows, columns) != (LARGE[0], LARGE[0]) and batch * ceil(m / rows) * ceil(n / columns) < UNITS:
        rows, columns = (rows // 2, columns) if rows >= columns else (rows, columns // 2)
    return rows, columns


def depth(batch: int, m: int, n: int, dtype: str) -> int:
    """Deep tiles where there are too few blocks to hide a step's latency behind others."""
    rows, columns = tile(batch, m, n)
    few = batch * ceil(m / rows) * ceil(n / columns) < 2 * UNITS
    return DEPTH[dtype] * (2 if few and max(rows, columns) <= 64 else 1)


@dataclass(frozen=True)
class ProductShape:
    """A product's sizes at capture, and its dtype."""

    batch: int
    m: int
    n: int
    k: int
    dtype: str

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return 4 if self.dtype == "float32" else 2


@dataclass(frozen=True)
class Tiling:
    """rows x columns of a block's tile, the depth of its steps along k, the parts of k. Small: at most 64 x 64."""

    rows: int
    columns: int
    depth: int
    split: int = 1

    @property
    def small(self) -> bool:
        """Are the block's threads cut along k (templates/gemm/small.py)?"""
        return max(self.rows, self.columns) <= SMALL[-1]

    @property
    def intensity(self) -> float:
        """Multiply-adds for each number that goes through LDS: read for a thread's sums, and written for the tile's."""
        down, across = (4, 4) if self.small else (self.rows // 16, self.columns // 16)
        read, written = 1 / down + 1 / across, 1 / self.rows + 1 / self.columns
        return 1 / (read + written)

    def blocks(self, shape: ProductShape) -> int:
        """In all."""
        return shape.batch * ceil(shape.m / self.rows) * ceil(shape.n / self.columns) * self.split

    def share(self, shape: ProductShape) -> int:
        """Of k, in steps, for a block."""
        return ceil(ceil(shape.k / self.depth) / self.split)

    def resident(self, shape: ProductShape) -> int:
        """Blocks on a unit at once."""
        lds = 2 * (self.rows + self.columns) * (self.depth * shape.item + 16)
        return max(1, min(RESIDENT, LDS // lds))


def candidates(shape: ProductShape) -> Iterator[Tiling]:
    """Tiles no larger than the product needs; not 16 x 16 (gemv.py), and splits that leave every block some steps."""
    for sizes in (SMALL, LARGE):
        rows = [t for t in sizes if t <= LARGE[0] or t < 2 * shape.m]
        columns = [t for t in sizes if t <= LARGE[0] or t < 2 * shape.n]
        for r, c in ((r, c) for r in rows for c in columns):
            if (sizes is LARGE) == (max(r, c) > SMALL[-1]) and r + c > 2 * SMALL[0]:
                yield from _splits(shape, r, c)


def _splits(shape: ProductShape, rows: int, columns: int) -> Iterator[Tiling]:
    base = DEPTH[shape.dtype]
    small = max(rows, columns) <= SMALL[-1]
    for split in SPLITS:
        shallow = Tiling(rows, columns, base, split)
        deep = small and shape.k > base and (rows + columns <= 96 or shallow.blocks(shape) < 2 * UNITS)
        made = Tiling(rows, columns, 2 * base, split) if deep else shallow
        if split == 1 or shape.k >= split * LEAST_STEPS * made.depth:
            yield made


def seconds(shape: ProductShape, tiling: Tiling) -> float:
    """The longest of arithmetic, latency and memory, and the second kernel of a split.

    Arithmetic: the units' whole tiles; a unit with one block more than the others makes all wait (the tail). Latency: a
    step takes STEP for the blocks that stand on a unit together. Memory: operands once from memory and once for each
    tile from cache; parts of a split written.
    """
    blocks, steps = tiling.blocks(shape), tiling.share(shape)
    turns = ceil(blocks / UNITS)
    tile = 2.0 * tiling.rows * tiling.columns * tiling.depth
    rate = VECTOR_RATE / UNITS * min(1.0, tiling.intensity / FULL)
    rate *= ALONE if min(turns, tiling.resident(shape)) == 1 else 1.0
    arithmetic = turns * steps * tile / rate
    latency = ceil(turns / tiling.resident(shape)) * (steps + ENDS) * STEP
    once = shape.batch * (shape.m + shape.n) * shape.k * shape.item
    again = blocks * (tiling.rows + tiling.columns) * steps * tiling.depth * shape.item
    parts = 4.0 * shape.batch * shape.m * shape.n * tiling.split if tiling.split > 1 else 0.0
    memory = max(once / READ, again / CACHE_READ) + parts / CACHE_READ
    second = LAUNCH + parts / CACHE_READ if parts else 0.0
    return LAUNCH + max(arithmetic, latency, memory) + second


def choose(shape: ProductShape) -> Tiling:
    """The tiling of the least estimate; a split must win by a tenth. Of equal ones that with the fewest blocks."""
    return min(candidates(shape), key=lambda t: (seconds(shape, t) * (1.1 if t.split > 1 else 1), t.blocks(shape)))
