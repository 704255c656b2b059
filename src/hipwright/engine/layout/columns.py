"""Default layouts of kernels that reduce columns: neighbouring threads take neighbouring columns."""

from __future__ import annotations

from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import Var, ix
from hipwright.engine.layout.planner import (
    COOP_KEPT,
    COOP_THREADS,
    DEVICE_ELEMENTS,
    DEVICE_THREADS,
    FEW_BLOCKS,
    MOST_COOP_BLOCKS,
    SIZES,
    even_block_counts,
    power,
)
from hipwright.engine.layout.reductions import ReductionPlanner
from hipwright.engine.templates.access import linear
from hipwright.engine.templates.rows.layout import RowLayout
from hipwright.engine.templates.rows.long_sums import LONG_CHAIN

MOST_COLUMN_BLOCKS = 528
"""Blocks that share a column at most: with 40 registers a thread, four blocks of 256 threads run on each multiprocessor
of an H200, and twice as many take a second, half-empty round."""
MANY_COLUMNS = DEVICE_THREADS
"""Vectors of columns with which one thread each occupies the device: lanes need not share a column."""
MOST_COOPERATING = 2 * MOST_COOP_BLOCKS
"""Blocks that share one column by default at most."""
SHORT_COLUMN = 1280
"""Rows that the 64 threads down a column of a block of 512 sum in a few steps each."""
CACHE_BYTES, SECTOR, VECTOR_BYTES = 32 << 20, 32, 16
"""Of the 50 MiB of L2 that an H100 has, what rows keep between passes; the bytes that memory moves at least, and those
that a thread loads at once at most.
"""
CACHED_THREADS, CACHED_BLOCKS = 512, 264
"""Threads of a block whose columns are read again from the cache, and such blocks at once: two on each multiprocessor.
Normalising 256 x 3000 frames of 80 bands, masked, took an H100 half as long as with 1024 threads, and 0.7 times as long
as with 16 vectors of 256 threads.
"""
ODD_VEC = 4
"""Neighbouring columns of four-byte types that a thread takes where rows are odd: loads are single, and more are in
flight. The largest of 64 x 4096 x 2047 took an H200 478 us with four, 602 with one; the mean of 96 x 3000 x 2047 526
and 639.
"""
LEAST_SHARE = 8
"""Vectors side by side in the narrowest block. Where blocks cannot share a column, because columns are read again after
the reductions or are short, and such blocks of full vectors are too few for the device, vectors are narrower: a linear
layer of 1024 x 1000 to 256 halves with a batch norm in training mode took an H200 79 us with eight columns a thread, 40
with four, 28 with two, 21 with one.
"""
DEEP, SHALLOW, MEDIUM_SHARE = 16, 8, 16
"""Elements of a column that each thread of sharing blocks takes at least; where that gives less than a block for each
multiprocessor, the elements and the vectors side by side.
"""
LONG_COLUMN = 1024
SHORT_SEGMENT, GATHERED_ROWS = 64, 8
"""Rows of a segment up to which few lanes sum it, and the rows each of them loads at once."""


HELD_VECTORS, LEAST_HELD_THREADS = 6, 256
"""Vectors of 16 bytes that each thread of a block holds of long columns, in memory's own type: 24 of the 64 registers
that 1024 threads leave it. Such a block is as wide as a sector.
"""


