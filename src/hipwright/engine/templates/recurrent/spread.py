"""A recurrent layer whose weights are spread over many blocks, for all time steps (spread_text.py).

They stay in registers as far as these suffice.

A group of blocks shares a few batch rows of one direction: each block has some hidden units, and publishes their states
at every step to the others in words that tell their step (hipwright/exchange.h), without fences or counters. Blocks
take tickets, so that those of a group are neighbours in the order of their starts: there is progress as long as the
blocks of one group fit the device. The idea is that of persistent RNNs (Diamos et al., ICML 2016).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hipwright.engine.templates.recurrent.text import GATES

COMPUTE_UNITS, GROUP_BLOCKS = 132, 64
"""Compute units that work at once, and the blocks of a group, which every device has to hold."""
FIBERS, BLOCK_FIBERS = 24576, 64
"""Threads that the cpu target keeps at once, and those that it reckons for each block beside its own."""
BLOCK_REGISTERS, THREAD_REGISTERS, OTHER_REGISTERS = 65536, 255, 48
"""Registers of a block and of a thread, and those of a thread beside weights and sums."""
LANES, SHARED_ROWS, UNITS = (4, 8, 16, 32), (1, 2, 4, 8, 16), (4, 8, 16, 32, 64)
KEPT = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
LDS = 48 << 10  # bytes that every target gives a block
READ_BYTES = 48  # of weights that a compute unit reads from L2 in a cycle
LIBRARY_CYCLES, EXCHANGE_CYCLES = 14000, 2200
"""A step of cuDNN's layers of 256 to 768 units in float32 took an H200 10 to 52 us; publishing, and loading from
another block's cache line, is estimated: 16 rows of 512 units of an LSTM took 2.7 us a step where 2.2 were estimated.
"""


class Spread(NamedTuple):
    """How a layer is spread: lanes of a unit, batch rows of a group, units of a block, 16-byte vectors of a lane's row
    that stay in registers, and the cycles of a step.
    """

    lanes: int
    rows: int
    units: int
    kept: int
    cycles: int


def best_spread(kind: str, hidden: int, rows: int, directions: int, vector: int) -> Spread | None:
    """The spread with the fewest estimated cycles, None where no group of blocks fits every target.

    rows: batch rows. vector: elements of 16 bytes.
    """
    return min(_spreads(GATES[kind], hidden, rows, directions, vector), key=lambda s: s.cycles, default=None)


def _spreads(gates: int, hidden: int, rows: int, directions: int, vector: int) -> Iterator[Spread]:
    for lanes in LANES:
        chunks = -(-hidden // (lanes * vector))
        for units in UNITS:
            threads, blocks = -(-units * lanes // 64) * 64, -(-hidden // units)
            if threads > 512 or blocks > GROUP_BLOCKS or blocks * (threads + BLOCK_FIBERS) > FIBERS:
                continue
            for shared in SHARED_ROWS:
                free = min(THREAD_REGISTERS, BLOCK_REGISTERS // threads) - OTHER_REGISTERS - gates * shared
                kept = _kept(chunks, gates * vector, free)
                if kept < 0 or 4 * shared * chunks * lanes * vector > LDS:
                    continue
                if kept < chunks and hidden % (lanes * vector):
                    continue  # what is not kept is read by whole vectors
                waves = -(-blocks * -(-rows // shared) * directions // COMPUTE_UNITS)
                cycles = _cycles(gates, hidden, shared, lanes, threads, chunks * gates * vector)
                read = max(0, chunks - kept) * gates * 16 * threads // READ_BYTES
                yield Spread(lanes, shared, units, kept, waves * (cycles + read))


def _kept(chunks: int, registers: int, free: int) -> int:
    """How many of a lane's chunks of weights stay in registers, of so many registers each; -1 if too few are free."""
    if chunks * registers <= free and chunks <= KEPT[-1]:
        return min(k for k in KEPT if k >= chunks)
    return max((k for k in KEPT if (k + 3) * registers <= free), default=-1)


def _cycles(gates: int, hidden: int, rows: int, lanes: int, threads: int, weights: int) -> int:
    """Cycles of a step: products or loads from LDS, sums over lanes, and the states of all units."""
    products = rows * weights * threads // 128
    loads = rows * weights // gates * threads // 32
    sums = gates * (rows + lanes.bit_length()) * threads // 32
    return max(products, loads) + sums + rows * hidden // 8 + EXCHANGE_CYCLES
