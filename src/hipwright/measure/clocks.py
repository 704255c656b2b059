"""Checks the clocks of a timing: device events, the worker's host clock and the parent's clock must agree.

Rules over all blocks of a side (medians: one interrupted block proves nothing), after subtracting the overhead of empty
blocks:

1. device against host. Work hidden on another stream ends before the device-wide synchronize but after the events, so
the host's clock includes it and the events do not. They may differ by max(3 %, 3 us) of a block and two standard errors
of the (trusted) overhead.

2. host against the parent. A worker that runs hostile code can patch its own clocks and reply early or late, but not
the parent's clock. The time of a request beyond the block that the worker reports is compared pair by pair with a
baseline's, so a busy host delays both. Beyond rule 1's allowance they may differ by WAKE_MS and SIGMAS standard errors,
by the scatter of the baseline's messages.

3. the neighbours. Work that continues after a forged reply runs into the next side's block. A baseline's blocks right
after one of the candidate's may not be longer than its blocks alone, after the last round, by more than SLOWED of a
block plus COLD_MS (another process has just used the cache).

Rules 2 and 3 apply where host code of the candidate runs, the modelnew form; no other candidate could break them. A
worker could lengthen its empty blocks to have more subtracted, so no overhead counts beyond SHARE times the smallest
baseline's plus SLACK_MS: baselines run in trusted processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from statistics import median

from hipwright.device.timed_side import TimedBlock

RELATIVE = 0.03
ABSOLUTE_MS = 0.003
WAKE_MS = 0.3
SLOWED = 0.15
COLD_MS = 0.03
SIGMAS = 3.0
SHARE, SLACK_MS = 1.5, 0.003


@dataclass(frozen=True)
class Overhead:
    """The time of an empty block by each clock, in milliseconds; message_ms is the parent's time less the worker's.

    host_error_ms: standard error of host_ms. count: empty blocks.
    """

    device_ms: float
    host_ms: float
    message_ms: float
    host_error_ms: float = 0.0
    count: int = 1


@dataclass(frozen=True)
class Doubt:
    """Why a side's clocks are not trusted: one line, the rule's name and the numbers."""

    rule: str
    why: str
    numbers: dict[str, float]


def overhead_of(empty: Sequence[TimedBlock]) -> Overhead:
    """The overhead of a side from its empty blocks."""
    return Overhead(
        median(block.device_ms for block in empty),
        median(block.host_ms for block in empty),
        median(map(_message, empty)),
        _scatter([block.host_ms for block in empty]) / sqrt(len(empty)),
        len(empty),
    )


def believed(own: Overhead, trusted: Sequence[Overhead]) -> Overhead:
    """`own`, limited by the overhead of trusted sides (see the module)."""
    if not trusted:
        return own

    def most(mine: float, theirs: Iterable[float]) -> float:
        return min(mine, SHARE * min(theirs) + SLACK_MS)

    return Overhead(
        most(own.device_ms, (other.device_ms for other in trusted)),
        most(own.host_ms, (other.host_ms for other in trusted)),
        most(own.message_ms, (other.message_ms for other in trusted)),
        max(other.host_error_ms for other in trusted),
        own.count,
    )


def sound(block: TimedBlock) -> bool:
    """Whether all three figures are finite and positive."""
    return all(isfinite(ms) and ms > 0 for ms in (block.device_ms, block.host_ms, block.wall_ms))


def gap(blocks: Sequence[TimedBlock], overhead: Overhead) -> float:
    """(host - device) / device of a block without overhead, the median; positive where the events miss something."""
    return median(_hidden(block, overhead) / block.device_ms for block in blocks)


def hidden(blocks: Sequence[TimedBlock], overhead: Overhead, least_ms: float) -> Doubt | None:
    """Rule 1 over the timed blocks of one side. least_ms: the allowance for short blocks."""
    block_ms = median(block.device_ms for block in blocks)
    allowed = max(RELATIVE * block_ms, least_ms) + 2 * overhead.host_error_ms
    found = median(_hidden(block, overhead) for block in blocks)
    if abs(found) <= allowed:
        return None
    which = "work outside the device events" if found > 0 else "device events longer than the time that passed"
    numbers = {
        "block_ms": block_ms,
        "host_ms": median(block.host_ms for block in blocks),
        "wall_ms": median(block.wall_ms for block in blocks),
        "empty_host_ms": overhead.host_ms,
        "empty_device_ms": overhead.device_ms,
        "disagree_ms": found,
        "allowed_ms": allowed,
    }
    return Doubt("device and host", f"{which}: {1e3 * abs(found):.0f} us of a block of {block_ms:.3g} ms", numbers)


def forged(blocks: Sequence[TimedBlock], own: Overhead, base: Sequence[TimedBlock], its: Overhead) -> Doubt | None:
    """Rule 2: the candidate's blocks against those of a baseline taken in turn with them."""
    block_ms = median(block.device_ms for block in blocks)
    error = _scatter(list(map(_message, base))) * sqrt(2 / len(base) + 2 / its.count)
    allowed = max(RELATIVE * block_ms, ABSOLUTE_MS) + WAKE_MS + SIGMAS * error
    beside = median(_message(mine) - _message(other) for mine, other in zip(blocks, base, strict=True))
    late = beside - (own.message_ms - its.message_ms)
    if abs(late) <= allowed:
        return None
    numbers = {
        "host_ms": median(block.host_ms for block in blocks),
        "wall_ms": median(block.wall_ms for block in blocks),
        "message_ms": own.message_ms,
        "late_ms": late,
        "allowed_ms": allowed,
    }
    if late < 0:
        why = f"the reply came {-1e3 * late:.0f} us before the worker's own clock says that the block ended"
    else:
        why = f"the request took {1e3 * late:.0f} us longer than the worker's clock says"
    return Doubt("host and parent", why, numbers)


def slowed(after: Sequence[TimedBlock], alone: Sequence[TimedBlock]) -> Doubt | None:
    """Rule 3 for one baseline: its last blocks right after the candidate's against those alone, all of equal length."""
    shared, single = median(block.device_ms for block in after), median(block.device_ms for block in alone)
    allowed = SLOWED * single + COLD_MS
    if shared <= single + allowed:
        return None
    why = f"the baseline takes {100 * (shared / single - 1):.0f} % longer right after the candidate than alone"
    return Doubt("neighbours", why, {"after_candidate_ms": shared, "alone_ms": single, "allowed_ms": allowed})


def _message(block: TimedBlock) -> float:
    return block.wall_ms - block.host_ms


def _hidden(block: TimedBlock, overhead: Overhead) -> float:
    return (block.host_ms - overhead.host_ms) - (block.device_ms - overhead.device_ms)


def _scatter(values: Sequence[float]) -> float:
    """Standard error of a median times the square root of the count, from the median absolute deviation."""
    middle = median(values)
    return 1.25 * 1.48 * median(abs(value - middle) for value in values)