def columns(plan: ReductionPlanner, registers: bool) -> RowLayout:
    """The layout of a kernel that reduces columns. registers: they stay in registers between passes."""
    group = plan.group
    stays = [k for k in range(len(group.space)) if k not in group.dims]
    across = plan.c.hint(group.space[stays[-1]])
    vec = plan.vector([across]) if (adjacent := _are_adjacent(plan, group.variables[stays[-1]])) else 1
    odd = vec == 1 and adjacent and not registers and plan.widest() == ODD_VEC
    odd = odd and FEW_BLOCKS * 32 * ODD_VEC <= plan.rows < MANY_COLUMNS
    vec = ODD_VEC if odd else vec
    vectors = -(-across // vec)
    share, threads = 32, 256
    kept = COOP_KEPT * vec if odd else max(COOP_KEPT, 4 * vec)  # four vectors in flight
    held = held_threads(plan) if registers else 0
    if held:
        threads, share, kept = held, SECTOR // VECTOR_BYTES, HELD_VECTORS * vec
    elif registers:
        threads, share, kept = _column_block(plan, vec)
    narrow = 0 if registers else _cached_columns(plan, vec)
    deep = DEEP if registers else _depth(plan, vec, threads // min(share, power(vectors)), vectors)
    while vec > 1 and (plan.follows or not deep) and not (odd or narrow) and plan.rows < FEW_BLOCKS * LEAST_SHARE * vec:
        vec, vectors = vec // 2, -(-across // (vec // 2))
        kept = kept if plan.follows else COOP_KEPT
    while share > 8 and share >= 2 * vectors and vectors < 32:
        share //= 2
    while not registers and share > 2 and share * vec >= 2 * plan.rows:
        share //= 2
    if not registers and _short_columns(plan, vectors):
        threads, share = 512, 8
    elif deep == SHALLOW:
        share = min(share, MEDIUM_SHARE)
    many = plan.rows >= MOST_COLUMN_BLOCKS * vec * share
    if not registers and many and plan.length <= SHORT_SEGMENT and plan.gathers():
        threads, kept = max(64, share * power(-(-plan.length // GATHERED_ROWS))), GATHERED_ROWS * vec
    elif not registers and plan.rows >= MANY_COLUMNS * vec:
        threads = share = 64
    if narrow and narrow < share:
        threads, share = CACHED_THREADS, narrow
    lanes = threads // share
    items = min(-(-plan.length // lanes), max(kept // vec, 1))
    blocks = -(-plan.rows // (vec * share))
    layout = RowLayout(
        "columns", plan.knob("BLOCK", threads), plan.knob("COLUMNS", share, more={share} if share < LEAST_SHARE else ())
    )
    plan.set_vectors(layout, "COLUMN_VEC", vec, items)
    layout.registers, layout.chunked = registers, held > 0
    layout.rest_items = "1" if plan.length <= lanes * items else layout.items
    layout.whole = plan.static is not None and 0 < plan.static <= lanes * max(kept // vec, 1)
    shares = min(MOST_COLUMN_BLOCKS // max(blocks, 1), plan.length // (lanes * (deep or DEEP)))
    if not plan.follows and plan.length >= 512 and not plan.overwrites():
        default = deep > 0 and blocks < FEW_BLOCKS and shares >= 2
        if plan.choose(f"cooperative:{plan.body.name}", (False, True), default):
            layout.blocks = _cooperates(plan, blocks, max(shares, 2))
            lanes *= min(max(shares, 2), MOST_COOPERATING)
    layout.long_sums = plan.length // lanes >= LONG_CHAIN
    return layout


def _depth(plan: ReductionPlanner, vec: int, lanes: int, vectors: int) -> int:
    """Elements of a column that each thread takes where blocks share it; 0 where they do not.

    vec, lanes: of a block as wide as the columns allow.
    """
    short = plan.length < max(512, 2 * lanes * DEEP) or _short_columns(plan, vectors)
    if plan.follows or short or plan.overwrites():
        return 0
    threads = plan.rows // vec * (plan.length // DEEP)
    return SHALLOW if 2 * threads < FEW_BLOCKS * COOP_THREADS else DEEP


def _cooperates(plan: ReductionPlanner, blocks: int, shares: int) -> str:
    """The knob of the blocks that share a column."""
    default = min(shares, MOST_COOPERATING)
    return plan.knob("COOP_BLOCKS", default, more=even_block_counts(blocks) | {default})


def _short_columns(plan: ReductionPlanner, vectors: int) -> bool:
    """Whether columns are so few and short that blocks as wide as a cache line need not share them."""
    lines = max(plan.rows // max(plan.c.hint(plan.group.outer[-1]), 1), 1)
    few = vectors >= 32 and vectors * lines < FEW_BLOCKS * 32
    return few and 512 <= plan.length <= SHORT_COLUMN and plan.rows * plan.length <= 4 * DEVICE_ELEMENTS


def _column_block(plan: ReductionPlanner, vec: int) -> tuple[int, int, int]:
    """(threads, vectors side by side, values a thread keeps): the widest block whose columns stay in registers.

    Of short columns a thread takes two rows at least; where there are many, a whole one. log_softmax over 3 channels of
    32 x 129 x 256 took an H200 28 us with two lanes a column, 47 with eight.
    """
    for threads, share, most in ((256, 32, 32), (256, 16, 48), (512, 16, 32), (512, 8, 32)):
        kept = max(most // plan.held_arrays(), COOP_KEPT)
        if plan.length * vec <= kept and plan.rows >= MANY_COLUMNS * vec:
            return 64, 64, kept
        if 2 * plan.length <= threads // share:
            return max(share * power(plan.length) // 2, 64), share, kept
        if plan.length <= threads // share * (kept // vec) and share * vec >= 32:
            return threads, share, kept
    return 1024, max(32 // vec, 8), COOP_KEPT


def _cached_columns(plan: ReductionPlanner, vec: int) -> int:
    """Vectors side by side of so few columns at once that a later pass finds them in the L2 cache; 0 where all passes
    read memory, or the tensors fit the cache anyway.
    """
    item = sum(SIZES.get(plan.body.need.dtypes[b], 4) for b in plan.body.loads if plan.fills(b))
    if not plan.follows or plan.length < LONG_COLUMN or item * plan.rows * plan.length <= CACHE_BYTES:
        return 0
    each = vec * item  # bytes of a vector of one row
    share = power(max(CACHE_BYTES // (CACHED_BLOCKS * each * plan.length), 1))
    share = share // 2 if share * CACHED_BLOCKS * each * plan.length > CACHE_BYTES else share
    return share if share * each >= SECTOR else 0


def held_threads(plan: ReductionPlanner) -> int:
    """Threads of a block that holds columns which are long and many, as memory has them, between passes; 0 where it
    does not: they would all be read again, most of them from memory.
    """
    filling = [b for b in plan.body.loads if plan.fills(b)]
    stays = [k for k in range(len(plan.group.space)) if k not in plan.group.dims]
    if len(filling) != 1 or plan.length < LONG_COLUMN or not _are_adjacent(plan, plan.group.variables[stays[-1]]):
        return 0
    item = SIZES.get(plan.body.need.dtypes[filling[0]], 4)
    vec, share = plan.vector([plan.c.hint(plan.group.space[stays[-1]])]), SECTOR // VECTOR_BYTES
    many = item * plan.rows * plan.length > CACHE_BYTES and plan.rows >= FEW_BLOCKS * vec * share
    if vec * item != VECTOR_BYTES or not many:
        return 0
    threads = max(power(share * -(-plan.length // HELD_VECTORS)), LEAST_HELD_THREADS)
    return threads if threads <= 1024 else 0


def _are_adjacent(plan: ReductionPlanner, variable: Var) -> bool:
    """Whether neighbouring columns are neighbours in memory in some access."""
    values = [m.value for m in plan.group.members]
    positions = [e.attr[1] for e in walk(values) if e.op == "load"]
    found = (linear(p, variable.name) for p in positions)
    return any(f is not None and f[0] == ix(1) for f in found)
