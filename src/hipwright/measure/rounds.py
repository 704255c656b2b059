"""Runs the sides in turn: warm-up, quads in random order, and how many (docs/measurement.md).

A quad runs every side once in a random order and once more in the reverse: A B B A or B A A B for two sides. Each half
gives one pair for every baseline, so all of them share the candidate's samples, drift is split evenly, and no side
always follows the same one. The order comes from a secret seed.

Each side has its own number of calls a block, so that blocks of all sides take about `block_ms`: a block's overhead is
then the same share on both sides and cancels in the ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from hipwright.device.timed_side import TimedBlock, TimedSide
from hipwright.measure.clocks import Overhead, overhead_of, sound
from hipwright.measure.settings import TimingSettings

MOST_CALLS = 4096
GRACE_MS = 1.0
"""A message may be this late before its delay counts as time on the device."""
GROWTH = 8
"""The most calls of a warm-up block over those of the one before, as a first estimate may be wrong."""


class UnsoundClock(Exception):
    """A side reported an invalid time."""

    def __init__(self, side: int, block: TimedBlock) -> None:
        super().__init__(f"{block.device_ms}, {block.host_ms}, {block.wall_ms} ms")
        self.side, self.block = side, block


@dataclass(frozen=True)
class Warm:
    """The state of a baseline that an earlier comparison warmed up: its calls a block and its overhead."""

    calls: int
    overhead: Overhead


CANDIDATE = "the candidate's process"
Memory = dict[tuple[str, str], Warm]
"""Baselines by (name, policy), kept by the owner of sides that stay open for many candidates."""


@dataclass
class Rounds:
    """Sides that take turns; the candidate is side 0. blocks[i][n] of all sides belong to pair n.

    after: of each side, the blocks right after one of the candidate's.
    """

    sides: Sequence[TimedSide]
    rng: np.random.Generator
    calls: list[int] = field(default_factory=list)
    overheads: list[Overhead] = field(default_factory=list)
    blocks: list[list[TimedBlock]] = field(default_factory=list)
    after: list[list[TimedBlock]] = field(default_factory=list)
    spent_ms: float = 0.0

    def warm(self, settings: TimingSettings, memory: Memory | None = None, policy: str = "") -> None:
        """Calibrates the empty block and warms up every side, baselines first; fixes the calls of a block.

        A baseline in `memory` needs one block; the others are added to it.
        """
        count = len(self.sides)
        known = [memory.get((side.name, policy)) if memory and n else None for n, side in enumerate(self.sides)]
        if memory and settings.same_worker:
            known[0] = memory.get((CANDIDATE, policy))
        self._calibrate(settings.empties, known)
        self.calls = [0] * count
        self._forget()
        for index in (*range(1, count), 0):
            warm = known[index]
            self.calls[index] = self._warm_side(index, settings, warm.calls if warm and index else 0)
            if memory is not None and (index or settings.same_worker):
                name = self.sides[index].name if index else CANDIDATE
                memory[name, policy] = Warm(self.calls[index], self.overheads[index])
        quick = sum(self.calls) > count  # long calls are not run only to be discarded
        for _ in range(int(self.rng.integers(settings.discard // 2, settings.discard + 1)) if quick else 0):
            self.quad()
        self._forget()
        self.spent_ms = 0.0

    def _calibrate(self, empties: int, known: Sequence[Warm | None]) -> None:
        """Runs empty blocks of all sides in turn, as the timed ones: each then starts with the same switch of
        processes.
        """
        if all(known):
            self.overheads = [warm.overhead for warm in known if warm]
            return
        found: list[list[TimedBlock]] = [[] for _ in self.sides]
        for _ in range(empties + 1):
            for index in self.rng.permutation(len(self.sides)):
                found[int(index)].append(self.sides[int(index)].block(0))
        fresh = [overhead_of(blocks[1:]) for blocks in found]
        self.overheads = [warm.overhead if warm else new for warm, new in zip(known, fresh, strict=True)]

    def _warm_side(self, index: int, settings: TimingSettings, known: int) -> int:
        """Runs blocks until the side is warm and their length stable: a secret number of them, one if it was known."""
        calls, fewest, warm_ms = 1, int(self.rng.integers(3, 7)), settings.warm_ms
        if known:
            calls, fewest, warm_ms = known, 1, 0.0
        blocks, spent = 0, 0.0
        while True:
            block = self._block(index, calls)
            took = self._took(index, block)
            spent, blocks = spent + took, blocks + 1
            wanted = min(max(round(settings.block_ms * block.calls / took), 1), MOST_CALLS)
            settled = wanted <= GROWTH * block.calls and spent >= warm_ms
            if settled and (blocks >= fewest or (blocks > 1 and wanted <= block.calls)):
                return wanted
            calls = min(wanted, GROWTH * block.calls)

    def _forget(self) -> None:
        self.blocks = [[] for _ in self.sides]
        self.after = [[] for _ in self.sides]

    def quad(self) -> None:
        """Runs one more quad: two more pairs for each baseline."""
        order = [int(i) for i in self.rng.permutation(len(self.sides))]
        before = None
        for index in (*order, *reversed(order)):
            block = self._block(index, self.calls[index])
            self.blocks[index].append(block)
            if before == 0 and index:
                self.after[index].append(block)
            before = index
            self.spent_ms += self._took(index, block)

    def alone(self, index: int, blocks: int) -> list[TimedBlock]:
        """Blocks of one side without another in between; the first, which other work may overlap, does not count."""
        return [self._block(index, self.calls[index]) for _ in range(blocks + 1)][1:]

    def per_call(self, index: int) -> list[float]:
        """Device milliseconds of one call, an entry for each pair."""
        return [block.device_ms / block.calls for block in self.blocks[index]]

    def _block(self, index: int, calls: int) -> TimedBlock:
        block = self.sides[index].block(calls)
        if not sound(block):
            raise UnsoundClock(index, block)
        return block

    def _took(self, index: int, block: TimedBlock) -> float:
        """How long a block kept the device; by the parent's clock, which cannot be forged, where that is far longer."""
        overhead = self.overheads[index]
        return max(block.device_ms, block.wall_ms - overhead.host_ms - overhead.message_ms - GRACE_MS, 1e-6)


def grow(
    rounds: Rounds, first: int, budget_ms: float, enough: Callable[[int], str], *, most: int
) -> str:  # the reason for stopping
    """Runs quads and asks `enough(pairs)` after 4 and `first` of them, then each time their number has grown by half.

    Stops when it gives a reason, or with "budget" when the next quads would exceed `budget_ms`; never before 4 quads.
    """
    done, target = 0, min(4, first)
    while True:
        for _ in range(target - done):
            rounds.quad()
        done = target
        reason = enough(2 * done)
        if reason:
            return reason
        left = int((budget_ms - rounds.spent_ms) / (rounds.spent_ms / done))
        target = min(first if done < first else done + max(done // 2, 1), done + left, most)
        if target <= done:
            return "budget"


def latencies(sides: Sequence[TimedSide], rounds: int, calls: int, rng: np.random.Generator) -> list[float]:
    """Median end-to-end milliseconds of a call of each side, measured in turn; the first round warms up."""
    found: list[list[float]] = [[] for _ in sides]
    for turn in range(rounds + 1):
        for index in rng.permutation(len(sides)):
            got = sides[int(index)].latency(calls)
            if turn:
                found[int(index)] += got
    return [median(values) for values in found]
