"""The tile of a product, the split of its k, and the estimate by which they are chosen.

All figures are round ones of an H200 with nothing but its vector units (operations/s, bytes/s, s); none is measured of
a template. The estimate ranks choices and predicts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from hipwright.float8 import FLOAT8

COMPUTE_UNITS = 132
"""Compute units that must have work: the multiprocessors of an H200."""
LAUNCH = 2.5e-6
MEMORY_RATE, CACHE_RATE = 3.3e12, 6e12
"""Bytes a second of memory, and of the last cache, from which tiles read an operand again."""
VECTOR_RATE, FULL_INTENSITY, SINGLE_BLOCK_RATE = 25e12, 2.5, 2 / 3
"""Operations a second of tiles of at least FULL_INTENSITY (64 x 128: 4 x 8 sums a thread), less in proportion; and the
share of it that a single block on a unit reaches, since nothing else runs while it waits at a barrier.
"""
STEP_LATENCY, BLOCK_OVERHEAD_STEPS = 0.35e-6, 2
"""Seconds of a step along k of a block that waits for its loads; the steps that a block's start and end count for."""
LDS, MAX_RESIDENT_BLOCKS = 65536, 4
"""Bytes of LDS of a CDNA unit, which limit the blocks that it holds at once, and the most blocks that are counted."""

SMALL, LARGE = (16, 32, 64), (32, 64, 128)
DEPTH = {"float32": 16, "float16": 32, "bfloat16": 32} | dict.fromkeys(FLOAT8, 64)
"""Depth of large tiles; small ones may be twice as deep (in the 48 KiB of LDS that NVIDIA gives a block)."""
SPLITS = (1, 2, 4, 8, 16, 32)
MIN_SPLIT_STEPS = 4
"""Steps along k that split-k must leave to a block."""


def default_tile(batch: int, m: int, n: int) -> tuple[int, int]:
    """Rows and columns of the largest tile, no larger than the product, that still gives every compute unit a block."""
    rows, columns = (next((t for t in LARGE if size <= t), LARGE[-1]) for size in (m, n))
    while (rows, columns) != (LARGE[0], LARGE[0]) and batch * ceil(m / rows) * ceil(n / columns) < COMPUTE_UNITS:
        rows, columns = (rows // 2, columns) if rows >= columns else (rows, columns // 2)
    return rows, columns


def default_depth(batch: int, m: int, n: int, dtype: str) -> int:
    """The depth of the tiles: doubled where there are too few blocks to hide the latency of a step."""
    rows, columns = default_tile(batch, m, n)
    few = batch * ceil(m / rows) * ceil(n / columns) < 2 * COMPUTE_UNITS
    return DEPTH[dtype] * (2 if few and max(rows, columns) <= 64 else 1)


@dataclass(frozen=True)
class ProductShape:
    """Sizes of a product at capture, and its dtype."""

    batch: int
    m: int
    n: int
    k: int
    dtype: str

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return 4 if self.dtype == "float32" else 1 if self.dtype in FLOAT8 else 2


@dataclass(frozen=True)
class Tiling:
    """A choice: rows x columns of the block tile, depth of a step along k, parts of k. Small: at most 64 x 64.

    slices: whether the threads of small tiles are divided along k.
    """

    rows: int
    columns: int
    depth: int
    split: int = 1
    slices: bool = True

    @property
    def small(self) -> bool:
        """Whether the block's threads are divided along k (sliced_k.py)."""
        return max(self.rows, self.columns) <= SMALL[-1]

    @property
    def intensity(self) -> float:
        """Multiply-adds per number that passes LDS: read for the sums of a thread, and written for those of the
        tile.
        """
        down, across = (4, 4) if self.small and self.slices else (self.rows // 16, self.columns // 16)
        read, written = 1 / down + 1 / across, 1 / self.rows + 1 / self.columns
        return 1 / (read + written)

    def blocks(self, shape: ProductShape) -> int:
        """Blocks of the launch."""
        return shape.batch * ceil(shape.m / self.rows) * ceil(shape.n / self.columns) * self.split

    def steps_per_block(self, shape: ProductShape) -> int:
        """Steps along k of a block."""
        return ceil(ceil(shape.k / self.depth) / self.split)

    def resident(self, shape: ProductShape) -> int:
        """Blocks that a compute unit holds at once."""
        lds = 2 * (self.rows + self.columns) * (self.depth * shape.item_bytes + 16)
        return max(1, min(MAX_RESIDENT_BLOCKS, LDS // lds))


def candidates(shape: ProductShape) -> Iterator[Tiling]:
    """Tiles no larger than the product needs, without 16 x 16 (see gemv_plan.py), and splits that leave a block enough
    steps.
    """
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
        deep = small and shape.k > base and (rows + columns <= 96 or shallow.blocks(shape) < 2 * COMPUTE_UNITS)
        made = Tiling(rows, columns, 2 * base, split) if deep else shallow
        if split == 1 or shape.k >= split * MIN_SPLIT_STEPS * made.depth:
            yield made


def seconds(shape: ProductShape, tiling: Tiling) -> float:
    """The estimated time: the longest of arithmetic, latency and memory, and the second kernel of split-k.

    Arithmetic: whole tiles of the unit with the most blocks (the tail included). Latency: a step takes STEP_LATENCY for
    the blocks that a unit holds together. Memory: operands once from memory and once for each tile from cache, and the
    partials of split-k.
    """
    blocks, steps = tiling.blocks(shape), tiling.steps_per_block(shape)
    turns = ceil(blocks / COMPUTE_UNITS)
    tile = 2.0 * tiling.rows * tiling.columns * tiling.depth
    rate = VECTOR_RATE / COMPUTE_UNITS * min(1.0, tiling.intensity / FULL_INTENSITY)
    rate *= SINGLE_BLOCK_RATE if min(turns, tiling.resident(shape)) == 1 else 1.0
    arithmetic = turns * steps * tile / rate
    latency = ceil(turns / tiling.resident(shape)) * (steps + BLOCK_OVERHEAD_STEPS) * STEP_LATENCY
    once = shape.batch * (shape.m + shape.n) * shape.k * shape.item_bytes
    again = blocks * (tiling.rows + tiling.columns) * steps * tiling.depth * shape.item_bytes
    parts = 4.0 * shape.batch * shape.m * shape.n * tiling.split if tiling.split > 1 else 0.0
    memory = max(once / MEMORY_RATE, again / CACHE_RATE) + parts / CACHE_RATE
    second = LAUNCH + parts / CACHE_RATE if parts else 0.0
    return LAUNCH + max(arithmetic, latency, memory) + second


def choose(shape: ProductShape) -> Tiling:
    """The tiling of the least estimate; split-k must win by a tenth. Of equal ones that with the fewest blocks."""
    return min(candidates(shape), key=lambda t: (seconds(shape, t) * (1.1 if t.split > 1 else 1), t.blocks(shape)))
